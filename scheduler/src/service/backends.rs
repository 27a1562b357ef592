//! The backends that the configuration lists, made and run.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::ServiceError;
use super::home::{self, Home};
use crate::backend::Backend;
use crate::backend::kubernetes::api::ClusterApi;
use crate::backend::kubernetes::client::KubeApi;
use crate::backend::kubernetes::connect::{Cluster, ConnectError, connect};
use crate::backend::kubernetes::successive::Successive;
use crate::backend::kubernetes::{self, Fatal};
use crate::backend::local::{self, LocalBackend, LocalError};
use crate::clock::Clock;
use crate::config::Config;
use crate::config::backends::{BackendConfig, BackendKind};
use crate::domain::room::Room;
use crate::flags::FlagSet;
use crate::gate::Candidate;
use crate::leadership::Leadership;
use crate::pipeline::BackendBinding;
use crate::render::{Policy, RenderError, Templates};

/// Why a backend can't be set up or go on.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// No client for the cluster.
    #[error("backend {0}: {1}")]
    Connect(String, ConnectError),
    /// Templates that are none.
    #[error("backend {0}: {1}")]
    Templates(String, RenderError),
    /// A local directory or command that can't be used.
    #[error("backend {0}: {1}")]
    Local(String, LocalError),
    /// It ran and can't go on.
    #[error("backend {0}: {1}")]
    Fatal(String, Fatal),
    /// The folder of a scheduler without a cluster can't be used.
    #[error("state_dir {0}: {1}")]
    State(PathBuf, std::io::Error),
    /// A backend that is no cluster was taken for one.
    #[error("backend {0} is no Kubernetes namespace")]
    NoCluster(String),
    /// This program's own path can't be found.
    #[error("backend {0}: this program's own path can't be found: {1}")]
    OwnPath(String, std::io::Error),
}

enum One {
    Kubernetes(Arc<Successive>),
    Local(Arc<LocalBackend>),
}

/// All backends, in the order of the configuration.
pub struct Backends {
    all: Vec<One>,
    home: Home,
}

impl Backends {
    /// Makes every backend.
    ///
    /// # Errors
    /// The first that can't be made.
    pub async fn open(config: &Config, clock: &Arc<dyn Clock>) -> Result<Self, BackendError> {
        let (home, mut first) = match home::backend_of(config) {
            Some(backend) => {
                let (one, home) = open_home(config, backend, clock).await?;
                (home, Some(one))
            }
            None => (home::in_files(config, clock)?, None),
        };
        let mut all = Vec::new();
        for backend in &config.backends {
            let one = match first.take_if(|_| Some(&backend.name) == config.home.as_ref()) {
                Some(one) => one,
                None => open_one(config, backend, clock, &home.leadership).await?,
            };
            all.push(one);
        }
        Ok(Self { all, home })
    }

    /// Who leads, the records and the controls.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// The backends and where their weights come from, for the pipeline.
    pub fn bindings(&self, config: &Config) -> Vec<BackendBinding> {
        let bind = |(one, backend): (&One, &BackendConfig)| BackendBinding {
            backend: match one {
                One::Kubernetes(kubernetes) => Arc::clone(kubernetes) as Arc<dyn Backend>,
                One::Local(local) => Arc::clone(local) as Arc<dyn Backend>,
            },
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
        let limited: Vec<_> = self
            .all
            .iter()
            .zip(&config.backends)
            .filter_map(|(one, backend)| match one {
                One::Kubernetes(kubernetes) => {
                    let flag = backend.limits.pending_flag.clone()?;
                    Some((Arc::clone(kubernetes), flag, backend.limits.pending))
                }
                One::Local(_) => None,
            })
            .collect();
        Box::new(move |flags| {
            for (kubernetes, flag, default) in &limited {
                kubernetes.set_pending_limit(flags.limit(flag, *default));
            }
        })
    }

    /// The local backends, whose ends can be told.
    pub fn local(&self) -> Vec<Arc<LocalBackend>> {
        let local = |one: &One| match one {
            One::Local(local) => Some(Arc::clone(local)),
            One::Kubernetes(_) => None,
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
                One::Kubernetes(kubernetes) => {
                    let kubernetes = Arc::clone(kubernetes);
                    parts.spawn(async move {
                        let name = kubernetes.name().to_string();
                        let ended = kubernetes.run(stop).await;
                        ended.map_err(|fatal| BackendError::Fatal(name, fatal).into())
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

/// A client for a backend's namespace.
///
/// # Errors
/// It is no cluster, or has no usable kubeconfig.
pub async fn cluster_of(backend: &BackendConfig) -> Result<KubeApi, BackendError> {
    let name = backend.name.to_string();
    let BackendKind::Kubernetes { kubeconfig, context, namespace, request_timeout } = &backend.kind
    else {
        return Err(BackendError::NoCluster(name));
    };
    let cluster = Cluster { kubeconfig: kubeconfig.clone(), context: context.clone() };
    let (client, _) = connect(&cluster).await.map_err(|e| BackendError::Connect(name, e))?;
    Ok(KubeApi::new(client, namespace, *request_timeout))
}

async fn open_home(
    config: &Config,
    backend: &BackendConfig,
    clock: &Arc<dyn Clock>,
) -> Result<(One, Home), BackendError> {
    let api: Arc<dyn ClusterApi> = Arc::new(cluster_of(backend).await?);
    let kubernetes = open_kubernetes(config, backend, clock, Arc::clone(&api), None)?;
    let term = kubernetes.current();
    let home = Home {
        leadership: term.leadership(),
        records: term.records(),
        controls: home::controls_of(api, &config.scheduler),
        lock: None,
    };
    Ok((One::Kubernetes(kubernetes), home))
}

fn open_kubernetes(
    config: &Config,
    backend: &BackendConfig,
    clock: &Arc<dyn Clock>,
    api: Arc<dyn ClusterApi>,
    home: Option<Arc<dyn Leadership>>,
) -> Result<Arc<Successive>, BackendError> {
    let BackendKind::Kubernetes { namespace, request_timeout, .. } = &backend.kind else {
        return Err(BackendError::NoCluster(backend.name.to_string()));
    };
    let settings = kubernetes::Settings {
        name: backend.name.clone(),
        namespace: namespace.clone(),
        scheduler: config.scheduler.clone(),
        pending_limit_default: backend.limits.pending,
        live_limit: backend.limits.live,
        creates_per_second: backend.limits.creates_per_second.map(Into::into),
        window: backend.limits.window,
        request_timeout: *request_timeout,
        retain_finished: backend.retain_finished,
        policy: Policy { strict: config.policy.strict },
        templates: Arc::new(templates(backend)?),
        identity: identity(),
        seed: rand::random(),
        home,
    };
    Ok(Successive::new(api, Arc::clone(clock), settings))
}

async fn open_one(
    config: &Config,
    backend: &BackendConfig,
    clock: &Arc<dyn Clock>,
    leadership: &Arc<dyn Leadership>,
) -> Result<One, BackendError> {
    let name = backend.name.to_string();
    match &backend.kind {
        BackendKind::Kubernetes { .. } => {
            let api = Arc::new(cluster_of(backend).await?);
            let home = Some(Arc::clone(leadership));
            Ok(One::Kubernetes(open_kubernetes(config, backend, clock, api, home)?))
        }
        BackendKind::Local { command, dir, jobs } => {
            let program: PathBuf =
                std::env::current_exe().map_err(|e| BackendError::OwnPath(name.clone(), e))?;
            let mut settings = local::Settings::new(
                backend.name.clone(),
                dir.clone(),
                command.clone(),
                *jobs,
                program,
            );
            settings.retain_finished = backend.retain_finished;
            let opened = LocalBackend::open(settings, Arc::clone(clock));
            Ok(One::Local(opened.map_err(|e| BackendError::Local(name, e))?))
        }
    }
}

/// The machine or pod, for people, and what no other process has.
fn identity() -> String {
    let host = nix::unistd::gethostname().unwrap_or_default();
    format!("{}_{}", host.to_string_lossy(), uuid::Uuid::new_v4())
}

/// The templates of a backend: its own directory's, or the embedded ones.
///
/// # Errors
/// Templates that can't be loaded.
pub fn templates(backend: &BackendConfig) -> Result<Templates, BackendError> {
    let loaded = match &backend.templates {
        Some(dir) => Templates::from_dir(dir),
        None => Templates::embedded(),
    };
    loaded.map_err(|error| BackendError::Templates(backend.name.to_string(), error))
}
