//! Leadership where there is no cluster: an exclusive lock on a file of this machine.
//!
//! The operating system gives the lock up when the process ends, however it ends, so that nothing
//! needs to expire. It says nothing about other machines: who shares backends between machines
//! needs a Lease.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;

use super::Leadership;
use crate::clock::Clock;

/// How often a lock that another process holds is tried again.
const AGAIN: Duration = Duration::from_millis(500);

/// A lock file that this process wants to hold.
pub struct LockFile {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    held: OnceLock<(File, Timestamp)>,
}

impl LockFile {
    /// A lock on the file at `path`, which is made where it is not there. Not held yet.
    pub fn new(path: &Path, clock: Arc<dyn Clock>) -> Self {
        Self { path: path.to_owned(), clock, held: OnceLock::new() }
    }

    /// Takes the lock if no other process holds it.
    ///
    /// # Errors
    /// The file can't be made or locked at all.
    pub fn try_hold(&self) -> io::Result<bool> {
        if self.held.get().is_some() {
            return Ok(true);
        }
        let mut options = OpenOptions::new();
        let file = options.read(true).append(true).create(true).mode(0o600).open(&self.path)?;
        match file.try_lock() {
            Ok(()) => {
                // Another thread of this process may have been faster; then its file stays.
                let _ = self.held.set((file, self.clock.wall()));
                Ok(true)
            }
            Err(std::fs::TryLockError::WouldBlock) => Ok(false),
            Err(std::fs::TryLockError::Error(error)) => Err(error),
        }
    }

    /// Takes the lock, however long that takes, then waits for ever: dropping this keeps it.
    ///
    /// # Errors
    /// As [`try_hold`](Self::try_hold).
    pub async fn run(&self) -> io::Result<()> {
        let mut said = false;
        while !self.try_hold()? {
            if !std::mem::replace(&mut said, true) {
                let lock = self.path.display().to_string();
                tracing::warn!(
                    lock,
                    "nothing is created yet: another process of this scheduler leads"
                );
            }
            tokio::time::sleep(AGAIN).await;
        }
        std::future::pending().await
    }
}

impl Leadership for LockFile {
    fn may_create(&self) -> bool {
        self.held.get().is_some()
    }

    fn since(&self) -> Option<Timestamp> {
        self.held.get().map(|(_, since)| *since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    #[test]
    fn one_holds_the_lock_and_the_next_one_when_it_is_gone() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("lock");
        let (first, second) = (
            LockFile::new(&path, Arc::new(SystemClock)),
            LockFile::new(&path, Arc::new(SystemClock)),
        );
        assert!(!first.may_create() && first.since().is_none());
        assert!(first.try_hold().expect("a lock") && first.may_create());
        assert!(!second.try_hold().expect("an answer") && !second.may_create());
        assert!(first.try_hold().expect("again is the same as once"));
        drop(first);
        assert!(second.try_hold().expect("a lock") && second.since().is_some());
    }
}
