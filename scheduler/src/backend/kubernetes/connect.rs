//! A client for a cluster: from a kubeconfig, from inside it, or from GKE.
//!
//! One connection carries all requests where the server speaks HTTP/2, with pings, so that a dead
//! one is noticed. Nothing is retried here: [`client`](super::client)'s callers must see every
//! answer.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::{BoxError, ServiceBuilder};

use super::bearer::{BearerLayer, FileTokens};
use super::place::{Chosen, Cluster, Place, Surroundings, choose};
use crate::gcp::credentials::Credentials;
use crate::gcp::gke::{self, GkeError, Wanted};
use crate::gcp::rest::Rest;
use crate::gcp::tokens::{TokenError, Tokens};

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig can't be used.
    #[error("the kubeconfig `{path}` can't be used: {why}")]
    Kubeconfig {
        /// The file, or where kubectl looks.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// This is no pod, or one without a token.
    #[error("the cluster that this runs in can't be used: {0}")]
    InCluster(String),
    /// No GKE cluster.
    #[error(transparent)]
    Gke(#[from] GkeError),
    /// No credentials for one.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The client can't be made of the configuration.
    #[error("the cluster's configuration can't be used: {0}")]
    Client(#[from] kube::Error),
}

impl ConnectError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Gke(error) => error.hint(),
            Self::InCluster(_) => "run it as a pod with `automountServiceAccountToken`".to_owned(),
            Self::Token(_) => "run `gcloud auth application-default login`, or give this \
                workload a Google service account"
                .to_owned(),
            Self::Kubeconfig { .. } | Self::Client(_) => {
                "see the backend's `kubernetes` section, and KUBECONFIG".to_owned()
            }
        }
    }
}

/// A client, and what it is a client of.
pub struct Connected {
    /// The client.
    pub client: Client,
    /// The namespace that the cluster's configuration names.
    pub namespace: String,
    /// The cluster.
    pub chosen: Chosen,
}

/// How long connecting may take: less than a create may.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const PING_EVERY: Duration = Duration::from_secs(15);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// A client for `cluster`; `credentials` are for clusters that GKE knows. The process's rustls
/// provider must be installed.
///
/// # Errors
/// [`ConnectError`]; that the cluster can't be reached is found out later.
pub async fn connect(
    cluster: &Cluster,
    credentials: &Credentials,
) -> Result<Connected, ConnectError> {
    let (place, why) = choose(cluster, Surroundings::look());
    let mut found = match place {
        Place::Kubeconfig(path, context) => kubeconfig(path, context).await?,
        Place::InCluster => {
            let config =
                Config::incluster().map_err(|error| ConnectError::InCluster(error.to_string()))?;
            Found::new(config, "the cluster of this pod")
        }
        Place::Gke(wanted) => of_gke(&wanted, credentials).await?,
    };
    for warning in &found.warnings {
        tracing::warn!("{warning}");
    }
    found.config.default_retry = false;
    found.config.connect_timeout = Some(CONNECT_TIMEOUT);
    let chosen = Chosen {
        how: found.how,
        why,
        server: found.config.cluster_url.to_string().trim_end_matches('/').to_owned(),
        warnings: found.warnings,
    };
    let (config, tokens) = (found.config, found.tokens);
    let namespace = config.default_namespace.clone();
    let client = if config.proxy_url.is_some() || config.tls_server_name.is_some() {
        ClientBuilder::try_from(config)?.build()
    } else {
        multiplexed(&config, tokens)?
    };
    Ok(Connected { client, namespace, chosen })
}

/// A cluster that was found.
struct Found {
    config: Config,
    how: String,
    /// The tokens for it, where the configuration has none of its own.
    tokens: Option<Arc<dyn Tokens>>,
    warnings: Vec<String>,
}

impl Found {
    fn new(config: Config, how: impl Into<String>) -> Self {
        Self { config, how: how.into(), tokens: None, warnings: Vec::new() }
    }
}

async fn kubeconfig(path: Option<PathBuf>, context: Option<String>) -> Result<Found, ConnectError> {
    let shown = match (&path, &context) {
        (Some(path), _) => path.display().to_string(),
        (None, _) => "of this environment".to_owned(),
    };
    let unusable = |error: &dyn std::fmt::Display| ConnectError::Kubeconfig {
        path: shown.clone(),
        why: error.to_string(),
    };
    let file = match &path {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let file = file.map_err(|error| unusable(&error))?;
    let current = context.clone().or_else(|| file.current_context.clone());
    let options = KubeConfigOptions { context, ..Default::default() };
    let config = Config::from_custom_kubeconfig(file, &options).await;
    let config = config.map_err(|error| unusable(&error))?;
    let context = current.map(|name| format!(", context {name}")).unwrap_or_default();
    Ok(Found::new(config, format!("kubeconfig {shown}{context}")))
}

async fn of_gke(wanted: &Wanted, credentials: &Credentials) -> Result<Found, ConnectError> {
    let cluster = gke::find(&Rest::new(credentials.clone())?, wanted).await?;
    let unusable = |why: String| GkeError::Unusable { shown: cluster.shown.clone(), why };
    let server = cluster.reached.server.parse();
    let server = server.map_err(|error| unusable(format!("its address is none: {error}")))?;
    let mut config = Config::new(server);
    config.root_cert = cluster.reached.ca;
    config.auth_info = AuthInfo::default();
    Ok(Found {
        config,
        how: format!("GKE cluster {}", cluster.shown),
        tokens: Some(Arc::new(credentials.clone())),
        warnings: cluster.warnings,
    })
}

/// kube's own client speaks HTTP/1.1 only; this one speaks HTTP/2 where the server offers it.
fn multiplexed(config: &Config, tokens: Option<Arc<dyn Tokens>>) -> Result<Client, kube::Error> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let mut tls = config.rustls_client_config()?;
    tls.alpn_protocols.clear();
    let https = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .enable_http2()
        .wrap_connector(http);
    let client: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(PING_EVERY)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .http2_keep_alive_while_idle(true)
        .http2_adaptive_window(true)
        .build(https);
    let tokens = tokens.or_else(|| of_file(&config.auth_info));
    let theirs = if tokens.is_some() { None } else { config.auth_layer()? };
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(theirs)
        .option_layer(tokens.map(BearerLayer))
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(client);
    Ok(Client::new(service, config.default_namespace.clone()))
}

/// A token in a file is read here and not by kube, which goes on with a refused one for up to a
/// minute.
fn of_file(auth: &AuthInfo) -> Option<Arc<dyn Tokens>> {
    let file = auth.token_file.as_ref().filter(|_| auth.token.is_none())?;
    Some(Arc::new(FileTokens::new(file)))
}
