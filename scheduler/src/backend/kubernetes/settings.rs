//! What a Kubernetes backend is configured with, and why one can't go on.

use std::sync::Arc;
use std::time::Duration;

use super::owner;
use crate::domain::name::BackendName;
use crate::leadership::Leadership;
use crate::render::{Policy, Templates};

/// What a Kubernetes backend is configured with.
#[derive(Clone)]
pub struct Settings {
    /// The backend's configured name.
    pub name: BackendName,
    /// The namespace of its Jobs, which is this scheduler's alone.
    pub namespace: String,
    /// The scheduler's id, on its Jobs and in the namespace's owner record.
    pub scheduler: String,
    /// The pending limit until [`set_pending_limit`](super::KubernetesBackend::set_pending_limit) says another.
    pub pending_limit_default: usize,
    /// The cap on unfinished Jobs.
    pub live_limit: Option<usize>,
    /// The creation rate.
    pub creates_per_second: Option<u32>,
    /// The most creates at once.
    pub window: usize,
    /// How long a create may take: the API client's own bound. Under 3 s, so that a scheduler that
    /// takes over waits no longer than that for its predecessor's last creates.
    pub request_timeout: Duration,
    /// How long a Job is kept after its end.
    pub retain_finished: Duration,
    /// The isolation policy.
    pub policy: Policy,
    /// The Job templates.
    pub templates: Arc<Templates>,
    /// How this process signs the leader's Lease: no other process ever signs so.
    pub identity: String,
    /// Seeds the spread of retries.
    pub seed: u64,
    /// Who leads the scheduler; `None` where this namespace is home and its own Lease decides.
    pub home: Option<Arc<dyn Leadership>>,
}

/// Why the backend can't go on; the process should end with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fatal {
    /// The namespace is another scheduler's.
    #[error(
        "the namespace `{namespace}` belongs to the scheduler `{owner}`, and this one is \
         `{scheduler}`: use another namespace, or delete its ConfigMap `{}` when that scheduler \
         is gone for good",
        owner::OWNER
    )]
    OwnedByAnother {
        /// The namespace.
        namespace: String,
        /// Whose it is.
        owner: String,
        /// Who we are.
        scheduler: String,
    },
    /// Another process of this scheduler leads, or may.
    #[error("this process does not lead the scheduler `{scheduler}` any more: {why}")]
    LostLease {
        /// Who we are.
        scheduler: String,
        /// What was seen.
        why: String,
    },
    /// A part that runs for ever has ended.
    #[error("the Kubernetes backend's {0} ended unexpectedly")]
    Ended(&'static str),
}
