//! What is there now: the unfinished Jobs by workload, and how single ones fare. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::case::{Case, Fate, Known};
use super::cases::Cases;
use crate::domain::end::EndKind;
use crate::domain::name::TaskHash;
use crate::domain::redact::redact;
use crate::domain::task::WorkloadKey;
use crate::domain::workload_now::{Faring, WorkloadNow};

/// A large image takes minutes to pull.
const LATE: SignedDuration = SignedDuration::from_mins(5);

impl Cases {
    fn live(&self) -> impl Iterator<Item = (&Case, &Known)> {
        let live = self.cases.values().filter(|case| case.fate == Fate::Live);
        live.filter_map(|case| Some((case, case.job.as_deref()?)))
    }

    /// What is there now, at `wall`, of every workload.
    pub fn now(&self, wall: Timestamp) -> BTreeMap<WorkloadKey, WorkloadNow> {
        let mut all: BTreeMap<WorkloadKey, WorkloadNow> = BTreeMap::new();
        for (case, job) in self.live() {
            let now = all.entry((*job.key).clone()).or_default();
            if case.runs(job) {
                now.running += 1;
                continue;
            }
            now.pending += 1;
            if let Some(why) = case.stuck() {
                let detail = redact(&why.detail).into_owned();
                let stuck = now.stuck.entry(why.kind).or_default();
                stuck.count(detail, why.own, job.story.started);
            } else if case.is_late(job, wall) {
                let detail = "on its node, its container has not started for minutes".to_owned();
                let stuck = now.stuck.entry(EndKind::NeverStarted).or_default();
                stuck.count(detail, true, job.story.started);
            }
        }
        all
    }

    /// How the unfinished Jobs of these tasks fare.
    pub fn fare(&self, tasks: &BTreeSet<TaskHash>) -> BTreeMap<TaskHash, Faring> {
        let of = |(case, job): (&Case, &Known)| {
            let task = job.task.filter(|task| tasks.contains(task))?;
            let fares = if case.runs(job) {
                Faring::Runs(case.pods.last().and_then(|pod| pod.started).or(job.story.started))
            } else {
                match case.stuck().filter(|why| why.own) {
                    Some(why) => Faring::Stuck(redact(&why.detail).into_owned()),
                    None => Faring::Waits,
                }
            };
            Some((task, fares))
        };
        self.live().filter_map(of).collect()
    }
}

impl Case {
    /// Whether its pod is with a kubelet, and yet has not started for long.
    fn is_late(&self, job: &Known, wall: Timestamp) -> bool {
        let there = self.pods.last().is_some_and(|pod| !pod.container.is_empty());
        there && job.story.started.is_some_and(|since| wall.duration_since(since) > LATE)
    }

    fn runs(&self, job: &Known) -> bool {
        self.ran() || (job.progress.started && self.pods.is_empty())
    }
}
