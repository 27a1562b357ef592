//! Asks a scheduler's HTTP endpoint, as a scraper, a probe or a sender of tasks would.

use std::net::TcpListener;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::time::timeout;

/// How long any answer may take.
const WITHIN: Duration = Duration::from_secs(70);

/// An endpoint.
#[derive(Debug, Clone)]
pub struct Endpoint {
    client: Client<HttpConnector, Full<Bytes>>,
    /// Where it listens.
    pub address: String,
    token: Option<String>,
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub text: String,
}

impl Endpoint {
    /// One at a port of this machine that was free just now.
    ///
    /// # Errors
    /// When none is free.
    pub fn free() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("find a free port")?;
        let address = listener.local_addr().context("look at the port")?.to_string();
        let client = Client::builder(TokioExecutor::new()).build_http();
        Ok(Self { client, address, token: None })
    }

    /// The same, asked with a bearer token.
    #[must_use]
    pub fn with_token(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Asks for a path.
    ///
    /// # Errors
    /// When no answer comes.
    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.ask(Method::GET, path, String::new()).await
    }

    /// Asks for a path that answers with JSON.
    ///
    /// # Errors
    /// When no good answer comes.
    pub async fn json(&self, path: &str) -> Result<Value> {
        let answer = self.get(path).await?;
        ensure!(answer.status == 200, "{path}: {answer:?}");
        serde_json::from_str(&answer.text).context("read the answer")
    }

    /// Posts fuzzing tasks of one job type.
    ///
    /// # Errors
    /// When no answer comes.
    pub async fn post(&self, job_type: &str, urls: &[String]) -> Result<Answer> {
        let task = |url| json!({ "command": "fuzz", "job_type": job_type, "input_url": url });
        let tasks: Vec<_> = urls.iter().map(task).collect();
        self.ask(Method::POST, "/v1/tasks", json!({ "tasks": tasks }).to_string()).await
    }

    /// Posts a fuzzing task with labels.
    ///
    /// # Errors
    /// When no answer comes in time.
    pub async fn post_labelled(
        &self,
        job_type: &str,
        url: &str,
        labels: &serde_json::Value,
    ) -> Result<Answer> {
        let task = json!({
            "command": "fuzz", "job_type": job_type, "input_url": url, "labels": labels,
        });
        self.ask(Method::POST, "/v1/tasks", json!({ "tasks": [task] }).to_string()).await
    }

    async fn ask(&self, method: Method, path: &str, body: String) -> Result<Answer> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.url()));
        request = request.header("content-type", "application/json");
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(Full::new(Bytes::from(body))).context("make a request")?;
        let whole = async {
            let (parts, body) = self.client.request(request).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            let text = String::from_utf8_lossy(&body).into_owned();
            Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, text })
        };
        timeout(WITHIN, whole).await.context("no answer in time")?
    }
}

impl Answer {
    /// The outcomes of posted tasks.
    ///
    /// # Errors
    /// When it is not a good answer.
    pub fn outcomes(&self) -> Result<Vec<Value>> {
        ensure!(self.status == 200, "{self:?}");
        let body: Value = serde_json::from_str(&self.text).context("read the answer")?;
        body["tasks"].as_array().cloned().context("an answer without tasks")
    }
}
