//! How a task of this machine ended, and counts of it. What a pod's end looks like is elsewhere.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;

use crate::domain::end::{self, EndKind, Verdict};
use crate::domain::log_tail::LogTail;
use crate::domain::name::{Attempt, BackendName, JobName, TaskHash};
use crate::domain::task::WorkloadKey;

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// Its command exited with 0.
    Succeeded,
    /// Its command exited with this code.
    Failed(i32),
    /// A signal of this number ended its command.
    Killed(i32),
    /// The kernel killed a process of it at its limit of memory, and it did not succeed.
    OutOfMemory,
    /// Its deadline passed and it was stopped, whatever it exited with.
    DeadlineExceeded,
    /// A person asked for its end.
    Cancelled,
    /// Its command could not be started: it certainly did not run.
    NotStarted,
    /// It ran, and how it ended was seen by nobody (the machine went down, or its supervisor was
    /// killed). It is never run again.
    Unknown,
}

impl End {
    /// The kind of end, for tables and metrics: a closed set, without codes.
    pub fn label(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed(_) => "failed",
            Self::Killed(_) => "killed",
            Self::OutOfMemory => "out_of_memory",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::Cancelled => "cancelled",
            Self::NotStarted => "not_started",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Succeeded => f.write_str("succeeded"),
            Self::Failed(code) => write!(f, "failed (exit code {code})"),
            Self::Killed(signal) => write!(f, "killed (signal {signal})"),
            Self::OutOfMemory => f.write_str("out of memory"),
            Self::DeadlineExceeded => f.write_str("stopped at its deadline"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::NotStarted => f.write_str("not started"),
            Self::Unknown => f.write_str("outcome unknown"),
        }
    }
}

impl From<End> for Verdict {
    fn from(end: End) -> Self {
        let (kind, code) = match end {
            End::Succeeded => (EndKind::Succeeded, Some(0)),
            End::Failed(code) => (EndKind::TaskFailure, Some(code)),
            End::Killed(_) => (EndKind::TaskFailure, None),
            End::OutOfMemory => (EndKind::OutOfMemory, None),
            End::DeadlineExceeded => (EndKind::Deadline, None),
            End::Cancelled => (EndKind::Deleted, None),
            End::NotStarted => (EndKind::BadConfiguration, None),
            End::Unknown => (EndKind::Unknown, None),
        };
        Self::new(kind, code, end)
    }
}

/// One task's end, as told to whoever listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalEnd {
    /// The task.
    pub hash: TaskHash,
    /// Its command and job type.
    pub key: WorkloadKey,
    /// How it ended.
    pub end: End,
    /// The last of what it printed, credentials taken out.
    pub tail: String,
    /// When its command was started, if it was.
    pub started_at: Option<Timestamp>,
    /// When it ended, or was found to have.
    pub ended_at: Timestamp,
}

impl LocalEnd {
    /// The same, as ends are told of every backend.
    pub(super) fn on(&self, backend: &BackendName) -> end::End {
        end::End {
            task: self.hash,
            attempt: Attempt::FIRST,
            job: JobName::of(&self.hash, Attempt::FIRST).to_string(),
            key: self.key.clone(),
            backend: backend.clone(),
            verdict: self.end.into(),
            tail: match self.tail.as_str() {
                "" => LogTail::Nothing,
                tail => LogTail::Text(tail.to_owned()),
            },
            started_at: self.started_at,
            ended_at: self.ended_at,
        }
    }
}

/// Counts ends, each task's once.
#[derive(Debug, Default)]
pub(super) struct Summary(Mutex<BTreeMap<End, usize>>);

impl Summary {
    pub(super) fn count(&self, end: End) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(end).or_default() += 1;
    }

    pub(super) fn read(&self) -> BTreeMap<End, usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
