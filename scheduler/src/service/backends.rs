//! The backends that the configuration lists, made and run. What each kind takes is in a module of
//! its own.

mod batch;
pub mod gauges;
mod kubernetes;
mod local;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::cloud_storage::Layers;
use super::home::{self, Home};
use super::{Loaded, ServiceError};
use crate::backend::gcp_batch::GcpBatch;
use crate::backend::gcp_batch::client::ClientError;
use crate::backend::kubernetes::Fatal;
use crate::backend::kubernetes::calls::Calls;
use crate::backend::kubernetes::connect::ConnectError;
use crate::backend::kubernetes::preflight::Preflight;
use crate::backend::kubernetes::successive::Successive;
use crate::backend::local::{LocalBackend, LocalError};
use crate::backend::{Backend, EndObserver, Finished, Follower, Retries};
use crate::clock::Clock;
use crate::config::Config;
use crate::config::backends::{BackendConfig, BackendKind};
use crate::domain::name::BackendName;
use crate::domain::room::Room;
use crate::domain::task::WorkloadKey;
use crate::domain::workload_now::WorkloadNow;
use crate::flags::FlagSet;
use crate::gate::Candidate;
use crate::gcp::credentials::Credentials;
use crate::ledger::Now;
use crate::pipeline::BackendBinding;
use crate::render::RenderError;
pub use batch::batch_of;
use gauges::Gauges;
use kubernetes::Reached;
pub use kubernetes::{api_of, cluster_of, templates};

/// Why a backend can't be set up or go on.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// No client for the cluster.
    #[error("backend {0}: {1}\nhint: {hint}", hint = .1.hint())]
    Connect(String, ConnectError),
    /// Templates that are none.
    #[error("backend {0}: {1}")]
    Templates(String, RenderError),
    /// A local directory or command that can't be used.
    #[error("backend {0}: {1}")]
    Local(String, LocalError),
    /// No client for GCP Batch.
    #[error("backend {0}: {1}")]
    Batch(String, ClientError),
    /// It ran and can't go on.
    #[error("backend {0}: {1}")]
    Fatal(String, Fatal),
    /// The folder of a scheduler without a cluster can't be used.
    #[error("state_dir {0}: {1}")]
    State(PathBuf, std::io::Error),
    /// A backend that is no cluster was taken for one.
    #[error("backend {0} is no Kubernetes namespace")]
    NoCluster(String),
    /// A backend of another kind was taken for Batch.
    #[error("backend {0} is no GCP Batch")]
    NoBatch(String),
    /// `--jobs` was said where nothing runs here.
    #[error(
        "--jobs: no backend of the configuration is local, so that no task runs on this machine\n\
         hint: leave it out; limits.live of a backend limits what runs elsewhere"
    )]
    NothingLocal,
    /// This program's own path can't be found.
    #[error("backend {0}: this program's own path can't be found: {1}")]
    OwnPath(String, std::io::Error),
}

enum One {
    Kubernetes(Arc<Successive>, Arc<Calls>),
    Batch(Arc<GcpBatch>),
    Local(Arc<LocalBackend>),
}

/// Hands ends to the pipeline.
struct Ends(mpsc::UnboundedSender<Finished>);

impl Follower for Ends {
    fn finished(&self, finished: Finished) {
        // A pipeline that has ended has given its messages back.
        let _ = self.0.send(finished);
    }
}

/// All backends, in the order of the configuration.
pub struct Backends {
    all: Vec<One>,
    clusters: Vec<(BackendName, Preflight)>,
    home: Home,
    home_client: Option<kube::Client>,
}

impl Backends {
    /// Makes every backend. `jobs` is in the place of each local one's own.
    ///
    /// # Errors
    /// The first that can't be made.
    pub async fn open(
        loaded: &Loaded,
        credentials: &Credentials,
        clock: &Arc<dyn Clock>,
        jobs: Option<usize>,
    ) -> Result<Self, BackendError> {
        let (mut all, mut clusters) = (Vec::new(), Vec::new());
        let config = &loaded.config;
        let is_local = |of: &BackendConfig| matches!(of.kind, BackendKind::Local { .. });
        if jobs.is_some() && !config.backends.iter().any(is_local) {
            return Err(BackendError::NothingLocal);
        }
        let (home, home_client, mut first) = match home::backend_of(config) {
            Some(backend) => {
                let (one, reached, home) = open_home(loaded, credentials, backend, clock).await?;
                (home, Some(reached.client), Some((one, Some(reached.preflight))))
            }
            None => (home::in_files(config, clock)?, None, None),
        };
        for backend in &config.backends {
            let (one, preflight) =
                match first.take_if(|_| Some(&backend.name) == config.home.as_ref()) {
                    Some(first) => first,
                    None => open_one(loaded, credentials, backend, clock, &home, jobs).await?,
                };
            all.push(one);
            clusters.extend(preflight.map(|preflight| (backend.name.clone(), preflight)));
        }
        Ok(Self { all, clusters, home, home_client })
    }

    /// The clusters among them, to be asked.
    pub(super) fn clusters(&self) -> &[(BackendName, Preflight)] {
        &self.clusters
    }

    /// Who leads, the records and the controls.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// A client of the home cluster's API server, where a cluster is home.
    pub(super) fn home_client(&self) -> Option<kube::Client> {
        self.home_client.clone()
    }

    /// What can be read off each of them.
    pub(super) fn gauges(&self) -> Vec<Gauges> {
        let of = |one: &One| match one {
            One::Kubernetes(kubernetes, calls) => {
                Gauges::of(Arc::clone(kubernetes), Arc::clone(calls))
            }
            One::Batch(_) | One::Local(_) => Gauges::default(),
        };
        self.all.iter().map(of).collect()
    }

    /// The backends with their layers, and where their weights come from, for the pipeline.
    pub(super) fn bindings(&self, config: &Config, layers: &Layers) -> Vec<BackendBinding> {
        let bind = |(one, backend): (&One, &BackendConfig)| BackendBinding {
            backend: layers.over(match one {
                One::Kubernetes(kubernetes, _) => Arc::clone(kubernetes) as Arc<dyn Backend>,
                One::Batch(batch) => Arc::clone(batch) as Arc<dyn Backend>,
                One::Local(local) => Arc::clone(local) as Arc<dyn Backend>,
            }),
            candidate: Candidate {
                name: backend.name.clone(),
                flag: backend.weight.flag.clone(),
                default_weight: backend.weight.default,
            },
        };
        self.all.iter().zip(&config.backends).map(bind).collect()
    }

    /// What sets the pending limits from each set of flags that is read.
    pub fn limits_from_flags(&self, config: &Config) -> Box<dyn Fn(&FlagSet) + Send + Sync> {
        type Set = Box<dyn Fn(usize) + Send + Sync>;
        let limited: Vec<_> = self
            .all
            .iter()
            .zip(&config.backends)
            .filter_map(|(one, backend)| {
                let set: Set = match one {
                    One::Kubernetes(kubernetes, _) => {
                        let kubernetes = Arc::clone(kubernetes);
                        Box::new(move |limit| kubernetes.set_pending_limit(limit))
                    }
                    One::Batch(batch) => {
                        let batch = Arc::clone(batch);
                        Box::new(move |limit| batch.set_pending_limit(limit))
                    }
                    One::Local(_) => return None,
                };
                Some((set, backend.limits.pending_flag.clone()?, backend.limits.pending))
            })
            .collect();
        Box::new(move |flags| {
            for (set, flag, default) in &limited {
                set(flags.limit(flag, *default));
            }
        })
    }

    fn kubernetes(&self) -> Vec<Arc<Successive>> {
        self.watched().into_iter().flatten().collect()
    }

    /// Those that see how their Jobs fare, in the order of the configuration.
    pub(super) fn watched(&self) -> Vec<Option<Arc<Successive>>> {
        let watched = |one: &One| match one {
            One::Kubernetes(kubernetes, _) => Some(Arc::clone(kubernetes)),
            One::Batch(_) | One::Local(_) => None,
        };
        self.all.iter().map(watched).collect()
    }

    /// Has tasks watched to their end, and `listener` told; before they are spawned.
    pub fn tell_ends(&self, listener: &Arc<dyn EndObserver>) {
        for one in &self.all {
            let listener = Arc::clone(listener);
            match one {
                One::Kubernetes(kubernetes, _) => kubernetes.tell_ends(listener),
                One::Batch(batch) => batch.tell_ends(listener),
                One::Local(local) => local.tell_ends(listener),
            }
        }
    }

    /// Has `retries` say what is done about ends; before they are spawned.
    pub fn retry_by(&self, retries: &Arc<dyn Retries>) {
        self.kubernetes().iter().for_each(|backend| backend.retry_by(Arc::clone(retries)));
    }

    /// What the ends of Jobs come to for messages that wait for them; before they are spawned.
    pub(super) fn follow_ends(&self) -> mpsc::UnboundedReceiver<Finished> {
        let (sender, ends) = mpsc::unbounded_channel();
        let follower: Arc<dyn Follower> = Arc::new(Ends(sender));
        self.kubernetes().iter().for_each(|backend| backend.follow_by(Arc::clone(&follower)));
        ends
    }

    /// What tells what is there now of every workload, over all backends.
    pub fn now(&self) -> Now {
        let backends = self.kubernetes();
        Arc::new(move || {
            let mut all: BTreeMap<WorkloadKey, WorkloadNow> = BTreeMap::new();
            for (key, now) in backends.iter().flat_map(|backend| backend.now()) {
                all.entry(key).or_default().add(&now);
            }
            all
        })
    }

    /// Every backend's room.
    pub fn rooms(&self) -> Vec<(BackendName, watch::Receiver<Room>)> {
        let room = |backend: &dyn Backend| (backend.name().clone(), backend.room());
        let of = |one: &One| match one {
            One::Kubernetes(kubernetes, _) => room(kubernetes.as_ref()),
            One::Batch(batch) => room(batch.as_ref()),
            One::Local(local) => room(local.as_ref()),
        };
        self.all.iter().map(of).collect()
    }

    /// The local backends, whose ends can be told.
    pub fn local(&self) -> Vec<Arc<LocalBackend>> {
        let local = |one: &One| match one {
            One::Local(local) => Some(Arc::clone(local)),
            One::Kubernetes(..) | One::Batch(_) => None,
        };
        self.all.iter().filter_map(local).collect()
    }

    /// Waits until no task of this machine runs, or until `stop`.
    pub(super) async fn local_idle(&self, stop: &CancellationToken) {
        for local in self.local() {
            let mut room = local.room();
            let idle = room.wait_for(|room| matches!(room, Room::Known(o) if o.live == 0));
            // An error says that the backend is gone, and with it what it ran.
            let _ = stop.run_until_cancelled(idle).await;
        }
    }

    /// Runs every backend until `stop`.
    pub(super) fn spawn(
        &self,
        parts: &mut JoinSet<Result<(), ServiceError>>,
        stop: &CancellationToken,
    ) {
        if let Some(lock) = self.home.lock.clone() {
            let stop = stop.clone();
            parts.spawn(async move {
                match stop.run_until_cancelled(lock.run()).await {
                    None | Some(Ok(())) => Ok(()),
                    Some(Err(error)) => {
                        Err(ServiceError::Ended(format!("the leader's lock ({error}); it")))
                    }
                }
            });
        }
        for one in &self.all {
            let stop = stop.clone();
            match one {
                One::Kubernetes(kubernetes, _) => {
                    let kubernetes = Arc::clone(kubernetes);
                    parts.spawn(async move {
                        let name = kubernetes.name().to_string();
                        let ended = kubernetes.run(stop).await;
                        ended.map_err(|fatal| BackendError::Fatal(name, fatal).into())
                    });
                }
                One::Batch(batch) => {
                    let batch = Arc::clone(batch);
                    parts.spawn(async move {
                        batch.run(stop).await;
                        Ok(())
                    });
                }
                One::Local(local) => {
                    let local = Arc::clone(local);
                    parts.spawn(async move {
                        local.run(stop).await;
                        Ok(())
                    });
                }
            }
        }
    }
}

/// Makes the backend whose namespace is home, and what is there.
async fn open_home(
    loaded: &Loaded,
    credentials: &Credentials,
    backend: &BackendConfig,
    clock: &Arc<dyn Clock>,
) -> Result<(One, Reached, Home), BackendError> {
    let reached = kubernetes::reach(loaded, credentials, backend).await?;
    let api = Arc::clone(&reached.api);
    let calls = api.calls();
    let opened = kubernetes::open(loaded, credentials, backend, clock, Arc::clone(&api), None)?;
    let term = opened.current();
    let home = Home {
        leadership: term.leadership(),
        records: term.records(),
        controls: home::controls_of(api, &loaded.config.scheduler),
        lock: None,
    };
    Ok((One::Kubernetes(opened, calls), reached, home))
}

async fn open_one(
    loaded: &Loaded,
    credentials: &Credentials,
    backend: &BackendConfig,
    clock: &Arc<dyn Clock>,
    home: &Home,
    jobs: Option<usize>,
) -> Result<(One, Option<Preflight>), BackendError> {
    let name = backend.name.to_string();
    match &backend.kind {
        BackendKind::Kubernetes { .. } => {
            let Reached { api, preflight, .. } =
                kubernetes::reach(loaded, credentials, backend).await?;
            let calls = api.calls();
            let leads = Some(Arc::clone(&home.leadership));
            let opened = kubernetes::open(loaded, credentials, backend, clock, api, leads)?;
            Ok((One::Kubernetes(opened, calls), Some(preflight)))
        }
        BackendKind::GcpBatch { project, endpoint, request_timeout } => {
            let asked = batch::Asked { project, endpoint, timeout: *request_timeout };
            let opened = batch::open(loaded, backend, &asked, credentials, home, clock);
            Ok((One::Batch(opened.map_err(|e| BackendError::Batch(name, e))?), None))
        }
        BackendKind::Local { command, dir, jobs: configured } => {
            let asked = local::Asked { command, dir, jobs: jobs.unwrap_or(*configured) };
            Ok((One::Local(local::open(backend, &asked, clock)?), None))
        }
    }
}
