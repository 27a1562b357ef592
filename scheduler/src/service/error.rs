//! Why the service can't start or go on, for whoever started it.

use std::net::SocketAddr;

use super::BackendError;
use crate::gcp::storage::StorageError;
use crate::pipeline::PipelineError;
use crate::queue::QueueError;

/// Why the service can't start or go on.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The configuration or the farm's files are wrong; each problem is a line.
    #[error("{0}")]
    Configuration(String),
    /// A queue can't be opened.
    #[error("queue {name}: {error}")]
    Queue {
        /// Its name.
        name: String,
        /// What it said.
        error: QueueError,
    },
    /// Cloud Storage can't be used.
    #[error("{0}")]
    Storage(#[from] StorageError),
    /// A backend can't be set up or has failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// Another process listens there, or it is not ours to listen on.
    #[error(
        "http.listen: can't listen on {at}: {error}; stop what listens there, or write another \
         address"
    )]
    Listen {
        /// The address.
        at: SocketAddr,
        /// What the system said.
        error: std::io::Error,
    },
    /// The HTTP endpoint failed.
    #[error("the HTTP endpoint: {0}")]
    Http(std::io::Error),
    /// This process may not do what it would have to; a line for each backend.
    #[error("{0}")]
    Rights(String),
    /// The pipeline can't go on.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// A part that runs for ever has ended.
    #[error("{0} ended unexpectedly")]
    Ended(String),
}
