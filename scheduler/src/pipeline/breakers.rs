//! The breakers of all workloads at work, and their shares: what is heard and seen of Jobs goes in,
//! what may not go now comes out.
//!
//! When one opens and closes is [`breaker`](super::breaker)'s, how much a workload may hold
//! [`shares`](super::shares)'s to say.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::FutureExt;
use tokio::time::Instant;

use super::book::Place;
use super::breaker::{Breaker, Now};
use super::shares::{Shares, share_of};
use super::work::Present;
use super::{Event, Pipeline};
use crate::domain::breaker::Open;
use crate::domain::end::EndKind;
use crate::domain::name::TaskHash;
use crate::domain::outcome::{Deferral, HoldKind, Outcome, Placed, Scope};
use crate::domain::room::Room;
use crate::domain::task::WorkloadKey;
use crate::domain::workload_now::WorkloadNow;

/// How often it is looked what is there.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How soon again where a workload waits at its share, and how long its tasks wait.
const SHARE_AGAIN: Duration = Duration::from_millis(250);
/// What a wait for a breaker says; being woken ends it, not this time.
const WOKEN: Duration = Duration::from_secs(1);

/// All of them.
pub(super) struct Breakers {
    by_workload: BTreeMap<WorkloadKey, Breaker>,
    shares: Shares,
    looked_at: Instant,
    pub(super) next_look: Instant,
    /// What was told last.
    told: BTreeMap<WorkloadKey, Open>,
    /// Those that let no task go when it was looked last.
    refusing: BTreeSet<WorkloadKey>,
    /// Two workloads of which tasks wait that could go to a backend, by it; as of this round.
    waiting: BTreeMap<usize, Vec<WorkloadKey>>,
}

impl Breakers {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            by_workload: BTreeMap::new(),
            shares: Shares::default(),
            looked_at: now,
            next_look: now,
            told: BTreeMap::new(),
            refusing: BTreeSet::new(),
            waiting: BTreeMap::new(),
        }
    }

    /// A round of dispatching begins.
    pub(super) fn begin_round(&mut self) {
        self.waiting.clear();
    }
}

impl Pipeline {
    fn both(&self, mono: Instant) -> Now {
        Now { mono, wall: self.deps.clock.wall() }
    }

    /// Waits for the next Job that fails.
    pub(super) fn await_failures(&mut self) {
        if let Some(work) = self.deps.work.clone() {
            let wait = async move {
                work.failed().await;
                Event::JobsFailed
            };
            self.waits.push(wait.boxed());
        }
    }

    /// Hears how Jobs have ended.
    pub(super) fn hear_ends(&mut self, now: Instant) {
        let Some(work) = self.deps.work.clone() else { return };
        let (now, patience) = (self.both(now), self.deps.settings.patience);
        for end in work.ends() {
            // What goes well says something only of what did not.
            let known = self.breakers.by_workload.contains_key(&end.key);
            if known || end.kind != EndKind::Succeeded {
                let breaker = self.breakers.by_workload.entry(end.key.clone()).or_default();
                breaker.ended(&end, now, patience);
            }
        }
    }

    /// Looks what is there, when it is time to.
    pub(super) fn look_at_work(&mut self, at: Instant) {
        let Some(work) = self.deps.work.clone() else { return };
        if at < self.breakers.next_look {
            return;
        }
        self.hear_ends(at);
        (self.breakers.looked_at, self.breakers.next_look) = (at, at + LOOK_EVERY);
        let (now, patience) = (self.both(at), self.deps.settings.patience);
        for (key, task) in work.probes() {
            let open = self.breakers.by_workload.get_mut(&key);
            if let Some(breaker) = open.filter(|breaker| breaker.probe_at().is_some()) {
                breaker.goes(task, now);
            }
        }
        let present = work.now();
        let mut there = over_all(&present);
        self.breakers.shares.looked(present);
        for (key, breaker) in &mut self.breakers.by_workload {
            breaker.looked(&there.remove(key).unwrap_or_default(), now, patience);
        }
        let stuck = |now: &WorkloadNow| now.stuck.values().any(|stuck| stuck.own > 0);
        for (key, there) in there.into_iter().filter(|(_, there)| stuck(there)) {
            self.breakers.by_workload.entry(key).or_default().looked(&there, now, patience);
        }
        let probes: BTreeSet<TaskHash> =
            self.breakers.by_workload.values().filter_map(Breaker::probe).collect();
        if !probes.is_empty() {
            let fares = work.fare(&probes);
            for breaker in self.breakers.by_workload.values_mut() {
                let probe = breaker.probe();
                // One that is still being created is heard of when that is answered.
                let created = |task: &TaskHash| {
                    self.book.get(task).is_none_or(|e| e.place != Place::InFlight)
                };
                if let Some(task) = probe.filter(created) {
                    breaker.probe_fares(fares.get(&task), now, patience);
                }
            }
        }
        self.breakers.by_workload.retain(|_, breaker| !breaker.is_idle(now, patience));
        self.tell_breakers(now);
    }

    /// Says which breakers are open, and wakes the tasks of those that are not any more, or that may
    /// try one.
    fn tell_breakers(&mut self, now: Now) {
        let open: BTreeMap<WorkloadKey, Open> = self
            .breakers
            .by_workload
            .iter()
            .filter_map(|(key, breaker)| Some((key.clone(), breaker.open(now)?)))
            .collect();
        let refuses = |key: &&WorkloadKey| {
            self.breakers.by_workload.get(*key).is_some_and(|b| b.refuses(now).is_some())
        };
        let refusing: BTreeSet<WorkloadKey> = open.keys().filter(refuses).cloned().collect();
        for key in self.breakers.refusing.difference(&refusing) {
            self.book.wake_workload(key);
        }
        for (key, new) in &open {
            if self.breakers.told.get(key).is_none_or(|old| old.times != new.times) {
                tracing::warn!(workload = %key, times = new.times, "{new}");
            }
        }
        for key in self.breakers.told.keys().filter(|key| !open.contains_key(*key)) {
            tracing::info!(workload = %key, "its breaker is closed again");
        }
        self.breakers.refusing = refusing;
        if open != self.breakers.told {
            if let Some(work) = &self.deps.work {
                work.tell(open.clone());
            }
            self.breakers.told = open;
        }
    }

    /// Why no task of a workload may go now, if its breaker is open.
    pub(super) fn broken(&mut self, key: &WorkloadKey, now: Instant) -> Option<Deferral> {
        let now = self.both(now);
        let open = self.breakers.by_workload.get(key)?.refuses(now)?;
        self.breakers.refusing.insert(key.clone());
        Some(Deferral::new(Scope::Workload, HoldKind::BreakerOpen, open, WOKEN))
    }

    /// Whether a task may go to a backend without its workload holding more than its share; if not,
    /// it was put where it waits.
    pub(super) fn within_share(
        &mut self,
        hash: TaskHash,
        at: usize,
        key: &WorkloadKey,
        now: Instant,
    ) -> bool {
        let limit = match &*self.backends[at].room.borrow() {
            Room::Known(room) if self.deps.work.is_some() => room.pending_limit,
            _ => return true,
        };
        if self.breakers.by_workload.get(key).is_some_and(|breaker| breaker.probe_at().is_some()) {
            // It is the probe: were it held for what is stuck, nothing would ever be learned.
            return true;
        }
        let most = share_of(limit, self.deps.settings.workload_share);
        let book = &self.book;
        let waiting = &mut self.breakers.waiting;
        let others = || {
            let found = waiting.entry(at).or_insert_with(|| book.two_waiting(at));
            found.iter().any(|other| other != key)
        };
        let mended = self.breakers.by_workload.get(key).is_some_and(Breaker::has_mended);
        if self.breakers.shares.may(at, key, most, (others, mended), now) {
            return true;
        }
        let soon = self.breakers.looked_at + SHARE_AGAIN;
        self.breakers.next_look = self.breakers.next_look.min(soon.max(now));
        let detail = format!(
            "{} of {limit} Jobs that may wait to start are of this workload, whose share is {most}",
            self.breakers.shares.holds(at, key)
        );
        let why = Deferral::new(Scope::Task, HoldKind::WorkloadShare, detail, SHARE_AGAIN);
        self.hold(hash, Some(at), Place::Until(now + SHARE_AGAIN), &why);
        false
    }

    /// A task is given to a backend.
    pub(super) fn gives(&mut self, hash: TaskHash, at: usize, key: &WorkloadKey, now: Instant) {
        let now = self.both(now);
        if self.deps.work.is_some() {
            self.breakers.shares.gives(at, key);
        }
        if let Some(breaker) = self.breakers.by_workload.get_mut(key) {
            breaker.goes(hash, now);
        }
    }

    /// A backend has answered for a task; `None`: not as it should.
    pub(super) fn answered(
        &mut self,
        hash: TaskHash,
        at: usize,
        key: &WorkloadKey,
        outcome: Option<&Outcome>,
    ) {
        if self.deps.work.is_none() {
            return;
        }
        let now = self.both(self.deps.clock.mono());
        let scheduled = matches!(outcome, Some(Outcome::Scheduled(_)));
        self.breakers.shares.answered(at, key, scheduled);
        if outcome != Some(&Outcome::Scheduled(Placed::Created))
            && let Some(breaker) = self.breakers.by_workload.get_mut(key)
        {
            breaker.came_back(hash, now);
        }
    }
}

/// What is there of each workload, over all backends.
fn over_all(present: &Present) -> BTreeMap<WorkloadKey, WorkloadNow> {
    let mut all: BTreeMap<WorkloadKey, WorkloadNow> = BTreeMap::new();
    for (key, now) in present.iter().flatten().flatten() {
        all.entry(key.clone()).or_default().add(now);
    }
    all
}
