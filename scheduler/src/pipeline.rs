//! The pipeline: moves tasks from the queues to the backends, and settles their messages.
//!
//! One file a stage. Everything runs as one actor ([`Pipeline::run`]) that polls the calls it has
//! under way itself: no spawning, no locks, one order of events, so that a simulation replays a run
//! from its seed. It knows traits and `domain` only; [`Deps`] is all that it touches of the world.
//!
//! Invariants: a message is acked only after its backend answered `Scheduled`, or after its
//! quarantine record is durable; only what is wrong with a message itself is rejected; a panic in
//! one task's handling stays that task's.

mod book;
mod deps;
mod dispatch;
mod fuse;
mod in_force;
mod intake;
pub mod leases;
mod look_up;
pub mod resolve;
mod say;
mod settle;
pub mod stages;
pub mod tally;
mod unheld;
pub mod view;
mod workloads;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::catalog::CatalogError;
use crate::catalog::entity::JobEntities;
use crate::domain::name::{JobType, TaskHash};
use crate::domain::outcome::{Deferral, HoldKind, Outcome, Rejection};
use crate::domain::room::Room;
use crate::domain::task::WorkloadKey;
use crate::flags::{FlagSet, FlagsError};
use crate::gate::Weights;
use crate::queue::{Delivery, QueueError};
use book::{Book, Ticket};
pub use deps::{BackendBinding, Deps, Ended, PipelineError, QueueBinding, Resolver, Settings};
use fuse::Fuse;
use say::Said;
use tally::Tally;
use view::View;
use workloads::Workloads;

/// How long one call for messages waits for the first one.
const LEASE_WAIT: Duration = Duration::from_secs(2);
/// With more room than this, changes of it need not be heard of: twice what one call leases.
const PLENTY: usize = 1_000;
/// The pause after a queue said that it is unavailable.
const QUEUE_RETRY: Duration = Duration::from_secs(1);
/// With `once`: how long nothing may happen before what is left counts as held for long.
const ONCE_PATIENCE: Duration = Duration::from_secs(60);

/// What a call under way came to.
enum Event {
    Leased {
        queue: usize,
        asked_at: Instant,
        result: Result<Vec<Delivery>, QueueError>,
    },
    LookedUp {
        keys: Vec<WorkloadKey>,
        fresh: bool,
        result: LookUp,
    },
    Flags(Result<FlagSet, FlagsError>),
    FlagsDue,
    Submitted {
        backend: usize,
        tasks: Vec<TaskHash>,
        outcomes: Result<Vec<Outcome>, String>,
    },
    Acked {
        queue: usize,
        acks: Vec<Ack>,
        results: Vec<Result<(), QueueError>>,
    },
    Quarantined {
        hash: Option<TaskHash>,
        ticket: Ticket,
        why: Rejection,
        result: Result<(), QueueError>,
    },
    Located {
        hash: TaskHash,
        why: Rejection,
        found: Result<Option<usize>, Deferral>,
    },
    Released {
        queue: usize,
        tickets: Vec<Ticket>,
    },
    RoomChanged {
        backend: usize,
        room: watch::Receiver<Room>,
    },
    QueueRested {
        queue: usize,
    },
    AcksDue {
        queue: usize,
    },
}

type LookUp = Result<BTreeMap<JobType, JobEntities>, CatalogError>;

/// A message to be acked, and the task that it belongs to (none: another subscription's).
#[derive(Debug, Clone)]
struct Ack {
    hash: Option<TaskHash>,
    ticket: Ticket,
}

/// One queue's state.
#[derive(Default)]
struct QueueState {
    leasing: bool,
    /// An empty answer came since the last non-empty one, and how many in a row.
    empty_answers: u32,
    acks: Vec<Ack>,
    /// When gathered acks are sent, however few.
    acks_due: Option<Instant>,
    acking: bool,
    ack_retry: Duration,
}

/// One backend's state.
struct BackendState {
    room: watch::Receiver<Room>,
    /// Submissions under way.
    under_way: usize,
    /// Those among them that were not polled yet, so that the room does not count them yet.
    unpolled: Arc<AtomicUsize>,
    /// A change of its room is waited for.
    awaited: bool,
    /// Closed until then, after a deferral that stops the backend.
    closed: Option<(Instant, Deferral)>,
    /// The deferral that stopped it last and when, until something is scheduled there again.
    refused: Option<(Instant, Deferral)>,
}

impl BackendState {
    /// How many more tasks it can take, as far as is known here.
    fn free(&self) -> usize {
        self.room.borrow().free().saturating_sub(self.unpolled.load(Ordering::Relaxed))
    }
}

/// The pipeline. See the module's documentation.
pub struct Pipeline {
    deps: Deps,
    tally: Arc<Tally>,
    view: Arc<View>,
    book: Book,
    workloads: Workloads,
    fuse: Fuse,
    flags: Option<(Instant, FlagSet)>,
    weights: Weights,
    queues: Vec<QueueState>,
    backends: Vec<BackendState>,
    calls: FuturesUnordered<BoxFuture<'static, Event>>,
    /// Calls that only wait (for messages, flags, room) and may be dropped at any time.
    waits: FuturesUnordered<BoxFuture<'static, Event>>,
    looking_up: bool,
    said: Said,
    /// The resolver's generation that the known workloads are of.
    generation: u64,
    stopping: bool,
    last_progress: Instant,
}

impl Pipeline {
    /// A pipeline over `deps`.
    pub fn new(deps: Deps) -> Self {
        let backends = deps.backends.iter().map(|binding| BackendState {
            room: binding.backend.room(),
            under_way: 0,
            unpolled: Arc::default(),
            awaited: false,
            closed: None,
            refused: None,
        });
        Self {
            backends: backends.collect(),
            queues: deps.queues.iter().map(|_| QueueState::default()).collect(),
            last_progress: deps.clock.mono(),
            deps,
            tally: Arc::default(),
            view: Arc::default(),
            book: Book::default(),
            workloads: Workloads::default(),
            fuse: Fuse::default(),
            flags: None,
            weights: Weights::default(),
            calls: FuturesUnordered::new(),
            waits: FuturesUnordered::new(),
            looking_up: false,
            said: Said::default(),
            generation: 0,
            stopping: false,
        }
    }

    /// The counts, readable while it runs.
    pub fn tally(&self) -> Arc<Tally> {
        Arc::clone(&self.tally)
    }

    /// Runs until told to stop, or with `once` until the queues are drained. Told to stop, it takes
    /// no more, waits for what is under way (at most the grace), and gives back the rest.
    ///
    /// # Errors
    /// When a queue is broken; all that it had in hand then comes back when its leases lapse.
    pub async fn run(&mut self, shutdown: CancellationToken) -> Result<Ended, PipelineError> {
        self.read_flags();
        loop {
            self.step(&shutdown).await?;
            if shutdown.is_cancelled() {
                self.stop().await?;
                return Ok(Ended::Stopped);
            }
            if self.fuse.blown() && self.calls.is_empty() && self.deps.settings.once {
                self.stop().await?;
                return Ok(Ended::FuseBlown);
            }
            if self.deps.settings.once && self.drained() {
                self.stop().await?;
                return Ok(Ended::Drained);
            }
        }
    }

    /// Starts all that can be started, then waits for the next thing to happen.
    async fn step(&mut self, shutdown: &CancellationToken) -> Result<(), PipelineError> {
        let now = self.deps.clock.mono();
        self.wake(now);
        self.dispatch(now);
        self.let_go();
        self.look_up();
        self.start_acks(now);
        self.await_rooms();
        if !self.stopping {
            self.take_in(now);
        }
        self.publish(now);
        let wake_at = self.next_wake(now);
        tokio::select! {
            biased;
            () = shutdown.cancelled(), if !self.stopping => {}
            Some(event) = self.calls.next() => self.handle_all(event)?,
            Some(event) = self.waits.next() => self.handle_all(event)?,
            () = tokio::time::sleep_until(wake_at) => {}
        }
        Ok(())
    }

    /// Handles an event and all others that are there already, so that one round of dispatching
    /// serves them all.
    fn handle_all(&mut self, first: Event) -> Result<(), PipelineError> {
        self.handle(first)?;
        while let Some(Some(event)) = self.calls.next().now_or_never() {
            self.handle(event)?;
        }
        Ok(())
    }

    fn handle(&mut self, event: Event) -> Result<(), PipelineError> {
        let now = self.deps.clock.mono();
        match event {
            Event::Leased { queue, asked_at, result } => self.leased(queue, asked_at, result)?,
            Event::QueueRested { queue } => self.queues[queue].leasing = false,
            Event::LookedUp { keys, fresh, result } => {
                self.looked_up(&keys, fresh, &result, now);
            }
            Event::Flags(result) => self.flags_read(result, now),
            Event::FlagsDue => self.read_flags(),
            Event::Submitted { backend, tasks, outcomes } => {
                self.last_progress = now;
                self.submitted(backend, &tasks, outcomes, now);
            }
            Event::Acked { queue, acks, results } => self.acked(queue, acks, &results, now)?,
            Event::AcksDue { queue } => self.queues[queue].acking = false,
            Event::Quarantined { hash, ticket, why, result } => {
                self.last_progress = now;
                self.quarantined(hash, &ticket, &why, result, now);
            }
            Event::Located { hash, why, found } => self.located(hash, &why, found, now),
            Event::Released { queue, tickets } => self.released(queue, &tickets),
            Event::RoomChanged { backend, room } => {
                self.backends[backend].room = room;
                self.backends[backend].awaited = false;
            }
        }
        Ok(())
    }

    fn next_wake(&self, now: Instant) -> Instant {
        let workloads =
            self.book.waiting_workloads().filter_map(|key| self.workloads.held_until(key)).min();
        let closed = self.backends.iter().filter_map(|b| b.closed.as_ref().map(|c| c.0)).min();
        let acks = self.queues.iter().filter_map(|queue| queue.acks_due).min();
        let times = [self.book.next_time(), workloads, closed, acks];
        let next = times.into_iter().flatten().min();
        let latest = now + if self.deps.settings.once { LEASE_WAIT } else { ONCE_PATIENCE };
        next.map_or(latest, |next| next.min(latest))
    }

    /// Whether nothing is left to do but to hold (`once`).
    fn drained(&self) -> bool {
        let now = self.deps.clock.mono();
        let patience_over = now.duration_since(self.last_progress) > ONCE_PATIENCE;
        let hopeless = |held: &Option<(HoldKind, String)>| {
            held.as_ref().is_some_and(|(kind, _)| !kind.passes())
        };
        let nothing_hopeful = self.book.iter().all(|(_, entry)| hopeless(&entry.held));
        self.calls.is_empty()
            && self.queues.iter().all(|q| q.acks.is_empty())
            && (patience_over
                || (self.queues.iter().all(|q| q.empty_answers > 0) && nothing_hopeful))
    }

    /// Listens to each backend whose room is short. While there is plenty nothing is gained by
    /// hearing of every Job that takes or gives some.
    fn await_rooms(&mut self) {
        for backend in 0..self.backends.len() {
            let state = &self.backends[backend];
            if !state.awaited && (state.free() < PLENTY || self.book.waits_for(backend)) {
                self.await_room(backend);
            }
        }
    }

    fn await_room(&mut self, backend: usize) {
        self.backends[backend].awaited = true;
        let mut room = self.backends[backend].room.clone();
        let wait = async move {
            if room.changed().await.is_err() {
                // The backend is gone: its last word stands, and whoever runs it ends the process.
                std::future::pending::<()>().await;
            }
            Event::RoomChanged { backend, room }
        };
        self.waits.push(wait.boxed());
    }
}

/// What a panic said.
fn said(panic: Box<dyn std::any::Any + Send>) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    crate::domain::redact::redact(&text.unwrap_or_else(|| "it did not say why".into())).into_owned()
}
