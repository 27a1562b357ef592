//! The one place that puts real things together: configuration, queues, catalog, flags, backends
//! and the pipeline, and sees to it that none of them ends unnoticed.
//!
//! What each part does is its own; this only makes, joins and stops them.

mod backends;
pub mod cloud_storage;
mod farm_resolver;
pub mod home;
mod identities;
mod object_files;
pub mod queues;
mod rights;
mod sources;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, SystemClock};
use crate::config::Config;
use crate::config::farm::Farm;
use crate::config::files::Files;
use crate::config::watch::{Reload, Sources, Watched};
use crate::gcp::credentials::Credentials;
use crate::gcp::storage::StorageError;
use crate::pipeline::leases::Leases;
use crate::pipeline::snapshot::Snapshot;
use crate::pipeline::tally::{Observer, Tally};
use crate::pipeline::{Deps, Ended, Pipeline, PipelineError, QueueBinding, Settings};
use crate::queue::{Queue, QueueError};
pub use backends::{BackendError, Backends, api_of, cluster_of, templates};
use cloud_storage::Layers;
use farm_resolver::FarmResolver;
pub use identities::Identities;
pub use sources::{CatalogSource, Lookups, open_flags};

/// How often files are looked at for changes.
const RELOAD_EVERY: Duration = Duration::from_secs(2);
/// How long what is under way may take once told to stop.
const GRACE: Duration = Duration::from_secs(20);

/// The configuration and the farm's files, as they are together.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// Our own configuration.
    pub config: Config,
    /// What the farm's own folder says.
    pub farm: Farm,
    /// Where the farm's files are read.
    pub files: Files,
}

/// Why the service can't start or go on.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The configuration or the farm's files are wrong; each problem is a line.
    #[error("{0}")]
    Configuration(String),
    /// A queue can't be opened.
    #[error("queue {name}: {error}")]
    Queue {
        /// Its name.
        name: String,
        /// What it said.
        error: QueueError,
    },
    /// Cloud Storage can't be used.
    #[error("{0}")]
    Storage(#[from] StorageError),
    /// A backend can't be set up or has failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// This process may not do what it would have to; a line for each backend.
    #[error("{0}")]
    Rights(String),
    /// The pipeline can't go on.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// A part that runs for ever has ended.
    #[error("{0} ended unexpectedly")]
    Ended(String),
}

/// Loads the configuration at `path` and the farm's files, for watching.
///
/// # Errors
/// All problems, a line each.
pub fn load(path: &Path) -> Result<Watched<Loaded>, ServiceError> {
    let path: PathBuf = path.to_owned();
    let own_project = std::env::var("K8S_PROJECT").ok();
    let files = cloud_storage::files();
    Watched::open_in(files.clone(), move |sources: &mut Sources| {
        let config = Config::load_from(&path, sources).map_err(|e| e.to_string())?;
        let farm = Farm::load(&config.farm_dir, own_project.as_deref(), sources)
            .map_err(|e| e.to_string())?;
        Ok(Loaded { config, farm, files: files.clone() })
    })
    .map_err(ServiceError::Configuration)
}

/// How a service is to run.
#[derive(Default)]
pub struct Options {
    /// End when the queues are drained.
    pub once: bool,
    /// With `once`: go on until the local backends' tasks have ended too.
    pub see_ends: bool,
    /// Take tasks from this queue and not from the configured ones.
    pub queue: Option<Arc<dyn Queue>>,
    /// Hears of every decision.
    pub observer: Option<Arc<dyn Observer>>,
}

/// Everything, put together.
pub struct Service {
    loaded: Arc<Watched<Loaded>>,
    lookups: Lookups,
    backends: Backends,
    queues: Vec<Arc<dyn Queue>>,
    leases: Vec<Arc<Leases>>,
    pipeline: Pipeline,
    see_ends: bool,
}

impl Service {
    /// Puts everything together. Connects to nothing yet but what must be there to start: files,
    /// the spool, a kubeconfig.
    ///
    /// # Errors
    /// [`ServiceError`] names what is missing or wrong.
    pub async fn build(loaded: Watched<Loaded>, options: Options) -> Result<Self, ServiceError> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let loaded = Arc::new(loaded);
        let now = loaded.get();
        for warning in &now.farm.warnings {
            tracing::warn!("{warning}");
        }
        let lookups = Lookups::open(&now, &clock).await.map_err(ServiceError::Configuration)?;
        let credentials = Credentials::application_default(rand::random());
        let backends = Backends::open(&now, &credentials, &clock).await?;
        let layers = Layers::new(&now.config, &credentials)?;
        let queues = open_queues(&now, options.queue, &clock).await?;
        let sources = queues.iter().map(|binding| Arc::clone(&binding.queue)).collect();
        let leases = queues.iter().map(|binding| Arc::clone(&binding.leases)).collect();
        let pipeline = Pipeline::new(Deps {
            clock,
            queues,
            catalog: lookups.catalog(),
            flags: lookups.flags(),
            resolver: FarmResolver::over(Arc::clone(&loaded)),
            backends: backends.bindings(&now.config, &layers),
            routes: now.config.routes.clone(),
            leadership: Arc::clone(&backends.home().leadership),
            records: Arc::clone(&backends.home().records),
            controls: Arc::clone(&backends.home().controls),
            settings: Settings {
                spill_after: now.config.limits.spill_after,
                held: now.config.limits.held,
                flags_max_age: now.config.flags.max_age,
                once: options.once,
                grace: GRACE,
            },
            on_flags: backends.limits_from_flags(&now.config),
            observer: options.observer,
        });
        let (queues, see_ends) = (sources, options.see_ends);
        Ok(Self { loaded, lookups, backends, queues, leases, pipeline, see_ends })
    }

    /// Asks each cluster whether this process may do what it is going to do. One that does not
    /// answer is no error here: it is waited for later.
    ///
    /// # Errors
    /// [`ServiceError::Rights`] names every right that is missing.
    pub async fn review_rights(&self) -> Result<(), ServiceError> {
        rights::review(self.backends.clusters()).await
    }

    /// The counts, readable while it runs.
    pub fn tally(&self) -> Arc<Tally> {
        self.pipeline.tally()
    }

    /// What is in force and how it comes out, as it changes.
    pub fn snapshot(&self) -> tokio::sync::watch::Receiver<Snapshot> {
        self.pipeline.snapshot()
    }

    /// The backends.
    pub fn backends(&self) -> &Backends {
        &self.backends
    }

    /// Runs until `shutdown`, or with `once` until drained. The backends are stopped last, so that
    /// the pipeline's last outcomes are true.
    ///
    /// # Errors
    /// The cause, when a part that must run has ended or failed.
    pub async fn run(self, shutdown: CancellationToken) -> Result<Ended, ServiceError> {
        let backends_stop = CancellationToken::new();
        let mut parts: JoinSet<Result<(), ServiceError>> = JoinSet::new();
        self.backends.spawn(&mut parts, &backends_stop);
        let mut keepers: JoinSet<()> = JoinSet::new();
        for leases in &self.leases {
            keepers.spawn(Arc::clone(leases).run());
        }
        keepers.spawn(keep_reloading(Arc::clone(&self.loaded), self.lookups.clone()));
        // On a worker thread, beside the connections that it waits for.
        let (mut pipeline, stop) = (self.pipeline, shutdown.child_token());
        let until = stop.clone();
        let mut pipeline = AbortOnDrop(tokio::spawn(async move { pipeline.run(until).await }));
        let ended = tokio::select! {
            biased;
            ended = &mut pipeline.0 => match ended {
                Ok(ended) => Ok(ended?),
                Err(panic) => Err(ServiceError::Ended(format!("the pipeline ({panic}); it"))),
            },
            part = parts.join_next(), if !parts.is_empty() => {
                // What is leased goes back, so that the next process need not wait for it.
                stop.cancel();
                let _ = (&mut pipeline.0).await;
                Err(why(part, "a backend"))
            }
            part = keepers.join_next() => {
                Err(why(part.map(|joined| joined.map(Ok)), "the keeper of leases or of files"))
            }
        };
        futures::future::join_all(self.queues.iter().map(|queue| queue.close())).await;
        if self.see_ends && matches!(ended, Ok(Ended::Drained)) {
            self.backends.local_idle(&shutdown).await;
        }
        backends_stop.cancel();
        while let Some(part) = parts.join_next().await {
            if let (Ok(_), Ok(Err(error))) = (&ended, part) {
                return Err(error);
            }
        }
        ended
    }
}

/// A spawned part that ends with what it is a part of.
struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The cause of a part's end.
fn why(
    part: Option<Result<Result<(), ServiceError>, tokio::task::JoinError>>,
    what: &str,
) -> ServiceError {
    match part {
        Some(Ok(Err(error))) => error,
        Some(Err(panic)) => ServiceError::Ended(format!("{what} ({panic}); it")),
        Some(Ok(Ok(()))) | None => ServiceError::Ended(what.to_owned()),
    }
}

/// Makes the queues that the configuration names, or takes the one that is given instead.
async fn open_queues(
    loaded: &Loaded,
    instead: Option<Arc<dyn Queue>>,
    clock: &Arc<dyn Clock>,
) -> Result<Vec<QueueBinding>, ServiceError> {
    let lease = loaded.config.limits.lease;
    let bind = |queue: Arc<dyn Queue>, base_os_version: Option<String>, max_panics| QueueBinding {
        leases: Leases::new(Arc::clone(&queue), lease),
        queue,
        base_os_version,
        max_panics,
    };
    if let Some(queue) = instead {
        return Ok(vec![bind(queue, None, 3)]);
    }
    let mut bindings = Vec::with_capacity(loaded.config.queues.len());
    for queue in &loaded.config.queues {
        let opened = queues::open(queue, &loaded.farm, clock)
            .await
            .map_err(|error| ServiceError::Queue { name: queue.name.to_string(), error })?;
        bindings.push(bind(opened, queue.base_os_version.clone(), queue.max_panics));
    }
    Ok(bindings)
}

/// Looks at the files for ever, and says what it found.
async fn keep_reloading(loaded: Arc<Watched<Loaded>>, lookups: Lookups) {
    loop {
        tokio::time::sleep(RELOAD_EVERY).await;
        let (at, also) = (Arc::clone(&loaded), lookups.clone());
        // Files are read off the threads that must not wait. A panic there is this look's alone.
        let looked = tokio::task::spawn_blocking(move || {
            let before = at.get();
            let reload = at.poll();
            if reload == Reload::Reloaded && needs_restart(&before, &at.get()) {
                tracing::warn!(
                    "queues, backends, limits or sources changed: these take effect at the next start"
                );
            }
            (reload, also.poll())
        })
        .await;
        match looked {
            Ok((configuration, catalog)) => {
                say("the configuration", &configuration);
                say("the catalog", &catalog);
            }
            Err(error) => tracing::error!(%error, "looking for changed files failed"),
        }
    }
}

fn say(what: &str, reload: &Reload) {
    match reload {
        Reload::Unchanged => {}
        Reload::Reloaded => tracing::info!("{what} was reloaded"),
        Reload::Failed(problems) => {
            tracing::error!(
                "{what} changed and can't be used; the last good one stays: {problems}"
            );
        }
    }
}

/// Whether a part changed that is set up once, at the start: in our own file, or in the farm's.
fn needs_restart(before: &Loaded, after: &Loaded) -> bool {
    // The project of subscriptions, topics and Datastore, and the cluster, where the configuration
    // names none.
    let places = |farm: &Farm| {
        (farm.application_project.clone(), farm.project.clone(), farm.cluster_name.clone())
    };
    let moved = places(&before.farm) != places(&after.farm);
    let (before, after) = (&before.config, &after.config);
    moved
        || before.queues != after.queues
        || before.backends != after.backends
        || before.limits != after.limits
        || before.catalog != after.catalog
        || before.flags != after.flags
        || before.outputs != after.outputs
        || before.scheduler != after.scheduler
        || before.routes != after.routes
        || before.home != after.home
        || before.state_dir != after.state_dir
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_project_or_cluster_in_the_farms_own_file_needs_a_restart() {
        let dir = tempfile::tempdir().expect("a directory");
        let loaded = |project: &str, config: &str| {
            let farm = dir.path().join("clusterfuzz-config");
            std::fs::create_dir_all(farm.join("batch")).expect("a directory");
            std::fs::write(farm.join("batch/batch.yaml"), "mapping: {}\n").expect("written");
            std::fs::write(farm.join("project.yaml"), project).expect("written");
            let path = dir.path().join("k.yaml");
            let text = format!("apiVersion: katabatch.dev/v1alpha1\n{config}");
            std::fs::write(&path, text).expect("written");
            (*load(&path).expect("it loads").get()).clone()
        };
        let before = loaded("env: {APPLICATION_ID: a}\n", "");
        for (project, config, expect) in [
            ("env: {APPLICATION_ID: s~a, OTHER: x}\n", "", false),
            ("env: {APPLICATION_ID: a}\n", "policy: {strict: true}\n", false),
            ("env: {APPLICATION_ID: b}\n", "", true),
            ("env: {APPLICATION_ID: a}\ncluster_name: other\n", "", true),
            ("env: {APPLICATION_ID: a}\n", "scheduler: other\n", true),
        ] {
            let after = loaded(project, config);
            assert_eq!(needs_restart(&before, &after), expect, "{project}{config}");
        }
    }
}
