//! GCP Batch's REST API on this machine, as far as katabatch speaks it: what Google's reference
//! documents, kept in memory, with faults when told so. It runs nothing: a test moves its jobs on.
//!
//! A request id stands for one body for ever (longer than Batch remembers it), so that a misuse
//! shows.

mod answers;
mod state;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use answers::{Answer, Asked};
pub use state::{Job, Seen, State};

/// What is to become of a create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A quota is used up: 429, to be asked again after so many seconds.
    Quota(u64),
    /// A right is missing: 403.
    Forbidden,
    /// The server fails, and nothing is made: 503.
    Failed,
    /// It is made, and the server says that it failed: 500.
    FailedAfter,
    /// It is made, and the connection closes without an answer.
    LostAnswer,
    /// The connection closes, and nothing is made.
    LostRequest,
    /// It is made, and the answer is empty.
    EmptyAnswer,
    /// It is made and answered after so long.
    Slow(Duration),
}

/// A running server; it ends, with all its connections, when dropped.
pub struct Batch {
    url: String,
    state: Arc<Mutex<State>>,
    serving: JoinHandle<()>,
}

impl Batch {
    /// Starts one on a free port, which has these regions.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start(regions: &[&str]) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("find a free port")?;
        let url = format!("http://{}", listener.local_addr().context("read the port")?);
        let state = Arc::new(Mutex::new(State::with_regions(regions)));
        let serving = tokio::spawn(serve(listener, Arc::clone(&state)));
        Ok(Self { url, state, serving })
    }

    /// Where clients find it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// All that it knows, to be read and changed.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, state: Arc<Mutex<State>>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let state = Arc::clone(&state);
                let service = service_fn(move |request| answer(request, Arc::clone(&state)));
                connections.spawn(async move {
                    // An error is a client's that went, or a fault that was asked for.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// An error closes the connection.
async fn answer(
    request: http::Request<Incoming>,
    state: Arc<Mutex<State>>,
) -> Result<http::Response<Full<Bytes>>, io::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let asked = Asked::read(&parts);
    let answer = {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = state.answer(&asked, body);
        let status = match &answer {
            Answer::Said { status, .. } => Some(*status),
            Answer::Closed => None,
        };
        state.seen.push(Seen { method: parts.method.to_string(), path: asked.path(), status });
        answer
    };
    let Answer::Said { status, retry_after, body, after } = answer else {
        return Err(io::Error::other("closed as asked"));
    };
    tokio::time::sleep(after).await;
    let mut response = http::Response::builder()
        .status(status)
        .header("content-type", "application/json; charset=UTF-8");
    if let Some(seconds) = retry_after {
        response = response.header("retry-after", seconds);
    }
    response.body(Full::new(Bytes::from(body.to_string()))).map_err(io::Error::other)
}
