//! Backends of the kind `kubernetes`: the cluster found, and a namespace of it served.

use std::sync::Arc;

use super::{BackendError, Loaded};
use crate::backend::kubernetes::client::KubeApi;
use crate::backend::kubernetes::connect::connect;
use crate::backend::kubernetes::place::Cluster;
use crate::backend::kubernetes::preflight::Preflight;
use crate::backend::kubernetes::successive::Successive;
use crate::backend::kubernetes::{self, Grants};
use crate::clock::Clock;
use crate::config::backends::{BackendConfig, BackendKind, GkeConfig};
use crate::config::farm::Farm;
use crate::gcp::credentials::Credentials;
use crate::gcp::gke::Wanted;
use crate::leadership::Leadership;
use crate::render::{Policy, Templates};
use crate::service::identities::Identities;

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

/// A namespace of a cluster, reached.
pub(super) struct Reached {
    pub client: kube::Client,
    pub api: Arc<KubeApi>,
    pub preflight: Preflight,
}

/// Reaches a backend's namespace.
///
/// # Errors
/// It is no cluster, or none can be found.
pub(super) async fn reach(
    loaded: &Loaded,
    credentials: &Credentials,
    backend: &BackendConfig,
) -> Result<Reached, BackendError> {
    let name = backend.name.to_string();
    let (BackendKind::Kubernetes { namespace, request_timeout, .. }, Some(cluster)) =
        (&backend.kind, cluster_of(&backend.kind, &loaded.farm))
    else {
        return Err(BackendError::NoCluster(name));
    };
    let connected = connect(&cluster, credentials).await;
    let connected = connected.map_err(|error| BackendError::Connect(name, error))?;
    tracing::info!(backend = %backend.name, cluster = %connected.chosen, "found");
    let preflight = Preflight::new(connected.client.clone(), namespace);
    let client = connected.client;
    let api = Arc::new(KubeApi::new(client.clone(), namespace, *request_timeout));
    Ok(Reached { client, api, preflight })
}

/// The API of a backend's namespace, for a command.
///
/// # Errors
/// It is no cluster, or none can be found.
pub async fn api_of(
    loaded: &Loaded,
    backend: &BackendConfig,
) -> Result<Arc<KubeApi>, BackendError> {
    let credentials = Credentials::application_default(rand::random());
    Ok(reach(loaded, &credentials, backend).await?.api)
}

/// Serves a backend's namespace; `home` leads over it, where it is not the home one itself.
///
/// # Errors
/// Templates that can't be loaded.
pub(super) fn open(
    loaded: &Loaded,
    credentials: &Credentials,
    backend: &BackendConfig,
    clock: &Arc<dyn Clock>,
    api: Arc<KubeApi>,
    home: Option<Arc<dyn Leadership>>,
) -> Result<Arc<Successive>, BackendError> {
    let BackendKind::Kubernetes { namespace, request_timeout, .. } = &backend.kind else {
        return Err(BackendError::NoCluster(backend.name.to_string()));
    };
    let settings = kubernetes::Settings {
        name: backend.name.clone(),
        namespace: namespace.clone(),
        scheduler: loaded.config.scheduler.clone(),
        pending_limit_default: backend.limits.pending,
        live_limit: backend.limits.live,
        creates_per_second: backend.limits.creates_per_second.map(Into::into),
        window: backend.limits.window,
        request_timeout: *request_timeout,
        retain_finished: backend.retain_finished,
        policy: Policy { strict: loaded.config.policy.strict },
        templates: Arc::new(templates(backend)?),
        identity: identity(),
        seed: rand::random(),
        home,
    };
    let kubernetes = Successive::new(api, Arc::clone(clock), settings);
    if let Some(grants) = grants(loaded, credentials, backend) {
        kubernetes.grant_by(grants);
    }
    Ok(kubernetes)
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
