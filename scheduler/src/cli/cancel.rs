//! `katabatch cancel`: deletes unfinished Jobs, for incidents. Their messages are acked in most cases,
//! so that nothing makes them again; a pause of the same target keeps the others from starting.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use anyhow::anyhow;
use serde::Serialize;

use super::controls::{Opened, no_such_backend};
use super::output::{Exit, Format, Row, after_printing, print_rows};
use super::target::{TargetArgs, WhyArgs, confirm};
use crate::backend::kubernetes::api::ClusterApi as _;
use crate::backend::kubernetes::client::KubeApi;
use crate::catalog::Freshness;
use crate::clock::{Clock, SystemClock};
use crate::config::backends::BackendKind;
use crate::controls::Target;
use crate::domain::glob::Glob;
use crate::domain::name::label_value;
use crate::render::labels;
use crate::service::{CatalogSource, Loaded, api_of, load};

/// How many job types are looked up in one call.
const CHUNK: usize = 300;

/// What `katabatch cancel` takes.
#[derive(Debug, clap::Args)]
pub struct CancelArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    why: WhyArgs,
    /// Only print what would be deleted.
    #[arg(long)]
    dry_run: bool,
    /// Don't ask.
    #[arg(long)]
    yes: bool,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// One Job, as it is printed.
#[derive(Debug, Serialize)]
struct Line {
    backend: String,
    job: String,
    command: String,
    job_type: String,
    outcome: &'static str,
}

impl Row for Line {
    const HEADINGS: &'static [&'static str] = &["BACKEND", "JOB", "COMMAND", "JOB TYPE", "OUTCOME"];

    fn cells(&self) -> Vec<String> {
        let Self { backend, job, command, job_type, outcome } = self;
        let outcome = (*outcome).to_owned();
        vec![backend.clone(), job.clone(), command.clone(), job_type.clone(), outcome]
    }
}

/// A Job to be deleted, and where.
struct Found {
    api: Arc<KubeApi>,
    uid: String,
    line: Line,
}

/// What Jobs the target names, by the labels that they carry.
enum Wanted {
    All,
    Command(Glob),
    JobType(Glob),
    /// The labels of a project's job types.
    JobTypes(BTreeSet<String>),
}

impl Wanted {
    fn takes(&self, command: &str, job_type: &str) -> bool {
        // A name that is no label value stands there as another one, made from it.
        let fits =
            |glob: &Glob, label: &str| glob.matches(label) || label_value(glob.as_str()) == label;
        match self {
            Self::All => true,
            Self::Command(glob) => fits(glob, command),
            Self::JobType(glob) => fits(glob, job_type),
            Self::JobTypes(labels) => labels.contains(job_type),
        }
    }
}

/// Runs the command: 0 when all is deleted, 3 when some could not be.
pub async fn run(path: &Path, args: CancelArgs) -> anyhow::Result<Exit> {
    let loaded = load(path)?.get();
    let target = args.target.target();
    let wanted = match &target {
        Target::All | Target::Backend(_) => Wanted::All,
        Target::Command(glob) => Wanted::Command(glob.clone()),
        Target::JobType(glob) => Wanted::JobType(glob.clone()),
        Target::Project(glob) => Wanted::JobTypes(job_types_of(&loaded, glob).await?),
    };
    let mut found = find(&loaded, &target, &wanted).await?;
    let mut err = std::io::stderr();
    let mut exit = Exit::Done;
    if !args.dry_run && !found.is_empty() {
        let question = format!("Delete {} unfinished Jobs of {target}?", found.len());
        confirm(args.yes, &question, &mut err)?;
        let what = format!("cancel {target}");
        let detail = format!("{} Jobs: {}", found.len(), args.why.why);
        Opened::of(&loaded).await?.change(Vec::new(), what, detail).await?;
        for Found { api, uid, line } in &mut found {
            line.outcome = match api.delete_job(&line.job, uid).await {
                Ok(()) => "deleted",
                Err(error) if error.is_not_found() || error.is_conflict() => "gone",
                Err(error) => {
                    tracing::error!(job = line.job, %error, "not deleted");
                    exit = Exit::Partly;
                    "failed"
                }
            };
        }
    }
    let lines: Vec<Line> = found.into_iter().map(|found| found.line).collect();
    let mut out = std::io::stdout();
    let printed = print_rows(args.output, &lines, "Jobs", &mut out, &mut err);
    Ok(after_printing(printed, exit, &mut err))
}

async fn find(loaded: &Loaded, target: &Target, wanted: &Wanted) -> anyhow::Result<Vec<Found>> {
    let config = &loaded.config;
    let chosen = |name: &str| match target {
        Target::Backend(glob) => glob.matches(name),
        _ => true,
    };
    let mut found = Vec::new();
    let mut any = false;
    for backend in config.backends.iter().filter(|backend| chosen(backend.name.as_str())) {
        any = true;
        if !matches!(backend.kind, BackendKind::Kubernetes { .. }) {
            tracing::warn!("backend {} is no cluster: what runs there is left alone", backend.name);
            continue;
        }
        let api = api_of(loaded, backend).await?;
        let selector = format!(
            "{}={},{}={}",
            labels::MANAGED_BY,
            labels::MANAGER,
            labels::SCHEDULER,
            config.scheduler
        );
        for job in api.select_jobs(&selector).await? {
            if job.finished || job.deleting || !wanted.takes(&job.command, &job.job_type) {
                continue;
            }
            let line = Line {
                backend: backend.name.to_string(),
                job: job.name,
                command: job.command,
                job_type: job.job_type,
                outcome: "would be deleted",
            };
            found.push(Found { api: Arc::clone(&api), uid: job.uid, line });
        }
    }
    match target {
        Target::Backend(glob) if !any => Err(no_such_backend(config, glob.as_str())),
        _ => Ok(found),
    }
}

/// The labels of the job types whose project fits.
async fn job_types_of(loaded: &Loaded, project: &Glob) -> anyhow::Result<BTreeSet<String>> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let source = CatalogSource::open(loaded, &clock).await.map_err(|error| anyhow!(error))?;
    let names = source.job_types().await?;
    let catalog = source.catalog();
    let mut labels = BTreeSet::new();
    for chunk in names.chunks(CHUNK) {
        for (name, entities) in catalog.look_up(chunk, Freshness::Cached).await? {
            let fits = |job: &crate::catalog::entity::Job| {
                job.project.as_deref().is_some_and(|of| project.matches(of))
            };
            if entities.jobs.iter().any(fits) {
                labels.insert(label_value(name.as_str()));
            }
        }
    }
    Ok(labels)
}
