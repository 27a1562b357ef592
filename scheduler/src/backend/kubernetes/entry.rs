//! One Job in the account of room: what is known of it, and what it counts. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use tokio::time::Instant;

use super::api::JobFacts;
use super::ledger::Moment;

/// What an entry counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Weight {
    /// Waiting to start.
    pub(super) pending: usize,
    /// Unfinished.
    pub(super) live: usize,
}

/// A Job that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Known {
    uid: String,
    created: Timestamp,
    /// When it was last said to be there.
    moment: Moment,
    /// The watch (or a list) has shown it, not only an answer to a request of ours.
    watched: bool,
    /// Since when it is known to have a pod.
    active: Option<Moment>,
    started: bool,
    finished: bool,
}

/// All that is known under one Job name.
#[derive(Debug, Default)]
pub(super) struct Entry {
    /// Creates of this name that have begun and not ended.
    pub(super) flights: u32,
    /// An answer was lost: from when on a GET settles it.
    pub(super) lost: Option<Instant>,
    /// The Job that is there.
    pub(super) job: Option<Known>,
    /// From when on a GET asks for a Job that was confirmed and not yet shown by the watch: it may
    /// have gone unheard, before the list that the watch began with.
    check: Option<Instant>,
    /// While the entry is open: the uid of a Job seen to go, whose confirmation may come later.
    gone: Option<String>,
    /// The uid of the Job whose pod was last seen to leave Pending.
    left: Option<String>,
    /// Its pending pods, each with the uid of its Job.
    pub(super) pods: BTreeMap<String, String>,
}

impl Entry {
    /// An answer is still out or was lost: what is there is not known.
    pub(super) fn is_open(&self) -> bool {
        self.flights > 0 || self.lost.is_some()
    }

    /// What this entry counts. A Job counts each of its pending pods, and one for itself until
    /// a pod of it has left Pending.
    pub(super) fn weight(&self) -> Weight {
        let unfinished = self.job.as_ref().is_some_and(|job| !job.finished);
        let waiting = self.job.as_ref().is_some_and(|job| !job.finished && !job.started);
        Weight {
            pending: self.pods.len().max(usize::from(self.is_open() || waiting)),
            live: usize::from(self.is_open() || unfinished),
        }
    }

    /// Whether it holds its place for creates alone: nothing is known to be there or to come.
    pub(super) fn is_reserved_only(&self) -> bool {
        self.flights > 0 && self.lost.is_none() && self.job.is_none() && self.pods.is_empty()
    }

    /// Whether a GET should tell what is there.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.lost.is_some_and(|due| due <= now) || self.check.is_some_and(|due| due <= now)
    }

    /// An answer has shown the Job: if the watch does not show it too, ask again then.
    pub(super) fn check_at(&mut self, due: Instant) {
        self.check = Some(due);
    }

    /// The due GET failed: again then.
    pub(super) fn postpone(&mut self, due: Instant) {
        self.lost = self.lost.map(|_| due);
        self.check = self.check.map(|_| due);
    }

    /// Forgets what only an open entry needs to remember.
    pub(super) fn tidy(&mut self) {
        if self.job.as_ref().is_none_or(|job| job.watched) {
            self.check = None;
        }
        if !self.is_open() {
            self.gone = None;
            if self.job.as_ref().is_some_and(|job| job.finished) {
                self.job = None;
            }
        }
    }

    /// A Job is there, or its pods are.
    pub(super) fn has_job(&self) -> bool {
        self.job.is_some() || !self.pods.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.is_open() && self.job.is_none() && self.pods.is_empty()
    }

    /// A Job is there, says the watch or an answer.
    pub(super) fn observe(&mut self, facts: &JobFacts, watched: bool, moment: Moment) {
        let gone = self.gone.as_deref() == Some(&facts.uid);
        let older = self.job.as_ref().is_some_and(|job| {
            job.uid != facts.uid
                && (facts.created < job.created
                    || (facts.created == job.created && watched && !job.watched))
        });
        if gone || older {
            return;
        }
        if self.job.as_ref().is_none_or(|job| job.uid != facts.uid) {
            self.job = Some(Known {
                uid: facts.uid.clone(),
                created: facts.created,
                moment,
                watched,
                active: None,
                started: self.left.as_deref() == Some(&facts.uid),
                finished: false,
            });
        }
        if let Some(job) = &mut self.job {
            // An answer tells of the time when the server made it, which may be before a list that
            // has begun since; what the watch has shown was there before the list for certain.
            if watched || !job.watched {
                job.moment = moment;
            }
            job.watched |= watched;
            job.started |= facts.progress.started;
            job.finished |= facts.progress.finished;
            job.active = match (facts.progress.active, job.active) {
                (true, None) => Some(moment),
                (true, since) => since,
                // An answer with metadata only says nothing of it.
                (false, since) => since.filter(|_| !watched),
            };
        }
    }

    /// The Job of this uid is gone.
    pub(super) fn deleted(&mut self, uid: &str) {
        let other = self.job.as_ref().is_some_and(|job| job.uid != uid);
        if !other {
            self.job = None;
            self.gone = Some(uid.to_owned());
        }
    }

    /// A list or GET begun at `began` shows no Job of this name.
    pub(super) fn absent(&mut self, began: Moment) {
        if let Some(job) = self.job.take_if(|job| job.moment < began) {
            self.gone = Some(job.uid);
        }
    }

    /// A pod has left Pending.
    pub(super) fn pod_left(&mut self, pod: &str, uid: &str) {
        self.pods.remove(pod);
        self.left = Some(uid.to_owned());
        if let Some(job) = self.job.as_mut().filter(|job| job.uid == uid) {
            job.started = true;
        }
    }

    /// The pending pods of this Job, by a list begun at `began`.
    pub(super) fn pods_listed(&mut self, began: Moment, pods: BTreeMap<String, String>) {
        let left: Vec<(String, String)> = self
            .pods
            .iter()
            .filter(|(pod, _)| !pods.contains_key(*pod))
            .map(|(pod, uid)| (pod.clone(), uid.clone()))
            .collect();
        for (pod, uid) in left {
            self.pod_left(&pod, &uid);
        }
        // A pod that was there before the list and is not pending in it has left Pending.
        if pods.is_empty()
            && let Some(job) = &mut self.job
        {
            job.started |= job.active.is_some_and(|since| since < began);
        }
        self.pods = pods;
    }
}
