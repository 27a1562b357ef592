//! One task in hand: its messages, where it waits, and what is known of it. Plain data.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::time::Instant;

use crate::backend::Finished;
use crate::domain::name::Attempt;
use crate::domain::outcome::{HoldKind, Rejection};
use crate::domain::task::{Task, WorkloadKey};
use crate::queue::LeaseId;

/// One message of a task. A task has several when its input was queued twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    /// The queue's position in the configuration.
    pub queue: usize,
    /// The lease.
    pub lease: LeaseId,
    /// The message's id.
    pub message_id: String,
}

/// What a task waits for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Nothing: it can go as soon as there is room.
    Ready,
    /// Its workload to be looked up, which takes a moment.
    LookUp(WorkloadKey),
    /// Its workload to become usable.
    Workload(WorkloadKey),
    /// The backend at this position to get room, or to open.
    Backend(usize),
    /// A time.
    Until(Instant),
    /// The answer to its submission.
    InFlight,
    /// The end of its Job, whose followers its messages are.
    Running,
    /// Its acks or quarantine records.
    Settling,
}

impl Place {
    /// Whether it waits for something that another must bring about.
    pub fn is_wait(&self) -> bool {
        matches!(self, Self::Workload(_) | Self::Backend(_) | Self::Until(_))
    }
}

/// A task in hand.
#[derive(Debug)]
pub struct Entry {
    /// The task.
    pub task: Arc<Task>,
    /// Its messages.
    pub tickets: Vec<Ticket>,
    /// Where it waits.
    pub place: Place,
    /// Why it was held last.
    pub held: Option<(HoldKind, String)>,
    /// When it came in.
    pub since: Instant,
    /// When it was last given to a backend.
    pub submitted_at: Option<Instant>,
    /// How often handling it panicked.
    pub panics: u32,
    /// The backend that has confirmed its Job.
    pub scheduled_on: Option<usize>,
    /// The attempt whose end its messages wait for, and the backend that has it.
    pub follows: Option<(usize, Attempt)>,
    /// An end of it that was told before the answer to its submission.
    pub ended: Option<Finished>,
    /// It is done, so that every message is acked.
    pub done: bool,
    /// Since when its backend does not know of a Job that should be there.
    pub missing: Option<Instant>,
    /// Why it is being rejected.
    pub rejected: Option<Rejection>,
    /// One of its messages lost its lease before the ack.
    pub ack_lost: bool,
    /// The backends that it was given to, and where nothing says that it is not.
    pub tried: BTreeSet<usize>,
    /// The backends that have said that it is not there; true until it is given to them.
    pub cleared: BTreeSet<usize>,
    /// The full or broken backend that it waits for, and since when.
    pub blocked: Option<(usize, Instant)>,
}

impl Entry {
    /// A task that came in with this message.
    pub fn new(task: Task, ticket: Ticket, now: Instant) -> Self {
        Self {
            task: Arc::new(task),
            tickets: vec![ticket],
            place: Place::Ready,
            held: None,
            since: now,
            submitted_at: None,
            panics: 0,
            scheduled_on: None,
            follows: None,
            ended: None,
            done: false,
            missing: None,
            rejected: None,
            ack_lost: false,
            tried: BTreeSet::new(),
            cleared: BTreeSet::new(),
            blocked: None,
        }
    }
}
