//! A task: one uworker-main run, decoded, with its identity.

use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::input_url::InputUrl;
use super::labels::TaskLabels;
use super::name::{Attempt, Command, JobName, JobType, Subject, TaskHash};

/// What all tasks of one configuration share: the key of a workload.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct WorkloadKey {
    /// `fuzz`, `corpus_pruning`, …
    pub command: Command,
    /// The job type.
    pub job_type: JobType,
}

impl std::fmt::Display for WorkloadKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.command, self.job_type)
    }
}

/// One uworker-main run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Command and job type.
    pub key: WorkloadKey,
    /// The signed input, for the worker byte for byte.
    pub input: InputUrl,
    /// The identity.
    pub hash: TaskHash,
    /// When its message was published.
    pub published_at: Timestamp,
    /// What its sender labelled it with; no part of its identity.
    pub labels: TaskLabels,
    /// Whether its message waits for its end.
    pub follow: Follow,
}

/// Whether a task's message waits for its end (`ack: on_completed`). If so, its next attempt is
/// made when the queue delivers the message again, and by nobody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Follow {
    /// It does not.
    #[default]
    No,
    /// It does.
    Ends,
    /// It does, but there may be no further attempt: its input is of no use any more.
    LastEnd,
}

impl Task {
    /// A task; its identity is the input's object, or `message_id` where the URL names none.
    pub fn new(
        key: WorkloadKey,
        input: InputUrl,
        message_id: &str,
        published_at: Timestamp,
    ) -> Self {
        let message = || Subject::Message(message_id.to_owned());
        let subject = input.object().cloned().map_or_else(message, Subject::Object);
        let hash = TaskHash::of(&key.command, &key.job_type, &subject);
        let (follow, labels) = (Follow::No, TaskLabels::default());
        Self { key, input, hash, published_at, labels, follow }
    }

    /// The name of this task's first Job.
    pub fn job_name(&self) -> JobName {
        JobName::of(&self.hash, Attempt::FIRST)
    }
}

/// An id for a task that has none: of its command, job type and URL without the signature, so that
/// submitting the same input again is the same task.
pub fn id_of(command: &str, job: &str, url: &str) -> String {
    let plain = InputUrl::parse(url).map_or_else(|_| url.to_owned(), |url| url.redacted());
    let mut hasher = Sha256::new();
    for part in [command, job, &plain] {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part.as_bytes());
    }
    hex::encode(&hasher.finalize()[..16])
}
