//! Where the files that a configuration names are read: in the file system, or, for a path that is
//! written `gs://BUCKET/OBJECT`, wherever the [`Remote`] that was given has them.
//!
//! Such a path stays a [`Path`], since the farm's files below a folder are named the same way in
//! both. Leaves out what is in the files, and when they are looked at.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// How the paths of Cloud Storage objects begin.
pub const SCHEME: &str = "gs://";

/// Files that are not in the file system. Its calls wait, as the file system's do.
pub trait Remote: Send + Sync {
    /// Reads the whole file.
    ///
    /// # Errors
    /// Why it can't be read now. The text is the same for the same trouble.
    fn read(&self, address: &str) -> io::Result<Vec<u8>>;

    /// Puts `new` in the place of `old`.
    ///
    /// # Errors
    /// Why not, such as that the file no longer holds `old`.
    fn replace(&self, address: &str, old: &[u8], new: &[u8]) -> io::Result<()>;
}

/// Reads files. Without a [`Remote`] only those of the file system.
#[derive(Clone, Default)]
pub struct Files(Option<Arc<dyn Remote>>);

impl Files {
    /// Reads files wherever they are.
    pub fn with(remote: Arc<dyn Remote>) -> Self {
        Self(Some(remote))
    }

    /// Reads a whole file.
    ///
    /// # Errors
    /// As the file system or the remote says.
    pub fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        match remote_address(path) {
            Some(address) => self.remote(address)?.read(address),
            None => std::fs::read(path),
        }
    }

    /// Reads a whole file as text.
    ///
    /// # Errors
    /// As [`read`](Self::read), and where it is no text.
    pub fn read_text(&self, path: &Path) -> io::Result<String> {
        text(self.read(path)?)
    }

    /// What holds the file at `address`.
    ///
    /// # Errors
    /// There is no remote.
    pub fn remote(&self, address: &str) -> io::Result<&dyn Remote> {
        let none = || io::Error::other(format!("{address} can't be read here: it is no file"));
        self.0.as_deref().ok_or_else(none)
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Files({})", if self.0.is_some() { "all" } else { "local" })
    }
}

/// The address of a file that is not in the file system.
pub fn remote_address(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| text.starts_with(SCHEME))
}

/// The text that a file holds.
///
/// # Errors
/// It is none.
pub fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

#[cfg(test)]
pub mod testing {
    //! A remote in memory.

    use std::collections::BTreeMap;
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// Files by address; while it is away, none can be read.
    #[derive(Default)]
    pub struct InMemory {
        files: Mutex<BTreeMap<String, Vec<u8>>>,
        away: Mutex<bool>,
    }

    impl InMemory {
        /// Puts a file there.
        pub fn put(&self, address: &str, text: &str) {
            let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
            files.insert(address.to_owned(), text.into());
        }

        /// Goes away, or comes back.
        pub fn set_away(&self, away: bool) {
            *self.away.lock().unwrap_or_else(PoisonError::into_inner) = away;
        }
    }

    impl Remote for InMemory {
        fn read(&self, address: &str) -> io::Result<Vec<u8>> {
            if *self.away.lock().unwrap_or_else(PoisonError::into_inner) {
                return Err(io::Error::other("the remote is away"));
            }
            let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
            files.get(address).cloned().ok_or_else(|| io::Error::other("it is not there"))
        }

        fn replace(&self, address: &str, old: &[u8], new: &[u8]) -> io::Result<()> {
            if self.read(address)? != old {
                return Err(io::Error::other("somebody else changed it in the meantime"));
            }
            let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
            files.insert(address.to_owned(), new.to_vec());
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_below_a_remote_folder_is_remote_and_spelt_as_written() {
        let folder = Path::new("gs://b/farm/");
        assert_eq!(
            remote_address(&folder.join("batch/batch.yaml")),
            Some("gs://b/farm/batch/batch.yaml")
        );
        assert_eq!(remote_address(&Path::new("gs://b").join("p")), Some("gs://b/p"));
        assert_eq!(remote_address(Path::new("/gs://b/p")), None);
    }

    #[test]
    fn without_a_remote_its_files_are_an_error_and_never_looked_for_in_the_file_system() {
        let error = Files::default().read(Path::new("gs://b/o")).expect_err("no remote");
        assert_eq!(error.to_string(), "gs://b/o can't be read here: it is no file");
        let remote = Arc::new(testing::InMemory::default());
        remote.put("gs://b/o", "text");
        let files = Files::with(remote);
        assert_eq!(files.read_text(Path::new("gs://b/o")).expect("read"), "text");
    }
}
