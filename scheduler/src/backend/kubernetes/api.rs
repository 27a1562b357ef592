//! The only door to an API server: what the backend asks of it, and what it keeps of the answers.
//!
//! Small on purpose, so that a simulated cluster can stand in its place. The facts are trimmed:
//! ten thousand of them fit in a few megabytes. What an error means is
//! [`classify`](super::classify)'s to say.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use jiff::Timestamp;

use super::facts::{JobStory, Said, WorkPod};
use crate::domain::log_tail::LogTail;
use crate::domain::name::TaskHash;
use crate::domain::redact::redact;

/// The annotation with a Job's task hash, 64 hexadecimal digits.
pub const TASK_ANNOTATION: &str = "katabatch.dev/task";
/// The label with the id of the scheduler that made a Job.
pub const SCHEDULER_LABEL: &str = "katabatch.dev/scheduler";
/// The annotation that ties a ServiceAccount to a Google account (GKE, "Workload Identity").
pub const EMAIL_ANNOTATION: &str = "iam.gke.io/gcp-service-account";

/// What is kept of a Job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFacts {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`: tells two Jobs of one name apart.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata.creationTimestamp`, by the server's clock, whole seconds.
    pub created: Timestamp,
    /// It has a `deletionTimestamp`.
    pub deleting: bool,
    /// It carries a label of the farm, whoever made it.
    pub farm: bool,
    /// The task that it says it is for.
    pub task: Option<TaskHash>,
    /// The scheduler that it says made it.
    pub scheduler: Option<String>,
    /// How far it is. All false in an answer that has metadata only.
    pub progress: Progress,
    /// What it says of its work; `None` for a Job that no scheduler of ours made.
    pub story: Option<Box<JobStory>>,
}

/// How far a Job is. Each only ever turns true while one pod is all that a Job makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// `status.active` ≥ 1: it has a pod, pending or running.
    pub active: bool,
    /// `status.ready` ≥ 1, or a pod of it has ended: a pod has left Pending.
    pub started: bool,
    /// The condition Complete or Failed is true.
    pub finished: bool,
}

/// What a command that looks for Jobs needs of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectedJob {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// The label of its command.
    pub command: String,
    /// The label of its job type.
    pub job_type: String,
    /// The condition Complete or Failed is true.
    pub finished: bool,
    /// It has a `deletionTimestamp`.
    pub deleting: bool,
}

/// What is kept of a pod in phase Pending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodFacts {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// It carries a label of the farm, whoever made it.
    pub farm: bool,
    /// Its owning Job.
    pub job: Option<OwnerJob>,
}

/// The Job that owns a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerJob {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// What is kept of an event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventFacts {
    /// Its reason, such as `FailedCreate`, and its message.
    pub said: Said,
}

/// What is kept of a ServiceAccount.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccountFacts {
    /// The value of [`EMAIL_ANNOTATION`].
    pub email: Option<String>,
}

/// A ConfigMap's data.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigMapFacts {
    /// `data`.
    pub data: BTreeMap<String, String>,
    /// `metadata.resourceVersion`, for the next write.
    pub resource_version: String,
}

/// What is kept of a Lease.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeaseFacts {
    /// `spec.holderIdentity`; empty when nobody holds it.
    pub holder: String,
    /// `metadata.resourceVersion`, for the next write.
    pub resource_version: String,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Where the next page begins; `None` on the last.
    pub next: Option<String>,
    /// The list's resourceVersion, from which to watch.
    pub resource_version: String,
}

/// What a watch says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent<T> {
    /// An object is there, new or changed.
    Applied(T),
    /// An object is gone, or left the watch's selection.
    Deleted(T),
    /// Nothing new up to this resourceVersion.
    Bookmark(String),
}

/// A running watch. It ends when the server or the connection says so; an error is its last item.
pub type Watch<T> = BoxStream<'static, Result<WatchEvent<T>, ApiError>>;

/// Whether a request can have reached the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// Certainly not: no connection, or no credentials to send.
    Never,
    /// It can have.
    Maybe,
}

/// A request that did not get the answer it needed, as much as is known of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ApiError {
    /// The answer's HTTP status; `None` when no answer came.
    pub status: Option<u16>,
    /// The answer's `Status.reason`, empty when the answer was no Kubernetes Status.
    pub reason: String,
    /// What the answer or the transport said, credentials taken out, cut to a readable length.
    pub message: String,
    /// How long the server asks to wait: header `Retry-After` or `details.retryAfterSeconds`.
    pub retry_after: Option<Duration>,
    /// Whether the request can have reached the server.
    pub sent: Sent,
}

/// The longest message kept of an error, in characters.
const MESSAGE_MAX: usize = 600;

impl ApiError {
    /// An answer with an error status (or one that could not be read).
    pub fn answered(status: u16, reason: &str, message: &str) -> Self {
        Self {
            status: Some(status),
            reason: reason.chars().take(80).collect(),
            message: redact(message).chars().take(MESSAGE_MAX).collect(),
            retry_after: None,
            sent: Sent::Maybe,
        }
    }

    /// No answer, though the request may have arrived.
    pub fn lost(message: &str) -> Self {
        Self { status: None, ..Self::answered(0, "", message) }
    }

    /// The request certainly never left.
    pub fn unsent(message: &str) -> Self {
        Self { sent: Sent::Never, ..Self::lost(message) }
    }

    /// The same, with the server's wish to be left alone for `after`.
    pub fn with_retry_after(self, after: Duration) -> Self {
        Self { retry_after: Some(after), ..self }
    }

    /// 410: a list's continuation or a watch's start is too old.
    pub fn is_expired(&self) -> bool {
        self.status == Some(410)
    }

    /// 404.
    pub fn is_not_found(&self) -> bool {
        self.status == Some(404)
    }

    /// 409.
    pub fn is_conflict(&self) -> bool {
        self.status == Some(409)
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.status, self.sent) {
            (Some(status), _) if self.reason.is_empty() => {
                write!(f, "the API server answered {status}: {}", self.message)
            }
            (Some(status), _) => {
                write!(f, "the API server answered {status} {}: {}", self.reason, self.message)
            }
            (None, Sent::Maybe) => write!(f, "no answer from the API server: {}", self.message),
            (None, Sent::Never) => write!(f, "can't reach the API server: {}", self.message),
        }
    }
}

/// One namespace of a Kubernetes API server. Each method is one request (two after a 401).
///
/// A dropped future may or may not have had its effect.
#[async_trait]
pub trait ClusterApi: Send + Sync {
    /// POSTs a Job. The answer has metadata only.
    async fn create_job(&self, name: &str, body: Vec<u8>) -> Result<JobFacts, ApiError>;
    /// Reads a Job from the quorum; `None` when there is none.
    async fn get_job(&self, name: &str) -> Result<Option<JobFacts>, ApiError>;
    /// Reads a whole Job from the quorum, for making it again; `None` when there is none.
    async fn read_job(&self, name: &str) -> Result<Option<serde_json::Value>, ApiError>;
    /// Deletes a Job and, in the background, its pods, provided that it still is the one of `uid`.
    async fn delete_job(&self, name: &str, uid: &str) -> Result<(), ApiError>;
    /// A page of all Jobs of the namespace, from the quorum, all pages of one moment.
    async fn list_jobs(&self, next: Option<&str>) -> Result<Page<JobFacts>, ApiError>;
    /// Watches all Jobs from a resourceVersion on, with bookmarks.
    async fn watch_jobs(&self, from: &str) -> Result<Watch<JobFacts>, ApiError>;
    /// A page of the namespace's pods in phase Pending, as [`list_jobs`](Self::list_jobs).
    async fn list_pending_pods(&self, next: Option<&str>) -> Result<Page<PodFacts>, ApiError>;
    /// Watches pods in phase Pending: one that leaves the phase is `Deleted`.
    async fn watch_pending_pods(&self, from: &str) -> Result<Watch<PodFacts>, ApiError>;
    /// A page of the pods, in any phase, that schedulers made, as [`list_jobs`](Self::list_jobs).
    async fn list_work_pods(&self, next: Option<&str>) -> Result<Page<WorkPod>, ApiError>;
    /// Watches those pods.
    async fn watch_work_pods(&self, from: &str) -> Result<Watch<WorkPod>, ApiError>;
    /// The pods of the Job of this uid, from the quorum.
    async fn list_pods_of(&self, uid: &str) -> Result<Vec<WorkPod>, ApiError>;
    /// Reads the end of a container's log; `previous`: of the run before its last restart.
    async fn pod_log(
        &self,
        pod: &str,
        container: &str,
        previous: bool,
    ) -> Result<LogTail, ApiError>;
    /// Reads the events about the object of this uid.
    async fn list_events(&self, uid: &str) -> Result<Vec<EventFacts>, ApiError>;
    /// Reads a ServiceAccount.
    async fn get_account(&self, name: &str) -> Result<Option<AccountFacts>, ApiError>;
    /// Creates a ServiceAccount annotated with `email`.
    async fn create_account(&self, name: &str, email: &str) -> Result<(), ApiError>;
    /// Reads a ConfigMap.
    async fn get_config_map(&self, name: &str) -> Result<Option<ConfigMapFacts>, ApiError>;
    /// Writes a ConfigMap: creates it when `facts` has no resourceVersion, else replaces the data
    /// of that very version. Someone else's write in between is a 409.
    async fn put_config_map(
        &self,
        name: &str,
        facts: &ConfigMapFacts,
    ) -> Result<ConfigMapFacts, ApiError>;
    /// Reads a Lease.
    async fn get_lease(&self, name: &str) -> Result<Option<LeaseFacts>, ApiError>;
    /// Writes a Lease as [`put_config_map`](Self::put_config_map) does. `renewed` is written for
    /// people to read; nothing is decided by it.
    async fn put_lease(
        &self,
        name: &str,
        facts: &LeaseFacts,
        renewed: Timestamp,
    ) -> Result<LeaseFacts, ApiError>;
}
