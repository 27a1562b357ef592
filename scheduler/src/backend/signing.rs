//! Gives workers a signed URL where a task's input is a `gs://` path, whatever the backend.
//!
//! A layer over a [`Backend`]: the URL is made when a Job is about to be, so that each attempt's is
//! fresh, and nothing but the worker ever sees it. The task stays the same: its identity is that of
//! the object. Leaves out who signs.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use super::Backend;
use crate::domain::name::{Attempt, BackendName, TaskHash};
use crate::domain::outcome::{Deferral, Outcome, Scope};
use crate::domain::room::Room;
use crate::domain::task::Task;
use crate::domain::workload::Workload;
use crate::gcp::storage::{ObjectName, SignUrls, StorageError};

/// How long a task may wait to start, on top of its own time. Together with six hours, which most
/// commands have, and the margin it stays within the twelve hours for which IAM's keys are sure to
/// be valid after a signature (IAM Credentials API, `signBlob`).
const WAIT: Duration = Duration::from_secs(5 * 3_600);
/// For clocks that differ, and the way from a signature to a Job.
const MARGIN: Duration = Duration::from_secs(15 * 60);
/// The longest lifetime of a V4 signature (Cloud Storage, "Signed URLs").
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3_600);
/// The wait before signing is tried again.
const AGAIN: Duration = Duration::from_secs(10);

/// A backend whose tasks' `gs://` inputs are signed.
pub struct Signing {
    inner: Arc<dyn Backend>,
    signer: Arc<dyn SignUrls>,
    /// The trouble that was said last, so that it is said once.
    said: Mutex<Option<StorageError>>,
}

impl Signing {
    /// Signs for `inner`.
    pub fn over(inner: Arc<dyn Backend>, signer: Arc<dyn SignUrls>) -> Arc<Self> {
        Arc::new(Self { inner, signer, said: Mutex::default() })
    }

    /// The task as its worker gets it.
    async fn signed(&self, workload: &Workload, task: &Task) -> Result<Task, Deferral> {
        let Some(object) = task.input.path() else { return Ok(task.clone()) };
        // A path is text, so that its object's name is UTF-8.
        let Some(object) = ObjectName::of(object) else { return Ok(task.clone()) };
        let signed = self.signer.sign(&object, lifetime(workload)).await;
        self.say(signed.as_ref().err());
        let input = signed.map_err(|error| deferral(&error))?;
        Ok(Task { input, ..task.clone() })
    }

    /// Says that there is trouble, and when it is over: it concerns every such input, while each is
    /// held for itself.
    fn say(&self, trouble: Option<&StorageError>) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.as_ref() == trouble {
            return;
        }
        match trouble {
            Some(error) => {
                tracing::error!(%error, "inputs can't be signed: tasks of gs:// are held")
            }
            None => tracing::info!("inputs are signed again"),
        }
        *said = trouble.cloned();
    }
}

/// For how long an input is signed: the wait for a start, the longest run and a margin, and no
/// longer than a signature can last. A Job's own time limit counts from its creation on Kubernetes,
/// its pods' restarts included; elsewhere it counts from the start.
fn lifetime(workload: &Workload) -> Duration {
    let longest_run = workload.profile.deadline.unwrap_or(workload.duration);
    WAIT.saturating_add(longest_run).saturating_add(MARGIN).min(LONGEST)
}

/// Trouble with a signature never is the message's fault. It stops this task alone: others, whose
/// inputs are signed already, go on.
fn deferral(error: &StorageError) -> Deferral {
    let (kind, again) = error.hold(AGAIN);
    Deferral::new(Scope::Task, kind, format!("its input can't be signed: {error}"), again)
}

#[async_trait]
impl Backend for Signing {
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
        if tasks.iter().all(|task| task.input.path().is_none()) {
            return self.inner.submit(workload, tasks).await;
        }
        let signing = tasks.iter().map(|task| self.signed(workload, task));
        let signed = futures::future::join_all(signing).await;
        let ready: Vec<Task> =
            signed.iter().filter_map(|task| task.as_ref().ok().cloned()).collect();
        let made = match ready.as_slice() {
            [] => Vec::new(),
            ready => self.inner.submit(workload, ready).await,
        };
        super::in_order(signed.into_iter().map(|task| task.err().map(Outcome::Deferred)), made)
    }

    async fn has(&self, task: &Task) -> Result<bool, Deferral> {
        self.inner.has(task).await
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
