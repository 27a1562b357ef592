//! The one place that puts real things together: configuration, queues, catalog, flags, backends
//! and the pipeline, and sees to it that none of them ends unnoticed.
//!
//! What each part does is its own; this only makes, joins and stops them.

mod backends;
mod endpoint;
mod farm_resolver;
mod overview;
pub mod queues;
mod sources;
mod token_review;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, SystemClock};
use crate::config::Config;
use crate::config::farm::Farm;
use crate::config::watch::{Reload, Sources, Watched};
use crate::http::{self, Endpoint};
use crate::pipeline::leases::Leases;
use crate::pipeline::tally::{Observer, Tally};
use crate::pipeline::{Deps, Ended, Pipeline, PipelineError, QueueBinding, Settings};
use crate::queue::{Queue, QueueError};
use crate::status::Status;
pub use backends::{BackendError, Backends, templates};
use farm_resolver::FarmResolver;
use overview::Overview;
pub use sources::{Lookups, open_flags};

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
    /// A backend can't be set up or has failed.
    #[error("{0}")]
    Backend(#[from] BackendError),
    /// Another process listens there, or it is not ours to listen on.
    #[error(
        "http.listen: can't listen on {at}: {error}; stop what listens there, or write another \
         address"
    )]
    Listen {
        /// The address.
        at: SocketAddr,
        /// What the system said.
        error: std::io::Error,
    },
    /// The HTTP endpoint failed.
    #[error("the HTTP endpoint: {0}")]
    Http(std::io::Error),
    /// The pipeline can't go on.
    #[error("{0}")]
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
    Watched::open(move |sources: &mut Sources| {
        let config = Config::load_from(&path, sources).map_err(|e| e.to_string())?;
        let farm = Farm::load(&config.farm_dir, own_project.as_deref(), sources)
            .map_err(|e| e.to_string())?;
        Ok(Loaded { config, farm })
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
    overview: Arc<Overview>,
    http: Option<(TcpListener, Endpoint)>,
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
        let backends = Backends::open(&now.config, &clock).await?;
        // What runs for a moment beside a running scheduler must not want its port.
        let http = now.config.http.as_ref().filter(|_| !options.once && options.queue.is_none());
        let listener = match http {
            Some(http) => Some(endpoint::listen(http).await?),
            None => None,
        };
        let mut queues = open_queues(&now, options.queue, &clock).await?;
        let mut tasks = None;
        if let Some(config) = http.and_then(|http| http.tasks.as_ref()) {
            let way_in = endpoint::way_in(config, backends.home(), &clock).await?;
            queues.push(pushed(way_in.queue, now.config.limits.lease));
            tasks = Some(way_in.tasks);
        }
        let sources = queues.iter().map(|binding| Arc::clone(&binding.queue)).collect();
        let leases: Vec<_> = queues.iter().map(|binding| Arc::clone(&binding.leases)).collect();
        let at = Arc::clone(&clock);
        let pipeline = Pipeline::new(Deps {
            clock,
            queues,
            catalog: lookups.catalog(),
            flags: lookups.flags(),
            resolver: FarmResolver::over(Arc::clone(&loaded)),
            backends: backends.bindings(&now.config),
            settings: Settings {
                held: now.config.limits.held,
                flags_max_age: now.config.flags.max_age,
                once: options.once,
                grace: GRACE,
            },
            on_flags: backends.limits_from_flags(&now.config),
            observer: options.observer,
        });
        let overview = Arc::new(Overview {
            scheduler: now.config.scheduler.clone(),
            clock: at,
            view: pipeline.view(),
            tally: pipeline.tally(),
            leases: leases.clone(),
            gauges: backends.gauges(),
            lookups: lookups.clone(),
            stop: OnceLock::new(),
        });
        let http = listener
            .map(|listener| (listener, Endpoint { source: Arc::clone(&overview) as _, tasks }));
        let (queues, see_ends) = (sources, options.see_ends);
        Ok(Self { loaded, lookups, backends, queues, leases, pipeline, overview, http, see_ends })
    }

    /// What it says of itself, readable while it runs.
    pub fn status(&self) -> impl Fn() -> Status + Send + Sync + use<> {
        let overview = Arc::clone(&self.overview);
        move || http::Source::status(overview.as_ref())
    }

    /// The counts, readable while it runs.
    pub fn tally(&self) -> Arc<Tally> {
        self.pipeline.tally()
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
        self.overview.runs_until(shutdown.clone());
        let backends_stop = CancellationToken::new();
        let mut parts: JoinSet<Result<(), ServiceError>> = JoinSet::new();
        self.backends.spawn(&mut parts, &backends_stop);
        let mut keepers: JoinSet<()> = JoinSet::new();
        for leases in &self.leases {
            keepers.spawn(Arc::clone(leases).run());
        }
        keepers.spawn(keep_reloading(Arc::clone(&self.loaded), self.lookups.clone()));
        let http_stop = CancellationToken::new();
        if let Some((listener, endpoint)) = self.http {
            let until = http_stop.clone();
            let serving = http::serve(listener, http::router(endpoint), until);
            parts.spawn(async move { serving.await.map_err(ServiceError::Http) });
        }
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
                Err(why(part, "a backend or the HTTP endpoint"))
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
        http_stop.cancel();
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

/// The queue of posted tasks, which holds nothing: their senders wait.
fn pushed(queue: Arc<dyn Queue>, lease: Duration) -> QueueBinding {
    let leases = Leases::new(Arc::clone(&queue), lease);
    // A panic is an answer too: it goes back as deferred, and never counts twice.
    QueueBinding { leases, queue, base_os_version: None, max_panics: 2, hold: false }
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
        hold: true,
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
            if reload == Reload::Reloaded && needs_restart(&before.config, &at.get().config) {
                tracing::warn!(
                    "queues, backends, limits, http or sources changed: these take effect at the next start"
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

/// Whether a part changed that is set up once, at the start.
fn needs_restart(before: &Config, after: &Config) -> bool {
    before.queues != after.queues
        || before.backends != after.backends
        || before.limits != after.limits
        || before.catalog != after.catalog
        || before.flags != after.flags
        || before.scheduler != after.scheduler
        || before.http != after.http
}
