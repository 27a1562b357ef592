//! The ledger's file: SQLite, private to its owner, of a bounded size. Nothing depends on it.

use std::fs;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags, params};

use super::memory::{ENDS, News};
use super::record::{EndRecord, Record};
use crate::domain::name::{JobType, TaskHash};
use crate::domain::task::WorkloadKey;

/// Marks the file as ours (SQLite's `application_id`): "kblg".
const APPLICATION_ID: i32 = 0x6b62_6c67;
/// For how long an end is remembered as told, in seconds: longer than a finished Job is kept.
const KNOWN_SECONDS: i64 = 27 * 3600;
/// The most ends in the file, tails included: 2 GiB at the very most, and a few MB as a rule.
const ENDS_IN_ALL: usize = 30_000;
/// The most workloads that are read.
const WORKLOADS: usize = 5_000;

/// Logs may hold what credentials' shapes don't tell.
const MODE: u32 = 0o600;

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS workload (
    command TEXT NOT NULL, job_type TEXT NOT NULL, at INTEGER NOT NULL, record TEXT NOT NULL,
    PRIMARY KEY (job_type, command)
) STRICT;
CREATE TABLE IF NOT EXISTS ended (
    seq INTEGER PRIMARY KEY,
    command TEXT NOT NULL, job_type TEXT NOT NULL, record TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS ended_workload ON ended (job_type, command, seq);
CREATE TABLE IF NOT EXISTS known (
    task BLOB NOT NULL, attempt INTEGER NOT NULL, at INTEGER NOT NULL,
    PRIMARY KEY (task, attempt)
) STRICT, WITHOUT ROWID;
";

/// Why the file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It can't be made or opened.
    #[error("{0}: {1}")]
    File(String, std::io::Error),
    /// SQLite says so.
    #[error("{0}: {1}")]
    Sqlite(String, rusqlite::Error),
    /// It is something else.
    #[error("{0} is another program's file: name another as ledger.path")]
    NotOurs(String),
}

/// The open file.
pub struct Store {
    path: PathBuf,
    connection: Connection,
    file: Option<(u64, u64)>,
}

/// What an earlier process wrote.
type Before = (Vec<(WorkloadKey, Record)>, Vec<(TaskHash, u32)>);

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

impl Store {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// Why it can't be used.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let name = path.display().to_string();
        // Made here, so that it is private from its first moment.
        fs::OpenOptions::new()
            .append(true)
            .create(true)
            .mode(MODE)
            .open(path)
            .map_err(|error| StoreError::File(name.clone(), error))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let open = || {
            let connection = Connection::open_with_flags(path, flags)?;
            connection.busy_timeout(Duration::from_secs(2))?;
            connection.pragma_update(None, "trusted_schema", false)?;
            let id: i32 = connection.pragma_query_value(None, "application_id", |r| r.get(0))?;
            let tables: i64 =
                connection.query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0))?;
            if id != APPLICATION_ID && (id, tables) != (0, 0) {
                return Ok(None);
            }
            let switch = |row: &rusqlite::Row<'_>| row.get::<_, String>(0);
            connection.pragma_update_and_check(None, "journal_mode", "WAL", switch)?;
            // The last second may go with the power: these are explanations.
            connection.pragma_update(None, "synchronous", "NORMAL")?;
            connection.pragma_update(None, "application_id", APPLICATION_ID)?;
            connection.execute_batch(TABLES)?;
            Ok(Some(connection))
        };
        match open() {
            Ok(Some(connection)) => {
                Ok(Self { connection, file: identity(path), path: path.to_owned() })
            }
            Ok(None) => Err(StoreError::NotOurs(name)),
            Err(error) => Err(StoreError::Sqlite(name, error)),
        }
    }

    /// Whether the path still leads to this file.
    pub fn is_there(&self) -> bool {
        self.file.is_some() && identity(&self.path) == self.file
    }

    fn fault(&self, error: rusqlite::Error) -> StoreError {
        StoreError::Sqlite(self.path.display().to_string(), error)
    }

    /// Writes news, and lets go what is over its bounds.
    pub(super) fn write(&mut self, news: &News, at: Timestamp) -> Result<(), StoreError> {
        self.write_all(news, at.as_second()).map_err(|error| self.fault(error))
    }

    fn write_all(&mut self, news: &News, at: i64) -> rusqlite::Result<()> {
        let tx = self.connection.transaction()?;
        for (key, record) in &news.records {
            let (command, job_type) = (key.command.as_str(), key.job_type.as_str());
            tx.prepare_cached(
                "INSERT INTO workload (command, job_type, at, record) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT DO UPDATE SET at = excluded.at, record = excluded.record",
            )?
            .execute(params![command, job_type, at, json(record)])?;
        }
        for (key, end) in &news.ends {
            let (command, job_type) = (key.command.as_str(), key.job_type.as_str());
            let task = TaskHash::parse(&end.task).map(|task| *task.bytes()).unwrap_or_default();
            let new = tx
                .prepare_cached(
                    "INSERT OR IGNORE INTO known (task, attempt, at) VALUES (?1, ?2, ?3)",
                )?
                .execute(params![task.as_slice(), end.attempt, at])?;
            if new == 0 {
                continue;
            }
            tx.prepare_cached("INSERT INTO ended (command, job_type, record) VALUES (?1, ?2, ?3)")?
                .execute(params![command, job_type, json(end)])?;
            tx.prepare_cached(
                "DELETE FROM ended WHERE seq IN (SELECT seq FROM ended
                 WHERE job_type = ?2 AND command = ?1 ORDER BY seq DESC LIMIT -1 OFFSET ?3)",
            )?
            .execute(params![command, job_type, ENDS as i64])?;
        }
        if !news.ends.is_empty() {
            tx.execute("DELETE FROM known WHERE at < ?1", [at - KNOWN_SECONDS])?;
            tx.execute(
                "DELETE FROM ended WHERE seq <= (SELECT seq FROM ended ORDER BY seq DESC
                 LIMIT 1 OFFSET ?1)",
                [ENDS_IN_ALL as i64],
            )?;
        }
        tx.commit()
    }

    /// Everything that a new process goes on from.
    ///
    /// # Errors
    /// Why it can't be read.
    pub(super) fn read_all(&self) -> Result<Before, StoreError> {
        let read = || {
            let mut rows = self.connection.prepare(
                "SELECT command, job_type, record FROM workload ORDER BY at DESC LIMIT ?1",
            )?;
            let records = rows
                .query_map([WORKLOADS as i64], keyed::<Record>)?
                .filter_map(Result::transpose)
                .collect::<rusqlite::Result<Vec<_>>>()?;
            let mut rows =
                self.connection.prepare("SELECT task, attempt FROM known ORDER BY at")?;
            let known = rows
                .query_map([], |row| Ok((row.get::<_, [u8; 32]>(0)?, row.get::<_, u32>(1)?)))?
                .filter_map(|row| {
                    row.map(|(task, n)| TaskHash::parse(&hex::encode(task)).map(|t| (t, n)))
                        .transpose()
                })
                .collect::<rusqlite::Result<Vec<_>>>()?;
            Ok((records, known))
        };
        read().map_err(|error| self.fault(error))
    }

    /// What is written of the workloads of a job type, their last ends oldest first.
    ///
    /// # Errors
    /// Why it can't be read.
    pub fn read_of(
        &self,
        job_type: &JobType,
    ) -> Result<Vec<(WorkloadKey, Record, Vec<EndRecord>)>, StoreError> {
        let read = || {
            let mut rows = self
                .connection
                .prepare("SELECT command, job_type, record FROM workload WHERE job_type = ?1")?;
            let records = rows
                .query_map([job_type.as_str()], keyed::<Record>)?
                .filter_map(Result::transpose)
                .collect::<rusqlite::Result<Vec<_>>>()?;
            let mut rows = self.connection.prepare(
                "SELECT command, job_type, record FROM ended WHERE job_type = ?1 ORDER BY seq",
            )?;
            let ends = rows
                .query_map([job_type.as_str()], keyed::<EndRecord>)?
                .filter_map(Result::transpose)
                .collect::<rusqlite::Result<Vec<_>>>()?;
            let of = |key: &WorkloadKey| {
                ends.iter().filter(|(of, _)| of == key).map(|(_, end)| end.clone()).collect()
            };
            Ok(records
                .into_iter()
                .map(|(key, record)| {
                    let ends = of(&key);
                    (key, record, ends)
                })
                .collect())
        };
        read().map_err(|error| self.fault(error))
    }
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// A row of command, job type and record; a record that another version wrote is passed over.
fn keyed<T: serde::de::DeserializeOwned>(
    row: &rusqlite::Row<'_>,
) -> rusqlite::Result<Option<(WorkloadKey, T)>> {
    let key = WorkloadKey {
        command: row.get::<_, String>(0)?.into(),
        job_type: row.get::<_, String>(1)?.into(),
    };
    let text: String = row.get(2)?;
    Ok(serde_json::from_str(&text).ok().map(|record| (key, record)))
}
