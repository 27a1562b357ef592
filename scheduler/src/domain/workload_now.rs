//! What is there now of a workload's Jobs: a snapshot, for answers to people.

use std::collections::BTreeMap;

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
}

impl WorkloadNow {
    /// Adds the Jobs of another backend.
    pub fn add(&mut self, other: &Self) {
        self.pending += other.pending;
        self.running += other.running;
        for (kind, more) in &other.stuck {
            let stuck = self.stuck.entry(*kind).or_default();
            stuck.jobs += more.jobs;
            stuck.detail.clone_from(&more.detail);
        }
    }
}
