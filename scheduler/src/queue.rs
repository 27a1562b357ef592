//! The queue trait: leased messages that come back unless they are acked.
//!
//! Implementations: [`pubsub`] (Google Cloud), [`spool`] (a SQLite file on this machine),
//! [`push`] (what is posted to this process), [`memory`] (this process alone). A queue knows messages, not tasks: what a message means is
//! decoded by the pipeline.

pub mod memory;
pub mod pubsub;
pub mod push;
pub mod spool;

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use crate::domain::name::QueueName;
use crate::domain::outcome::{Deferral, Rejection};

/// The right to one delivery of a message, until its lease lapses. Opaque to all but its queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub String);

/// One delivery of a message. Its attributes hold a signed URL, so its `Debug` leaves them out.
#[derive(Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The lease, for extend, ack, release and quarantine.
    pub lease: LeaseId,
    /// The message's id: the same over all its deliveries.
    pub message_id: String,
    /// All that the message says.
    pub attributes: BTreeMap<String, String>,
    /// When it was published.
    pub published_at: Timestamp,
    /// How often it was delivered, this time included, where the queue knows.
    pub deliveries: Option<u32>,
}

impl std::fmt::Debug for Delivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delivery")
            .field("lease", &self.lease)
            .field("message_id", &self.message_id)
            .field("published_at", &self.published_at)
            .finish_non_exhaustive()
    }
}

/// Why a queue did not do what it was asked; says what to do next.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The lease is not ours any more: the message will be, or was, delivered again. Drop it.
    #[error("the lease has lapsed or was given to another")]
    LeaseLost,
    /// The queue can't be reached or is busy: try again.
    #[error("the queue is unavailable: {0}")]
    Unavailable(String),
    /// The queue itself is broken or not ours to use: stop and tell a person.
    #[error("the queue can't be used: {0}")]
    Unusable(String),
}

/// A queue of tasks. All methods may be called at once from several tasks.
///
/// A dropped future must not lose a message: it is delivered again when its lease lapses.
#[async_trait]
pub trait Queue: Send + Sync {
    /// The configured name.
    fn name(&self) -> &QueueName;

    /// Leases up to `n` messages for `lease_for`; waits up to `wait` for the first one. An empty
    /// answer does not say that the queue is empty.
    async fn lease(
        &self,
        n: usize,
        lease_for: Duration,
        wait: Duration,
    ) -> Result<Vec<Delivery>, QueueError>;

    /// Lets each lease run for `lease_for` from now on. Answers in the order asked.
    async fn extend(&self, leases: &[LeaseId], lease_for: Duration) -> Vec<Result<(), QueueError>>;

    /// Acknowledges: the message is done, for ever. `Ok` only when that is durable.
    async fn ack(&self, leases: &[LeaseId]) -> Vec<Result<(), QueueError>>;

    /// Gives a message back undone, to be delivered again after `after`. Uses up none of the
    /// attempts that the queue itself counts.
    async fn release(&self, leases: &[LeaseId], after: Duration) -> Vec<Result<(), QueueError>>;

    /// Gives a message back whose task has failed, for this reason (credentials taken out). The
    /// queue's own rule decides whether it comes again; where it counts attempts, this uses up one.
    /// `Ok` only when that is durable.
    async fn fail(&self, lease: &LeaseId, why: &str) -> Result<(), QueueError> {
        let _ = why;
        let released = self.release(std::slice::from_ref(lease), Duration::ZERO).await;
        released.into_iter().next().unwrap_or(Err(QueueError::LeaseLost))
    }

    /// Gives messages back whose task was deferred for this reason, to be delivered again in their
    /// time. For queues whose sender waits for the reason; the others need only the release.
    async fn defer(&self, leases: &[LeaseId], why: &Deferral) -> Vec<Result<(), QueueError>> {
        self.release(leases, why.retry_after).await
    }

    /// Puts the message's record into quarantine and acks it: `Ok` only when both are durable.
    async fn quarantine(&self, lease: &LeaseId, rejection: &Rejection) -> Result<(), QueueError>;

    /// Gives back what was taken ahead and is not leased out. Called once, when nothing more will be
    /// leased; it may take a few seconds.
    async fn close(&self) {}
}
