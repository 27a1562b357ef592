//! Makes a task's next attempt from the Job of the one before it, which may not go until then.
//!
//! What is to be run again is the observer's to say, whether it may is the farm's; here the Job is
//! read, made again, and created under the next attempt's name, within the same room, window and
//! term as any other. A lost answer or a crash in between is harmless: the name is a function of
//! task and attempt, so that the next try finds the Job.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::time::sleep;

use super::KubernetesBackend;
use crate::backend::{MayRun, Retries};
use crate::domain::end::End;
use crate::domain::name::Attempt;
use crate::domain::outcome::{Outcome, Placed};
use crate::render::next_attempt;

/// How often it is looked whether something is due.
const EVERY: Duration = Duration::from_millis(500);
/// How many are made at once.
const AT_ONCE: usize = 8;
/// The wait before another try where something did not answer, or may not be yet.
const AGAIN: Duration = Duration::from_secs(5);

/// What came of a try.
enum Tried {
    /// There is nothing more to do.
    Done,
    /// Later again.
    Again(Duration),
}

impl KubernetesBackend {
    /// Who says what is done about ends; before [`run`](Self::run).
    pub fn retry_by(&self, retries: Arc<dyn Retries>) {
        self.observe.retry_by(retries);
    }

    /// Makes next attempts until it is dropped.
    pub(super) async fn retry_ended(&self) {
        let Some(retries) = self.observe.retries() else {
            return std::future::pending().await;
        };
        let mut tries = FuturesUnordered::new();
        loop {
            for (uid, end) in self.observe.take_due(AT_ONCE.saturating_sub(tries.len())) {
                tries.push(async move {
                    let tried = self.try_again(retries.as_ref(), &uid, &end).await;
                    (uid, tried)
                });
            }
            tokio::select! {
                biased;
                Some((uid, tried)) = tries.next(), if !tries.is_empty() => match tried {
                    Tried::Done => self.observe.run_again(&uid),
                    Tried::Again(after) => {
                        self.observe.run_again_at(&uid, self.clock.mono() + after);
                    }
                },
                () = sleep(EVERY) => {}
            }
        }
    }

    async fn try_again(&self, retries: &dyn Retries, uid: &str, end: &End) -> Tried {
        let never = |why: &str| {
            tracing::info!(job = end.job, workload = %end.key, why, "is not run again");
            Tried::Done
        };
        let later = |why: &str| {
            tracing::debug!(job = end.job, why, "is not run again yet");
            Tried::Again(AGAIN)
        };
        // Many may wait for long: nothing is read for what can't go anyway.
        if let Some(why) = retries.stopped(end) {
            return later(&why);
        }
        if self.rooms.subscribe().borrow().free() == 0 {
            return later("there is no room");
        }
        let job = match self.api.read_job(&end.job).await {
            Ok(Some(job)) => job,
            Ok(None) => return never("its Job is gone"),
            Err(error) => return later(&error.to_string()),
        };
        if job.pointer("/metadata/uid").is_none_or(|found| found != uid) {
            return never("another Job has its name by now");
        }
        let Some(attempt) = end.attempt.number().checked_add(1).and_then(Attempt::new) else {
            return never("attempts can't be counted any further");
        };
        let next = match next_attempt(&job, &end.task, attempt) {
            Ok(next) => next,
            Err(error) => return never(&error.to_string()),
        };
        match retries.may_run(end, next.input.as_ref()).await {
            MayRun::Yes => {}
            MayRun::Later(why) => return later(&why),
            MayRun::No(why) => return never(&why),
        }
        let body = next.body;
        let made = self.submitter.submit(next.name.as_str(), end.task, || body).await;
        match made.outcome {
            Outcome::Scheduled(placed) | Outcome::Running(_, placed) => {
                let (job, before, kind) = (next.name.as_str(), &end.job, end.verdict.kind.label());
                let made = matches!(placed, Placed::Created);
                tracing::info!(job, before, kind, %attempt, made, workload = %end.key, "run again");
                Tried::Done
            }
            Outcome::Deferred(why) => Tried::Again(why.retry_after.max(Duration::from_secs(1))),
            Outcome::Rejected(why) => never(&why.detail),
        }
    }
}
