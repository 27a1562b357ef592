//! Elsewhere: whether a task may have been created on another backend than the one it goes to.
//!
//! At most one Job for each task over all backends: so before a task is given to one, every other
//! one that may have it must say that it has not, or it must be certain without asking. A backend
//! that can't be asked holds those tasks, and only those, that it may have.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::book::{Entry, Place};
use super::{Event, Pipeline, said};
use crate::domain::name::{BackendName, TaskHash};
use crate::domain::outcome::{Deferral, HoldKind, Placed, Rejection, Scope};
use crate::domain::task::{Follow, Task};

/// The wait before another try where a backend is asked for that is not configured any more.
const GONE_AGAIN: Duration = Duration::from_secs(60);
/// The wait after an asking that panicked.
const PANIC_AGAIN: Duration = Duration::from_secs(10);
/// For how long a sender may post a task again: its input's URL, signed for a day, is dead by then.
const POSTED_FOR: SignedDuration = SignedDuration::from_hours(26);
/// How many tasks are remembered that left undone after they had been given to a backend.
const REMEMBERED: usize = 20_000;

/// What follows from the answers.
#[derive(Debug, Clone)]
pub(super) enum Then {
    /// It is nowhere: it may go to a backend.
    Place,
    /// It is nowhere: it is rejected.
    Reject(Rejection),
}

impl Pipeline {
    /// Whether a task is certainly not on this backend, as far as can be told without asking.
    pub(super) fn is_not_on(&self, entry: &Entry, at: usize) -> bool {
        if self.is_lost(at) || entry.cleared.contains(&at) {
            return true;
        }
        // What is known costs nothing, and tells of an input that was queued twice, too.
        if let Some(there) = self.deps.backends[at].backend.knows(&entry.task) {
            return !there;
        }
        let since = self.since(entry);
        let weighed = self.in_force.epoch().is_none_or(|e| e.may_have(self.name_of(at), since));
        // Posted again with other labels it may be bound elsewhere, however fresh it is.
        let fresh = !self.deps.routes.read_tasks() && self.is_fresh(since);
        !entry.tried.contains(&at) && (!weighed || fresh)
    }

    /// Since when a task may have been handed to a scheduler. A message tells, since it keeps its
    /// date over all its deliveries; a sender that keeps its tasks may have posted them before.
    fn since(&self, entry: &Entry) -> Timestamp {
        let published = entry.task.published_at;
        if entry.tickets.iter().all(|ticket| self.holds(ticket.queue)) {
            return published;
        }
        let earliest = self.deps.clock.wall().checked_sub(POSTED_FOR).unwrap_or(Timestamp::MIN);
        published.min(earliest)
    }

    /// The backends but `target` that must be asked for a task.
    ///
    /// # Errors
    /// One that can't be asked at all, since it is not configured any more.
    fn doubts(&self, entry: &Entry, target: Option<usize>) -> Result<Vec<usize>, Deferral> {
        let configured: Vec<BackendName> =
            (0..self.backends.len()).map(|at| self.name_of(at).clone()).collect();
        let lost = |name: &BackendName| {
            self.in_force.controls().is_some_and(|controls| controls.lost(name).is_some())
        };
        let published = self.since(entry);
        if let Some(epochs) = self.in_force.epoch()
            && let Some(gone) = epochs.gone(&configured, published).find(|name| !lost(name))
        {
            let detail = format!(
                "it may be on backend {gone}, which had a weight and is not configured any more: \
                 configure it (with weight 0), or `katabatch backend declare-lost {gone}`"
            );
            let kind = HoldKind::ElsewhereUnknown;
            return Err(Deferral::new(Scope::Task, kind, detail, GONE_AGAIN));
        }
        let others = (0..self.backends.len()).filter(|at| Some(*at) != target);
        Ok(others.filter(|at| !self.is_not_on(entry, *at)).collect())
    }

    /// Whether a task can go to `target` now as far as all others are concerned; else they are
    /// being asked, or it is held.
    pub(super) fn is_nowhere_else(&mut self, hash: TaskHash, target: usize, now: Instant) -> bool {
        let Some(entry) = self.book.get(&hash) else { return false };
        match self.doubts(entry, Some(target)) {
            Ok(doubts) if doubts.is_empty() => true,
            Ok(doubts) => {
                self.ask(hash, doubts, Then::Place);
                false
            }
            Err(why) => {
                self.hold(hash, None, Place::Until(now + why.retry_after), &why);
                false
            }
        }
    }

    /// Asks every backend that may have it for a task that is to be rejected for a reason that time
    /// brought: it may have been created before, and its ack lost.
    pub(super) fn locate(&mut self, hash: TaskHash, why: Rejection, now: Instant) {
        let Some(entry) = self.book.get(&hash) else { return };
        match self.doubts(entry, None) {
            Ok(doubts) if doubts.is_empty() => self.reject(hash, &why, now),
            Ok(doubts) => self.ask(hash, doubts, Then::Reject(why)),
            Err(later) => self.hold(hash, None, Place::Until(now + later.retry_after), &later),
        }
    }

    fn ask(&mut self, hash: TaskHash, doubts: Vec<usize>, then: Then) {
        let follow = self.follow_of(&hash);
        let Some(entry) = self.book.get(&hash) else { return };
        let task = Task { follow, ..(*entry.task).clone() };
        self.book.put(hash, Place::InFlight);
        let bindings = doubts.iter().map(|at| &self.deps.backends[*at]);
        let backends: Vec<_> = bindings.map(|binding| Arc::clone(&binding.backend)).collect();
        let call = async move {
            let ask = async {
                for (at, backend) in doubts.iter().zip(&backends) {
                    match backend.has(&task).await {
                        Ok(true) => return Ok(Some(*at)),
                        Ok(false) => {}
                        Err(why) => return Err((*at, why)),
                    }
                }
                Ok(None)
            };
            let found = AssertUnwindSafe(ask).catch_unwind().await.unwrap_or_else(|panic| {
                let why = said(panic);
                let why = Deferral::new(Scope::Task, HoldKind::Panicked, why, PANIC_AGAIN);
                Err((doubts.first().copied().unwrap_or_default(), why))
            });
            Event::Located { hash, asked: doubts, then, found }
        };
        self.calls.push(call.boxed());
    }

    pub(super) fn located(
        &mut self,
        hash: TaskHash,
        asked: &[usize],
        then: &Then,
        found: Result<Option<usize>, (usize, Deferral)>,
        now: Instant,
    ) {
        match found {
            Ok(Some(backend)) if self.follow_of(&hash) != Follow::No => {
                self.go_on_there(backend, hash, then, now);
            }
            Ok(Some(backend)) => self.scheduled(backend, hash, Placed::AlreadyThere),
            Ok(None) => {
                if let Some(entry) = self.book.get_mut(&hash) {
                    entry.cleared.extend(asked);
                    entry.tried.retain(|at| !asked.contains(at));
                }
                match then {
                    Then::Place => self.book.put(hash, Place::Ready),
                    Then::Reject(why) => self.reject(hash, why, now),
                }
            }
            Err((at, later)) => {
                let detail = format!(
                    "whether it is on backend {} already can't be told: {}",
                    self.name_of(at),
                    later.detail
                );
                let kind = HoldKind::ElsewhereUnknown;
                let why = Deferral::new(Scope::Task, kind, detail, later.retry_after);
                self.hold(hash, None, Place::Until(now + later.retry_after), &why);
            }
        }
    }

    /// A task leaves undone: where it may be is remembered for when it comes again.
    pub(super) fn remember(&mut self, hash: TaskHash, entry: &Entry) {
        let mut on = entry.tried.clone();
        on.extend(entry.scheduled_on);
        if on.is_empty() {
            return;
        }
        if self.left.len() >= REMEMBERED {
            self.left.clear();
            self.forgot = Some(self.deps.clock.wall());
        }
        self.left.insert(hash, on);
    }

    /// A task has come: what is remembered of it is noted on it.
    pub(super) fn recall(&mut self, hash: &TaskHash) {
        if let Some(on) = self.left.remove(hash)
            && let Some(entry) = self.book.get_mut(hash)
        {
            entry.tried.extend(on);
        }
    }
}

/// Where tasks that left undone may be.
pub(super) type Left = BTreeMap<TaskHash, BTreeSet<usize>>;
