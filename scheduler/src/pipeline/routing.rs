//! Routing: which backend a task goes to now, or what it waits for.
//!
//! The gate says where it belongs; here come pauses, bindings, full and broken backends, and the
//! move to another backend after a while. That a task is nowhere else is seen to by
//! [`elsewhere`](super::elsewhere), before it is given to anyone.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::time::Instant;

use super::book::{Entry, Place};
use super::{Event, Pipeline};
use crate::controls::{self, Controls};
use crate::domain::name::{BackendName, TaskHash};
use crate::domain::outcome::{Deferral, HoldKind, Scope};
use crate::domain::room::Room;
use crate::domain::workload::Workload;
use crate::gate::Route;

/// The wait while nothing has a weight.
const NOWHERE_AGAIN: Duration = Duration::from_secs(5);
/// What a wait for a backend or workload says; being woken ends it, not this time.
const WOKEN: Duration = Duration::from_secs(1);
/// How often it is looked whether tasks may move to another backend.
pub(super) const SPILL_LOOK: Duration = Duration::from_secs(5);
/// How often what runs on a lost backend is deleted anew.
const CLEAR_EVERY: Duration = Duration::from_secs(10);

impl Pipeline {
    pub(super) fn name_of(&self, at: usize) -> &BackendName {
        &self.deps.backends[at].candidate.name
    }

    /// Whether a person has declared the backend lost.
    pub(super) fn is_lost(&self, at: usize) -> bool {
        self.in_force.controls().is_some_and(|controls| controls.lost(self.name_of(at)).is_some())
    }

    /// Why a task of this workload is paused, if it is.
    pub(super) fn paused(&self, workload: &Workload) -> Option<Deferral> {
        let controls = self.in_force.controls()?;
        let pause = controls.paused(&workload.key, workload.project.as_deref())?;
        let detail = format!("{} is paused {}", pause.target, pause.mark);
        Some(Deferral::new(Scope::Workload, HoldKind::Paused, detail, WOKEN))
    }

    /// Why a backend with a weight takes nothing now, whatever its room.
    pub(super) fn shut(&self, at: usize, now: Instant) -> Option<Deferral> {
        let why = |kind, detail: String| Deferral::new(Scope::Backend, kind, detail, WOKEN);
        let name = self.name_of(at);
        if let Some(pause) = self.in_force.controls().and_then(|c| c.backend_paused(name)) {
            return Some(why(
                HoldKind::Paused,
                format!("{} is paused {}", pause.target, pause.mark),
            ));
        }
        if self.in_force.withheld.contains(&at) {
            let detail = format!("backend {name} loses its weight");
            return Some(why(HoldKind::NoBackend, detail));
        }
        self.closed(at, now).cloned()
    }

    /// Whether a backend gets tasks at all, and can be given some now.
    pub(super) fn is_open(&self, at: usize, now: Instant) -> bool {
        self.weights.takes(at) && !self.is_lost(at) && self.shut(at, now).is_none()
    }

    /// The backend for a task, of those that have room in this round; `None`: it was put where it
    /// waits.
    pub(super) fn target(
        &mut self,
        hash: TaskHash,
        workload: &Workload,
        free: &[usize],
        now: Instant,
    ) -> Option<usize> {
        let labels = &self.book.get(&hash)?.task.labels;
        let rule = self.deps.routes.rule(workload, labels);
        let bound = rule.map(|rule| (rule.backends.clone(), rule.reads_tasks()));
        let may = |this: &Self, at: usize| {
            let name = this.name_of(at);
            !this.is_lost(at) && bound.as_ref().is_none_or(|(bound, _)| bound.contains(name))
        };
        let route = self.weights.route(&hash, self.deps.clock.wall(), |at| may(self, at));
        let primary = match route {
            Route::To(at) => self.bound_to(hash, |at| may(self, at)).unwrap_or(at),
            Route::Throttled(wait) => {
                let detail = "the weights leave this share of the tasks in the queue";
                let why = Deferral::new(Scope::Task, HoldKind::WeightThrottle, detail, wait);
                self.hold(hash, None, Place::Until(now + wait), &why);
                return None;
            }
            Route::Nowhere => {
                self.nowhere(hash, workload, bound, now);
                return None;
            }
        };
        let full = free.get(primary) == Some(&0);
        let shut = self.shut(primary, now);
        if full && shut.is_none() && self.backends[primary].free() > self.takes(primary) {
            // There is room; it only waits for its turn behind what is under way.
            self.backends[primary].turns = true;
            self.book.put(hash, Place::Backend(primary));
            return None;
        }
        let Some(why) = shut.or_else(|| full.then(|| self.no_room(primary))) else {
            if let Some(entry) = self.book.get_mut(&hash) {
                entry.blocked = None;
            }
            return Some(primary);
        };
        let entry = self.book.get_mut(&hash)?;
        if entry.blocked.is_none_or(|(at, _)| at != primary) {
            entry.blocked = Some((primary, now));
        }
        self.backends[primary].stuck.get_or_insert(now);
        let entry = self.book.get(&hash)?;
        if why.kind != HoldKind::Paused && self.may_spill(entry, now) {
            let open = |at: usize| {
                at != primary
                    && may(self, at)
                    && self.is_open(at, now)
                    && free.get(at).is_some_and(|free| *free > 0)
            };
            let other = self.weights.best(&hash, open);
            if let Some(other) = other.filter(|_| self.is_not_on(entry, primary)) {
                return Some(other);
            }
        }
        self.hold(hash, Some(primary), Place::Backend(primary), &why);
        None
    }

    /// The backend that an earlier request binds a task to, if that one takes tasks: whatever the
    /// weights have become, going on there is what settles it.
    fn bound_to(&self, hash: TaskHash, may: impl Fn(usize) -> bool) -> Option<usize> {
        let task = &self.book.get(&hash)?.task;
        (0..self.backends.len()).find(|&at| {
            may(at) && self.weights.takes(at) && self.deps.backends[at].backend.binds(task)
        })
    }

    /// No backend that the task may go to takes any; `bound`: those that a rule allows, and whether
    /// for the task's own labels.
    fn nowhere(
        &mut self,
        hash: TaskHash,
        workload: &Workload,
        bound: Option<(Vec<BackendName>, bool)>,
        now: Instant,
    ) {
        let Some((names, by_labels)) = bound else {
            let detail = "no backend has a weight above zero and its flag on";
            let why = Deferral::new(Scope::Task, HoldKind::NoBackend, detail, NOWHERE_AGAIN);
            return self.hold(hash, None, Place::Until(now + NOWHERE_AGAIN), &why);
        };
        let names: Vec<&str> = names.iter().map(BackendName::as_str).collect();
        let detail = format!(
            "a routing rule binds {} to backend {}, which takes nothing: its weight is 0, its flag is \
             off, or it was declared lost",
            match by_labels {
                true => "tasks of its labels".to_owned(),
                false => format!("job type {}", workload.key.job_type),
            },
            names.join(" or ")
        );
        if by_labels {
            // Others of the workload may go on.
            let why = Deferral::new(Scope::Task, HoldKind::Bound, detail, NOWHERE_AGAIN);
            return self.hold(hash, None, Place::Until(now + NOWHERE_AGAIN), &why);
        }
        let why = Deferral::new(Scope::Workload, HoldKind::Bound, detail, WOKEN);
        self.hold(hash, None, Place::Workload(workload.key.clone()), &why);
    }

    /// Whether the backend that a task waits for has been full or broken for long enough.
    pub(super) fn may_spill(&self, entry: &Entry, now: Instant) -> bool {
        let Some((at, since)) = entry.blocked else { return false };
        let long =
            |since: Instant| now.saturating_duration_since(since) >= self.deps.settings.spill_after;
        long(since) || self.backends[at].stuck.is_some_and(long)
    }

    /// Wakes tasks that may move, as many as other backends have room for.
    pub(super) fn wake_spilling(&mut self, now: Instant) {
        let count = self.backends.len();
        if count < 2 || now < self.next_spill_look {
            return;
        }
        self.next_spill_look = now + SPILL_LOOK;
        for at in 0..count {
            if self.book.waiting_for(at) == 0 {
                continue;
            }
            let others = (0..count).filter(|&other| other != at && self.is_open(other, now));
            let room = others.map(|other| self.takes(other)).fold(0, usize::saturating_add);
            let (after, stuck) = (self.deps.settings.spill_after, self.backends[at].stuck);
            let long = |since: Instant| now.saturating_duration_since(since) >= after;
            self.book.wake_due(at, room, |entry| {
                stuck.is_some_and(long) || entry.blocked.is_some_and(|(_, since)| long(since))
            });
        }
    }

    /// Why a backend without room has none.
    pub(super) fn no_room(&self, backend: usize) -> Deferral {
        let (kind, detail) = match &*self.backends[backend].room.borrow() {
            Room::Unknown(why) => (HoldKind::RoomUnknown, why.clone()),
            Room::Known(o) if o.live_limit.is_some_and(|l| o.live >= l) => {
                (HoldKind::LiveLimit, format!("{} Jobs are unfinished", o.live))
            }
            Room::Known(o) => {
                (HoldKind::PendingLimit, format!("{} of {} pending", o.pending, o.pending_limit))
            }
        };
        Deferral::new(Scope::Backend, kind, detail, WOKEN)
    }

    /// Deletes what runs on backends that were declared lost, as soon as they answer again.
    pub(super) fn clear_lost(&mut self, now: Instant) {
        if !self.deps.leadership.may_create() {
            return;
        }
        for at in 0..self.backends.len() {
            if !self.is_lost(at) || self.backends[at].clear_at.is_some_and(|due| now < due) {
                continue;
            }
            self.backends[at].clear_at = Some(now + CLEAR_EVERY);
            let backend = Arc::clone(&self.deps.backends[at].backend);
            let call = async move { Event::Cleared { at, cleared: backend.clear().await } };
            self.waits.push(call.boxed());
        }
    }

    pub(super) fn cleared(&mut self, at: usize, cleared: Result<usize, Deferral>) {
        let name = self.name_of(at).clone();
        match cleared {
            Ok(0) => self.note_cleared(&name),
            Ok(jobs) => {
                tracing::warn!(backend = %name, jobs, "unfinished Jobs of a lost backend were deleted");
            }
            Err(why) => {
                tracing::info!(backend = %name, "lost, and can't be cleared: {}", why.detail)
            }
        }
    }

    /// Nothing runs there any more: it may be declared found.
    fn note_cleared(&mut self, name: &BackendName) {
        let known = |controls: &Controls| controls.cleared.contains_key(name.as_str());
        if self.in_force.controls().is_none_or(known) {
            return;
        }
        let change = controls::cleared(name, self.deps.clock.wall());
        let controls = Arc::clone(&self.deps.controls);
        let call = async move {
            if let Err(error) = controls.write(&[change]).await {
                tracing::warn!(%error, "that a lost backend is clear could not be written down");
            }
            Event::Noted
        };
        self.waits.push(call.boxed());
    }
}
