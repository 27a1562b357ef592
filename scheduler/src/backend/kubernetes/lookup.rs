//! Whether a task's Job is in this namespace: what a task must be asked for before it goes anywhere
//! else.
//!
//! A `no` is only said while this process leads here, so that no other can make the Job in the same
//! moment, and not while a create of that name may still take effect.

use std::time::Duration;

use super::acks::Latest;
use super::api::{ApiError, ClusterApi, JobFacts};
use super::janitor::SharedAcks;
use super::leader::Leader;
use super::room::Rooms;
use crate::domain::outcome::{Deferral, HoldKind, Scope};
use crate::domain::task::Task;
use crate::leadership::Leadership as _;

/// When to ask again.
const SOON: Duration = Duration::from_secs(5);

/// One namespace, to be asked.
pub(super) struct Lookup<'a> {
    pub(super) api: &'a dyn ClusterApi,
    pub(super) leader: &'a Leader,
    pub(super) rooms: &'a Rooms,
    pub(super) acks: &'a SharedAcks,
}

fn later(kind: HoldKind, why: impl std::fmt::Display) -> Deferral {
    Deferral::new(Scope::Task, kind, why, SOON)
}

impl Lookup<'_> {
    /// Asks the API server.
    pub(super) async fn has(&self, task: &Task) -> Result<bool, Deferral> {
        let name = task.job_name();
        if self.has_attempts(task) {
            return Ok(true);
        }
        match self.api.get_job(name.as_str()).await {
            Ok(Some(job)) if job.task == Some(task.hash) => {
                if job.deleting {
                    let text = format!("Job {name} is being deleted");
                    return Err(later(HoldKind::BeingDeleted, text));
                }
                Ok(true)
            }
            Ok(_) if !self.leader.may_create() => {
                let text = "this process does not lead in that namespace (yet), so that another \
                            one may be making the Job";
                Err(later(HoldKind::NotLeader, text))
            }
            Ok(_) if self.rooms.read(|ledger| ledger.is_open(name.as_str())) => {
                let text = format!("what became of a create of Job {name} is not known yet");
                Err(later(HoldKind::BackendFailed, text))
            }
            Ok(_) => Ok(false),
            Err(error) => Err(later(HoldKind::BackendFailed, error)),
        }
    }

    /// What the watch and this process's own creates say, without asking.
    pub(super) fn knows(&self, task: &Task) -> Option<bool> {
        if !self.leader.may_create() {
            return None;
        }
        let name = task.job_name();
        let there = self.rooms.read(|ledger| ledger.has(name.as_str()))?;
        // The account of room forgets what has ended; the acks do not.
        Some(there || self.acks.lock().knows(name.as_str()) || self.has_attempts(task))
    }

    /// Whether the task is known to have an attempt; of a chain the first one may be gone.
    fn has_attempts(&self, task: &Task) -> bool {
        !matches!(self.acks.lock().latest(&task.hash), None | Some(Latest::Nothing))
    }

    /// Deletes every unfinished Job of `scheduler`; how many there were.
    pub(super) async fn clear(&self, scheduler: &str) -> Result<usize, Deferral> {
        if !self.leader.may_create() {
            return Err(later(HoldKind::NotLeader, "this process does not lead there yet"));
        }
        let failed = |error: ApiError| later(HoldKind::BackendFailed, error);
        let ours = |job: &JobFacts| {
            job.scheduler.as_deref() == Some(scheduler) && !job.progress.finished && !job.deleting
        };
        let (mut next, mut cleared) = (None, 0);
        loop {
            let page = self.api.list_jobs(next.as_deref()).await.map_err(failed)?;
            for job in page.items.iter().filter(|job| ours(job)) {
                match self.api.delete_job(&job.name, &job.uid).await {
                    Ok(()) => cleared += 1,
                    Err(error) if error.is_not_found() || error.is_conflict() => {}
                    Err(error) => return Err(failed(error)),
                }
            }
            match page.next {
                Some(more) => next = Some(more),
                None => return Ok(cleared),
            }
        }
    }
}
