//! What a SQLite error means to the user of a queue: wait and try again, or call a person.
//!
//! Texts are SQLite's own words for its codes, never its messages: a credential can't get in.

use rusqlite::ErrorCode;

use crate::queue::QueueError;

/// Turns an error of SQLite into what the caller should do.
pub(super) fn queue_error(error: &rusqlite::Error) -> QueueError {
    let rusqlite::Error::SqliteFailure(failure, _) = error else {
        return QueueError::Unusable(
            "the spool holds something that this program did not write there".into(),
        );
    };
    let text = rusqlite::ffi::code_to_str(failure.extended_code).to_owned();
    match failure.code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => QueueError::Unavailable(format!(
            "another process holds the spool for longer than {} s ({text})",
            super::file::BUSY_TIMEOUT.as_secs()
        )),
        ErrorCode::DiskFull => {
            QueueError::Unavailable(format!("no space is left for the spool ({text})"))
        }
        ErrorCode::SystemIoFailure
        | ErrorCode::OutOfMemory
        | ErrorCode::OperationInterrupted
        | ErrorCode::OperationAborted
        | ErrorCode::SchemaChanged
        | ErrorCode::FileLockingProtocolFailed => QueueError::Unavailable(text),
        ErrorCode::NotADatabase => {
            QueueError::Unusable(format!("the file is not a spool ({text})"))
        }
        ErrorCode::DatabaseCorrupt => {
            QueueError::Unusable(format!("the spool is damaged ({text})"))
        }
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen => {
            QueueError::Unusable(format!(
                "the spool and the folder it is in must be writable ({text})"
            ))
        }
        _ => QueueError::Unusable(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    #[test]
    fn what_passes_is_unavailable_and_what_stays_is_unusable() {
        for (code, passes) in [
            (ffi::SQLITE_BUSY, true),
            (ffi::SQLITE_BUSY_SNAPSHOT, true),
            (ffi::SQLITE_LOCKED, true),
            (ffi::SQLITE_FULL, true),
            (ffi::SQLITE_IOERR_FSYNC, true),
            (ffi::SQLITE_CORRUPT, false),
            (ffi::SQLITE_NOTADB, false),
            (ffi::SQLITE_READONLY, false),
            (ffi::SQLITE_READONLY_DBMOVED, false),
            (ffi::SQLITE_CANTOPEN, false),
        ] {
            let error = rusqlite::Error::SqliteFailure(
                ffi::Error::new(code),
                Some("argument=https://h/o?X-Goog-Signature=SECRET".into()),
            );
            let got = queue_error(&error);
            assert_eq!(matches!(got, QueueError::Unavailable(_)), passes, "{code}: {got}");
            assert!(!got.to_string().contains("SECRET"), "{got}");
        }
    }
}
