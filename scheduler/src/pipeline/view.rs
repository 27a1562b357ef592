//! What others may see of a running pipeline: a copy of its state, made now and then.
//!
//! Copies are made at most twice a second and at least whenever something happens, which is every
//! two seconds as long as flags can be read. Nothing is decided by them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::Pipeline;
use super::book::Entry;
use super::stages::{Stage, Stages};
use crate::domain::name::{BackendName, QueueName};
use crate::domain::outcome::{Deferral, HoldKind};
use crate::domain::room::Room;

/// The least time between two copies.
const EVERY: Duration = Duration::from_millis(500);
/// How long a refusal that would meet every create is believed while nothing is tried.
const BELIEVED_FOR: Duration = Duration::from_secs(600);

/// Readable while the pipeline runs.
#[derive(Debug, Default)]
pub struct View {
    seen: Mutex<Arc<Seen>>,
    stages: Mutex<Stages>,
}

/// The pipeline's state at one time.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// When it was made; `None`: the pipeline has not begun.
    pub taken_at: Option<Instant>,
    /// The queues, in the order of the configuration.
    pub queues: Vec<QueueView>,
    /// The backends, in the order of the configuration.
    pub backends: Vec<BackendView>,
    /// The tasks that wait for a reason, by it, with the words of one of them.
    pub held: BTreeMap<HoldKind, Held>,
    /// Tasks that could go as soon as there is room.
    pub ready: usize,
    /// Tasks that wait for the answer to their submission.
    pub in_flight: usize,
    /// Tasks that wait for acks or quarantine records.
    pub settling: usize,
    /// How old the flags are; `None`: never read.
    pub flags_age: Option<Duration>,
    /// What keeps it from taking or giving any task at all; each says what is wrong.
    pub obstacles: Vec<&'static str>,
    /// Whether too many rejects stopped the intake.
    pub fuse_blown: bool,
}

/// Tasks that are held for one reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    /// How many.
    pub tasks: usize,
    /// What one of them was told, credentials taken out.
    pub detail: String,
}

/// One queue's part.
#[derive(Debug, Clone)]
pub struct QueueView {
    /// Its name.
    pub name: QueueName,
    /// Leased messages that are not acked.
    pub in_hand: usize,
    /// When the oldest of them was published.
    pub oldest: Option<Timestamp>,
}

/// One backend's part.
#[derive(Debug, Clone)]
pub struct BackendView {
    /// Its name.
    pub name: BackendName,
    /// Whether the weights in force give it any tasks; `None` before there are any.
    pub takes: Option<bool>,
    /// Its room.
    pub room: Room,
    /// Submissions under way.
    pub under_way: usize,
    /// The refusal that stopped it last, unless something was scheduled since.
    pub refused: Option<Deferral>,
}

impl View {
    /// The latest copy.
    pub fn seen(&self) -> Arc<Seen> {
        Arc::clone(&lock(&self.seen))
    }

    /// How long the stages took so far.
    pub fn stages(&self) -> Stages {
        lock(&self.stages).clone()
    }

    pub(super) fn observe(&self, stage: Stage, time: Duration) {
        lock(&self.stages).observe(stage, time);
    }
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    // Both are whole after every statement, so a panic elsewhere leaves them usable.
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pipeline {
    /// What others may see, readable while it runs.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.view)
    }

    /// A task was confirmed: how long it took until then.
    pub(super) fn observe_confirmed(&self, entry: &Entry) {
        if let Some(submitted) = entry.submitted_at {
            let confirmed = self.deps.clock.mono().saturating_duration_since(submitted);
            self.view.observe(Stage::Held, submitted.saturating_duration_since(entry.since));
            self.view.observe(Stage::Submitted, confirmed);
        }
    }

    /// Makes a copy of the state, unless one was made a moment ago.
    pub(super) fn show(&self, now: Instant) {
        let last = self.view.seen().taken_at;
        if last.is_some_and(|last| now.saturating_duration_since(last) < EVERY) {
            return;
        }
        let seen = Arc::new(self.copy(now));
        *lock(&self.view.seen) = seen;
    }

    fn copy(&self, now: Instant) -> Seen {
        let name = |at: usize| self.deps.queues[at].queue.name().clone();
        let queue = |at| QueueView { name: name(at), in_hand: 0, oldest: None };
        let mut queues: Vec<QueueView> = (0..self.queues.len()).map(queue).collect();
        let mut held: BTreeMap<HoldKind, Held> = BTreeMap::new();
        for (_, entry) in self.book.iter() {
            for ticket in &entry.tickets {
                let Some(queue) = queues.get_mut(ticket.queue) else { continue };
                queue.in_hand += 1;
                let published = entry.task.published_at;
                queue.oldest = Some(queue.oldest.map_or(published, |old| old.min(published)));
            }
            if let Some((kind, detail)) = waiting(entry) {
                let held = held.entry(*kind).or_default();
                held.tasks += 1;
                held.detail.clone_from(detail);
            }
        }
        Seen {
            taken_at: Some(now),
            queues,
            backends: (0..self.backends.len()).map(|at| self.backend_view(at, now)).collect(),
            held,
            ready: self.book.ready() + self.book.looked_up(),
            in_flight: self.book.in_flight(),
            settling: self.book.settling(),
            flags_age: self.flags.as_ref().map(|(read, _)| now.saturating_duration_since(*read)),
            obstacles: self.obstacles(now),
            fuse_blown: self.fuse.blown(),
        }
    }

    fn backend_view(&self, at: usize, now: Instant) -> BackendView {
        let state = &self.backends[at];
        let believed =
            |(when, _): &&(Instant, Deferral)| now.saturating_duration_since(*when) < BELIEVED_FOR;
        BackendView {
            name: self.deps.backends[at].candidate.name.clone(),
            takes: (!self.weights.shares.is_empty()).then(|| self.weights.takes(at)),
            room: state.room.borrow().clone(),
            under_way: state.under_way,
            refused: state.refused.as_ref().filter(believed).map(|(_, why)| why.clone()),
        }
    }
}

/// Why a task waits now, if it does.
pub(super) fn waiting(entry: &Entry) -> Option<&(HoldKind, String)> {
    entry.held.as_ref().filter(|_| entry.place.is_wait())
}
