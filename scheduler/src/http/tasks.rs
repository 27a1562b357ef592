//! `POST /v1/tasks`: tasks go through the pipeline at once, and their outcomes are the answer.
//!
//! A request is judged from the outside in: who sends it, how often, what it looks like; then its
//! tasks go into the [`PushQueue`], from which the pipeline takes them. A sender that goes away
//! stops nothing: what it posted is settled all the same, and finds its Job when it is posted again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::future::join_all;
use serde::Serialize;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout};

use super::access::Access;
use super::outcome::{Known, Outcome, count};
use super::posted::{self, Item};
use super::problem::Problem;
use super::rate::Rate;
use super::{Endpoint, Source, json};
use crate::clock::Clock;
use crate::config::http::TaskLimits;
use crate::domain::name::TaskHash;
use crate::queue::push::{Answer, Posted, PushQueue, Withdrawn};
use crate::status::Role;

/// How long a body may take to arrive.
const BODY_WITHIN: Duration = Duration::from_secs(30);
/// A task that the pipeline has not taken by then is taken back.
const TAKEN_WITHIN: Duration = Duration::from_secs(5);
/// How long all of a task may take: a few tries of a create, each of three seconds.
const SETTLED_WITHIN: Duration = Duration::from_secs(50);
/// When to ask a standby again: a follower leads within fifteen seconds.
const STANDBY_WAIT: Duration = Duration::from_secs(5);
/// So many requests at once; their bodies are held in memory.
const AT_ONCE: usize = 16;

/// Where posted tasks go, and who may post how many.
pub struct Tasks {
    queue: Arc<PushQueue>,
    clock: Arc<dyn Clock>,
    access: Access,
    limits: TaskLimits,
    rate: Mutex<Rate>,
    at_once: Semaphore,
}

#[derive(Serialize)]
struct Outcomes {
    tasks: Vec<Outcome>,
}

impl Tasks {
    /// Posted tasks go into `queue`, for whom `access` lets.
    pub fn new(
        queue: Arc<PushQueue>,
        clock: Arc<dyn Clock>,
        access: Access,
        limits: TaskLimits,
    ) -> Arc<Self> {
        let rate = Mutex::new(Rate::new(limits.requests_per_second, clock.mono()));
        let at_once = Semaphore::new(AT_ONCE);
        Arc::new(Self { queue, clock, access, limits, rate, at_once })
    }

    async fn admit(&self, headers: &HeaderMap) -> Result<String, Problem> {
        let who = self.access.check(headers).await?;
        let taken =
            self.rate.lock().unwrap_or_else(PoisonError::into_inner).take(self.clock.mono());
        taken.map_err(|wait| {
            let text = format!("at most {} requests a second", self.limits.requests_per_second);
            Problem::new(StatusCode::TOO_MANY_REQUESTS, text).retry_after(wait)
        })?;
        let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("application/json") {
            let text = "send application/json";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
        }
        Ok(who)
    }

    async fn body(&self, body: Body) -> Result<Bytes, Problem> {
        let read = axum::body::to_bytes(body, self.limits.body_bytes);
        match timeout(BODY_WITHIN, read).await {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(_)) => {
                let text = format!("the body is longer than {} bytes", self.limits.body_bytes);
                Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, text))
            }
            Err(_) => {
                let text = "the body did not arrive in time";
                Err(Problem::new(StatusCode::REQUEST_TIMEOUT, text))
            }
        }
    }

    /// Sees to every task of a request.
    async fn settle(&self, source: &dyn Source, items: Vec<Item>) -> Vec<Outcome> {
        // All are put in before any is waited for, so that they share what the pipeline does.
        let waited = items.into_iter().map(|item| {
            let task = item.task.map(|(posted, job)| (posted.hash, job, self.put(posted)));
            async move {
                match task {
                    Err(why) => Outcome::rejected(item.id, why),
                    Ok((hash, job, receiver)) => {
                        let known = match receiver {
                            Ok(receiver) => self.known(source, hash, receiver).await,
                            Err(busy) => Known::Busy(busy),
                        };
                        Outcome::settled(item.id, &job, known)
                    }
                }
            }
        });
        join_all(waited.collect::<Vec<_>>()).await
    }

    fn put(&self, posted: Posted) -> Result<oneshot::Receiver<Answer>, String> {
        self.queue.push(posted).map_err(|full| full.to_string())
    }

    async fn known(
        &self,
        source: &dyn Source,
        hash: TaskHash,
        mut receiver: oneshot::Receiver<Answer>,
    ) -> Known {
        let until = Instant::now() + SETTLED_WITHIN;
        let early = timeout(TAKEN_WITHIN, &mut receiver).await;
        if let Ok(answer) = early {
            return answer.map_or(Known::UnderWay, Known::Answered);
        }
        match self.queue.withdraw(&hash, &mut receiver) {
            Withdrawn::Gone => Known::NotTaken(why_not_taken(source)),
            Withdrawn::Shared => Known::Shared,
            Withdrawn::TooLate => match tokio::time::timeout_at(until, receiver).await {
                Ok(Ok(answer)) => Known::Answered(answer),
                Ok(Err(_)) | Err(_) => Known::UnderWay,
            },
        }
    }
}

fn why_not_taken(source: &dyn Source) -> String {
    let why = source.status().why_not;
    if why.is_empty() {
        "the scheduler is busy with other tasks".to_owned()
    } else {
        why.join("; ")
    }
}

/// Answers a request.
pub async fn post(State(endpoint): State<Arc<Endpoint>>, request: Request) -> Response {
    match answer(endpoint, request).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    }
}

async fn answer(endpoint: Arc<Endpoint>, request: Request) -> Result<Response, Problem> {
    let Some(tasks) = endpoint.tasks.clone() else {
        let text = "posting tasks is off; the configuration's http.tasks turns it on";
        return Err(Problem::new(StatusCode::NOT_FOUND, text));
    };
    let (parts, body) = request.into_parts();
    let who = tasks.admit(&parts.headers).await?;
    if endpoint.source.stopping() || endpoint.source.status().role == Role::Standby {
        let text = "this process does not lead the scheduler; ask the one that does";
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, text);
        return Err(problem.retry_after(STANDBY_WAIT));
    }
    let Ok(_permit) = tasks.at_once.try_acquire() else {
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too many requests at once");
        return Err(problem.retry_after(Duration::from_secs(1)));
    };
    let body = tasks.body(body).await?;
    let items = posted::read(&body, tasks.limits.tasks, tasks.clock.wall())
        .map_err(|why| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, why))?;
    drop(body);
    // On a task of its own: a sender that goes away takes nothing back.
    let (at, source) = (Arc::clone(&tasks), Arc::clone(&endpoint.source));
    let settled = tokio::spawn(async move { at.settle(source.as_ref(), items).await }).await;
    let outcomes = settled.map_err(|error| {
        tracing::error!(%error, "handling posted tasks failed");
        let text = "handling the tasks failed; post them again to hear what became of them";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, text)
    })?;
    let (scheduled, deferred, rejected) = count(&outcomes);
    tracing::info!(who, scheduled, deferred, rejected, "tasks were posted");
    let text = serde_json::to_string(&Outcomes { tasks: outcomes });
    let text = text.map_err(|_| {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the outcomes can't be written")
    })?;
    Ok(json(StatusCode::OK, text))
}
