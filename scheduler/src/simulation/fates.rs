//! How Jobs end in the simulated world, and which attempts must follow them, and which may.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;

use super::chaos::Chaos;
use crate::backend::kubernetes::api::JobFacts;
use crate::backend::kubernetes::fake::FakeCluster;
use crate::backend::{MayRun, Retries};
use crate::domain::end::{End, EndKind, RetryRule};
use crate::domain::input_url::InputUrl;
use crate::domain::name::{Attempt, JobName, TaskHash};

/// The most attempts at a task.
pub const ATTEMPTS: u32 = 3;
/// Crashes, and losses of a Lease, after which a failure may not be counted by its queue.
const UNCOUNTED: u32 = 12;

/// A failure is run again.
pub struct RetryFailures;

#[async_trait]
impl Retries for RetryFailures {
    fn rule(&self, end: &End) -> RetryRule {
        let fails = end.verdict.kind == EndKind::TaskFailure && end.attempt.number() < ATTEMPTS;
        if fails { RetryRule::Retry } else { RetryRule::Never }
    }

    fn stopped(&self, _: &End) -> Option<String> {
        None
    }

    async fn may_run(&self, _: &End, input: Option<&InputUrl>) -> MayRun {
        match input {
            Some(_) => MayRun::Yes,
            None => MayRun::No("its input can't be read off its Job".into()),
        }
    }
}

#[derive(Debug, Clone)]
struct Fate {
    task: TaskHash,
    attempt: u32,
    code: i32,
}

/// The exit codes of the Jobs that have ended.
#[derive(Clone)]
pub struct Fates {
    all: Arc<Mutex<BTreeMap<String, Fate>>>,
    /// The queue decides about further attempts.
    by_queue: bool,
}

fn name_of(task: &TaskHash, attempt: u32) -> String {
    JobName::of(task, Attempt::new(attempt).expect("above zero")).to_string()
}

fn made(clusters: &[FakeCluster], job: &str) -> usize {
    clusters.iter().map(|cluster| cluster.made(job)).sum()
}

impl Fates {
    pub fn new(by_queue: bool) -> Self {
        Self { all: Arc::default(), by_queue }
    }

    /// The exit code of the next Job to end.
    pub fn draw(&self, chaos: &Chaos) -> i32 {
        i32::from(chaos.draw(if self.by_queue { 2 } else { 4 }) == 0)
    }

    /// The exit codes of the task whose first Job is `first`.
    pub fn of(&self, first: &str) -> Vec<i32> {
        let all = self.all.lock().unwrap();
        let of = |fate: &&Fate| name_of(&fate.task, 1) == first;
        all.values().filter(of).map(|fate| fate.code).collect()
    }

    pub fn note(&self, job: &JobFacts, code: i32) {
        let (Some(task), Some(story)) = (job.task, &job.story) else { return };
        let attempt = story.attempt.map_or(1, Attempt::number);
        self.all.lock().unwrap().insert(job.name.clone(), Fate { task, attempt, code });
    }

    /// How a Job that ended with this code must be told to have ended.
    pub fn kind(&self, job: &str) -> Option<EndKind> {
        let code = self.all.lock().unwrap().get(job)?.code;
        Some(if code == 0 { EndKind::Succeeded } else { EndKind::TaskFailure })
    }

    /// A failure that was not followed by an attempt, as it must be.
    pub fn unanswered(&self, clusters: &[FakeCluster]) -> Option<String> {
        if self.by_queue {
            return None;
        }
        let fates = self.all.lock().unwrap();
        let mut failed = fates.values().filter(|fate| fate.code != 0 && fate.attempt < ATTEMPTS);
        let wants = |fate: &&Fate| made(clusters, &name_of(&fate.task, fate.attempt + 1)) == 0;
        failed.find(wants).map(|fate| name_of(&fate.task, fate.attempt))
    }

    /// Each attempt is made once, and after the one before it has failed.
    pub fn check<'a>(
        &self,
        clusters: &[FakeCluster],
        tasks: impl Iterator<Item = &'a String>,
    ) -> Result<(), String> {
        let fates = self.all.lock().unwrap();
        let most = ATTEMPTS + if self.by_queue { UNCOUNTED } else { 0 };
        let firsts: std::collections::BTreeSet<&String> = tasks.collect();
        for job in clusters.iter().flat_map(FakeCluster::jobs) {
            if made(clusters, &job.name) > 1 {
                return Err(format!("{} was made {} times", job.name, made(clusters, &job.name)));
            }
            let attempt = job.story.as_ref().and_then(|story| story.attempt);
            let (Some(task), Some(attempt)) = (job.task, attempt.map(Attempt::number)) else {
                return Err(format!("{} has no task or attempt", job.name));
            };
            if attempt == 1 && !firsts.contains(&job.name) || attempt > most {
                return Err(format!("{} is attempt {attempt} at no task of ours", job.name));
            }
            let before = (attempt > 1).then(|| name_of(&task, attempt - 1));
            if before.is_some_and(|before| fates.get(&before).is_none_or(|fate| fate.code == 0)) {
                return Err(format!("{} follows an attempt that has not failed", job.name));
            }
        }
        Ok(())
    }
}
