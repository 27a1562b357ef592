//! What runs on a backend of any kind, found by what it is named with, and how each is ended.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};

use super::{Line, Wanted};
use crate::backend::gcp_batch::answer::State;
use crate::backend::gcp_batch::api::{Api, Fault};
use crate::backend::gcp_batch::plan::JobId;
use crate::backend::gcp_batch::spec::label as batch_label;
use crate::backend::kubernetes::api::ClusterApi as _;
use crate::backend::kubernetes::client::KubeApi;
use crate::backend::local;
use crate::config::backends::{BackendConfig, BackendKind};
use crate::domain::name::label_value;
use crate::render::labels;
use crate::service::{Loaded, api_of, batch_of};

/// The most pages of one list: more is no list of a farm's jobs.
const PAGES: usize = 10_000;
/// How long a task of this machine may take to end: its grace and what its supervisor clears up.
const ENDS_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Something to be ended, and where.
pub(super) struct Found {
    what: What,
    pub line: Line,
}

enum What {
    Job { api: Arc<KubeApi>, uid: String },
    Batch { api: Arc<dyn Api>, parent: String, id: JobId },
    Process(local::Unfinished),
}

/// What of this scheduler runs on the backend and is wanted.
pub(super) async fn find(
    loaded: &Loaded,
    backend: &BackendConfig,
    wanted: &Wanted,
) -> anyhow::Result<Vec<Found>> {
    match &backend.kind {
        BackendKind::Kubernetes { .. } => jobs(loaded, backend, wanted).await,
        BackendKind::GcpBatch { .. } => batch_jobs(loaded, backend, wanted).await,
        BackendKind::Local { dir, .. } => {
            let all = local::unfinished(dir).with_context(|| dir.display().to_string())?;
            let wanted = all.into_iter().filter(|task| {
                wanted.takes(&label_value(&task.command), &label_value(&task.job_type), label_value)
            });
            let found = |task: local::Unfinished| {
                let (command, job_type) = (task.command.clone(), task.job_type.clone());
                let line = Line::new(backend, task.job.clone(), command, job_type, 1);
                Found { what: What::Process(task), line }
            };
            Ok(wanted.map(found).collect())
        }
    }
}

async fn jobs(
    loaded: &Loaded,
    backend: &BackendConfig,
    wanted: &Wanted,
) -> anyhow::Result<Vec<Found>> {
    let api = api_of(loaded, backend).await?;
    let selector = format!(
        "{}={},{}={}",
        labels::MANAGED_BY,
        labels::MANAGER,
        labels::SCHEDULER,
        loaded.config.scheduler
    );
    let jobs = api.select_jobs(&selector).await?.into_iter();
    let wanted = jobs.filter(|job| {
        !job.finished && !job.deleting && wanted.takes(&job.command, &job.job_type, label_value)
    });
    let found = wanted.map(|job| Found {
        what: What::Job { api: Arc::clone(&api), uid: job.uid },
        line: Line::new(backend, job.name, job.command, job.job_type, 1),
    });
    Ok(found.collect())
}

/// A job holds tasks of one workload only, so that what names one of them names all.
async fn batch_jobs(
    loaded: &Loaded,
    backend: &BackendConfig,
    wanted: &Wanted,
) -> anyhow::Result<Vec<Found>> {
    let (api, parents) = batch_of(loaded, backend)?;
    let mut found = Vec::new();
    for parent in parents {
        let mut page: Option<String> = None;
        for _ in 0..PAGES {
            let jobs = match api.list(&parent, page.as_deref()).await {
                Ok(jobs) => jobs,
                // A place that is not there has no jobs.
                Err(error) if error.fault == Fault::NotFound => break,
                Err(error) => return Err(error).with_context(|| format!("{parent} can't be read")),
            };
            if let Some(place) = jobs.unreachable.first() {
                bail!("{parent}: the list is not whole: {place} can't be reached");
            }
            for job in jobs.jobs {
                let state = job.status.state;
                let going =
                    matches!(state, State::DeletionInProgress | State::CancellationInProgress);
                let ours = job.is_of(&loaded.config.scheduler) && !state.is_over() && !going;
                let Some(id) = JobId::parse(job.id()).filter(|_| ours) else { continue };
                let label = |name| job.labels.get(name).cloned().unwrap_or_default();
                let (command, job_type) = (label("task_name"), label("job_name"));
                if wanted.takes(&command, &job_type, batch_label) {
                    let line = Line::new(backend, id.to_string(), command, job_type, job.tasks());
                    let (api, parent) = (Arc::clone(&api), parent.clone());
                    found.push(Found { what: What::Batch { api, parent, id }, line });
                }
            }
            if jobs.next_page_token.is_empty() {
                break;
            }
            page = Some(jobs.next_page_token);
        }
    }
    Ok(found)
}

/// Ends all of them; whether each one was.
pub(super) async fn end(found: &mut [Found]) -> bool {
    let mut all = true;
    for Found { what, line } in found.iter_mut() {
        line.outcome = match end_one(what, line).await {
            Ok(outcome) => outcome,
            Err(error) => {
                tracing::error!(job = line.job, error = format!("{error:#}"), "not deleted");
                all = false;
                "failed"
            }
        };
    }
    all & see_ends(found).await
}

async fn end_one(what: &What, line: &Line) -> anyhow::Result<&'static str> {
    match what {
        What::Job { api, uid } => match api.delete_job(&line.job, uid).await {
            Ok(()) => Ok("deleted"),
            Err(error) if error.is_not_found() || error.is_conflict() => Ok("gone"),
            Err(error) => Err(error.into()),
        },
        What::Batch { api, parent, id } => {
            Ok(if api.delete(parent, id).await? { "deleted" } else { "gone" })
        }
        What::Process(task) => {
            task.cancel()?;
            Ok("asked")
        }
    }
}

/// Waits for the processes that were asked to end; whether all did in time.
async fn see_ends(found: &mut [Found]) -> bool {
    let look = async {
        loop {
            let mut waiting = false;
            for Found { what, line } in found.iter_mut() {
                let (What::Process(task), "asked") = (what, line.outcome) else { continue };
                // An error may pass; what can't be seen in the end is told as asked for.
                match task.has_ended() {
                    Ok(true) => line.outcome = "stopped",
                    Ok(false) | Err(_) => waiting = true,
                }
            }
            if !waiting {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::time::timeout(ENDS_WITHIN, look).await.is_ok()
}
