//! Dispatch: takes ready tasks, resolves, routes and submits them, and books the outcomes.
//!
//! A ready task goes to its backend if its workload is usable, its URL lives, and the backend is
//! open and has room; otherwise it waits in the place that says for what.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt;
use tokio::time::Instant;

use super::book::{Entry, Place, Ticket};
use super::say::Stopped;
use super::tally::Verdict as Decided;
use super::workloads::Known;
use super::{Event, Pipeline, said};
use crate::domain::name::TaskHash;
use crate::domain::outcome::{Deferral, HoldKind, Outcome, RejectKind, Rejection, Scope};
use crate::domain::signed_url::Verdict;
use crate::domain::task::{Follow, Task, WorkloadKey};
use crate::domain::workload::Workload;

/// Submissions under way a backend: above any window of creates, so that the window decides.
const UNDER_WAY: usize = 128;
/// Full calls under way of a backend whose calls carry many tasks.
const FULL_CALLS: usize = 4;
/// The wait after a submission that found no room where there was some.
const ROOM_AGAIN: Duration = Duration::from_millis(100);
/// The wait before a task whose handling panicked is tried again.
const PANIC_AGAIN: Duration = Duration::from_secs(10);

/// The tasks of one round that can share a call: those of one workload on one backend.
type Groups = BTreeMap<(usize, WorkloadKey), (Arc<Workload>, Vec<TaskHash>)>;

impl Pipeline {
    /// Makes ready what has waited long enough, or for what is there now.
    pub(super) fn wake(&mut self, now: Instant) {
        self.look_at_work(now);
        self.book.wake_timed(now);
        for at in 0..self.backends.len() {
            if self.backends[at].closed.as_ref().is_some_and(|(until, _)| *until <= now) {
                self.backends[at].closed = None;
            }
            if self.shut(at, now).is_none() && self.takes(at) > 0 {
                self.backends[at].stuck = None;
                self.book.wake_backend(at, self.takes(at));
            }
            if self.backends[at].turns && self.backends[at].free() == 0 {
                // What waited for its turn only has to wait for room now, and is told so.
                self.backends[at].turns = false;
                self.book.wake_due(at, usize::MAX, |entry| entry.held.is_none());
            }
        }
        self.wake_spilling(now);
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
        if self.stopping || !self.may_work(now) {
            return;
        }
        // What a backend can take in this round: what has been given in it is not in its room yet.
        let mut free: Vec<usize> = (0..self.backends.len()).map(|at| self.takes(at)).collect();
        let mut groups = Groups::default();
        self.breakers.begin_round();
        let round = self.book.ready();
        for _ in 0..round {
            let Some(hash) = self.book.next_ready() else { break };
            let Some(workload) = self.place(hash, now) else { continue };
            let Some(backend) = self.target(hash, &workload, &free, now) else { continue };
            if self.within_share(hash, backend, &workload.key, now)
                && self.is_nowhere_else(hash, backend, now)
            {
                self.gives(hash, backend, &workload.key, now);
                free[backend] -= 1;
                self.book.put(hash, Place::InFlight);
                let group = groups.entry((backend, workload.key.clone()));
                group.or_insert_with(|| (workload, Vec::new())).1.push(hash);
            }
        }
        for ((backend, _), (workload, hashes)) in groups {
            for some in hashes.chunks(self.deps.backends[backend].backend.batch().max(1)) {
                self.submit(backend, Arc::clone(&workload), some);
            }
        }
    }

    /// How many tasks a backend can be given now.
    pub(super) fn takes(&self, at: usize) -> usize {
        let backend = &self.backends[at];
        // Where a call carries many tasks, a few full ones may be under way.
        let batch = self.deps.backends.get(at).map_or(1, |binding| binding.backend.batch());
        let under_way = if batch > 1 { UNDER_WAY.max(FULL_CALLS * batch) } else { UNDER_WAY };
        backend.free().min(under_way.saturating_sub(backend.under_way))
    }

    /// What a ready task runs as; `None`: it was put where it has to wait, or is done with.
    fn place(&mut self, hash: TaskHash, now: Instant) -> Option<Arc<Workload>> {
        let entry = self.book.get(&hash)?;
        let (task, tickets) = (Arc::clone(&entry.task), entry.tickets.clone());
        let alive = |t: &Ticket| self.deps.queues[t.queue].leases.alive(&t.lease, now);
        if !tickets.iter().any(alive) {
            // Its messages will be delivered again: never create on a lapsed lease.
            if let Some(entry) = self.book.remove(&hash) {
                // A renewal that is on its way must not keep a lease that nobody has any more.
                for Ticket { queue, lease, .. } in &entry.tickets {
                    self.deps.queues[*queue].leases.drop_lease(lease);
                }
                self.remember(hash, &entry);
            }
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
        if let Some(why) = self.paused(&workload).or_else(|| self.broken(&task.key, now)) {
            self.hold(hash, None, Place::Workload(task.key.clone()), &why);
            return None;
        }
        self.url_lives(hash, &task, now).then_some(workload)
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
        self.locate(hash, Rejection::new(RejectKind::DeadUrl, reason), now);
        false
    }

    /// The deferral that keeps a backend closed now, if one does.
    pub(super) fn closed(&self, at: usize, now: Instant) -> Option<&Deferral> {
        self.backends[at].closed.as_ref().filter(|(until, _)| *until > now).map(|(_, why)| why)
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

    fn submit(&mut self, backend: usize, workload: Arc<Workload>, hashes: &[TaskHash]) {
        self.submit_as(backend, workload, hashes, Follow::Ends);
    }

    /// Submits, those that are followed in this way.
    pub(super) fn submit_as(
        &mut self,
        backend: usize,
        workload: Arc<Workload>,
        hashes: &[TaskHash],
        ends: Follow,
    ) {
        let now = self.deps.clock.mono();
        let (mut tasks, mut carried) = (Vec::new(), Vec::new());
        for hash in hashes {
            let follow = if self.follow_of(hash) == Follow::No { Follow::No } else { ends };
            if let Some(entry) = self.book.get_mut(hash) {
                entry.submitted_at = Some(now);
                entry.tried.insert(backend);
                entry.cleared.remove(&backend);
                tasks.push(Task { follow, ..(*entry.task).clone() });
                carried.push(*hash);
            }
        }
        let count = tasks.len();
        self.backends[backend].under_way += count;
        let target = Arc::clone(&self.deps.backends[backend].backend);
        let unpolled = Arc::clone(&self.backends[backend].unpolled);
        unpolled.fetch_add(count, Ordering::Relaxed);
        let key = workload.key.clone();
        let call = async move {
            unpolled.fetch_sub(count, Ordering::Relaxed);
            let submission = async { target.submit(&workload, &tasks).await };
            let outcomes = AssertUnwindSafe(submission).catch_unwind().await.map_err(said);
            Event::Submitted { backend, key, tasks: carried, outcomes }
        };
        self.calls.push(call.boxed());
    }

    pub(super) fn submitted(
        &mut self,
        backend: usize,
        key: &WorkloadKey,
        tasks: &[TaskHash],
        outcomes: Result<Vec<Outcome>, String>,
        now: Instant,
    ) {
        self.backends[backend].under_way -= tasks.len();
        for (at, hash) in tasks.iter().enumerate() {
            let outcome = outcomes.as_ref().ok().and_then(|outcomes| outcomes.get(at));
            self.answered(*hash, backend, key, outcome);
        }
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
            Outcome::Running(attempt, placed) => {
                self.running(backend, hash, attempt, placed, now);
            }
            Outcome::Rejected(why) => self.reject(hash, &why, now),
            Outcome::Deferred(why)
                if why.kind == HoldKind::Panicked && why.scope == Scope::Task =>
            {
                self.panicked(hash, &why.detail, now);
            }
            Outcome::Deferred(_) if self.was_cancelled(hash) => {}
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
