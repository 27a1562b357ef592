//! Tells how the tasks of jobs that are over ended: one end a task, each once by a process.
//!
//! A job and its tasks are read once it is over, a few jobs a look. Logs are Cloud Logging's, and
//! are not read. A job type or command that is no label of Google's is told under its label.

use std::collections::BTreeMap;

use super::answer::{Job, State, Task};
use super::api::ApiError;
use super::plan::JobId;
use super::poll::PAGES;
use super::{GcpBatch, end};
use crate::domain::end::{End, EndKind, Verdict};
use crate::domain::log_tail::LogTail;
use crate::domain::name::Attempt;
use crate::domain::task::WorkloadKey;

/// The most jobs whose tasks are read in one look.
const JOBS_A_LOOK: usize = 20;

impl GcpBatch {
    /// Tells the ends of what is over, to whoever listens and in the log.
    pub(super) async fn tell_what_is_over(&self) {
        let over: Vec<(JobId, String)> = {
            let state = self.state();
            let over = state.ledger.jobs().filter(|(_, job)| !job.told && !job.is_live());
            over.map(|(id, job)| (id.clone(), job.parent.clone())).take(JOBS_A_LOOK).collect()
        };
        for (id, parent) in over {
            match self.ends_of(&parent, &id).await {
                Ok(ends) => self.tell(&id, &parent, ends),
                Err(error) => {
                    tracing::debug!(job = %id, %error, "how a job ended can't be read yet");
                }
            }
        }
    }

    fn tell(&self, id: &JobId, parent: &str, ends: Vec<End>) {
        let mut counts: BTreeMap<EndKind, (usize, String)> = BTreeMap::new();
        for end in ends {
            let first = || (0, end.verdict.detail.clone());
            counts.entry(end.verdict.kind).or_insert_with(first).0 += 1;
            if let Some(listener) = self.listener.get()
                && !listener.knows(&end.task, end.attempt)
            {
                listener.ended(end);
            }
        }
        for (kind, (tasks, detail)) in &counts {
            tracing::info!(job = %id, parent, end = %kind, tasks, detail, "tasks ended");
        }
        self.state().ledger.told(id);
    }

    /// How the tasks of a job that is over ended. Nobody knows of a job that is not there any more.
    pub(super) async fn ends_of(&self, parent: &str, id: &JobId) -> Result<Vec<End>, ApiError> {
        let Some(job) = self.api.get(parent, id).await? else { return Ok(Vec::new()) };
        let (mut tasks, mut page) = (Vec::new(), None);
        for _ in 0..PAGES {
            let some = self.api.tasks(parent, id, page.as_deref()).await?;
            tasks.extend(some.tasks);
            if some.next_page_token.is_empty() {
                break;
            }
            page = Some(some.next_page_token);
        }
        let label = |name: &str| job.labels.get(name).map_or("", String::as_str);
        let key =
            WorkloadKey { command: label("task_name").into(), job_type: label("job_name").into() };
        let now = self.clock.wall();
        let end = |(hash, (verdict, task)): (_, (Verdict, Option<&Task>))| {
            let events = || task.into_iter().flat_map(|task| &task.status.status_events);
            End {
                task: hash,
                attempt: Attempt::FIRST,
                job: id.to_string(),
                key: key.clone(),
                backend: self.settings.name.clone(),
                verdict,
                tail: LogTail::unavailable("logs of Batch are in Cloud Logging"),
                started_at: events()
                    .find(|event| event.task_state == Some(State::Running))
                    .and_then(|event| event.event_time),
                ended_at: events().filter_map(|event| event.event_time).max().unwrap_or(now),
            }
        };
        let members = job.members().unwrap_or_default();
        let verdicts = verdicts(&job, &tasks, members.len());
        Ok(members.into_iter().zip(verdicts).map(end).collect())
    }
}

/// The verdicts on the tasks of a job, in their order, each with what was told of it.
fn verdicts<'t>(job: &Job, tasks: &'t [Task], count: usize) -> Vec<(Verdict, Option<&'t Task>)> {
    let mut found: Vec<Option<(Verdict, &Task)>> = (0..count).map(|_| None).collect();
    for task in tasks {
        let Some(verdict) = end::of_task(&job.status, &task.status) else { continue };
        let at = task.index().or_else(|| found.iter().position(Option::is_none));
        if let Some(place) = at.and_then(|at| found.get_mut(at)) {
            *place = Some((verdict, task));
        }
    }
    let unseen = || {
        let why = "the job is over, and Batch does not tell how";
        end::of_job(&job.status).unwrap_or_else(|| Verdict::new(EndKind::Unknown, None, why))
    };
    found
        .into_iter()
        .map(|found| match found {
            Some((verdict, task)) => (verdict, Some(task)),
            None => (unseen(), None),
        })
        .collect()
}
