//! Reloads what comes from files when they change, and keeps the last good state when they break.
//!
//! Files are polled and compared by content, so that editors, copies and the symlink swaps of a
//! mounted ConfigMap all count alike, and nothing depends on inotify or a file system's clock.
//! Which files matter is found out by loading: each file read through [`Sources`] is watched from
//! then on. When to poll is the caller's; where a file lies is [`Files`]'.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest, Sha256};
use tokio::sync::watch;

use super::files::{Files, text};

/// The files that one load has read, and what they held.
#[derive(Debug, Default)]
pub struct Sources {
    files: Files,
    seen: Vec<Seen>,
}

#[derive(Debug)]
struct Seen {
    path: PathBuf,
    /// Of its content; `None`: it could not be read.
    digest: Option<[u8; 32]>,
}

fn digest(content: &io::Result<Vec<u8>>) -> Option<[u8; 32]> {
    content.as_ref().ok().map(|bytes| Sha256::digest(bytes).into())
}

impl Sources {
    /// None yet; `files` is where they are read.
    pub fn of(files: &Files) -> Self {
        Self { files: files.clone(), seen: Vec::new() }
    }

    /// Reads a file as text, and remembers that it matters.
    ///
    /// # Errors
    /// As the file system says; it matters none the less.
    pub fn read(&mut self, path: &Path) -> io::Result<String> {
        let bytes = self.files.read(path);
        self.seen.push(Seen { path: path.to_owned(), digest: digest(&bytes) });
        text(bytes?)
    }

    fn changed(&self) -> bool {
        self.seen.iter().any(|seen| digest(&self.files.read(&seen.path)) != seen.digest)
    }
}

/// What a poll found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reload {
    /// The files are as they were.
    Unchanged,
    /// They changed, and the new state is in use.
    Reloaded,
    /// They changed and can't be used: the last good state stays. Said once for each change.
    Failed(String),
}

type Load<T> = Box<dyn Fn(&mut Sources) -> Result<T, String> + Send + Sync>;

/// A value that is loaded from files, and loaded again when they change.
pub struct Watched<T> {
    files: Files,
    load: Load<T>,
    current: watch::Sender<Arc<T>>,
    state: Mutex<State>,
}

struct State {
    sources: Sources,
    failure: Option<String>,
}

impl<T> Watched<T> {
    /// Loads for the first time, from the file system.
    ///
    /// # Errors
    /// As `load`: there is no last good state yet.
    pub fn open(
        load: impl Fn(&mut Sources) -> Result<T, String> + Send + Sync + 'static,
    ) -> Result<Self, String> {
        Self::open_in(Files::default(), load)
    }

    /// As [`open`](Self::open), from `files`.
    ///
    /// # Errors
    /// As `load`.
    pub fn open_in(
        files: Files,
        load: impl Fn(&mut Sources) -> Result<T, String> + Send + Sync + 'static,
    ) -> Result<Self, String> {
        let mut sources = Sources::of(&files);
        let value = load(&mut sources)?;
        Ok(Self {
            files,
            load: Box::new(load),
            current: watch::Sender::new(Arc::new(value)),
            state: Mutex::new(State { sources, failure: None }),
        })
    }

    /// The last good state.
    pub fn get(&self) -> Arc<T> {
        self.current.borrow().clone()
    }

    /// The last good state, now and as it changes.
    pub fn subscribe(&self) -> watch::Receiver<Arc<T>> {
        self.current.subscribe()
    }

    /// Why the files can't be used, while they can't.
    pub fn failure(&self) -> Option<String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).failure.clone()
    }

    /// Looks at the files, and loads them if they changed. Reads the file system: keep it off
    /// threads that must not wait.
    pub fn poll(&self) -> Reload {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.sources.changed() {
            return Reload::Unchanged;
        }
        let mut sources = Sources::of(&self.files);
        let loaded = (self.load)(&mut sources);
        state.sources = sources;
        match loaded {
            Ok(value) => {
                state.failure = None;
                self.current.send_replace(Arc::new(value));
                Reload::Reloaded
            }
            Err(error) => {
                let said = state.failure.replace(error.clone());
                if said.as_ref() == Some(&error) {
                    Reload::Unchanged
                } else {
                    Reload::Failed(error)
                }
            }
        }
    }
}

impl<T> fmt::Debug for Watched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("failure", &self.failure()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(path: &Path) -> Watched<u32> {
        let path = path.to_owned();
        Watched::open(move |sources| {
            let text = sources.read(&path).map_err(|e| e.to_string())?;
            text.trim().parse().map_err(|_| format!("`{}` is no number", text.trim()))
        })
        .expect("a number")
    }

    #[test]
    fn a_bad_reload_keeps_the_last_good_state_and_says_so_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("n");
        std::fs::write(&file, "1").expect("written");
        let watched = number(&file);
        assert_eq!(watched.poll(), Reload::Unchanged);

        std::fs::write(&file, "x").expect("written");
        assert_eq!(watched.poll(), Reload::Failed("`x` is no number".into()));
        assert_eq!(watched.poll(), Reload::Unchanged);
        assert_eq!((*watched.get(), watched.failure().is_some()), (1, true));

        std::fs::write(&file, "2").expect("written");
        assert_eq!(watched.poll(), Reload::Reloaded);
        assert_eq!((*watched.get(), watched.failure()), (2, None));

        std::fs::remove_file(&file).expect("removed");
        assert!(matches!(watched.poll(), Reload::Failed(_)));
        assert_eq!(*watched.get(), 2);
    }

    #[test]
    fn a_remote_that_is_away_leaves_the_last_good_state_and_is_said_once() {
        use crate::config::files::testing::InMemory;
        let remote = Arc::new(InMemory::default());
        remote.put("gs://b/n", "1");
        let watched = Watched::open_in(Files::with(remote.clone()), |sources| {
            sources.read(Path::new("gs://b/n")).map_err(|e| e.to_string())
        });
        let watched = watched.expect("a text");
        remote.set_away(true);
        assert_eq!(watched.poll(), Reload::Failed("the remote is away".into()));
        assert_eq!(watched.poll(), Reload::Unchanged);
        assert_eq!((watched.get().as_str(), watched.failure().is_some()), ("1", true));
        remote.put("gs://b/n", "2");
        remote.set_away(false);
        assert_eq!(watched.poll(), Reload::Reloaded);
        assert_eq!((watched.get().as_str(), watched.failure()), ("2", None));
    }

    #[test]
    fn a_file_that_is_put_back_as_it_was_ends_the_failure() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("n");
        std::fs::write(&file, "1").expect("written");
        let watched = number(&file);
        std::fs::write(&file, "x").expect("written");
        assert!(matches!(watched.poll(), Reload::Failed(_)));
        std::fs::write(&file, "1").expect("written");
        assert_eq!(watched.poll(), Reload::Reloaded);
        assert_eq!(watched.failure(), None);
    }

    /// As the kubelet updates a mounted ConfigMap: `file -> ..data/file`, `..data -> ..version`,
    /// and the latter link is renamed over.
    #[test]
    fn the_symlink_swap_of_a_config_map_is_a_change() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        for (version, text) in [("..1", "1"), ("..2", "2")] {
            std::fs::create_dir(at(version)).expect("a directory");
            std::fs::write(at(version).join("n"), text).expect("written");
        }
        symlink("..1", at("..data")).expect("a link");
        symlink("..data/n", at("n")).expect("a link");
        let watched = number(&at("n"));
        assert_eq!(watched.poll(), Reload::Unchanged);

        symlink("..2", at("..data_tmp")).expect("a link");
        std::fs::rename(at("..data_tmp"), at("..data")).expect("swapped");
        assert_eq!(watched.poll(), Reload::Reloaded);
        assert_eq!(*watched.get(), 2);
    }
}
