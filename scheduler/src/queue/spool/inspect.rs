//! Looks at a spool's file without opening it as one: nothing is made, changed or waited for.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::schema::{APPLICATION_ID, STEPS};
use crate::queue::QueueError;

/// What a file looks like from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// There is none yet.
    Absent,
    /// A spool, or a file that will be one.
    Spool {
        /// Others than its owner may read it; opening it will end that.
        readable_by_others: bool,
    },
}

/// The header of an SQLite file (<https://www.sqlite.org/fileformat2.html#the_database_header>).
const HEADER: usize = 100;
const MAGIC: &[u8] = b"SQLite format 3\0";
const USER_VERSION: usize = 60;
const APPLICATION: usize = 68;

/// Looks at the file at `path`.
///
/// # Errors
/// [`QueueError::Unusable`]: it can't be used as a spool, and why.
pub fn inspect(path: &Path) -> Result<Look, QueueError> {
    let unusable =
        |problem: &str| Err(QueueError::Unusable(format!("{}: {problem}", path.display())));
    // Opened for writing, but not written: whoever runs `check` shall be able to use it.
    let mut file = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            return match folder.is_none_or(Path::is_dir) {
                true => Ok(Look::Absent),
                false => unusable("the folder does not exist; make it, or name another"),
            };
        }
        Err(error) => return unusable(&format!("can't be opened: {error}")),
    };
    let mut header = Vec::new();
    let read = (&mut file).take(HEADER as u64).read_to_end(&mut header);
    if let Err(error) = read {
        return unusable(&format!("can't be read: {error}"));
    }
    let number = |at: usize| {
        let bytes = header.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, i32::from_be_bytes)
    };
    if !header.is_empty() && !header.starts_with(MAGIC) {
        return unusable("is no spool");
    }
    if !matches!(number(APPLICATION), 0 | APPLICATION_ID) {
        return unusable("is another program's SQLite database");
    }
    if usize::try_from(number(USER_VERSION)).unwrap_or(usize::MAX) > STEPS.len() {
        return unusable("was written by a newer katabatch; use that one");
    }
    let mode = fs::metadata(path).map(|found| found.permissions().mode()).unwrap_or(0o600);
    Ok(Look::Spool { readable_by_others: mode & 0o077 != 0 })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::SystemClock;
    use crate::queue::spool::Spool;

    #[test]
    fn looking_changes_nothing_and_tells_a_spool_from_other_files() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| dir.path().join(name);
        assert_eq!(inspect(&path("none")), Ok(Look::Absent));
        assert!(inspect(&path("no/folder")).is_err());
        fs::write(path("text"), "x".repeat(200)).expect("written");
        assert!(inspect(&path("text")).is_err());
        fs::write(path("empty"), "").expect("written");
        assert_eq!(inspect(&path("empty")), Ok(Look::Spool { readable_by_others: true }));
        let made = path("spool");
        drop(Spool::open(&made, "q".into(), Arc::new(SystemClock)).expect("a spool"));
        assert_eq!(inspect(&made), Ok(Look::Spool { readable_by_others: false }));
        assert_eq!(fs::metadata(path("empty")).expect("it").len(), 0);
        assert!(!path("none").exists());
    }
}
