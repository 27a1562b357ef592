//! Looks whether a task's output is there before a Job is made: then it has run, and is done.
//!
//! A layer over a [`Backend`]. ClusterFuzz names a task's output object as its input object, in a
//! bucket of its own. Every task is looked up, whichever delivery it is: a message that was published
//! twice, or put back from quarantine, is a first delivery of a task that may have run, and the Job
//! that would tell may be deleted since, or was another scheduler's with a name of its own. One GET
//! a task, beside the creates, is what that costs.
//!
//! A look-up that fails holds the backend's tasks: creating would risk that one runs twice, and a
//! worker could not fetch its input either. Leaves out tasks whose URL names no object.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use super::Backend;
use crate::domain::input_url::InputUrl;
use crate::domain::name::{Attempt, BackendName, TaskHash};
use crate::domain::outcome::{Deferral, Outcome, Placed, Scope};
use crate::domain::room::Room;
use crate::domain::task::Task;
use crate::domain::workload::Workload;
use crate::gcp::storage::{ObjectName, Objects, StorageError};

/// The longest that a look may take.
const WITHIN: Duration = Duration::from_secs(5);
/// The wait before another look after one that failed.
const AGAIN: Duration = Duration::from_secs(5);

/// A backend whose tasks are done where their outputs are there.
pub struct Outputs {
    inner: Arc<dyn Backend>,
    objects: Arc<dyn Objects>,
    bucket: String,
}

impl Outputs {
    /// Looks into `bucket` before `inner` gets a task.
    pub fn over(inner: Arc<dyn Backend>, objects: Arc<dyn Objects>, bucket: String) -> Arc<Self> {
        Arc::new(Self { inner, objects, bucket })
    }

    /// Whether the task's output is there.
    async fn is_done(&self, task: &Task) -> Result<bool, Deferral> {
        output_is_there(self.objects.as_ref(), &self.bucket, &task.input).await
    }

    /// What there is no more to do about a task, if so.
    async fn done_with(&self, task: &Task) -> Option<Outcome> {
        match self.is_done(task).await {
            Ok(true) => Some(Outcome::Scheduled(Placed::Done)),
            Ok(false) => None,
            Err(why) => Some(Outcome::Deferred(why)),
        }
    }
}

/// Whether the output of the task with this input is in `bucket`.
///
/// # Errors
/// It can't be told now.
pub async fn output_is_there(
    objects: &dyn Objects,
    bucket: &str,
    input: &InputUrl,
) -> Result<bool, Deferral> {
    let Some(input) = input.object().and_then(ObjectName::of) else { return Ok(false) };
    let output = ObjectName { bucket: bucket.to_owned(), name: input.name };
    match tokio::time::timeout(WITHIN, objects.exists(&output)).await {
        Ok(found) => found.map_err(|error| deferral(&error)),
        Err(_) => Err(deferral(&StorageError::Later("it gave no answer in time".into()))),
    }
}

/// What no look-up gets an answer to, the next one does not get one to either.
fn deferral(error: &StorageError) -> Deferral {
    let (kind, again) = error.hold(AGAIN);
    let detail = format!("whether its output is there can't be told: {error}");
    Deferral::new(Scope::Backend, kind, detail, again)
}

#[async_trait]
impl Backend for Outputs {
    fn name(&self) -> &BackendName {
        self.inner.name()
    }

    fn room(&self) -> watch::Receiver<Room> {
        self.inner.room()
    }

    fn batch(&self) -> usize {
        self.inner.batch()
    }

    async fn submit(&self, workload: &Arc<Workload>, tasks: &[Task]) -> Vec<Outcome> {
        let looks = tasks.iter().map(|task| self.done_with(task));
        let settled = futures::future::join_all(looks).await;
        let open = tasks.iter().zip(&settled).filter(|(_, settled)| settled.is_none());
        let open: Vec<Task> = open.map(|(task, _)| task.clone()).collect();
        let made = match open.as_slice() {
            [] => Vec::new(),
            open => self.inner.submit(workload, open).await,
        };
        super::in_order(settled, made)
    }

    async fn has(&self, task: &Task) -> Result<bool, Deferral> {
        Ok(self.inner.has(task).await? || self.is_done(task).await?)
    }

    fn knows(&self, task: &Task) -> Option<bool> {
        self.inner.knows(task)
    }

    fn binds(&self, task: &Task) -> bool {
        self.inner.binds(task)
    }

    async fn clear(&self) -> Result<usize, Deferral> {
        self.inner.clear().await
    }

    fn acked(&self, tasks: &[TaskHash]) {
        self.inner.acked(tasks);
    }

    fn settled(&self, task: &TaskHash, attempt: Attempt) {
        self.inner.settled(task, attempt);
    }
}

#[cfg(test)]
mod tests;
