//! Claims a task by making a directory of its Job's name: whoever makes it has the task.
//!
//! The caller sees to it that one claim is made at a time (and one process owns the backend's
//! directory), so that a directory without a record is what a crash left, not another's work.

use std::io;
use std::path::{Path, PathBuf};

use super::record::{Record, SCRATCH, SHM, TASK, private_dir, sync_dir, write};
use crate::domain::name::{Attempt, JobName, TaskHash};

/// What a claim came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// The task is ours to start; the claim is durable.
    Made,
    /// It was claimed before, with a complete record.
    AlreadyThere,
    /// The directory is another task's, or another version's.
    Taken,
}

/// The directory of a task.
pub(super) fn directory(root: &Path, hash: &TaskHash) -> PathBuf {
    root.join(JobName::of(hash, Attempt::FIRST).as_str())
}

/// Claims the task of `record`. After an error there is no claim, or it can be made again.
pub(super) fn claim(root: &Path, record: &Record) -> io::Result<Claim> {
    let hash = record.hash().ok_or_else(|| io::Error::other("the record has no task hash"))?;
    let dir = directory(root, &hash);
    match private_dir().create(&dir) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            match Record::read(&dir).map(|found| found.map(|found| found.task == record.task)) {
                Ok(Some(true)) => return Ok(Claim::AlreadyThere),
                Ok(Some(false)) => return Ok(Claim::Taken),
                Err(e) if e.kind() == io::ErrorKind::InvalidData => return Ok(Claim::Taken),
                Err(e) => return Err(e),
                Ok(None) => {
                    discard(root, &dir)?;
                    private_dir().create(&dir)?;
                }
            }
        }
        Err(e) => return Err(e),
    }
    if let Err(e) = fill(root, &dir, record) {
        // Should this fail too, the half claim is taken over by the next try.
        let _ = discard(root, &dir);
        return Err(e);
    }
    Ok(Claim::Made)
}

/// The record comes last: with it the claim stands.
fn fill(root: &Path, dir: &Path, record: &Record) -> io::Result<()> {
    private_dir().create(dir.join(SCRATCH))?;
    private_dir().create(dir.join(SHM))?;
    sync_dir(root)?;
    write(dir, TASK, record)
}

/// What a directory is called while it is being deleted.
const GONE: &str = ".gone-";

/// Removes a task's directory: its name is free at once, whatever happens to the rest.
pub(super) fn discard(root: &Path, dir: &Path) -> io::Result<()> {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let gone = root.join(format!("{GONE}{name}"));
    match std::fs::remove_dir_all(&gone) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => std::fs::rename(dir, &gone)?,
    }
    sync_dir(root)?;
    std::fs::remove_dir_all(&gone)
}

/// Whether a name in the backend's directory is what [`discard`] did not get to delete.
pub(super) fn is_discarded(name: &str) -> bool {
    name.starts_with(GONE)
}
