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
pub mod breaker;
mod breakers;
mod deps;
mod dispatch;
mod elsewhere;
mod follow;
mod fuse;
mod in_force;
mod intake;
pub mod leases;
mod let_go;
mod look_up;
pub mod resolve;
mod routing;
mod say;
mod settle;
mod shares;
pub mod snapshot;
pub mod stages;
mod state;
pub mod tally;
mod unheld;
pub mod view;
pub mod work;
mod workloads;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backend::Finished;
use crate::catalog::CatalogError;
use crate::catalog::entity::JobEntities;
use crate::domain::name::{JobType, TaskHash};
use crate::domain::outcome::{Deferral, HoldKind, Outcome, Rejection};
use crate::domain::room::Room;
use crate::domain::task::WorkloadKey;
use crate::flags::FlagSet;
use crate::gate::Weights;
use crate::gate::epochs::Epochs;
use crate::queue::{Delivery, QueueError};
use crate::records::RecordError;
use book::{Book, Ticket};
use breakers::Breakers;
pub use deps::{BackendBinding, Deps, Ended, PipelineError, QueueBinding, Resolver, Settings};
use fuse::Fuse;
use in_force::InForce;
use say::Said;
use snapshot::Snapshot;
use state::{BackendState, QueueState};
use tally::Tally;
use view::View;
use workloads::Workloads;

/// How long one call for messages waits for the first one.
const LEASE_WAIT: Duration = Duration::from_secs(2);
/// The pause after a queue said that it is unavailable.
const QUEUE_RETRY: Duration = Duration::from_secs(1);
/// How often it is said that a queue is still unavailable, for the same reason.
const STILL_AWAY: Duration = Duration::from_secs(60);
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
    InForce(Box<in_force::Look>),
    LookDue,
    EpochWritten {
        epochs: Epochs,
        weights: Weights,
        result: Result<(), RecordError>,
    },
    Cleared {
        at: usize,
        cleared: Result<usize, Deferral>,
    },
    Noted,
    JobsFailed,
    Submitted {
        backend: usize,
        key: WorkloadKey,
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
        asked: Vec<usize>,
        then: elsewhere::Then,
        found: Result<Option<usize>, (usize, Deferral)>,
    },
    Finished {
        first: Box<Finished>,
        more: mpsc::UnboundedReceiver<Finished>,
    },
    Failed {
        failing: follow::Failing,
        result: Result<(), QueueError>,
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

/// The pipeline. See the module's documentation.
pub struct Pipeline {
    deps: Deps,
    tally: Arc<Tally>,
    view: Arc<View>,
    book: Book,
    workloads: Workloads,
    breakers: Breakers,
    fuse: Fuse,
    flags: Option<(Instant, FlagSet)>,
    weights: Weights,
    in_force: InForce,
    /// Where tasks may be that left undone; and up to when that was forgotten.
    left: elsewhere::Left,
    forgot: Option<Timestamp>,
    next_spill_look: Instant,
    shown: snapshot::Shown,
    queues: Vec<QueueState>,
    backends: Vec<BackendState>,
    calls: FuturesUnordered<BoxFuture<'static, Event>>,
    /// Calls that only wait (for messages, flags, room) and may be dropped at any time.
    waits: FuturesUnordered<BoxFuture<'static, Event>>,
    looking_up: bool,
    /// Messages that are being given back for a failure.
    failing: usize,
    next_running_look: Instant,
    said: Said,
    /// The resolver's generation that the known workloads are of.
    generation: u64,
    stopping: bool,
    started: Instant,
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
            turns: false,
            stuck: None,
            clear_at: None,
        });
        Self {
            backends: backends.collect(),
            queues: deps.queues.iter().map(|_| QueueState::default()).collect(),
            started: deps.clock.mono(),
            last_progress: deps.clock.mono(),
            next_spill_look: deps.clock.mono(),
            next_running_look: deps.clock.mono(),
            breakers: Breakers::new(deps.clock.mono()),
            shown: snapshot::Shown::new(deps.backends.len()),
            deps,
            tally: Arc::default(),
            view: Arc::default(),
            book: Book::default(),
            workloads: Workloads::default(),
            fuse: Fuse::default(),
            flags: None,
            weights: Weights::default(),
            in_force: InForce::default(),
            left: BTreeMap::new(),
            forgot: None,
            calls: FuturesUnordered::new(),
            waits: FuturesUnordered::new(),
            looking_up: false,
            failing: 0,
            said: Said::default(),
            generation: 0,
            stopping: false,
        }
    }

    /// The counts, readable while it runs.
    pub fn tally(&self) -> Arc<Tally> {
        Arc::clone(&self.tally)
    }

    /// What is in force and how it comes out, anew every two seconds while it runs.
    pub fn snapshot(&self) -> watch::Receiver<Snapshot> {
        self.shown.subscribe()
    }

    /// Runs until told to stop, or with `once` until the queues are drained. Told to stop, it takes
    /// no more, waits for what is under way (at most the grace), and gives back the rest.
    ///
    /// # Errors
    /// When a queue is broken; all that it had in hand then comes back when its leases lapse.
    pub async fn run(&mut self, shutdown: CancellationToken) -> Result<Ended, PipelineError> {
        self.look_at_all();
        self.await_failures();
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
        self.let_go(now);
        self.look_up();
        self.start_acks(now);
        self.await_rooms();
        self.await_ends();
        self.look_after_running(now);
        if !self.stopping {
            self.take_in(now);
        }
        self.show(now);
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
            Event::InForce(look) => self.looked_at_all(*look, now),
            Event::LookDue => self.look_at_all(),
            Event::EpochWritten { epochs, weights, result } => {
                self.epoch_written(epochs, weights, result)?;
            }
            Event::Cleared { at, cleared } => self.cleared(at, cleared),
            Event::Noted => {}
            Event::JobsFailed => {
                self.hear_ends(now);
                self.await_failures();
            }
            Event::Submitted { backend, key, tasks, outcomes } => {
                self.last_progress = now;
                self.submitted(backend, &key, &tasks, outcomes, now);
            }
            Event::Acked { queue, acks, results } => self.acked(queue, acks, &results, now)?,
            Event::AcksDue { queue } => self.queues[queue].acking = false,
            Event::Quarantined { hash, ticket, why, result } => {
                self.last_progress = now;
                self.quarantined(hash, &ticket, &why, result, now);
            }
            Event::Located { hash, asked, then, found } => {
                self.located(hash, &asked, &then, found, now);
            }
            Event::Finished { first, more } => self.finished_all(*first, more, now),
            Event::Failed { failing, result } => self.failed(failing, result, now),
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
        let waits = (0..self.backends.len()).any(|at| self.book.waiting_for(at) > 0);
        let spill = (waits && self.backends.len() > 1).then_some(self.next_spill_look);
        let look = self.deps.work.is_some().then_some(self.breakers.next_look);
        let times = [self.book.next_time(), workloads, closed, acks, spill, look];
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
            && self.book.running() == 0
            && self.queues.iter().all(|q| q.acks.is_empty())
            && (patience_over
                || (self.queues.iter().all(|q| q.empty_answers > 0) && nothing_hopeful))
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
