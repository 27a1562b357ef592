//! What the ledger keeps of a workload, and of one end: plain data, as it is stored and answered.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::domain::end::{End, EndKind, Resource};
use crate::domain::log_tail::LogTail;
use crate::domain::workload_now::WorkloadNow;

/// What is known of one workload. New members may come.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// Tasks in hand that wait, by the label of the reason.
    pub held: BTreeMap<String, Held>,
    /// Tasks whose Job was confirmed.
    pub scheduled: u64,
    /// When the last one was.
    pub last_scheduled: Option<Timestamp>,
    /// Rejected messages, by the label of the reason.
    pub rejected: BTreeMap<String, Rejected>,
    /// Its Jobs, as they were last seen.
    pub now: WorkloadNow,
    /// Ends and work lost, by kind.
    pub ends: BTreeMap<EndKind, Lost>,
}

/// Tasks that wait for one reason.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// How many.
    pub tasks: usize,
    /// What one of them was told.
    pub detail: String,
    /// Since when the first of them waits.
    pub since: Option<Timestamp>,
}

/// Messages that were rejected for one reason.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Rejected {
    /// How many.
    pub count: u64,
    /// What was said of the last one.
    pub detail: String,
    /// When that was.
    pub last: Option<Timestamp>,
}

/// Ends of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Lost {
    /// How many.
    pub count: u64,
    /// The work lost by them, in seconds.
    pub seconds: f64,
}

impl Lost {
    /// Adds one end's.
    pub fn add(&mut self, time: Duration) {
        self.count += 1;
        self.seconds += time.as_secs_f64();
    }
}

/// One end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EndRecord {
    /// The task's hash.
    pub task: String,
    /// Which attempt.
    pub attempt: u32,
    /// The Job.
    pub job: String,
    /// Where.
    pub backend: String,
    /// The kind.
    pub kind: EndKind,
    /// The exit code, where there was one.
    pub exit_code: Option<i32>,
    /// What was used up.
    pub resource: Option<Resource>,
    /// What was said of it.
    pub detail: String,
    /// The last of what it printed.
    pub tail: LogTail,
    /// When its process started, where that is known.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Timestamp,
    /// For how long it ran.
    pub run_seconds: f64,
}

impl From<&End> for EndRecord {
    fn from(end: &End) -> Self {
        Self {
            task: end.task.to_string(),
            attempt: end.attempt.number(),
            job: end.job.clone(),
            backend: end.backend.to_string(),
            kind: end.verdict.kind,
            exit_code: end.verdict.exit_code,
            resource: end.verdict.resource,
            detail: end.verdict.detail.clone(),
            tail: end.tail.clone(),
            started_at: end.started_at,
            ended_at: end.ended_at,
            run_seconds: end.run_time().as_secs_f64(),
        }
    }
}
