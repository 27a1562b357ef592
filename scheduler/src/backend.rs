//! The backend trait: a place that runs tasks.
//!
//! Implementations never use one another, nor the pipeline. What a backend promises is on the
//! methods: the pipeline acks on the strength of it. [`outputs`] and [`signing`] are layers over any
//! backend; [`ends`] lets several hear how Jobs end.

pub mod ends;
pub mod gcp_batch;
pub mod kubernetes;
#[cfg(test)]
mod layered;
pub mod local;
pub mod outputs;
pub mod signing;

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::domain::end::{End, RetryRule};
use crate::domain::input_url::InputUrl;
use crate::domain::name::{Attempt, BackendName, TaskHash};
use crate::domain::outcome::{Deferral, Outcome};
use crate::domain::room::Room;
use crate::domain::task::Task;
use crate::domain::workload::Workload;

/// A place that runs tasks.
#[async_trait]
pub trait Backend: Send + Sync {
    /// The configured name.
    fn name(&self) -> &BackendName;

    /// The room, now and as it changes. What it says is a hint for how much to ask for;
    /// [`submit`](Self::submit) itself never goes over a limit.
    fn room(&self) -> watch::Receiver<Room>;

    /// How many tasks one call of `submit` may carry. They share a fate on some backends.
    fn batch(&self) -> usize {
        1
    }

    /// Sees to it that each task runs exactly once here; one outcome a task, in order.
    ///
    /// `Scheduled` means that the backend has confirmed the task's Job, created now or there
    /// already and provably ours, or its output. A lost answer is settled before this returns, or
    /// the outcome is `Deferred`; trying the same task again never makes a second Job. A dropped
    /// future (a crash) may leave a Job behind, which the next try finds.
    async fn submit(&self, workload: &Arc<Workload>, tasks: &[Task]) -> Vec<Outcome>;

    /// Whether this backend has a Job of the task, running or finished, or its output: what must be
    /// known before a message is given up whose ack may have been lost, and before a task goes to
    /// another backend. `false` is only said when no create of it can take effect any more.
    ///
    /// # Errors
    /// When it can't be told now.
    async fn has(&self, task: &Task) -> Result<bool, Deferral>;

    /// The same where it can be told without asking anyone; `None` where it can't.
    fn knows(&self, _: &Task) -> Option<bool> {
        None
    }

    /// Whether an earlier request for this task may still take effect here, so that going on here
    /// settles what anywhere else would have to wait for. Told without asking anyone.
    fn binds(&self, _: &Task) -> bool {
        false
    }

    /// Deletes all that runs here of this scheduler, after a person has declared the backend lost
    /// and its tasks may have gone elsewhere; how many there were.
    ///
    /// # Errors
    /// When not all could be deleted, or it can't be told.
    async fn clear(&self) -> Result<usize, Deferral> {
        Ok(0)
    }

    /// The messages of these scheduled tasks are known to be acked: their Jobs may be deleted some
    /// time after they end.
    fn acked(&self, tasks: &[TaskHash]);

    /// That this attempt at a followed task has failed is known to its queue: the Jobs up to it may
    /// be deleted some time after they ended.
    fn settled(&self, _: &TaskHash, _: Attempt) {}
}

/// Hears how the Jobs of followed tasks ended; for what is done with their messages.
pub trait Follower: Send + Sync {
    /// A Job has ended. Each is told once by a process, whoever heard of it before, and those of
    /// tasks that nobody follows too. Called where work is done: must not block.
    fn finished(&self, finished: Finished);
}

/// What the end of a Job comes to for its task's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// The task.
    pub task: TaskHash,
    /// Which attempt at it.
    pub attempt: Attempt,
    /// Where it was.
    pub backend: BackendName,
    /// What it comes to.
    pub how: Finish,
}

/// What an end comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finish {
    /// The Job is complete.
    Completed,
    /// It has failed, for this reason: verdict and end of the log, credentials taken out.
    Failed(String),
    /// It went without an end of its own: somebody deleted it.
    Cancelled(String),
}

/// What the farm wants done about ends.
#[async_trait]
pub trait Retries: Send + Sync {
    /// What is done about this end. A task that has used up its attempts is not run again.
    fn rule(&self, end: &End) -> RetryRule;

    /// Why no task like this one may start now, if so; told without asking anyone.
    fn stopped(&self, end: &End) -> Option<String>;

    /// Whether the task that ended so may be run again now, where nothing is stopped. `input` as its Job had it, where that
    /// can be told.
    async fn may_run(&self, end: &End, input: Option<&InputUrl>) -> MayRun;
}

/// Whether a task may be run again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MayRun {
    /// It may.
    Yes,
    /// Not now, for this reason.
    Later(String),
    /// Never, for this reason.
    No(String),
}

/// Hears how Jobs ended.
pub trait EndObserver: Send + Sync {
    /// Whether this end was told before, maybe to an earlier process: it is then not gathered again.
    fn knows(&self, task: &TaskHash, attempt: Attempt) -> bool;

    /// A Job has ended. Each is told once by a process, and may be told again by a later one.
    /// Called where work is done: must not block.
    fn ended(&self, end: End);
}

/// The outcomes of a call of which a layer has `settled` some tasks itself, in the order asked, and
/// got those of all others from the backend below.
fn in_order(
    settled: impl IntoIterator<Item = Option<Outcome>>,
    from_below: Vec<Outcome>,
) -> Vec<Outcome> {
    let mut from_below = from_below.into_iter();
    // One that is missing ends the list: the pipeline knows what to make of that.
    settled.into_iter().map_while(|settled| settled.or_else(|| from_below.next())).collect()
}
