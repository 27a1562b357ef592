//! The spool's tables, and how a file of an older version becomes one of this version.
//!
//! The version is SQLite's `user_version`: how many of [`STEPS`] were taken. A step, once released,
//! never changes; a new version appends one.

use rusqlite::{Connection, TransactionBehavior};

use super::fault::queue_error;
use crate::queue::QueueError;

/// Marks the file as ours (SQLite's `application_id`): "kbsp".
pub(super) const APPLICATION_ID: i32 = 0x6b62_7370;

pub(super) const STEPS: &[&str] = &[VERSION_1];

/// Times are microseconds since 1970. `due_at` is when a message may be leased: its not-before,
/// its release's delay, or its lease's deadline, so that one index answers what to lease next.
/// A message's id is in one of the two tables only.
const VERSION_1: &str = "
CREATE TABLE message (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    attributes TEXT NOT NULL,
    published_at INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    token BLOB,
    deliveries INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    attempts_allowed INTEGER,
    timeout_s INTEGER
) STRICT;
CREATE INDEX message_due ON message (due_at);
CREATE INDEX message_published ON message (published_at);
CREATE TABLE quarantine (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    attributes TEXT NOT NULL,
    published_at INTEGER NOT NULL,
    deliveries INTEGER NOT NULL,
    attempts_allowed INTEGER,
    timeout_s INTEGER,
    reason TEXT NOT NULL,
    detail TEXT NOT NULL,
    rejected_at INTEGER NOT NULL
) STRICT;
CREATE INDEX quarantine_rejected ON quarantine (rejected_at);
";

/// Refuses what is no spool before anything in it is changed.
pub(super) fn recognise(connection: &Connection) -> Result<(), QueueError> {
    let read = || {
        // In this order: another process may be making the spool between the two, and sets both in
        // one transaction. Tables that were there are then never without their mark.
        let tables: i64 =
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0))?;
        let application: i32 =
            connection.pragma_query_value(None, "application_id", |r| r.get(0))?;
        Ok((application, tables))
    };
    match read().map_err(|e| queue_error(&e))? {
        (APPLICATION_ID, _) | (0, 0) => Ok(()),
        _ => Err(QueueError::Unusable("the file is another program's SQLite database".into())),
    }
}

/// Makes the tables, or brings those of an older version up to this one.
pub(super) fn bring_up(connection: &mut Connection) -> Result<(), QueueError> {
    migrate(connection, STEPS)
}

fn migrate(connection: &mut Connection, steps: &[&str]) -> Result<(), QueueError> {
    if version(connection)? == steps.len() {
        return Ok(());
    }
    let take = |connection: &mut Connection| {
        // The version is read again under the lock: another process may have been faster.
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let from = tx.pragma_query_value(None, "user_version", |r| r.get::<_, i64>(0))?;
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        for step in steps.get(from..).unwrap_or_default() {
            tx.execute_batch(step)?;
        }
        if from < steps.len() {
            tx.pragma_update(None, "application_id", APPLICATION_ID)?;
            tx.pragma_update(None, "user_version", steps.len() as i64)?;
        }
        tx.commit()
    };
    take(connection).map_err(|e| queue_error(&e))?;
    match version(connection)? {
        newer if newer > steps.len() => Err(QueueError::Unusable(format!(
            "the spool's schema version is {newer}, but this katabatch knows {} at most; use the \
             katabatch that wrote it, or a newer one",
            steps.len()
        ))),
        _ => Ok(()),
    }
}

fn version(connection: &Connection) -> Result<usize, QueueError> {
    connection
        .pragma_query_value(None, "user_version", |r| r.get::<_, i64>(0))
        .map(|version| usize::try_from(version).unwrap_or(usize::MAX))
        .map_err(|e| queue_error(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Connection {
        Connection::open_in_memory().expect("a database")
    }

    #[test]
    fn an_older_spool_is_brought_up_with_its_messages() {
        let mut connection = memory();
        bring_up(&mut connection).expect("version 1");
        connection
            .execute(
                "INSERT INTO message (id, attributes, published_at, due_at) VALUES ('a', '{}', 1, 1)",
                [],
            )
            .expect("a message");
        let next = [VERSION_1, "ALTER TABLE message ADD COLUMN priority INTEGER DEFAULT 7"];
        migrate(&mut connection, &next).expect("version 2");
        migrate(&mut connection, &next).expect("version 2 again");
        let priority: i64 = connection
            .query_row("SELECT priority FROM message WHERE id = 'a'", [], |r| r.get(0))
            .expect("the message");
        assert_eq!((priority, version(&connection)), (7, Ok(2)));
    }

    #[test]
    fn a_step_that_fails_changes_nothing() {
        let mut connection = memory();
        bring_up(&mut connection).expect("version 1");
        let broken = [VERSION_1, "ALTER TABLE message ADD COLUMN x INTEGER; no such statement"];
        assert!(migrate(&mut connection, &broken).is_err());
        assert_eq!(version(&connection), Ok(1));
        assert!(connection.prepare("SELECT x FROM message").is_err());
    }

    #[test]
    fn a_newer_spool_is_refused_and_left_alone() {
        let mut connection = memory();
        migrate(&mut connection, &[VERSION_1, "CREATE TABLE further (x INTEGER)"]).expect("newer");
        let error = bring_up(&mut connection).expect_err("refused");
        assert!(matches!(&error, QueueError::Unusable(text) if text.contains("version is 2")));
        assert_eq!(version(&connection), Ok(2));
    }

    #[test]
    fn another_programs_database_is_refused() {
        let connection = memory();
        connection.execute_batch("CREATE TABLE theirs (x)").expect("a table");
        assert!(matches!(recognise(&connection), Err(QueueError::Unusable(_))));
    }
}
