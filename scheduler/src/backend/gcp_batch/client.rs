//! Batch's REST API over HTTP.
//!
//! Knows how a request is written and what an answer's status says. Never tries again by itself, but
//! once with a new token: who may repeat a request is the caller's to know.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::{AUTHORIZATION, RETRY_AFTER};
use reqwest::{Method, Response, StatusCode};
use serde::de::{DeserializeOwned, IgnoredAny};
use url::Url;
use uuid::Uuid;

use super::answer::{Job, JobCounts, Jobs, TaskPage};
use super::api::{Api, ApiError, Fault};
use super::plan::JobId;
use super::spec;
use crate::domain::causes::with_causes;
use crate::gcp::tokens::{Bearer, TokenError, Tokens};

/// Batch's own address.
pub const ENDPOINT: &str = "https://batch.googleapis.com";
/// The most bytes of an answer: a job of 999 long URLs, and a page of jobs, are far below.
const MOST_BYTES: usize = 64 << 20;
/// How many jobs or tasks a page has.
const PAGE: &str = "1000";
/// What a list has of each job: not the environments, whose inputs are credentials.
const LIST_FIELDS: &str = "nextPageToken,unreachable,jobs(name,labels,createTime,status(state,\
                           taskGroups),taskGroups(taskCount))";

/// A client of one endpoint.
pub struct RestApi {
    http: reqwest::Client,
    endpoint: Url,
    tokens: Option<Arc<dyn Tokens>>,
    timeout: Duration,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The endpoint is none.
    #[error("`{0}` is no endpoint; write https://HOST or http://HOST:PORT")]
    Endpoint(String),
    /// There are no credentials.
    #[error(transparent)]
    Credentials(#[from] TokenError),
    /// No client could be made.
    #[error("no HTTP client: {0}")]
    Http(#[source] reqwest::Error),
}

impl RestApi {
    /// A client. Without `tokens` requests are anonymous: for an emulator.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn new(
        endpoint: &str,
        tokens: Option<Arc<dyn Tokens>>,
        timeout: Duration,
    ) -> Result<Self, ClientError> {
        let bad = || ClientError::Endpoint(crate::domain::redact::redact(endpoint).into_owned());
        let endpoint = Url::parse(endpoint).map_err(|_| bad())?;
        if !matches!(endpoint.scheme(), "http" | "https") || endpoint.query().is_some() {
            return Err(bad());
        }
        let http = reqwest::Client::builder()
            // A redirect would carry inputs and tokens to who knows where.
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(timeout)
            .build()
            .map_err(ClientError::Http)?;
        Ok(Self { http, endpoint, tokens, timeout })
    }

    fn url(&self, path: &str, query: &[(&str, &str)]) -> Url {
        let mut url = self.endpoint.clone();
        url.set_path(&format!("{}/{path}", self.endpoint.path().trim_end_matches('/')));
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    /// One request and its answer, all of it within the timeout.
    async fn call<A: DeserializeOwned>(
        &self,
        method: Method,
        url: Url,
        body: Option<Vec<u8>>,
    ) -> Result<A, ApiError> {
        let lost = |_| {
            let millis = self.timeout.as_millis();
            ApiError::new(Fault::Lost, format!("no answer within {millis} ms"))
        };
        tokio::time::timeout(self.timeout, self.exchange(method, url, body)).await.map_err(lost)?
    }

    async fn exchange<A: DeserializeOwned>(
        &self,
        method: Method,
        url: Url,
        body: Option<Vec<u8>>,
    ) -> Result<A, ApiError> {
        let mut token = match &self.tokens {
            Some(tokens) => Some(tokens.bearer().await.map_err(|e| no_token(&e))?),
            None => None,
        };
        let mut answer = self.send(&method, &url, body.as_deref(), token.as_ref()).await?;
        if answer.status() == StatusCode::UNAUTHORIZED
            && let (Some(tokens), Some(refused)) = (&self.tokens, &token)
        {
            token = Some(tokens.renew(refused).await.map_err(|e| no_token(&e))?);
            answer = self.send(&method, &url, body.as_deref(), token.as_ref()).await?;
        }
        let status = answer.status();
        if !status.is_success() {
            return Err(refused(answer).await);
        }
        let bytes = read(answer).await?;
        // What can't be read is named by its place alone: a body holds credentials.
        serde_json::from_slice(&bytes).map_err(|e| {
            let (line, column) = (e.line(), e.column());
            ApiError::new(Fault::Lost, format!("{status}, but no answer at {line}:{column}"))
        })
    }

    async fn send(
        &self,
        method: &Method,
        url: &Url,
        body: Option<&[u8]>,
        token: Option<&Bearer>,
    ) -> Result<Response, ApiError> {
        let mut request = self.http.request(method.clone(), url.clone());
        if let Some(token) = token {
            let value = token.header().map_err(|e| ApiError::new(Fault::NotSent, e))?;
            request = request.header(AUTHORIZATION, value);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_vec());
        }
        request.send().await.map_err(|error| {
            let fault =
                if error.is_connect() || error.is_builder() { Fault::NotSent } else { Fault::Lost };
            ApiError::new(fault, with_causes(&error.without_url()))
        })
    }
}

fn no_token(error: &TokenError) -> ApiError {
    let fault = match error {
        TokenError::Later(_) => Fault::NotSent,
        TokenError::Unusable(_) => Fault::Unauthenticated,
    };
    ApiError::new(fault, error)
}

async fn read(mut answer: Response) -> Result<Vec<u8>, ApiError> {
    let lost =
        |error: reqwest::Error| ApiError::new(Fault::Lost, with_causes(&error.without_url()));
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(lost)? {
        if bytes.len() + chunk.len() > MOST_BYTES {
            return Err(ApiError::new(Fault::Lost, "the answer is too long"));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// Google's form of an error (AIP-193).
#[derive(serde::Deserialize, Default)]
#[serde(default)]
struct Envelope {
    error: Said,
}

#[derive(serde::Deserialize, Default)]
#[serde(default)]
struct Said {
    message: String,
    status: String,
    details: Vec<Detail>,
}

#[derive(serde::Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Detail {
    retry_delay: Option<String>,
}

async fn refused(answer: Response) -> ApiError {
    let status = answer.status();
    let header = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let mut after = header.and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
    let bytes = read(answer).await.unwrap_or_default();
    let said = serde_json::from_slice::<Envelope>(&bytes).unwrap_or_default().error;
    let delay = said.details.iter().find_map(|detail| detail.retry_delay.as_deref());
    after = after.max(delay.and_then(seconds));
    let fault = fault(status, &said.status, after);
    ApiError::new(fault, format!("{} {}: {}", status.as_u16(), said.status, said.message))
}

/// `7s` or `0.5s` (RetryInfo).
fn seconds(text: &str) -> Option<Duration> {
    let seconds: f64 = text.strip_suffix('s')?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// What a status means. A 404 or 409 that Batch did not say itself is some proxy's: it tells
/// nothing.
fn fault(status: StatusCode, said: &str, after: Option<Duration>) -> Fault {
    match (status.as_u16(), said) {
        (401, _) => Fault::Unauthenticated,
        (403, _) => Fault::Forbidden,
        (404, "NOT_FOUND") => Fault::NotFound,
        (409, "ALREADY_EXISTS") => Fault::Exists,
        (429, _) => Fault::Throttled(after),
        (400 | 405 | 413 | 415 | 422, _) => Fault::Refused,
        (status, _) if status >= 500 => Fault::Failed,
        _ => Fault::Lost,
    }
}

#[async_trait]
impl Api for RestApi {
    async fn create(
        &self,
        parent: &str,
        id: &JobId,
        request: Uuid,
        job: &spec::Job,
    ) -> Result<Job, ApiError> {
        let body = serde_json::to_vec(job)
            .map_err(|_| ApiError::new(Fault::NotSent, "the job can't be written as JSON"))?;
        let query = [("jobId", id.as_str()), ("requestId", &request.to_string())];
        self.call(Method::POST, self.url(&format!("v1/{parent}/jobs"), &query), Some(body)).await
    }

    async fn get(&self, parent: &str, id: &JobId) -> Result<Option<Job>, ApiError> {
        let url = self.url(&format!("v1/{parent}/jobs/{id}"), &[]);
        match self.call::<Job>(Method::GET, url, None).await {
            Ok(job) if job.id() == id.as_str() => Ok(Some(job)),
            Ok(_) => Err(ApiError::new(Fault::Lost, "the answer is no job of that name")),
            Err(error) if error.fault == Fault::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn delete(&self, parent: &str, id: &JobId) -> Result<bool, ApiError> {
        let url = self.url(&format!("v1/{parent}/jobs/{id}"), &[]);
        // The answer is an operation; how it goes is seen in the job's state.
        match self.call::<IgnoredAny>(Method::DELETE, url, None).await {
            Ok(_) => Ok(true),
            Err(error) if error.fault == Fault::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn list(&self, parent: &str, page: Option<&str>) -> Result<Jobs, ApiError> {
        let mut query =
            vec![("pageSize", PAGE), ("orderBy", "create_time desc"), ("fields", LIST_FIELDS)];
        query.extend(page.map(|token| ("pageToken", token)));
        self.call(Method::GET, self.url(&format!("v1/{parent}/jobs"), &query), None).await
    }

    async fn tasks(
        &self,
        parent: &str,
        id: &JobId,
        page: Option<&str>,
    ) -> Result<TaskPage, ApiError> {
        let mut query = vec![("pageSize", PAGE)];
        query.extend(page.map(|token| ("pageToken", token)));
        let path = format!("v1/{parent}/jobs/{id}/taskGroups/group0/tasks");
        self.call(Method::GET, self.url(&path, &query), None).await
    }

    async fn count_queued(&self, project: &str, region: &str) -> Result<u64, ApiError> {
        let path = format!("v1alpha/{}/jobs:countByState", spec::parent(project, region));
        let url = self.url(&path, &[("states", "QUEUED")]);
        let counts: JobCounts = self.call(Method::GET, url, None).await?;
        Ok(counts.job_counts.get("QUEUED").copied().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_whether_something_was_made() {
        let of = |status, said| fault(StatusCode::from_u16(status).expect("a status"), said, None);
        assert_eq!(of(404, "NOT_FOUND"), Fault::NotFound);
        assert_eq!(of(404, ""), Fault::Lost);
        assert_eq!(of(409, "ALREADY_EXISTS"), Fault::Exists);
        assert_eq!(of(409, "ABORTED"), Fault::Lost);
        assert_eq!(of(408, ""), Fault::Lost);
        assert_eq!(of(429, "RESOURCE_EXHAUSTED"), Fault::Throttled(None));
        for status in [500, 502, 503, 504] {
            assert!(!of(status, "").made_nothing(), "{status}");
        }
        for status in [400, 401, 403, 429] {
            assert!(of(status, "").made_nothing(), "{status}");
        }
    }

    #[test]
    fn delays_are_read_as_google_writes_them() {
        assert_eq!(seconds("7s"), Some(Duration::from_secs(7)));
        assert_eq!(seconds("0.5s"), Some(Duration::from_millis(500)));
        assert_eq!(seconds("-1s"), None);
        assert_eq!(seconds("soon"), None);
    }
}
