//! How what was created fares, as the pipeline is told of it: what breakers and shares go by.
//!
//! Creating never needs it: where nothing is known, no breaker opens and no share is bounded.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use crate::domain::breaker::Open;
use crate::domain::end::{End, EndKind, RetryRule};
use crate::domain::name::TaskHash;
use crate::domain::task::WorkloadKey;
use crate::domain::workload_now::{Faring, WorkloadNow};

/// What is there now, by backend in the order of the configuration; `None` for those that can't tell.
pub type Present = Vec<Option<BTreeMap<WorkloadKey, WorkloadNow>>>;

/// Tells how what was created fares, and is told which breakers are open.
#[async_trait]
pub trait Work: Send + Sync {
    /// The ends since this was asked last, in their order.
    fn ends(&self) -> Vec<Fared>;

    /// Comes back when a Job has failed since [`ends`](Self::ends) was asked last.
    async fn failed(&self);

    /// What is there now. A Job counts as soon as its create was answered.
    fn now(&self) -> Present;

    /// How the unfinished Jobs of these tasks fare.
    fn fare(&self, tasks: &BTreeSet<TaskHash>) -> BTreeMap<TaskHash, Faring>;

    /// The tasks that a backend runs again, as the probes of open breakers, since this was asked last.
    fn probes(&self) -> BTreeMap<WorkloadKey, TaskHash>;

    /// The breakers that are open, whenever they have become others.
    fn tell(&self, open: BTreeMap<WorkloadKey, Open>);
}

/// How a Job ended, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fared {
    /// The task.
    pub task: TaskHash,
    /// Command and job type.
    pub key: WorkloadKey,
    /// How it ended.
    pub kind: EndKind,
    /// What was said of it.
    pub detail: String,
    /// What a retry rule says of it.
    pub rule: RetryRule,
    /// When its process started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Timestamp,
    /// For how long it ran.
    pub ran: Duration,
}

impl Fared {
    /// What matters of `end`.
    pub fn of(end: &End, rule: RetryRule) -> Self {
        Self {
            task: end.task,
            key: end.key.clone(),
            kind: end.verdict.kind,
            detail: end.verdict.detail.clone(),
            rule,
            started_at: end.started_at,
            ended_at: end.ended_at,
            ran: end.run_time(),
        }
    }
}
