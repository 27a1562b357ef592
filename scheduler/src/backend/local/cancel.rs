//! Stopping tasks before their time, from any process of this machine that may write their
//! directories: a request is a file, which the task's own supervisor obeys.
//!
//! The supervisor alone holds the command as a child that it has not waited for, so that nobody else
//! could be sure whose process a number names. The file stays: a task that has not begun when it is
//! written never begins, whatever crashes in between.

use std::io;
use std::path::{Path, PathBuf};

use super::record::{CANCEL, Record, private_file, sync_dir};
use super::state::{self, State};
use crate::clock::{Clock as _, SystemClock};

/// A task that has not ended, running or about to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfinished {
    /// The name of its Job, and of its directory.
    pub job: String,
    /// Its command.
    pub command: String,
    /// Its job type.
    pub job_type: String,
    dir: PathBuf,
}

/// The unfinished tasks of the backend whose directory this is, by their Jobs' names.
///
/// # Errors
/// The directory is there and can't be read. What makes no sense inside of it is told and left out.
pub fn unfinished(root: &Path) -> io::Result<Vec<Unfinished>> {
    let entries = match std::fs::read_dir(root) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let dir = std::path::absolute(entry?.path())?;
        let job = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !job.starts_with("cf-job-") {
            continue;
        }
        match look(&dir) {
            Ok(Some(Record { command, job_type, .. })) => {
                found.push(Unfinished { job, command, job_type, dir });
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(dir = %dir.display(), %error, "a task's directory can't be read");
            }
        }
    }
    found.sort_by(|a, b| a.job.cmp(&b.job));
    Ok(found)
}

fn look(dir: &Path) -> io::Result<Option<Record>> {
    let Some(record) = Record::read(dir)? else { return Ok(None) };
    let over = matches!(state::settle(dir, SystemClock.wall())?, State::Ended(_));
    Ok((!over).then_some(record))
}

impl Unfinished {
    /// Asks for its end. Harmless when it has ended, or was asked for before.
    ///
    /// # Errors
    /// The request can't be made durable.
    pub fn cancel(&self) -> io::Result<()> {
        request(&self.dir)
    }

    /// Whether it has ended, however it did.
    ///
    /// # Errors
    /// Its directory can't be read.
    pub fn has_ended(&self) -> io::Result<bool> {
        Ok(look(&self.dir)?.is_none())
    }
}

/// Asks for the end of the task in `dir`.
pub(super) fn request(dir: &Path) -> io::Result<()> {
    match private_file().open(dir.join(CANCEL)) {
        // It has ended, and was removed since.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
        Ok(_) => sync_dir(dir),
    }
}

/// Whether the end of the task in `dir` was asked for.
pub(super) fn is_requested(dir: &Path) -> bool {
    dir.join(CANCEL).exists()
}
