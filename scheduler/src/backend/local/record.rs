//! The files of a task's directory: what they hold and how they come to be there for good.
//!
//! A file here is complete or absent: it is written beside its place, synced, and renamed. All are
//! 0600 in a directory of 0700, since the record holds the task's input URL, a credential. What
//! the files mean together is [`state`](super::state)'s.
//!
//! ```text
//! task.json      the claim's record; without it there is no claim
//! lock           held by the task's supervisor for as long as it lives
//! started.json   the command may have been run; written before it is
//! exit.json      how it ended
//! log            the last of what the command printed
//! acked          the task's message is acked
//! cancel         the task's end is asked for
//! scratch/ shm/  the task's own
//! ```

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::cgroup::group::Group;
use super::end::End;
use crate::domain::input_url::InputUrl;
use crate::domain::name::TaskHash;
use crate::domain::task::WorkloadKey;

pub(super) const TASK: &str = "task.json";
pub(super) const LOCK: &str = "lock";
pub(super) const STARTED: &str = "started.json";
pub(super) const EXIT: &str = "exit.json";
pub(super) const LOG: &str = "log";
pub(super) const ACKED: &str = "acked";
pub(super) const CANCEL: &str = "cancel";
pub(super) const SCRATCH: &str = "scratch";
pub(super) const SHM: &str = "shm";

/// The format that this program writes, and the only one that it reads.
pub(super) const VERSION: u32 = 1;

/// A claim: which task this is and how to run it. No `Debug`: it holds the input URL.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    /// [`VERSION`].
    pub version: u32,
    /// The task's hash, in hexadecimal.
    pub task: String,
    pub command: String,
    pub job_type: String,
    /// The input URL, to take out of what is shown.
    pub input: String,
    pub claimed_at: Timestamp,
    /// The program, an absolute path, and its arguments.
    pub argv: Vec<String>,
    /// The whole environment but for `PATH` and `HOME`.
    pub env: BTreeMap<String, String>,
    /// How long the command may run.
    pub deadline_ms: u64,
    /// How long it has between SIGTERM and SIGKILL.
    pub grace_ms: u64,
    /// The limit of its memory; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
}

/// A limit of memory, and the cgroup that has it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Memory {
    /// Swap included.
    pub bytes: u64,
    /// Made by the supervisor before it starts the command, removed before the end is written.
    pub group: Group,
}

impl Record {
    /// The complete record of a directory; `None` where there is none, or half a one.
    ///
    /// # Errors
    /// A whole record that is not of this version is an error, not an absence: what it claims may
    /// be running.
    pub(super) fn read(dir: &Path) -> io::Result<Option<Self>> {
        let Some(value) = read::<serde_json::Value>(&dir.join(TASK))? else { return Ok(None) };
        let found = value.get("version").and_then(serde_json::Value::as_u64);
        let record: Option<Self> = serde_json::from_value(value).ok();
        match record.filter(|r| r.version == VERSION && r.hash().is_some() && !r.argv.is_empty()) {
            Some(record) => Ok(Some(record)),
            None => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{TASK} is of version {found:?}; this program reads version {VERSION}"),
            )),
        }
    }

    pub(super) fn hash(&self) -> Option<TaskHash> {
        TaskHash::parse(&self.task)
    }

    pub(super) fn key(&self) -> WorkloadKey {
        WorkloadKey {
            command: self.command.as_str().into(),
            job_type: self.job_type.as_str().into(),
        }
    }

    /// `text` with this task's own URL shown as it may be.
    pub(super) fn hide_input(&self, text: &str) -> String {
        match InputUrl::parse(&self.input) {
            Ok(url) => text.replace(&self.input, &url.redacted()),
            Err(_) => text.replace(&self.input, crate::domain::redact::REDACTED),
        }
    }
}

/// That a supervisor was about to run the command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Started {
    /// The supervisor's process id, for a person who looks.
    pub supervisor: u32,
    pub started_at: Timestamp,
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Exit {
    pub how: How,
    /// The deadline passed, and the command was stopped.
    pub deadline_exceeded: bool,
    /// How many of its processes the kernel killed at its limit of memory.
    #[serde(default)]
    pub oom_kills: u64,
    /// Its end was asked for, and it was stopped or not begun for it.
    #[serde(default)]
    pub cancelled: bool,
    /// Absent where the command never started.
    pub started_at: Option<Timestamp>,
    /// For [`How::Unknown`], when that was found.
    pub ended_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum How {
    Code(i32),
    Signal(i32),
    /// The command was not started, and why.
    NotStarted(String),
    Unknown,
}

impl Exit {
    /// The end of a command that was never started, or of one that nobody saw, unless its other
    /// fields say more.
    pub(super) fn at(ended_at: Timestamp, how: How, deadline_exceeded: bool) -> Self {
        Self { how, deadline_exceeded, oom_kills: 0, cancelled: false, started_at: None, ended_at }
    }

    pub(super) fn end(&self) -> End {
        match self.how {
            How::Unknown => End::Unknown,
            _ if self.cancelled => End::Cancelled,
            How::NotStarted(_) => End::NotStarted,
            How::Code(_) | How::Signal(_) if self.deadline_exceeded => End::DeadlineExceeded,
            How::Code(0) => End::Succeeded,
            // A command that lost a part of itself to the limit, and failed for it most likely.
            How::Code(_) | How::Signal(_) if self.oom_kills > 0 => End::OutOfMemory,
            How::Code(code) => End::Failed(code),
            How::Signal(signal) => End::Killed(signal),
        }
    }
}

/// Reads a file of ours. `None`: there is none, or what is there is not what we write.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Puts a file in its place, whole and for good.
pub(super) fn write<T: Serialize>(dir: &Path, name: &str, value: &T) -> io::Result<()> {
    let beside = dir.join(format!(".{name}.new"));
    let mut file = private_file().truncate(true).open(&beside)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    file.sync_all()?;
    std::fs::rename(&beside, dir.join(name))?;
    sync_dir(dir)
}

/// How to open a file that only this user may read, made where it is not there.
pub(super) fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options
}

/// Makes a directory that only this user may enter.
pub(super) fn private_dir() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
}

/// Makes the names in a directory durable.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_beats_the_code_that_a_stopped_command_exits_with() {
        let end =
            |how, deadline_exceeded| Exit::at(Timestamp::UNIX_EPOCH, how, deadline_exceeded).end();
        let killed = |how, deadline_exceeded| {
            let ended_at = Timestamp::UNIX_EPOCH;
            Exit { oom_kills: 1, ..Exit::at(ended_at, how, deadline_exceeded) }.end()
        };
        assert_eq!(killed(How::Signal(9), false), End::OutOfMemory);
        assert_eq!(killed(How::Code(1), false), End::OutOfMemory);
        assert_eq!(killed(How::Code(0), false), End::Succeeded);
        assert_eq!(killed(How::Signal(9), true), End::DeadlineExceeded);
        assert_eq!(end(How::Code(0), false), End::Succeeded);
        assert_eq!(end(How::Code(0), true), End::DeadlineExceeded);
        assert_eq!(end(How::Signal(15), true), End::DeadlineExceeded);
        assert_eq!(end(How::Signal(9), false), End::Killed(9));
        assert_eq!(end(How::Code(77), false), End::Failed(77));
        let cancelled =
            |how| Exit { cancelled: true, ..Exit::at(Timestamp::UNIX_EPOCH, how, false) }.end();
        assert_eq!(cancelled(How::Signal(15)), End::Cancelled);
        assert_eq!(cancelled(How::Code(0)), End::Cancelled);
        assert_eq!(cancelled(How::NotStarted(String::new())), End::Cancelled);
        assert_eq!(cancelled(How::Unknown), End::Unknown);
        assert_eq!(end(How::Unknown, true), End::Unknown);
    }

    #[test]
    fn half_a_file_is_no_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let exit = Exit::at(Timestamp::UNIX_EPOCH, How::Code(1), false);
        write(dir.path(), EXIT, &exit).expect("written");
        let path = dir.path().join(EXIT);
        assert_eq!(read::<Exit>(&path).expect("read"), Some(exit));
        let whole = std::fs::read(&path).expect("bytes");
        std::fs::write(&path, &whole[..whole.len() - 1]).expect("cut");
        assert_eq!(read::<Exit>(&path).expect("read"), None);
    }
}
