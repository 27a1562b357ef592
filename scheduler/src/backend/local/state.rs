//! What a task's directory says about its task, at any moment and after any crash.
//!
//! The files are written in one order: record, lock, `started.json`, the command itself,
//! `exit.json`. So whatever is missing says how far it came:
//!
//! | record | started | exit | lock | the task |
//! |---|---|---|---|---|
//! | no | | | | was never claimed: the directory may be taken over |
//! | yes | no | no | free | has not run: (another) supervisor may be started |
//! | yes | | no | held | is running, or about to |
//! | yes | yes | no | free | ran, and its end was seen by nobody: unknown, never run again |
//! | yes | | yes | | ended |
//!
//! The lock is the kernel's (`flock`): it goes when the supervisor goes, however that ends, and
//! unlike a process id it is never another's.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

use jiff::Timestamp;

use super::record::{self, EXIT, Exit, How, LOCK, Record, STARTED, Started, private_file};
use super::{cancel, strays};

/// How far a task has come.
pub(super) enum State {
    /// There is no complete claim.
    Unclaimed,
    /// Claimed; its command has not been run.
    Unstarted,
    /// A supervisor is at work on it.
    Running,
    /// It ended.
    Ended(Exit),
}

/// Looks at a task's directory, and settles one whose supervisor is gone: what the task left
/// running is killed, and its end is written down as unknown.
pub(super) fn settle(dir: &Path, now: Timestamp) -> io::Result<State> {
    let Some(task) = Record::read(dir)? else { return Ok(State::Unclaimed) };
    if let Some(exit) = record::read::<Exit>(&dir.join(EXIT))? {
        return Ok(State::Ended(exit));
    }
    let Some(_lock) = try_lock(dir)? else { return Ok(State::Running) };
    // The supervisor may have finished between the two looks; now nobody else writes here.
    if let Some(exit) = record::read::<Exit>(&dir.join(EXIT))? {
        return Ok(State::Ended(exit));
    }
    if !dir.join(STARTED).try_exists()? {
        return Ok(match cancelled_before(dir, now)? {
            Some(exit) => State::Ended(exit),
            None => State::Unstarted,
        });
    }
    strays::kill_all(dir);
    if let Some(memory) = &task.memory {
        // Not again and again: it takes seconds, and what can't be killed now can't be then.
        if let Err(error) = memory.group.destroy() {
            tracing::warn!(task = task.task, %error, "a task's cgroup can't be removed");
        }
    }
    let started: Option<Started> = record::read(&dir.join(STARTED))?;
    let started_at = started.map(|s| s.started_at);
    let exit = Exit { started_at, ..Exit::at(now, How::Unknown, false) };
    record::write(dir, EXIT, &exit)?;
    Ok(State::Ended(exit))
}

/// Ends a task that was cancelled before its command was run. For whoever holds its lock.
pub(super) fn cancelled_before(dir: &Path, now: Timestamp) -> io::Result<Option<Exit>> {
    if !cancel::is_requested(dir) {
        return Ok(None);
    }
    let how = How::NotStarted("cancelled".to_owned());
    let exit = Exit { cancelled: true, ..Exit::at(now, how, false) };
    record::write(dir, EXIT, &exit)?;
    Ok(Some(exit))
}

/// Gives up on starting a task whose command has certainly not been run.
pub(super) fn give_up(dir: &Path, why: &str, now: Timestamp) -> io::Result<State> {
    let Some(lock) = try_lock(dir)? else { return Ok(State::Running) };
    if !dir.join(STARTED).try_exists()? && !dir.join(EXIT).try_exists()? {
        let how = How::NotStarted(why.to_owned());
        let exit = Exit::at(now, how, false);
        record::write(dir, EXIT, &exit)?;
    }
    drop(lock);
    settle(dir, now)
}

/// Takes the supervisor's lock, waiting for whoever has it.
pub(super) fn lock(dir: &Path) -> io::Result<File> {
    let file = private_file().open(dir.join(LOCK))?;
    file.lock()?;
    Ok(file)
}

fn try_lock(dir: &Path) -> io::Result<Option<File>> {
    let file = private_file().open(dir.join(LOCK))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(e)) => Err(e),
    }
}
