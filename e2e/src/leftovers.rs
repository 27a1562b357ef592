//! What a run that died left behind: its processes and its folder. Every run holds a
//! lock in its folder while it lives, so a folder whose lock is free has no owner.

use std::env;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;

const PREFIX: &str = "katabatch-e2e-";
const LOCK: &str = "owner.lock";

/// The folder of one run, with the lock that says that the run lives.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    _lock: File,
    _temporary: Option<TempDir>,
}

impl RunDir {
    /// A fresh folder under the system's temporary one, removed with this value; or
    /// `chosen`, which stays. Ends what dead runs left running first.
    ///
    /// # Errors
    /// When the folder can't be made, or `chosen` belongs to a run that lives.
    pub fn claim(chosen: Option<&Path>) -> Result<Self> {
        sweep(&env::temp_dir());
        let (path, temporary) = match chosen {
            Some(path) => {
                fs::create_dir_all(path).with_context(|| format!("create {}", path.display()))?;
                let path =
                    path.canonicalize().with_context(|| format!("resolve {}", path.display()))?;
                (path, None)
            }
            None => {
                let made = tempfile::Builder::new()
                    .prefix(PREFIX)
                    .tempdir()
                    .context("create a folder for this run")?;
                (made.path().to_path_buf(), Some(made))
            }
        };
        let lock = match temporary {
            Some(_) => lock_new(&path)?,
            None => lock_existing(&path)?,
        };
        end_processes_of(&path);
        Ok(Self { path, _lock: lock, _temporary: temporary })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Locked before it has its name: a sweep never sees it free.
fn lock_new(dir: &Path) -> Result<File> {
    let unnamed = dir.join("owner.new");
    let lock = File::create(&unnamed).context("create the run's lock")?;
    lock.lock().context("lock a new file")?;
    fs::rename(&unnamed, dir.join(LOCK)).context("name the run's lock")?;
    Ok(lock)
}

fn lock_existing(dir: &Path) -> Result<File> {
    let lock = File::create(dir.join(LOCK)).context("create the run's lock")?;
    if lock.try_lock().is_err() {
        bail!(
            "{} is in use by another control plane; hint: stop that one, or choose another --dir",
            dir.display()
        );
    }
    Ok(lock)
}

/// Ends and removes what dead runs left under `base`. Best effort: what can't be read
/// is somebody else's.
fn sweep(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        let ours = path
            .file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.starts_with(PREFIX));
        // A folder without a lock is one that a run is making right now.
        let Some(lock) = ours.then(|| File::open(path.join(LOCK)).ok()).flatten() else {
            continue;
        };
        match lock.try_lock() {
            Ok(()) => {
                end_processes_of(&path);
                let _ = fs::remove_dir_all(&path);
            }
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {}
        }
    }
}

/// Kills the process groups named in `dir`'s pid files, if they are still the ones
/// that were started: every component's command line names its folder.
fn end_processes_of(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_none_or(|extension| extension != "pid") {
            continue;
        }
        let pid = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<i32>().ok());
        if let Some(pid) = pid.filter(|pid| command_line_names(*pid, dir)) {
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = fs::remove_file(&path);
    }
}

fn command_line_names(pid: i32, dir: &Path) -> bool {
    let Some(dir) = dir.to_str() else {
        return false;
    };
    fs::read(format!("/proc/{pid}/cmdline"))
        .is_ok_and(|line| String::from_utf8_lossy(&line).contains(dir))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    fn sleeper(argument: &str) -> std::process::Child {
        Command::new("sh")
            .args(["-c", "read line", argument])
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("sh starts")
    }

    #[test]
    fn a_dead_run_is_ended_and_removed() {
        let base = tempfile::tempdir().expect("a folder");
        let dead = base.path().join("katabatch-e2e-dead");
        fs::create_dir(&dead).expect("a folder");
        File::create(dead.join(LOCK)).expect("a lock");
        let mut child = sleeper(dead.to_str().expect("UTF-8"));
        fs::write(dead.join("etcd.pid"), child.id().to_string()).expect("a pid file");

        sweep(base.path());

        assert!(!child.wait().expect("it ends").success());
        assert!(!dead.exists());
    }

    #[test]
    fn a_live_run_and_a_stranger_with_its_pid_are_left_alone() {
        let base = tempfile::tempdir().expect("a folder");
        let live = base.path().join("katabatch-e2e-live");
        fs::create_dir(&live).expect("a folder");
        let lock = File::create(live.join(LOCK)).expect("a lock");
        lock.lock().expect("locked");
        let dead = base.path().join("katabatch-e2e-dead");
        fs::create_dir(&dead).expect("a folder");
        File::create(dead.join(LOCK)).expect("a lock");
        let mut stranger = sleeper("stranger");
        fs::write(dead.join("etcd.pid"), stranger.id().to_string()).expect("a pid file");

        sweep(base.path());

        assert!(live.exists());
        assert!(stranger.try_wait().expect("asked").is_none());
        drop(stranger.stdin.take());
        stranger.wait().expect("it ends when its input does");
    }
}
