//! `katabatch render`: prints the Job that a task would get, without any cluster.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use serde_json::Value;

use super::output::{Exit, after_printing, yaml};
use super::tasks::TaskArgs;
use crate::catalog::Freshness;
use crate::catalog::entity::JobEntities;
use crate::clock::{Clock, SystemClock};
use crate::config::backends::{BackendConfig, BackendKind};
use crate::domain::message::{Decoded, decode};
use crate::domain::name::Attempt;
use crate::domain::redact::redact;
use crate::pipeline::resolve::resolve;
use crate::render::{Policy, Target};
use crate::service::{Loaded, Lookups, load, templates};

/// What `katabatch render` takes.
#[derive(Debug, clap::Args)]
pub struct RenderArgs {
    #[command(flatten)]
    task: TaskArgs,
    /// The backend whose templates and namespace count. Default: the first Kubernetes one.
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Document,
    /// Show the input URL whole, its signature included: it is a credential.
    #[arg(long)]
    reveal: bool,
}

/// How a single document is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
enum Document {
    /// YAML.
    #[default]
    Yaml,
    /// JSON.
    Json,
}

/// Runs the command.
pub async fn run(config: &Path, args: RenderArgs) -> anyhow::Result<Exit> {
    let loaded = load(config)?.get();
    let job = job(&loaded, &args).await?;
    let shown = if args.reveal { job } else { without_credentials(job) };
    let text = match args.output {
        Document::Yaml => yaml(&shown)?,
        Document::Json => serde_json::to_string_pretty(&shown)? + "\n",
    };
    let printed = std::io::Write::write_all(&mut std::io::stdout().lock(), text.as_bytes());
    Ok(after_printing(printed, Exit::Done, &mut std::io::stderr().lock()))
}

async fn job(loaded: &Loaded, args: &RenderArgs) -> anyhow::Result<Value> {
    let (id, attributes) = args.task.message()?;
    // Whatever queue it came by: what it would become is the question.
    let version = attributes.get("base_os_version").map(String::as_str);
    let task = match decode(&attributes, &id, SystemClock.wall(), version)? {
        Decoded::Task(task) => task,
        Decoded::AnotherVersion(version) => bail!("the task is for base OS version {version}"),
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let lookups = Lookups::open(loaded, &clock).await.map_err(|e| anyhow!(e))?;
    let found = lookups
        .catalog()
        .look_up(std::slice::from_ref(&task.key.job_type), Freshness::Fresh)
        .await?;
    let none = JobEntities::default();
    let entities = found.get(&task.key.job_type).unwrap_or(&none);
    let flags = lookups.flags().read().await?;
    let resolved = resolve(&task.key, entities, &loaded.farm, &loaded.config.profiles, &flags)
        .map_err(|why| {
            anyhow!("{} can't be made a Job ({}): {}", task.key, why.kind, why.detail)
        })?;
    let (backend, namespace) = backend(loaded, args.backend.as_deref())?;
    let target = Target { namespace, scheduler: loaded.config.scheduler.clone() };
    let policy = Policy { strict: loaded.config.policy.strict };
    let checked = templates(backend)?
        .check(&resolved.workload, &target, &policy)
        .with_context(|| format!("{} can't be made a Job", task.key))?;
    for warning in resolved
        .warnings
        .iter()
        .map(String::as_str)
        .chain(checked.warnings().iter().map(String::as_str))
    {
        tracing::warn!("{warning}");
    }
    Ok(checked.fill(&task, Attempt::FIRST).value().clone())
}

/// The asked-for backend, or the first on Kubernetes, and its namespace.
fn backend<'a>(
    loaded: &'a Loaded,
    name: Option<&str>,
) -> anyhow::Result<(&'a BackendConfig, String)> {
    let wanted = |backend: &&BackendConfig| name.is_none_or(|name| backend.name.as_str() == name);
    for backend in loaded.config.backends.iter().filter(wanted) {
        if let BackendKind::Kubernetes { namespace, .. } = &backend.kind {
            return Ok((backend, namespace.clone()));
        }
    }
    bail!(
        "no Kubernetes backend{} is configured\nhint: only Kubernetes backends have Jobs to print",
        name.map(|name| format!(" `{name}`")).unwrap_or_default()
    )
}

/// Every text in the document without its credentials.
fn without_credentials(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(redact(&text).into_owned()),
        Value::Array(items) => items.into_iter().map(without_credentials).collect(),
        Value::Object(map) => {
            map.into_iter().map(|(key, value)| (key, without_credentials(value))).collect()
        }
        other => other,
    }
}
