//! A client for a cluster: from a kubeconfig, or from inside it.
//!
//! One connection carries all requests where the server speaks HTTP/2, with pings, so that a dead
//! one is noticed. Nothing is retried here: [`client`](super::client)'s callers must see every
//! answer.

use std::path::PathBuf;
use std::time::Duration;

use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::{BoxError, ServiceBuilder};

/// Which cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cluster {
    /// The kubeconfig file; `None` looks where kubectl does, then inside the cluster.
    pub kubeconfig: Option<PathBuf>,
    /// The kubeconfig's context; `None` is its current one.
    pub context: Option<String>,
}

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
    /// No kubeconfig, and not inside a cluster.
    #[error("no cluster is configured: {0}; set KUBECONFIG, or name a kubeconfig file")]
    None(String),
    /// The client can't be made of the configuration.
    #[error("the cluster's configuration can't be used: {0}")]
    Client(#[from] kube::Error),
}

/// How long connecting may take: less than a create may.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const PING_EVERY: Duration = Duration::from_secs(15);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// A client for `cluster`, and the namespace that its configuration names. The process's rustls
/// provider must be installed.
///
/// # Errors
/// [`ConnectError`]; that the cluster can't be reached is found out later.
pub async fn connect(cluster: &Cluster) -> Result<(Client, String), ConnectError> {
    let mut config = configuration(cluster).await?;
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    let namespace = config.default_namespace.clone();
    let client = if config.proxy_url.is_some() || config.tls_server_name.is_some() {
        ClientBuilder::try_from(config)?.build()
    } else {
        multiplexed(&config)?
    };
    Ok((client, namespace))
}

async fn configuration(cluster: &Cluster) -> Result<Config, ConnectError> {
    let options = KubeConfigOptions { context: cluster.context.clone(), ..Default::default() };
    let unusable = |path: String, error: &dyn std::fmt::Display| ConnectError::Kubeconfig {
        path,
        why: error.to_string(),
    };
    match &cluster.kubeconfig {
        Some(path) => {
            let shown = path.display().to_string();
            let file = Kubeconfig::read_from(path).map_err(|e| unusable(shown.clone(), &e))?;
            let config = Config::from_custom_kubeconfig(file, &options).await;
            config.map_err(|e| unusable(shown, &e))
        }
        None if cluster.context.is_some() => Config::from_kubeconfig(&options)
            .await
            .map_err(|e| unusable("of this environment".to_owned(), &e)),
        None => Config::infer().await.map_err(|error| ConnectError::None(error.to_string())),
    }
}

/// kube's own client speaks HTTP/1.1 only; this one speaks HTTP/2 where the server offers it.
fn multiplexed(config: &Config) -> Result<Client, kube::Error> {
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
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(client);
    Ok(Client::new(service, config.default_namespace.clone()))
}
