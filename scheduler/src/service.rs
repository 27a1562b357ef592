//! The one place that puts real things together: configuration, queues, catalog, flags, backends
//! and the pipeline, and sees to it that none of them ends unnoticed.
//!
//! What each part does is its own; this only makes, joins and stops them.

mod backends;
pub mod cloud_storage;
mod endpoint;
mod error;
mod farm_resolver;
pub mod home;
mod identities;
mod object_files;
mod overview;
pub mod queues;
mod reload;
mod retries;
mod rights;
mod sources;
mod tails;
mod token_review;
pub mod why;
pub mod work;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::backend::{EndObserver, Retries};
use crate::clock::{Clock, SystemClock};
use crate::config::Config;
use crate::config::farm::Farm;
use crate::config::files::Files;
use crate::config::queues::AckMode;
use crate::config::watch::{Sources, Watched};
use crate::gcp::credentials::Credentials;
use crate::http::{self, Endpoint};
use crate::pipeline::breaker::Patience;
use crate::pipeline::leases::Leases;
use crate::pipeline::tally::{Observer, Tally};
use crate::pipeline::work::Work;
use crate::pipeline::{Deps, Ended, Pipeline, QueueBinding, Settings};
use crate::queue::Queue;
use crate::status::Status;
pub use backends::{BackendError, Backends, api_of, batch_of, cluster_of, templates};
use cloud_storage::Layers;
pub use error::ServiceError;
use farm_resolver::FarmResolver;
pub use identities::Identities;
use overview::Overview;
use retries::FarmRetries;
pub use sources::{CatalogSource, Lookups, open_flags};
use tails::TailWriter;
use why::Why;
use work::Watching;

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
    /// How many tasks run at once on each local backend, in the place of its `jobs`.
    pub jobs: Option<usize>,
    /// Take tasks from this queue and not from the configured ones.
    pub queue: Option<Arc<dyn Queue>>,
    /// Hears of every decision.
    pub observer: Option<Arc<dyn Observer>>,
    /// Watch Jobs to their end, and keep the ledger.
    pub ledger: bool,
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
    why: Option<Why>,
    tails: Option<TailWriter>,
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
        let backends = Backends::open(&now, &credentials, &clock, options.jobs).await?;
        let layers = Layers::new(&now.config, &credentials)?;
        // What runs for a moment beside a running scheduler must not want its port.
        let http = now.config.http.as_ref().filter(|_| !options.once && options.queue.is_none());
        let listener = match http {
            Some(http) => Some(endpoint::listen(http).await?),
            None => None,
        };
        let mut queues = open_queues(&now, options.queue, &clock).await?;
        let mut tasks = None;
        if let Some(config) = http.and_then(|http| http.tasks.as_ref()) {
            let way_in = endpoint::way_in(config, backends.home_client(), &clock).await?;
            queues.push(endpoint::pushed(way_in.queue, now.config.limits.lease));
            tasks = Some(way_in.tasks);
        }
        let sources = queues.iter().map(|binding| Arc::clone(&binding.queue)).collect();
        let leases: Vec<_> = queues.iter().map(|binding| Arc::clone(&binding.leases)).collect();
        let at = Arc::clone(&clock);
        let (mut hear, mut tails) = (Vec::new(), None);
        if let Some(place) = now.config.ledger.tails.as_ref().filter(|_| options.ledger) {
            let (way, writer) = tails::tails(cloud_storage::open(credentials.clone())?, place);
            hear.push(way as Arc<dyn EndObserver>);
            tails = Some(writer);
        }
        let work = options.ledger.then(|| Watching::new(&loaded, backends.watched()));
        let why = work
            .clone()
            .map(|work| Why::open(&now.config, &backends, &lookups, &clock, (work, hear)));
        let observer = match &why {
            Some(why) => Some(why.hear(options.observer)),
            None => options.observer,
        };
        let completes = queues.iter().any(|binding| binding.completes);
        let pipeline = Pipeline::new(Deps {
            clock,
            queues,
            ends: completes.then(|| backends.follow_ends()),
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
                patience: Patience {
                    stuck_after: now.config.limits.stuck_after,
                    probe_after: now.config.limits.probe_after,
                },
                workload_share: now.config.limits.workload_share,
            },
            on_flags: backends.limits_from_flags(&now.config),
            work: work.clone().map(|work| work as Arc<dyn Work>),
            observer,
        });
        backends.retry_by(
            &(Arc::new(FarmRetries {
                loaded: Arc::clone(&loaded),
                clock: Arc::clone(&at),
                in_force: pipeline.snapshot(),
                work,
                outputs: layers.outputs(),
            }) as Arc<dyn Retries>),
        );
        let overview = Arc::new(Overview {
            scheduler: now.config.scheduler.clone(),
            clock: at,
            leadership: Arc::clone(&backends.home().leadership),
            view: pipeline.view(),
            in_force: pipeline.snapshot(),
            tally: pipeline.tally(),
            leases: leases.clone(),
            gauges: backends.gauges(),
            lookups: lookups.clone(),
            why: why.clone(),
            stop: OnceLock::new(),
        });
        let http = listener
            .map(|listener| (listener, Endpoint { source: Arc::clone(&overview) as _, tasks }));
        let (queues, see_ends) = (sources, options.see_ends);
        Ok(Self {
            loaded,
            lookups,
            backends,
            queues,
            leases,
            pipeline,
            overview,
            http,
            see_ends,
            why,
            tails,
        })
    }

    /// What it says of itself, readable while it runs.
    pub fn status(&self) -> impl Fn() -> Status + Send + Sync + use<> {
        let overview = Arc::clone(&self.overview);
        move || http::Source::status(overview.as_ref())
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

    /// What answers why a job type does not run; `None` without a ledger.
    pub fn why(&self) -> Option<Why> {
        self.why.clone()
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
        let ledger_stop = CancellationToken::new();
        let ledger = self.why.map(|why| tokio::spawn(why.keep(ledger_stop.clone())));
        let mut keepers: JoinSet<()> = JoinSet::new();
        if let Some(tails) = self.tails {
            keepers.spawn(tails.run(CancellationToken::new()));
        }
        for leases in &self.leases {
            keepers.spawn(Arc::clone(leases).run());
        }
        keepers.spawn(reload::keep_reloading(Arc::clone(&self.loaded), self.lookups.clone()));
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
                Err(cause(part, "a backend or the HTTP endpoint"))
            }
            part = keepers.join_next() => {
                Err(cause(part.map(|joined| joined.map(Ok)), "the keeper of leases or of files"))
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
        ledger_stop.cancel();
        if let Some(ledger) = ledger {
            // Explanations are not worth waiting for any longer.
            let _ = tokio::time::timeout(why::LAST_WORD, ledger).await;
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
fn cause(
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
        completes: false,
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
        let binding = bind(opened, queue.base_os_version.clone(), queue.max_panics);
        bindings.push(QueueBinding { completes: queue.ack == AckMode::OnCompleted, ..binding });
    }
    Ok(bindings)
}
