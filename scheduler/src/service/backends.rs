//! The backends that the configuration lists, made and run.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::ServiceError;
use crate::backend::Backend;
use crate::backend::kubernetes::calls::{Calls, Verb};
use crate::backend::kubernetes::client::KubeApi;
use crate::backend::kubernetes::connect::{Cluster, ConnectError, connect};
use crate::backend::kubernetes::{self, Fatal, KubernetesBackend};
use crate::backend::local::{self, LocalBackend, LocalError};
use crate::clock::Clock;
use crate::config::Config;
use crate::config::backends::{BackendConfig, BackendKind};
use crate::domain::room::Room;
use crate::flags::FlagSet;
use crate::gate::Candidate;
use crate::pipeline::BackendBinding;
use crate::render::{Policy, RenderError, Templates};
use crate::status::ApiCalls;

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
    /// This program's own path can't be found.
    #[error("backend {0}: this program's own path can't be found: {1}")]
    OwnPath(String, std::io::Error),
}

enum One {
    Kubernetes(Arc<KubernetesBackend>, Arc<Calls>),
    Local(Arc<LocalBackend>),
}

/// All backends, in the order of the configuration.
pub struct Backends {
    all: Vec<One>,
    home: Option<kube::Client>,
}

/// What can be read off a running backend beside its room.
pub struct Gauges(Option<(Arc<KubernetesBackend>, Arc<Calls>)>);

impl Gauges {
    /// Whether this process leads there; `None`: no process has to.
    pub fn leads(&self) -> Option<bool> {
        self.0.as_ref().map(|(kubernetes, _)| kubernetes.leads())
    }

    /// How many creates may be under way.
    pub fn window(&self) -> Option<usize> {
        self.0.as_ref().map(|(kubernetes, _)| kubernetes.window())
    }

    /// The calls of its API so far.
    pub fn api_calls(&self) -> Vec<ApiCalls> {
        let Some((_, calls)) = &self.0 else { return Vec::new() };
        let row = |((verb, code), count): ((Verb, Option<u16>), u64)| ApiCalls {
            verb: verb.label().to_owned(),
            code: code.map_or_else(|| "lost".to_owned(), |code| code.to_string()),
            count,
        };
        calls.read().into_iter().map(row).collect()
    }
}

impl Backends {
    /// Makes every backend.
    ///
    /// # Errors
    /// The first that can't be made.
    pub async fn open(config: &Config, clock: &Arc<dyn Clock>) -> Result<Self, BackendError> {
        let (mut all, mut home) = (Vec::new(), None);
        for backend in &config.backends {
            all.push(open_one(config, backend, clock, &mut home).await?);
        }
        Ok(Self { all, home })
    }

    /// A client of the first Kubernetes backend's API server.
    pub(super) fn home(&self) -> Option<kube::Client> {
        self.home.clone()
    }

    /// What can be read off each of them.
    pub(super) fn gauges(&self) -> Vec<Gauges> {
        let of = |one: &One| match one {
            One::Kubernetes(kubernetes, calls) => {
                Gauges(Some((Arc::clone(kubernetes), Arc::clone(calls))))
            }
            One::Local(_) => Gauges(None),
        };
        self.all.iter().map(of).collect()
    }

    /// The backends and where their weights come from, for the pipeline.
    pub fn bindings(&self, config: &Config) -> Vec<BackendBinding> {
        let bind = |(one, backend): (&One, &BackendConfig)| BackendBinding {
            backend: match one {
                One::Kubernetes(kubernetes, _) => Arc::clone(kubernetes) as Arc<dyn Backend>,
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
                One::Kubernetes(kubernetes, _) => {
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
            One::Kubernetes(..) => None,
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

async fn open_one(
    config: &Config,
    backend: &BackendConfig,
    clock: &Arc<dyn Clock>,
    home: &mut Option<kube::Client>,
) -> Result<One, BackendError> {
    let name = backend.name.to_string();
    match &backend.kind {
        BackendKind::Kubernetes { kubeconfig, context, namespace, request_timeout } => {
            let templates = templates(backend)?;
            let cluster = Cluster { kubeconfig: kubeconfig.clone(), context: context.clone() };
            let (client, _) =
                connect(&cluster).await.map_err(|e| BackendError::Connect(name, e))?;
            home.get_or_insert_with(|| client.clone());
            let api = Arc::new(KubeApi::new(client, namespace, *request_timeout));
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
                templates: Arc::new(templates),
                identity: identity(),
                seed: rand::random(),
            };
            let calls = api.calls();
            let backend = KubernetesBackend::new(api, Arc::clone(clock), settings);
            Ok(One::Kubernetes(backend, calls))
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
