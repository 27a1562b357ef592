//! Why a backend can't go on.

use super::owner;

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
