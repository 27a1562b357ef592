//! The two that are compared, each run as a process of its own.
//!
//! The raw poster makes the bodies beforehand and posts them, 32 at once, over the client that
//! katabatch uses; katabatch takes the tasks from its spool as `run` does.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use katabatch::backend::kubernetes::api::ClusterApi;
use katabatch::backend::kubernetes::client::KubeApi;
use katabatch::backend::kubernetes::connect::connect;
use katabatch::catalog::{Catalog, Freshness};
use katabatch::config::backends::BackendKind;
use katabatch::config::entities::CatalogConfig;
use katabatch::domain::input_url::InputUrl;
use katabatch::domain::name::{Attempt, JobType};
use katabatch::domain::task::{Task, WorkloadKey};
use katabatch::flags::FlagSet;
use katabatch::gcp::credentials::Credentials;
use katabatch::pipeline::resolve::resolve;
use katabatch::pipeline::tally::{Decision, Observer, Verdict};
use katabatch::queue::spool::record::NewMessage;
use katabatch::render::{FilledJob, Policy, Target, Templates};
use katabatch::service::{Options, Service, cluster_of, load};
use tokio_util::sync::CancellationToken;

use super::JOB_TYPES;
use crate::farm;

/// The n-th of the job types that share the tasks.
pub(super) fn job_type(n: usize) -> String {
    format!("libfuzzer_asan_bench_{}", n % JOB_TYPES)
}

/// The n-th task's message, its input signed as long as Cloud Storage signs.
pub(super) fn message(n: usize) -> NewMessage {
    let signature = "0123456789abcdef".repeat(32);
    farm::message("fuzz", &job_type(n), &farm::signed(&format!("bench/{n:08}"), &signature))
}

/// How many posts are in flight: katabatch's own default window.
const AT_ONCE: usize = 32;

/// A contender's command line.
#[derive(Debug, Clone, clap::Args)]
pub struct ContenderArgs {
    /// How many Jobs to make.
    #[arg(long)]
    tasks: usize,
    /// The configuration.
    config: PathBuf,
}

/// What a contender says of its run: how many Jobs came after the first, in how long.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub struct Ran {
    jobs: usize,
    seconds: f64,
}

impl Ran {
    /// The rate, from the first confirmed Job to the last.
    #[must_use]
    pub fn jobs_per_second(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a count of a benchmark")]
        let jobs = self.jobs as f64;
        jobs / self.seconds
    }
}

/// Notes when Jobs were confirmed.
#[derive(Default)]
struct Times(Mutex<Vec<Instant>>);

impl Times {
    fn note(&self) -> usize {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        times.push(Instant::now());
        times.len()
    }

    fn ran(&self) -> Result<Ran> {
        let times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(first), Some(last)) = (times.first(), times.last()) else {
            bail!("no Job was made");
        };
        let seconds = last.duration_since(*first).as_secs_f64();
        Ok(Ran { jobs: times.len() - 1, seconds })
    }
}

/// Posts ready-made bodies.
///
/// # Errors
/// When a post fails.
pub async fn poster(args: &ContenderArgs) -> Result<Ran> {
    let loaded = load(&args.config)?.get();
    let backend = loaded.config.backends.first().context("a backend")?;
    let BackendKind::Kubernetes { namespace, .. } = &backend.kind else {
        bail!("the backend is no cluster");
    };
    let jobs = bodies(&args.config, namespace, args.tasks).await?;
    let cluster = cluster_of(&backend.kind, &loaded.farm).context("a cluster")?;
    let client = connect(&cluster, &Credentials::anonymous()).await?.client;
    let api = KubeApi::new(client, namespace, Duration::from_secs(30));
    let times = Times::default();
    let (api, noted) = (&api, &times);
    let mut posts = futures::stream::iter(jobs)
        .map(|job| async move {
            let made = api.create_job(job.name.as_str(), job.to_body()).await;
            noted.note();
            made
        })
        .buffer_unordered(AT_ONCE);
    while let Some(made) = posts.next().await {
        made?;
    }
    times.ran()
}

/// The Jobs that katabatch would make of the tasks.
async fn bodies(config: &Path, namespace: &str, tasks: usize) -> Result<Vec<FilledJob>> {
    let loaded = load(config)?.get();
    let CatalogConfig::Files(files) = &loaded.config.catalog else {
        bail!("the bench's entities are in files")
    };
    let catalog = katabatch::catalog::file::FileCatalog::open(files.clone())?;
    let templates = Templates::embedded()?;
    let target =
        Target { namespace: namespace.to_owned(), scheduler: loaded.config.scheduler.clone() };
    let mut checked = std::collections::BTreeMap::new();
    let mut jobs = Vec::with_capacity(tasks);
    for n in 0..tasks {
        let attributes = message(n).attributes;
        let get = |name: &str| attributes.get(name).cloned().unwrap_or_default();
        let job_type = JobType::from(get("job"));
        let key = WorkloadKey { command: get("command").into(), job_type: job_type.clone() };
        let input = InputUrl::parse(&get("argument"))?;
        let task = Task::new(key.clone(), input, &n.to_string(), jiff::Timestamp::now());
        if !checked.contains_key(&key) {
            let found = catalog.look_up(std::slice::from_ref(&job_type), Freshness::Cached).await?;
            let entities = found.get(&job_type).context("entities")?;
            let profiles = &loaded.config.profiles;
            let resolved = resolve(&key, entities, &loaded.farm, profiles, &FlagSet::default())?;
            let job = templates.check(&resolved.workload, &target, &Policy { strict: false })?;
            checked.insert(key.clone(), job);
        }
        let job = checked.get(&key).context("a checked Job")?;
        jobs.push(job.fill(&task, Attempt::FIRST));
    }
    Ok(jobs)
}

/// Stops the scheduler once enough Jobs are confirmed.
struct Enough {
    times: Times,
    wanted: usize,
    stop: CancellationToken,
}

impl Observer for Enough {
    fn decided(&self, decision: &Decision) {
        if matches!(decision.verdict, Verdict::Scheduled(_)) && self.times.note() >= self.wanted {
            self.stop.cancel();
        }
    }
}

/// Schedules the tasks of the spool.
///
/// # Errors
/// When the scheduler fails.
pub async fn katabatch(args: &ContenderArgs) -> Result<Ran> {
    let stop = CancellationToken::new();
    let observer =
        Arc::new(Enough { times: Times::default(), wanted: args.tasks, stop: stop.clone() });
    let options = Options { observer: Some(observer.clone()), ..Options::default() };
    Service::build(load(&args.config)?, options).await?.run(stop).await?;
    observer.times.ran()
}
