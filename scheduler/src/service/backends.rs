//! The backends that the configuration lists, made and run.

mod batch;

use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::cloud_storage::Layers;
use super::identities::Identities;
use super::{Loaded, ServiceError};
use crate::backend::Backend;
use crate::backend::gcp_batch::GcpBatch;
use crate::backend::gcp_batch::client::ClientError;
use crate::backend::kubernetes::client::KubeApi;
use crate::backend::kubernetes::connect::{ConnectError, connect};
use crate::backend::kubernetes::place::Cluster;
use crate::backend::kubernetes::preflight::Preflight;
use crate::backend::kubernetes::{self, Fatal, Grants, KubernetesBackend};
use crate::backend::local::{self, LocalBackend, LocalError};
use crate::clock::Clock;
use crate::config::Config;
use crate::config::backends::{BackendConfig, BackendKind, GkeConfig};
use crate::config::farm::Farm;
use crate::domain::name::BackendName;
use crate::domain::room::Room;
use crate::flags::FlagSet;
use crate::gate::Candidate;
use crate::gcp::credentials::Credentials;
use crate::gcp::gke::Wanted;
use crate::pipeline::BackendBinding;
use crate::records::Records;
use crate::render::{Policy, RenderError, Templates};

/// Why a backend can't be set up or go on.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// No client for the cluster.
    #[error("backend {0}: {1}\nhint: {hint}", hint = .1.hint())]
    Connect(String, ConnectError),
    /// Templates that are none.
    #[error("backend {0}: {1}")]
    Templates(String, RenderError),
    /// No place for the scheduler's records.
    #[error("the scheduler's records can't be kept at {0}: {1}")]
    Records(PathBuf, std::io::Error),
    /// No client for GCP Batch.
    #[error("backend {0}: {1}")]
    Batch(String, ClientError),
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
    Kubernetes(Arc<KubernetesBackend>),
    Batch(Arc<GcpBatch>),
    Local(Arc<LocalBackend>),
}

/// All backends, in the order of the configuration.
pub struct Backends {
    all: Vec<One>,
    clusters: Vec<(BackendName, Preflight)>,
}

impl Backends {
    /// Makes every backend.
    ///
    /// # Errors
    /// The first that can't be made.
    pub async fn open(
        loaded: &Loaded,
        credentials: &Credentials,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, BackendError> {
        let records = batch::records(loaded)?;
        let (mut all, mut clusters) = (Vec::new(), Vec::new());
        for backend in &loaded.config.backends {
            let (one, preflight) = open_one(loaded, credentials, backend, &records, clock).await?;
            all.push(one);
            clusters.extend(preflight.map(|preflight| (backend.name.clone(), preflight)));
        }
        Ok(Self { all, clusters })
    }

    /// The clusters among them, to be asked.
    pub(super) fn clusters(&self) -> &[(BackendName, Preflight)] {
        &self.clusters
    }

    /// The backends with their layers, and where their weights come from, for the pipeline.
    pub(super) fn bindings(&self, config: &Config, layers: &Layers) -> Vec<BackendBinding> {
        let bind = |(one, backend): (&One, &BackendConfig)| BackendBinding {
            backend: layers.over(match one {
                One::Kubernetes(kubernetes) => Arc::clone(kubernetes) as Arc<dyn Backend>,
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
                    One::Kubernetes(kubernetes) => {
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

    /// The local backends, whose ends can be told.
    pub fn local(&self) -> Vec<Arc<LocalBackend>> {
        let local = |one: &One| match one {
            One::Local(local) => Some(Arc::clone(local)),
            One::Kubernetes(_) | One::Batch(_) => None,
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
                One::Kubernetes(kubernetes) => {
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

/// Which cluster a Kubernetes backend is on; `None`: it is of another kind.
pub fn cluster_of(kind: &BackendKind, farm: &Farm) -> Option<Cluster> {
    let BackendKind::Kubernetes { kubeconfig, context, gke, in_cluster, .. } = kind else {
        return None;
    };
    // As gcloud takes it (its property api_endpoint_overrides/container).
    let endpoint = std::env::var("CLOUDSDK_API_ENDPOINT_OVERRIDES_CONTAINER").ok();
    let endpoint = endpoint.filter(|url| !url.is_empty());
    let wanted = |gke: &GkeConfig| Wanted {
        project: gke.project.clone().or_else(|| farm.project.clone()),
        name: gke.cluster.clone().unwrap_or_else(|| farm.cluster_name.clone()),
        location: gke.location.clone(),
        endpoint: endpoint.clone(),
    };
    Some(Cluster {
        kubeconfig: kubeconfig.clone(),
        context: context.clone(),
        gke: gke.as_ref().map(wanted),
        in_cluster: *in_cluster,
        farm: wanted(&GkeConfig::default()),
    })
}

async fn open_one(
    loaded: &Loaded,
    credentials: &Credentials,
    backend: &BackendConfig,
    records: &Arc<dyn Records>,
    clock: &Arc<dyn Clock>,
) -> Result<(One, Option<Preflight>), BackendError> {
    let (config, name) = (&loaded.config, backend.name.to_string());
    match &backend.kind {
        BackendKind::Kubernetes { namespace, request_timeout, .. } => {
            let templates = templates(backend)?;
            let cluster = cluster_of(&backend.kind, &loaded.farm).unwrap_or_default();
            let connected = connect(&cluster, credentials).await;
            let connected = connected.map_err(|e| BackendError::Connect(name, e))?;
            tracing::info!(backend = %backend.name, cluster = %connected.chosen, "found");
            let preflight = Preflight::new(connected.client.clone(), namespace);
            let api = Arc::new(KubeApi::new(connected.client, namespace, *request_timeout));
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
            let kubernetes = KubernetesBackend::new(api, Arc::clone(clock), settings);
            if let Some(grants) = grants(loaded, credentials, backend) {
                kubernetes.grant_by(grants);
            }
            Ok((One::Kubernetes(kubernetes), Some(preflight)))
        }
        BackendKind::GcpBatch { project, endpoint, request_timeout } => {
            let asked = batch::Asked { project, endpoint, timeout: *request_timeout };
            let opened = batch::open(loaded, backend, &asked, credentials, records, clock);
            Ok((One::Batch(opened.map_err(|e| BackendError::Batch(name, e))?), None))
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
            Ok((One::Local(opened.map_err(|e| BackendError::Local(name, e))?), None))
        }
    }
}

/// What lets the accounts act as their Google accounts, where that is wanted.
fn grants(
    loaded: &Loaded,
    credentials: &Credentials,
    backend: &BackendConfig,
) -> Option<Arc<dyn Grants>> {
    if !loaded.config.accounts.grant_workload_identity {
        return None;
    }
    match Identities::of(loaded, backend, credentials) {
        Ok(identities) => Some(Arc::new(identities?) as Arc<dyn Grants>),
        Err(error) => {
            tracing::error!(%error, "accounts.grant_workload_identity can't be done");
            None
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
