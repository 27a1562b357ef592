//! What a running scheduler serves over HTTP: health, metrics, status, and the way in for others.
//!
//! [`health`] and the metrics say what [`Source`] says; [`tasks`] takes posted tasks, for whom
//! [`access`] lets. Errors are problem details ([`problem`], RFC 9457). Who listens where, and what
//! is behind the traits, is the service's.

pub mod access;
mod health;
mod outcome;
mod posted;
pub mod problem;
mod rate;
pub mod tasks;
mod why;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::domain::name::JobType;
use crate::metrics;
use crate::pipeline::stages::Stages;
use crate::status::Status;
use crate::why::Answer;
use problem::Problem;
use tasks::Tasks;

/// How long answers under way may take once told to stop.
const GRACE: Duration = Duration::from_secs(5);
/// The description of all of it.
const OPENAPI: &str = include_str!("http/openapi.json");

/// Where what is served comes from.
#[async_trait]
pub trait Source: Send + Sync {
    /// What the scheduler says of itself now.
    fn status(&self) -> Status;

    /// How long the stages took.
    fn stages(&self) -> Stages;

    /// Whether it was told to stop.
    fn stopping(&self) -> bool;

    /// Why a job type, or one command of it, runs or does not; `None`: no ledger is kept.
    async fn why(&self, job_type: &JobType, command: Option<&str>) -> Option<Answer>;
}

/// All that the answers need.
pub struct Endpoint {
    /// What is said.
    pub source: Arc<dyn Source>,
    /// Where posted tasks go; `None`: nobody may post any.
    pub tasks: Option<Arc<Tasks>>,
}

/// Every path that is served.
pub fn router(endpoint: Endpoint) -> Router {
    Router::new()
        .route("/livez", get(health::live))
        .route("/readyz", get(health::ready))
        .route("/healthz/create", get(health::create))
        .route("/metrics", get(scrape))
        .route("/openapi.json", get(|| async { json(StatusCode::OK, OPENAPI.to_owned()) }))
        .route("/v1/status", get(status))
        .route("/v1/why", get(why::answer))
        .route("/v1/tasks", post(tasks::post))
        .fallback(|| async { Problem::new(StatusCode::NOT_FOUND, "there is nothing here") })
        .method_not_allowed_fallback(|| async {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "the Allow header says what is")
        })
        .with_state(Arc::new(endpoint))
}

/// Serves until `stop`, then lets what is under way end, for a moment.
///
/// # Errors
/// What the listener gives.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let stopped = stop.clone();
    let serving = axum::serve(listener, router)
        .with_graceful_shutdown(async move { stopped.cancelled().await });
    tokio::select! {
        biased;
        ended = serving.into_future() => ended,
        () = async { stop.cancelled().await; tokio::time::sleep(GRACE).await } => Ok(()),
    }
}

async fn scrape(State(endpoint): State<Arc<Endpoint>>) -> Response {
    match metrics::render(endpoint.source.status(), endpoint.source.stages()) {
        Ok(text) => {
            let kind = HeaderValue::from_static(metrics::CONTENT_TYPE);
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(_) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the metrics can't be written")
            .into_response(),
    }
}

async fn status(State(endpoint): State<Arc<Endpoint>>) -> Response {
    match serde_json::to_string(&endpoint.source.status()) {
        Ok(text) => json(StatusCode::OK, text),
        Err(_) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the status can't be written")
            .into_response(),
    }
}

/// An answer in JSON.
fn json(status: StatusCode, text: String) -> Response {
    let kind = HeaderValue::from_static("application/json");
    (status, [(header::CONTENT_TYPE, kind)], text).into_response()
}

#[cfg(test)]
mod tests;
