//! What is there now of a workload's Jobs: a snapshot, for answers to people.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::end::EndKind;

/// The Jobs of one workload on one backend, as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadNow {
    /// Jobs that wait to start.
    pub pending: usize,
    /// Jobs that run.
    pub running: usize,
    /// Those among the waiting that can't start as things are, by what their end would be.
    pub stuck: BTreeMap<EndKind, Stuck>,
}

/// Jobs that can't start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stuck {
    /// How many.
    pub jobs: usize,
    /// What was said of one of them, credentials taken out.
    pub detail: String,
    /// How many of them would not start in an empty cluster either.
    #[serde(default)]
    pub own: usize,
    /// Since when the first of those waits.
    #[serde(default)]
    pub since: Option<Timestamp>,
}

/// How one Job fares that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Faring {
    /// It waits to start.
    Waits,
    /// It can't start, for reasons of its own; what was said.
    Stuck(String),
    /// It runs, since then where that is known.
    Runs(Option<Timestamp>),
}

impl Stuck {
    /// Counts one more, that waits since then. `own`: it would not start in an empty cluster either.
    pub fn count(&mut self, detail: String, own: bool, since: Option<Timestamp>) {
        self.jobs += 1;
        if own || self.own == 0 {
            self.detail = detail;
        }
        if own {
            self.own += 1;
            self.since = first(self.since, since);
        }
    }
}

fn first(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

impl WorkloadNow {
    /// Adds the Jobs of another backend.
    pub fn add(&mut self, other: &Self) {
        self.pending += other.pending;
        self.running += other.running;
        for (kind, more) in &other.stuck {
            let stuck = self.stuck.entry(*kind).or_default();
            stuck.jobs += more.jobs;
            if more.own > 0 || stuck.own == 0 {
                stuck.detail.clone_from(&more.detail);
            }
            stuck.own += more.own;
            stuck.since = first(stuck.since, more.since);
        }
    }
}
