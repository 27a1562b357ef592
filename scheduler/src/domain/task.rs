//! A task: one uworker-main run, decoded, with its identity.

use jiff::Timestamp;

use super::input_url::InputUrl;
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
        Self { key, input, hash, published_at }
    }

    /// The name of this task's first Job.
    pub fn job_name(&self) -> JobName {
        JobName::of(&self.hash, Attempt::FIRST)
    }
}
