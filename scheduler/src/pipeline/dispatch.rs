//! Dispatch: takes ready tasks, resolves, routes and submits them, and books the outcomes.
//!
//! A ready task goes to its backend if its workload is usable, its URL lives, and the backend is
//! open and has room; otherwise it waits in the place that says for what.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt;
use tokio::time::Instant;

use super::book::{Entry, Place};
use super::say::Stopped;
use super::tally::Verdict as Decided;
use super::workloads::Known;
use super::{Event, Pipeline, said};
use crate::domain::name::TaskHash;
use crate::domain::outcome::{Deferral, HoldKind, Outcome, Placed, RejectKind, Rejection, Scope};
use crate::domain::signed_url::Verdict;
use crate::domain::task::WorkloadKey;
use crate::domain::workload::Workload;
use crate::gate::Route;

/// Submissions under way a backend: above any window of creates, so that the window decides.
const UNDER_WAY: usize = 128;
/// The wait after a submission that found no room where there was some.
const ROOM_AGAIN: Duration = Duration::from_millis(100);
/// The wait before a task whose handling panicked is tried again.
const PANIC_AGAIN: Duration = Duration::from_secs(10);

impl Pipeline {
    /// Makes ready what has waited long enough, or for what is there now.
    pub(super) fn wake(&mut self, now: Instant) {
        self.book.wake_timed(now);
        for at in 0..self.backends.len() {
            if self.backends[at].closed.as_ref().is_some_and(|(until, _)| *until <= now) {
                self.backends[at].closed = None;
            }
            if self.backends[at].closed.is_none() {
                self.book.wake_backend(at, self.takes(at));
            }
        }
        let due: Vec<WorkloadKey> = self
            .book
            .waiting_workloads()
            .filter(|key| self.workloads.held_until(key).is_some_and(|until| until <= now))
            .cloned()
            .collect();
        due.iter().for_each(|key| self.book.wake_workload(key));
    }

    /// Gives ready tasks to their backends.
    pub(super) fn dispatch(&mut self, now: Instant) {
        if self.stopping || self.usable_flags(now).is_none() {
            return;
        }
        // What a backend can take in this round: what has been given in it is not in its room yet.
        let mut free: Vec<usize> = (0..self.backends.len()).map(|at| self.takes(at)).collect();
        let round = self.book.ready();
        for _ in 0..round {
            let Some(hash) = self.book.next_ready() else { return };
            if let Some((backend, workload)) = self.place(hash, now) {
                if free.get(backend).copied().unwrap_or(0) == 0 {
                    self.hold_for_room(hash, backend);
                    continue;
                }
                free[backend] -= 1;
                self.submit(backend, workload, hash);
            }
        }
    }

    /// How many tasks a backend can be given now.
    fn takes(&self, at: usize) -> usize {
        let backend = &self.backends[at];
        backend.free().min(UNDER_WAY.saturating_sub(backend.under_way))
    }

    /// Where a ready task goes now; `None`: it was put where it has to wait, or is done with.
    fn place(&mut self, hash: TaskHash, now: Instant) -> Option<(usize, Arc<Workload>)> {
        let entry = self.book.get(&hash)?;
        let (task, tickets) = (Arc::clone(&entry.task), entry.tickets.clone());
        let alive = |t: &super::Ticket| self.deps.queues[t.queue].leases.alive(&t.lease, now);
        if !tickets.iter().any(alive) {
            // Its messages will be delivered again: never create on a lapsed lease.
            self.book.remove(&hash);
            return None;
        }
        let workload = match self.workloads.ask(&task.key, now) {
            Known::Usable(workload) => workload,
            Known::LookUp => {
                self.book.put(hash, Place::LookUp(task.key.clone()));
                return None;
            }
            Known::Held(why) => {
                self.hold(hash, None, Place::Workload(task.key.clone()), &why);
                return None;
            }
            Known::Unknown(detail) => {
                self.reject(hash, &Rejection::new(RejectKind::UnknownJobType, detail), now);
                return None;
            }
        };
        if !self.url_lives(hash, &task, now) {
            return None;
        }
        match self.weights.route(&task.hash, self.deps.clock.wall()) {
            Route::To(at) => match self.closed(at, now) {
                None => Some((at, workload)),
                Some(why) => {
                    let why = why.clone();
                    self.hold(hash, Some(at), Place::Backend(at), &why);
                    None
                }
            },
            Route::Throttled(wait) => {
                let detail = "the weights leave this share of the tasks in the queue";
                let why = Deferral::new(Scope::Task, HoldKind::WeightThrottle, detail, wait);
                self.hold(hash, None, Place::Until(now + wait), &why);
                None
            }
            Route::Nowhere => {
                let wait = Duration::from_secs(5);
                let detail = "no backend has a weight above zero and its flag on";
                let why = Deferral::new(Scope::Task, HoldKind::NoBackend, detail, wait);
                self.hold(hash, None, Place::Until(now + wait), &why);
                None
            }
        }
    }

    fn url_lives(
        &mut self,
        hash: TaskHash,
        task: &crate::domain::task::Task,
        now: Instant,
    ) -> bool {
        let expected = self.deps.resolver.expected_run(&task.key.command);
        let Some(validity) = task.input.validity() else { return true };
        let reason = match validity.judge(self.deps.clock.wall(), expected) {
            Verdict::Usable => return true,
            Verdict::NotYet(wait) => {
                let detail = format!("the input URL becomes valid in {} s", wait.as_secs());
                let why = Deferral::new(Scope::Task, HoldKind::NotYetValid, detail, wait);
                self.hold(hash, None, Place::Until(now + wait), &why);
                return false;
            }
            Verdict::Dead(since) => format!("the input URL died {} min ago", since.as_secs() / 60),
            Verdict::TooShort(by) => format!(
                "the output URL would be dead {} min before the task's expected end",
                by.as_secs().div_ceil(60)
            ),
        };
        self.locate(hash, Rejection::new(RejectKind::DeadUrl, reason));
        false
    }

    /// Asks every backend for a task that is to be rejected for a reason that time brought: it may
    /// have been created before, and its ack lost.
    fn locate(&mut self, hash: TaskHash, why: Rejection) {
        let Some(task) = self.book.get(&hash).map(|entry| Arc::clone(&entry.task)) else { return };
        self.book.put(hash, Place::InFlight);
        let backends: Vec<_> =
            self.deps.backends.iter().map(|binding| Arc::clone(&binding.backend)).collect();
        let call = async move {
            let ask = async {
                for (at, backend) in backends.iter().enumerate() {
                    if backend.has(&task).await? {
                        return Ok(Some(at));
                    }
                }
                Ok(None)
            };
            let found = AssertUnwindSafe(ask).catch_unwind().await.unwrap_or_else(|panic| {
                Err(Deferral::new(Scope::Task, HoldKind::Panicked, said(panic), PANIC_AGAIN))
            });
            Event::Located { hash, why, found }
        };
        self.calls.push(call.boxed());
    }

    pub(super) fn located(
        &mut self,
        hash: TaskHash,
        why: &Rejection,
        found: Result<Option<usize>, Deferral>,
        now: Instant,
    ) {
        match found {
            Ok(Some(backend)) => self.scheduled(backend, hash, Placed::AlreadyThere),
            Ok(None) => self.reject(hash, why, now),
            Err(later) => {
                self.hold(hash, None, Place::Until(now + later.retry_after), &later);
            }
        }
    }

    /// The deferral that keeps a backend closed now, if one does.
    pub(super) fn closed(&self, at: usize, now: Instant) -> Option<&Deferral> {
        self.backends[at].closed.as_ref().filter(|(until, _)| *until > now).map(|(_, why)| why)
    }

    fn hold_for_room(&mut self, hash: TaskHash, backend: usize) {
        if self.backends[backend].free() > 0 {
            // There is room; it only waits for its turn behind what is under way.
            self.book.put(hash, Place::Backend(backend));
            return;
        }
        let (kind, detail) = match &*self.backends[backend].room.borrow() {
            crate::domain::room::Room::Unknown(why) => (HoldKind::RoomUnknown, why.clone()),
            crate::domain::room::Room::Known(o) if o.live_limit.is_some_and(|l| o.live >= l) => {
                (HoldKind::LiveLimit, format!("{} Jobs are unfinished", o.live))
            }
            crate::domain::room::Room::Known(o) => {
                (HoldKind::PendingLimit, format!("{} of {} pending", o.pending, o.pending_limit))
            }
        };
        let wait = Duration::from_secs(1);
        let why = Deferral::new(Scope::Backend, kind, detail, wait);
        self.hold(hash, Some(backend), Place::Backend(backend), &why);
    }

    /// Puts a task where it waits; told and counted only when the reason is a new one.
    pub(super) fn hold(
        &mut self,
        hash: TaskHash,
        backend: Option<usize>,
        place: Place,
        why: &Deferral,
    ) {
        self.book.put(hash, place);
        let Some(entry) = self.book.get_mut(&hash) else { return };
        let stopped = match (why.scope, backend) {
            (Scope::Workload, _) => Some(Stopped::Workload(entry.task.key.clone())),
            (Scope::Backend, Some(at)) => {
                Some(Stopped::Backend(self.deps.backends[at].candidate.name.clone()))
            }
            _ => None,
        };
        if let Some(stopped) = stopped {
            self.said.stopped(stopped, why);
        }
        let reason = (why.kind, why.detail.clone());
        let is_new = entry.held.as_ref().map(|held| held.0) != Some(why.kind);
        entry.held = Some(reason);
        if is_new {
            let tickets = entry.tickets.clone();
            for ticket in tickets {
                let verdict = Decided::Held(why.kind, why.detail.clone());
                self.decide(Some(&hash), &ticket, backend, verdict);
            }
        }
        self.give_back_unheld(hash, why);
    }

    fn submit(&mut self, backend: usize, workload: Arc<Workload>, hash: TaskHash) {
        self.book.put(hash, Place::InFlight);
        let Some(entry) = self.book.get_mut(&hash) else { return };
        entry.submitted_at = Some(self.deps.clock.mono());
        let task = (*entry.task).clone();
        self.backends[backend].under_way += 1;
        let target = Arc::clone(&self.deps.backends[backend].backend);
        let unpolled = Arc::clone(&self.backends[backend].unpolled);
        unpolled.fetch_add(1, Ordering::Relaxed);
        let call = async move {
            unpolled.fetch_sub(1, Ordering::Relaxed);
            let submission = async { target.submit(&workload, std::slice::from_ref(&task)).await };
            let outcomes = AssertUnwindSafe(submission).catch_unwind().await.map_err(said);
            Event::Submitted { backend, tasks: vec![hash], outcomes }
        };
        self.calls.push(call.boxed());
    }

    pub(super) fn submitted(
        &mut self,
        backend: usize,
        tasks: &[TaskHash],
        outcomes: Result<Vec<Outcome>, String>,
        now: Instant,
    ) {
        self.backends[backend].under_way -= tasks.len();
        match outcomes {
            Ok(outcomes) => {
                for (at, hash) in tasks.iter().enumerate() {
                    match outcomes.get(at) {
                        Some(outcome) => self.outcome(backend, *hash, outcome.clone(), now),
                        None => self.panicked(*hash, "the backend gave no outcome for it", now),
                    }
                }
            }
            Err(panic) => tasks.iter().for_each(|hash| self.panicked(*hash, &panic, now)),
        }
    }

    fn outcome(&mut self, backend: usize, hash: TaskHash, outcome: Outcome, now: Instant) {
        match outcome {
            Outcome::Scheduled(placed) => self.scheduled(backend, hash, placed),
            Outcome::Rejected(why) => self.reject(hash, &why, now),
            Outcome::Deferred(why)
                if why.kind == HoldKind::Panicked && why.scope == Scope::Task =>
            {
                self.panicked(hash, &why.detail, now);
            }
            Outcome::Deferred(why) => {
                let until = now + why.retry_after;
                let place = match why.scope {
                    Scope::Task => Place::Until(until),
                    Scope::Workload => match self.book.get(&hash).map(|e| e.task.key.clone()) {
                        Some(key) => {
                            self.workloads.held(key.clone(), why.clone(), false, now);
                            Place::Workload(key)
                        }
                        None => return,
                    },
                    Scope::Backend => {
                        if !why.kind.is_room() {
                            self.backends[backend].closed = Some((until, why.clone()));
                            self.backends[backend].refused = Some((now, why.clone()));
                            Place::Backend(backend)
                        } else if self.backends[backend].free() == 0 {
                            // The backend itself says when there is room again.
                            Place::Backend(backend)
                        } else {
                            // What it said and what it did differ for a moment: do not spin.
                            Place::Until(now + why.retry_after.min(ROOM_AGAIN))
                        }
                    }
                };
                self.hold(hash, Some(backend), place, &why);
            }
        }
    }

    /// Contains a panic: tried again a few times, then the message is rejected. Counted here and
    /// not by deliveries, which a crash raises too.
    fn panicked(&mut self, hash: TaskHash, panic: &str, now: Instant) {
        let Some(Entry { panics, tickets, .. }) = self.book.get_mut(&hash) else { return };
        let allowed = tickets.iter().map(|ticket| self.deps.queues[ticket.queue].max_panics);
        let max = allowed.max().unwrap_or(1);
        *panics += 1;
        tracing::error!(task = ?hash, panic, "handling a task panicked");
        if *panics >= max {
            let detail = format!("handling it panicked {max} times, last: {panic}");
            self.reject(hash, &Rejection::new(RejectKind::Panicked, detail), now);
        } else {
            let why = Deferral::new(Scope::Task, HoldKind::Panicked, panic, PANIC_AGAIN);
            self.hold(hash, None, Place::Until(now + PANIC_AGAIN), &why);
        }
    }
}
