//! What the backend asks of Batch, as a trait, and what can come of asking.
//!
//! The client behind it knows HTTP; here is what an answer means to somebody who must not make a
//! job twice: was it certainly not made, is it there, or can't that be told?

use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use super::answer::{Job, Jobs, TaskPage};
use super::plan::JobId;
use super::spec;

/// Why there is no good answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{said}")]
pub struct ApiError {
    /// What it means.
    pub fault: Fault,
    /// What was said, credentials taken out.
    pub said: String,
}

/// What a failed request means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It never left this machine.
    NotSent,
    /// Credentials were refused, new ones too.
    Unauthenticated,
    /// A right is missing.
    Forbidden,
    /// Too much: a quota is used up, or everybody is to wait.
    Throttled(Option<Duration>),
    /// What was named is not there: a region, a project, a job.
    NotFound,
    /// A job of that name is there.
    Exists,
    /// The request itself is refused.
    Refused,
    /// The server failed: it may have been done.
    Failed,
    /// No answer that can be read: it may have been done.
    Lost,
}

impl Fault {
    /// Whether a create that came to this has certainly made nothing and never will.
    pub fn made_nothing(self) -> bool {
        match self {
            Self::NotSent
            | Self::Unauthenticated
            | Self::Forbidden
            | Self::Throttled(_)
            | Self::NotFound
            | Self::Refused => true,
            Self::Exists | Self::Failed | Self::Lost => false,
        }
    }
}

impl ApiError {
    /// An error; `said` is redacted here.
    pub fn new(fault: Fault, said: impl std::fmt::Display) -> Self {
        let said = said.to_string();
        Self { fault, said: crate::domain::redact::redact(&said).into_owned() }
    }
}

/// Batch's REST API, as far as it is used.
#[async_trait]
pub trait Api: Send + Sync {
    /// Creates a job. A dropped future, a [`Fault::Failed`] or a [`Fault::Lost`] may leave one.
    async fn create(
        &self,
        parent: &str,
        id: &JobId,
        request: Uuid,
        job: &spec::Job,
    ) -> Result<Job, ApiError>;

    /// The job; `None`: Batch itself said that it is not there.
    async fn get(&self, parent: &str, id: &JobId) -> Result<Option<Job>, ApiError>;

    /// Asks for a job's deletion, which takes as long as its machines need to go. `false`: Batch
    /// itself said that it is not there. After any other answer it may have begun.
    async fn delete(&self, parent: &str, id: &JobId) -> Result<bool, ApiError>;

    /// One page of a region's jobs, the latest first, without their tasks' environments.
    async fn list(&self, parent: &str, page: Option<&str>) -> Result<Jobs, ApiError>;

    /// One page of a job's tasks.
    async fn tasks(
        &self,
        parent: &str,
        id: &JobId,
        page: Option<&str>,
    ) -> Result<TaskPage, ApiError>;

    /// How many jobs of a region are queued, as Batch itself counts them (`v1alpha`).
    async fn count_queued(&self, project: &str, region: &str) -> Result<u64, ApiError>;
}
