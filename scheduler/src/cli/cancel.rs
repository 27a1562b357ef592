//! `katabatch cancel`: deletes unfinished Jobs, jobs of Batch and processes of this machine, for
//! incidents. Their messages are acked in most cases, so that nothing makes them again; a pause of
//! the same target keeps the others from starting. What is there, and how it is ended, is
//! [`unfinished`]'s.

mod unfinished;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use anyhow::anyhow;
use serde::Serialize;

use super::controls::{Opened, no_such_backend};
use super::output::{Exit, Format, Row, after_printing, print_rows};
use super::target::{TargetArgs, WhyArgs, confirm};
use crate::catalog::Freshness;
use crate::clock::{Clock, SystemClock};
use crate::config::backends::BackendConfig;
use crate::controls::Target;
use crate::domain::glob::Glob;
use crate::service::{CatalogSource, Loaded, load};
use unfinished::Found;

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

/// One Job, job of Batch or process, as it is printed.
#[derive(Debug, Serialize)]
struct Line {
    backend: String,
    job: String,
    command: String,
    job_type: String,
    tasks: usize,
    outcome: &'static str,
}

impl Line {
    fn new(
        backend: &BackendConfig,
        job: String,
        command: String,
        job_type: String,
        tasks: usize,
    ) -> Self {
        let (backend, outcome) = (backend.name.to_string(), "would be deleted");
        Self { backend, job, command, job_type, tasks, outcome }
    }
}

impl Row for Line {
    const HEADINGS: &'static [&'static str] =
        &["BACKEND", "JOB", "COMMAND", "JOB TYPE", "TASKS", "OUTCOME"];

    fn cells(&self) -> Vec<String> {
        let Self { backend, job, command, job_type, tasks, outcome } = self;
        let (tasks, outcome) = (tasks.to_string(), (*outcome).to_owned());
        vec![backend.clone(), job.clone(), command.clone(), job_type.clone(), tasks, outcome]
    }
}

/// What Jobs the target names, by the labels that they carry.
enum Wanted {
    All,
    Command(Glob),
    JobType(Glob),
    /// A project's job types, by their whole names.
    JobTypes(BTreeSet<String>),
}

impl Wanted {
    /// Whether it takes what carries these labels; `label` is what the backend makes of a name.
    fn takes(&self, command: &str, job_type: &str, label: fn(&str) -> String) -> bool {
        // A name that is no label value stands there as another one, made from it.
        let fits = |glob: &Glob, found: &str| glob.matches(found) || label(glob.as_str()) == found;
        match self {
            Self::All => true,
            Self::Command(glob) => fits(glob, command),
            Self::JobType(glob) => fits(glob, job_type),
            Self::JobTypes(names) => {
                names.contains(job_type) || names.iter().any(|name| label(name) == job_type)
            }
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
        let tasks: usize = found.iter().map(|found| found.line.tasks).sum();
        let question = format!("Delete {} unfinished Jobs of {target}?", found.len());
        confirm(args.yes, &question, &mut err)?;
        let what = format!("cancel {target}");
        let detail = format!("{} Jobs, {tasks} tasks: {}", found.len(), args.why.why);
        Opened::of(&loaded).await?.change(Vec::new(), what, detail).await?;
        if !unfinished::end(&mut found).await {
            exit = Exit::Partly;
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
        found.extend(unfinished::find(loaded, backend, wanted).await?);
    }
    match target {
        Target::Backend(glob) if !any => Err(no_such_backend(config, glob.as_str())),
        _ => Ok(found),
    }
}

/// The job types whose project fits.
async fn job_types_of(loaded: &Loaded, project: &Glob) -> anyhow::Result<BTreeSet<String>> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let source = CatalogSource::open(loaded, &clock).await.map_err(|error| anyhow!(error))?;
    let names = source.job_types().await?;
    let catalog = source.catalog();
    let mut fitting = BTreeSet::new();
    for chunk in names.chunks(CHUNK) {
        for (name, entities) in catalog.look_up(chunk, Freshness::Cached).await? {
            let fits = |job: &crate::catalog::entity::Job| {
                job.project.as_deref().is_some_and(|of| project.matches(of))
            };
            if entities.jobs.iter().any(fits) {
                fitting.insert(name.as_str().to_owned());
            }
        }
    }
    Ok(fitting)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::gcp_batch::spec::label;
    use crate::domain::name::label_value;

    #[test]
    fn a_name_is_found_by_what_each_backend_makes_of_it() {
        let check = |wanted: &Wanted, of: fn(&str) -> String, name: &str, expect| {
            assert_eq!(wanted.takes("fuzz", &of(name), of), expect, "{name}");
        };
        let one = |text: &str| Wanted::JobType(Glob::new(text));
        for of in [label_value as fn(&str) -> String, label] {
            check(&one("libfuzzer_*"), of, "libfuzzer_asan_x", true);
            check(&one("libfuzzer_*"), of, "afl_asan_x", false);
            check(&one("Odd name/1"), of, "Odd name/1", true);
            check(&one("Odd name/1"), of, "Odd name/2", false);
            let project = Wanted::JobTypes(["Odd name/1".to_owned()].into());
            check(&project, of, "Odd name/1", true);
            check(&project, of, "another", false);
            check(&Wanted::Command(Glob::new("fuzz")), of, "any", true);
            check(&Wanted::Command(Glob::new("minimize")), of, "any", false);
        }
    }
}
