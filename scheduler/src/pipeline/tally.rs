//! Counts of what the pipeline decided, and the hook through which others hear of each decision.
//!
//! The labels are closed sets; job types are not among them. Explaining single tasks over time is
//! the ledger's, not this.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::domain::name::{BackendName, JobName};
use crate::domain::outcome::{HoldKind, Placed, RejectKind};
use crate::domain::task::WorkloadKey;

/// One decision about one message or task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The message's id in its queue.
    pub message_id: String,
    /// Command and job type, where the message could be read that far.
    pub key: Option<WorkloadKey>,
    /// The Job's name, where the message could be read that far.
    pub job: Option<JobName>,
    /// The backend that it was routed to, where it came that far.
    pub backend: Option<BackendName>,
    /// What was decided.
    pub verdict: Verdict,
}

/// What was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Its Job is there, or its output.
    Scheduled(Placed),
    /// Its message is acked, after its Job was confirmed.
    Acked,
    /// Its Job is there, but its lease was lost before the ack: it will come again and be acked then.
    AckLost,
    /// Another subscription's message: acked without a Job.
    NotOurs,
    /// Held, with the reason.
    Held(HoldKind, String),
    /// In quarantine, with the reason.
    Rejected(RejectKind, String),
    /// Given back to the queue, which decides what becomes of it: its Job has failed.
    Failed,
    /// Given back to the queue, undone.
    Released,
}

/// Hears of every decision, in order. Called on the pipeline's own task: must not block.
pub trait Observer: Send + Sync {
    /// One decision.
    fn decided(&self, decision: &Decision);
}

/// Counts, readable while the pipeline runs.
#[derive(Debug, Default)]
pub struct Tally {
    counts: Mutex<Counts>,
}

/// What was counted so far.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Counts {
    /// Deliveries leased.
    pub leased: u64,
    /// Jobs made.
    pub created: u64,
    /// Tasks whose Job was there already.
    pub already_there: u64,
    /// Tasks whose output was there already: no Job was made.
    pub done: u64,
    /// Messages acked after their Job was confirmed.
    pub acked: u64,
    /// Acks that came too late.
    pub ack_lost: u64,
    /// Messages of other subscriptions.
    pub not_ours: u64,
    /// Messages given back undone.
    pub released: u64,
    /// Messages given back because their Job had failed.
    pub failed: u64,
    /// Times that a task was held, by reason.
    pub held: BTreeMap<HoldKind, u64>,
    /// Rejected messages, by reason.
    pub rejected: BTreeMap<RejectKind, u64>,
    /// Work lost to dead URLs: the expected runs of all tasks that were rejected for theirs.
    pub lost_to_dead_urls: Duration,
}

impl Tally {
    /// What was counted so far.
    pub fn read(&self) -> Counts {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn leased(&self, n: usize) {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).leased += n as u64;
    }

    /// A task was rejected for its dead URL that was expected to run for so long.
    pub(super) fn lost_to_dead_url(&self, expected: Duration) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.lost_to_dead_urls = counts.lost_to_dead_urls.saturating_add(expected);
    }

    pub(super) fn count(&self, verdict: &Verdict) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let counter = match verdict {
            Verdict::Scheduled(Placed::Created) => &mut counts.created,
            Verdict::Scheduled(Placed::AlreadyThere) => &mut counts.already_there,
            Verdict::Scheduled(Placed::Done) => &mut counts.done,
            Verdict::Acked => &mut counts.acked,
            Verdict::AckLost => &mut counts.ack_lost,
            Verdict::NotOurs => &mut counts.not_ours,
            Verdict::Failed => &mut counts.failed,
            Verdict::Released => &mut counts.released,
            Verdict::Held(kind, _) => counts.held.entry(*kind).or_default(),
            Verdict::Rejected(kind, _) => counts.rejected.entry(*kind).or_default(),
        };
        *counter += 1;
    }
}
