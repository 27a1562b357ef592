//! An HTTP proxy in front of the API server that breaks what it is told to break, and
//! keeps a list of what passed. Clients talk plain HTTP to it (HTTP/1.1, or HTTP/2 by
//! prior knowledge); their `Authorization` header goes through. It can't upgrade a
//! connection, so `exec` and `port-forward` don't work through it.

mod body;
mod forward;
mod request;
mod rule;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use kube::Client;
use kube::config::{AuthInfo, Config};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::control_plane::{ControlPlane, install_crypto};
use forward::Upstream;

pub use request::Request;
pub use rule::{Action, Fired, Rule};

/// A running proxy; it ends, with all its connections, when dropped.
pub struct Proxy {
    url: String,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

/// What the connections and the test both see.
struct Shared {
    upstream: Upstream,
    rules: Mutex<Vec<Rule>>,
    requests: Mutex<Vec<Request>>,
    /// Counts up each time that all open watches are to be cut.
    cuts: watch::Sender<u64>,
}

impl Proxy {
    /// Starts one in front of `plane` on a free port.
    ///
    /// # Errors
    /// When no port can be had or the CA can't be read.
    pub async fn start(plane: &ControlPlane) -> Result<Self> {
        install_crypto();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("find a free port")?;
        let url = format!("http://{}", listener.local_addr().context("read the port")?);
        let shared = Arc::new(Shared {
            upstream: Upstream::new(plane.server_url(), plane.ca_pem())?,
            rules: Mutex::default(),
            requests: Mutex::default(),
            cuts: watch::Sender::new(0),
        });
        let serving = tokio::spawn(serve(listener, shared.clone()));
        Ok(Self { url, shared, serving })
    }

    /// Where clients find it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A client that goes through it with this token and doesn't retry.
    ///
    /// # Errors
    /// When the client can't be made.
    pub fn client(&self, token: &str) -> Result<Client> {
        let mut config = Config::new(self.url.parse().context("read the proxy's URL")?);
        config.default_retry = false;
        config.auth_info = AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() };
        Client::try_from(config).context("make a client")
    }

    /// Adds a rule after those that are there; the first one that fires decides. The
    /// result tells how often this one has.
    pub fn push(&self, rule: Rule) -> Fired {
        let fired = rule.fired();
        self.shared.rules.lock().unwrap_or_else(PoisonError::into_inner).push(rule);
        fired
    }

    /// Takes all rules away: everything passes again.
    pub fn clear(&self) {
        self.shared.rules.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Breaks every watch that is open now.
    pub fn cut_watches(&self) {
        self.shared.cuts.send_modify(|count| *count += 1);
    }

    /// Everything that arrived so far, in order of arrival.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many requests had this verb and resource (`create`, `jobs`).
    pub fn count(&self, verb: &str, resource: &str) -> usize {
        let requests = self.shared.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.iter().filter(|seen| seen.verb == verb && seen.resource == resource).count()
    }

    /// How many requests there were of each (verb, resource, status); no status means
    /// that no answer was given.
    pub fn counters(&self) -> BTreeMap<(String, String, Option<u16>), usize> {
        let mut counters = BTreeMap::new();
        for seen in self.requests() {
            *counters.entry((seen.verb.to_owned(), seen.resource, seen.status)).or_default() += 1;
        }
        counters
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Accepts until aborted; the connections end with the set that holds them.
async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let Ok((stream, _)) = accepted else {
            // Out of file descriptors, or the client is gone already.
            tokio::task::yield_now().await;
            continue;
        };
        let shared = shared.clone();
        connections.spawn(async move {
            let answer = service_fn(move |request| forward::answer(shared.clone(), request));
            // A broken connection is what a fault looks like from here.
            let _ = auto::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), answer)
                .await;
        });
    }
}
