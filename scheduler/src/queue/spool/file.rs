//! The spool's file: made so that only its owner can read it, opened so that it survives anything.
//!
//! Leaves out what is in the file: that is [`schema`](super::schema)'s.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::fault::queue_error;
use super::schema;
use crate::queue::QueueError;

/// How long one transaction waits for those of other processes. Theirs take milliseconds; a put of
/// many lines takes them a chunk at a time.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Messages hold signed URLs, which are credentials.
const MODE: u32 = 0o600;

/// Opens the spool at `path`, making it if there is none.
///
/// # Errors
/// [`QueueError::Unusable`]: not a spool, a newer one, or no right to use it.
/// [`QueueError::Unavailable`]: another process holds it.
pub(super) fn open(path: &Path) -> Result<Connection, QueueError> {
    make(path)?;
    let mut connection = connect(path).map_err(|e| queue_error(&e))?;
    schema::recognise(&connection)?;
    make_durable(&connection)?;
    schema::bring_up(&mut connection)?;
    // SQLite gives its -wal and -shm files the main file's mode; those of a copy may be wider.
    for file in with_companions(path) {
        keep_private(&file)?;
    }
    Ok(connection)
}

/// A further connection, for reading only, to a spool that is open.
pub(super) fn open_reader(path: &Path) -> Result<Connection, QueueError> {
    let connect = || {
        let connection = connect(path)?;
        connection.pragma_update(None, "query_only", true)?;
        Ok(connection)
    };
    connect().map_err(|e| queue_error(&e))
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    // No CREATE: SQLite would make the file under the umask, readable by others for a moment.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(32);
    // Temporary files would hold messages too, in a folder and with a mode of their own.
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // Tables and triggers of a crafted file get no say.
    connection.pragma_update(None, "trusted_schema", false)?;
    Ok(connection)
}

/// A write-ahead log with `synchronous = FULL`: every commit is on the disk before it is answered,
/// so an acked put outlives a power cut, not only `kill -9`. NORMAL would lose the commits since
/// the last checkpoint with the power (SQLite, "PRAGMA synchronous"). What a sync costs is shared
/// by all who commit at once.
fn make_durable(connection: &Connection) -> Result<(), QueueError> {
    let fault = |e| queue_error(&e);
    let mode = to_wal(connection).map_err(fault)?;
    if mode != "wal" {
        return Err(QueueError::Unusable(
            "the file system can't hold a write-ahead log; put the spool on a local disk".into(),
        ));
    }
    connection.pragma_update(None, "synchronous", "FULL").map_err(fault)?;
    // After a put of a million lines the log shrinks again.
    connection.pragma_update(None, "journal_size_limit", 16 << 20).map_err(fault)
}

/// Switches to the write-ahead log, once in a file's life. SQLite does not wait by itself for
/// another process that is switching too.
fn to_wal(connection: &Connection) -> rusqlite::Result<String> {
    let mut tries = 100;
    loop {
        let switched = connection
            .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
        match switched {
            Err(error) if tries > 0 && is_busy(&error) => {
                tries -= 1;
                std::thread::sleep(BUSY_TIMEOUT / 100);
            }
            other => return other,
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
}

/// Sees to it that there is a file, private from its first moment.
fn make(path: &Path) -> Result<(), QueueError> {
    let refuse = |error: &io::Error| match error.kind() {
        ErrorKind::NotFound => {
            unusable(path, "the folder does not exist; make it, or name another")
        }
        _ => unusable(path, &format!("can't be made or opened: {error}")),
    };
    match OpenOptions::new().write(true).create_new(true).mode(MODE).open(path) {
        Ok(file) => {
            file.set_permissions(Permissions::from_mode(MODE)).map_err(|e| refuse(&e))?;
            sync_folder(path).map_err(|e| refuse(&e))
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let found = fs::metadata(path).map_err(|e| refuse(&e))?;
            if found.is_file() { keep_private(path) } else { Err(unusable(path, "is no file")) }
        }
        Err(error) => Err(refuse(&error)),
    }
}

/// A file's path, and which file was there.
pub(super) struct Place {
    path: PathBuf,
    file: (u64, u64),
}

impl Place {
    /// Where the file at `path` is now.
    pub(super) fn of(path: &Path) -> Result<Self, QueueError> {
        let gone = |e: io::Error| unusable(path, &e.to_string());
        let path = std::path::absolute(path).map_err(gone)?;
        let file = fs::metadata(&path).map(|found| (found.dev(), found.ino())).map_err(gone)?;
        Ok(Self { path, file })
    }

    /// Whether the same file is still there.
    pub(super) fn check(&self) -> Result<(), QueueError> {
        let there = fs::metadata(&self.path).map(|found| (found.dev(), found.ino()));
        match there {
            Ok(there) if there == self.file => Ok(()),
            _ => Err(unusable(&self.path, "was moved, replaced or deleted while in use")),
        }
    }
}

/// A new file outlives a power cut only once its folder is on the disk.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// Takes away what others than the owner may do with `path`, if it is there.
fn keep_private(path: &Path) -> Result<(), QueueError> {
    let mode = match fs::metadata(path) {
        Ok(found) => found.permissions().mode() & 0o777,
        Err(_) => return Ok(()),
    };
    if mode & 0o077 == 0 {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(mode & !0o077)).map_err(|_| {
        unusable(path, &format!("its mode is {mode:o}, but it holds credentials; make it 600"))
    })
}

/// The main file and those that SQLite keeps beside it.
pub(super) fn with_companions(path: &Path) -> [PathBuf; 3] {
    let with = |suffix: &str| {
        let mut name = OsString::from(path);
        name.push(suffix);
        PathBuf::from(name)
    };
    [path.to_owned(), with("-wal"), with("-shm")]
}

fn unusable(path: &Path, problem: &str) -> QueueError {
    QueueError::Unusable(format!("{}: {problem}", path.display()))
}
