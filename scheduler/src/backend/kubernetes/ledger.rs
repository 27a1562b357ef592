//! The account of room: one entry per Job, and what each counts. Pure.
//!
//! An entry is there from before the POST until its pod is seen leaving Pending, or the Job is
//! seen finished or gone. What is not known counts as taken: a create whose answer is still out
//! or was lost counts as a pending Job, whatever the watches say meanwhile. Who calls this and
//! when is [`room`](super::room)'s and [`watch`](super::watch)'s.
//!
//! *Moments* are ticks of the ledger's own clock: they order answers against the beginnings of
//! lists, because a list speaks only of what was there before it began.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;

use super::api::{JobFacts, PodFacts};
use super::entry::{Entry, Weight};
use crate::domain::room::{Occupancy, Room};

/// A moment of the ledger: a list or a GET that begins now speaks of all that was before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub(super) u64);

/// Why no entry was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Full {
    /// The room is not known.
    Unknown(String),
    /// The pending limit is reached.
    Pending(Occupancy),
    /// The cap on live Jobs is reached.
    Live(Occupancy),
}

/// Whether a watched kind of object is fully known.
#[derive(Debug)]
enum View {
    Unknown(String),
    Known,
}

/// The account of one backend.
#[derive(Debug)]
pub struct Ledger {
    entries: BTreeMap<String, Entry>,
    /// Pending pods of the farm without an owning Job.
    strays: BTreeSet<String>,
    /// The sum over `entries`.
    total: Weight,
    pending_limit: usize,
    live_limit: Option<usize>,
    jobs: View,
    pods: View,
    moment: u64,
}

impl Ledger {
    /// An account about which nothing is known yet.
    pub fn new(pending_limit: usize, live_limit: Option<usize>) -> Self {
        let unread = || View::Unknown("its Jobs and pods have not been listed yet".to_owned());
        Self {
            entries: BTreeMap::new(),
            strays: BTreeSet::new(),
            total: Weight::default(),
            pending_limit,
            live_limit,
            jobs: unread(),
            pods: unread(),
            moment: 0,
        }
    }

    /// Changes the pending limit. A lower one ends nothing that is there.
    pub fn set_pending_limit(&mut self, limit: usize) {
        self.pending_limit = limit;
    }

    /// The moment that begins now.
    pub fn moment(&mut self) -> Moment {
        self.moment += 1;
        Moment(self.moment)
    }

    fn occupancy(&self) -> Occupancy {
        Occupancy {
            pending: self.total.pending + self.strays.len(),
            pending_limit: self.pending_limit,
            live: self.total.live,
            live_limit: self.live_limit,
        }
    }

    /// The room as far as it is known.
    pub fn room(&self) -> Room {
        match (&self.jobs, &self.pods) {
            (View::Unknown(why), _) | (_, View::Unknown(why)) => Room::Unknown(why.clone()),
            (View::Known, View::Known) => Room::Known(self.occupancy()),
        }
    }

    /// Takes room for a create of `name` that is about to begin; twice under one name is one
    /// entry. Each success must be ended by one of [`confirmed`](Self::confirmed),
    /// [`released`](Self::released) and [`lost`](Self::lost).
    ///
    /// # Errors
    /// [`Full`] when one more would go over a limit, or the room is unknown.
    pub fn reserve(&mut self, name: &str) -> Result<(), Full> {
        let occupancy = match self.room() {
            Room::Unknown(why) => return Err(Full::Unknown(why)),
            Room::Known(occupancy) => occupancy,
        };
        let has = self.entries.get(name).map(Entry::weight).unwrap_or_default();
        let wants = self.entries.get(name).map_or(Weight { pending: 1, live: 1 }, |entry| Weight {
            pending: entry.weight().pending.max(1),
            live: 1,
        });
        if wants.pending > has.pending && occupancy.pending >= occupancy.pending_limit {
            return Err(Full::Pending(occupancy));
        }
        if wants.live > has.live
            && occupancy.live_limit.is_some_and(|limit| occupancy.live >= limit)
        {
            return Err(Full::Live(occupancy));
        }
        self.change(name, |entry| entry.flights += 1);
        Ok(())
    }

    /// Whether the place of `name`, for which nothing was sent yet, should be given back: a limit
    /// that was lowered meanwhile, or pods of others, left no room for all that is taken.
    pub fn overtaken(&self, name: &str) -> Option<Full> {
        let room = self.occupancy();
        let reserved = self.entries.get(name).is_some_and(Entry::is_reserved_only);
        (reserved && room.pending > room.pending_limit).then_some(Full::Pending(room))
    }

    /// A create ended with the Job confirmed there. If the watch has not shown it by `check`, a
    /// GET should.
    pub fn confirmed(&mut self, facts: &JobFacts, check: Instant) {
        let moment = self.moment();
        self.change(&facts.name, |entry| {
            entry.flights = entry.flights.saturating_sub(1);
            entry.observe(facts, false, moment);
            entry.check_at(check);
        });
    }

    /// A create ended, or was given up, with nothing made.
    pub fn released(&mut self, name: &str) {
        self.change(name, |entry| entry.flights = entry.flights.saturating_sub(1));
    }

    /// A create ended without its answer: the entry stays until a GET made at `due` or later has
    /// settled it.
    pub fn lost(&mut self, name: &str, due: Instant) {
        self.change(name, |entry| {
            entry.flights = entry.flights.saturating_sub(1);
            entry.lost = entry.lost.max(Some(due));
        });
    }

    /// Until when a create can still take effect that was sent and not answered. `under_way` is
    /// that time for those that are under way.
    pub fn landing(&self, under_way: Instant) -> Option<Instant> {
        let of = |entry: &Entry| if entry.flights > 0 { Some(under_way) } else { entry.lost };
        self.entries.values().filter_map(of).max().map(|at| at.min(under_way))
    }

    /// The names that a GET should settle now: an answer was lost, or the watch is silent of it.
    pub fn due(&self, now: Instant) -> Vec<String> {
        self.entries.iter().filter(|(_, e)| e.is_due(now)).map(|(name, _)| name.clone()).collect()
    }

    /// A GET of `name`, begun at `began`, whose time was `at`, said what is there. It settles
    /// a lost answer that was due by `at`. What it found is asked for again at `check`, if the
    /// watch does not show it.
    pub fn settled(
        &mut self,
        name: &str,
        (began, at): (Moment, Instant),
        found: Option<&JobFacts>,
        check: Instant,
    ) {
        let moment = self.moment();
        self.change(name, |entry| {
            if entry.lost.is_some_and(|due| due <= at) {
                entry.lost = None;
            }
            match found {
                Some(facts) => {
                    entry.observe(facts, false, moment);
                    entry.check_at(check);
                }
                None => entry.absent(began),
            }
        });
    }

    /// A GET that was due failed: the next one is due then.
    pub fn postponed(&mut self, name: &str, due: Instant) {
        self.change(name, |entry| entry.postpone(due));
    }

    /// Whether a Job of this name is there, as far as this account knows; `None` while Jobs are not
    /// known, or an answer of this name is out or was lost.
    pub fn has(&self, name: &str) -> Option<bool> {
        let entry = self.entries.get(name);
        let unsure = !self.jobs_are_known() || entry.is_some_and(Entry::is_open);
        (!unsure).then(|| entry.is_some_and(Entry::has_job))
    }

    /// Whether a create of this name is under way, or its answer was lost.
    pub fn is_open(&self, name: &str) -> bool {
        self.entries.get(name).is_some_and(Entry::is_open)
    }

    /// Whether the Jobs are known.
    pub fn jobs_are_known(&self) -> bool {
        matches!(self.jobs, View::Known)
    }

    /// What is known of Jobs is no longer enough, and why.
    pub fn jobs_unknown(&mut self, why: String) {
        self.jobs = View::Unknown(why);
    }

    /// What is known of pods is no longer enough, and why.
    pub fn pods_unknown(&mut self, why: String) {
        self.pods = View::Unknown(why);
    }

    /// All Jobs, by a consistent list begun at `began`.
    pub fn jobs_listed(&mut self, began: Moment, jobs: &[JobFacts]) {
        let listed: BTreeSet<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
        let absent: Vec<String> =
            self.entries.keys().filter(|n| !listed.contains(n.as_str())).cloned().collect();
        for name in absent {
            self.change(&name, |entry| entry.absent(began));
        }
        for job in jobs {
            self.job_applied(job);
        }
        self.jobs = View::Known;
    }

    /// All pending pods, by a consistent list begun at `began`.
    pub fn pods_listed(&mut self, began: Moment, pods: &[PodFacts]) {
        let mut by_job: BTreeMap<&str, BTreeMap<String, String>> = BTreeMap::new();
        self.strays.clear();
        for pod in pods.iter().filter(|pod| pod.farm) {
            match &pod.job {
                Some(job) => {
                    let owned = by_job.entry(&job.name).or_default();
                    owned.insert(pod.name.clone(), job.uid.clone());
                }
                None => {
                    self.strays.insert(pod.name.clone());
                }
            }
        }
        let known: Vec<String> = self.entries.keys().cloned().collect();
        for name in known {
            let pods = by_job.remove(name.as_str()).unwrap_or_default();
            self.change(&name, |entry| entry.pods_listed(began, pods));
        }
        for (name, pods) in by_job {
            self.change(name, |entry| entry.pods = pods);
        }
        self.pods = View::Known;
    }

    /// A Job is new or changed, says the watch.
    pub fn job_applied(&mut self, job: &JobFacts) {
        if job.farm {
            let moment = self.moment();
            self.change(&job.name, |entry| entry.observe(job, true, moment));
        }
    }

    /// A Job is gone, says the watch.
    pub fn job_deleted(&mut self, job: &JobFacts) {
        if self.entries.contains_key(&job.name) {
            self.change(&job.name, |entry| entry.deleted(&job.uid));
        }
    }

    /// A pod is pending, says the watch.
    pub fn pod_applied(&mut self, pod: &PodFacts) {
        match &pod.job {
            _ if !pod.farm => {}
            Some(job) => self.change(&job.name, |entry| {
                entry.pods.insert(pod.name.clone(), job.uid.clone());
            }),
            None => {
                self.strays.insert(pod.name.clone());
            }
        }
    }

    /// A pod has left Pending, or is gone, says the watch.
    pub fn pod_deleted(&mut self, pod: &PodFacts) {
        match &pod.job {
            Some(job) if self.entries.contains_key(&job.name) => {
                self.change(&job.name, |entry| entry.pod_left(&pod.name, &job.uid));
            }
            Some(_) => {}
            None => {
                self.strays.remove(&pod.name);
            }
        }
    }

    /// Changes an entry, made if need be, and keeps the total true; an entry that holds nothing
    /// any more goes.
    fn change(&mut self, name: &str, change: impl FnOnce(&mut Entry)) {
        let (before, after, empty) = match self.entries.get_mut(name) {
            Some(entry) => {
                let before = entry.weight();
                change(entry);
                entry.tidy();
                (before, entry.weight(), entry.is_empty())
            }
            None => {
                let mut entry = Entry::default();
                change(&mut entry);
                entry.tidy();
                let (after, empty) = (entry.weight(), entry.is_empty());
                if !empty {
                    self.entries.insert(name.to_owned(), entry);
                }
                (Weight::default(), after, false)
            }
        };
        if empty {
            self.entries.remove(name);
        }
        self.total.pending = self.total.pending + after.pending - before.pending;
        self.total.live = self.total.live + after.live - before.live;
    }
}
