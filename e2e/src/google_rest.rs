//! As much of Google Cloud as katabatch asks for by REST, in one small server: the metadata
//! server's tokens, GKE's list of clusters, the IAM policies of service accounts, and signing.
//! What it answers is told by the test, which also sees what was asked.

mod answers;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{Request as Asked, Response, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The account that the metadata server says a pod has.
pub const EMAIL: &str = "katabatch@katabatch-e2e.iam.gserviceaccount.com";
/// The most of a request's body that is read, in bytes.
const LONGEST: usize = 1 << 20;

/// A running one; it ends when dropped.
pub struct GoogleRest {
    host: String,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    told: Mutex<Told>,
    requests: Mutex<Vec<Request>>,
}

/// What it shall answer.
#[derive(Default)]
pub(crate) struct Told {
    /// Tokens with their lives in seconds; the last one is given for ever.
    tokens: VecDeque<(String, u64)>,
    /// So many requests for tokens are answered with 503 first.
    token_failures: usize,
    clusters: Value,
    /// An answer in the place of the list.
    list_refusal: Option<(u16, Value)>,
    policies: BTreeMap<String, Value>,
    /// An answer in the place of signatures.
    signing_refusal: Option<(u16, Value)>,
    /// No object may be looked for.
    objects_refused: bool,
}

/// What was asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The path, without the query.
    pub path: String,
    /// The body as JSON, or as text where it is none; null without one.
    pub body: Value,
    /// The status of the answer.
    pub status: u16,
}

impl GoogleRest {
    /// Starts one on a free port. It gives no token and knows no cluster yet.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("find a free port")?;
        let host = listener.local_addr().context("read the port")?.to_string();
        let shared = Arc::new(Shared::default());
        let router = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let serving = tokio::spawn(async move {
            // It ends with this value, and a test that still asks then fails by itself.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { host, shared, serving })
    }

    /// `HOST:PORT`.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The variables by which katabatch finds it.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let url = format!("http://{}", self.host);
        vec![
            ("GCE_METADATA_HOST", self.host.clone()),
            ("CLOUDSDK_API_ENDPOINT_OVERRIDES_CONTAINER", url.clone()),
            ("CLOUDSDK_API_ENDPOINT_OVERRIDES_IAM", url.clone()),
            ("CLOUDSDK_API_ENDPOINT_OVERRIDES_IAMCREDENTIALS", url),
        ]
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.shared.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives these tokens from now on, each once, the last one for ever. Lives are in seconds.
    pub fn give_tokens(&self, tokens: &[(&str, u64)]) {
        self.told().tokens =
            tokens.iter().map(|(token, lives)| ((*token).to_owned(), *lives)).collect();
    }

    /// Answers the next requests for tokens with 503.
    pub fn fail_tokens(&self, times: usize) {
        self.told().token_failures = times;
    }

    /// Lists these clusters; nothing came from the `missing` zones.
    pub fn list_clusters(&self, clusters: &[Value], missing: &[&str]) {
        let mut told = self.told();
        told.clusters = json!({ "clusters": clusters, "missingZones": missing });
        told.list_refusal = None;
    }

    /// Refuses to list, as Google does (AIP-193).
    pub fn refuse_to_list(&self, code: u16, status: &str, reason: &str, message: &str) {
        let details = json!([{ "reason": reason, "domain": "googleapis.com" }]);
        let error = json!({ "code": code, "status": status, "message": message,
            "details": if reason.is_empty() { json!([]) } else { details } });
        self.told().list_refusal = Some((code, json!({ "error": error })));
    }

    /// Refuses to sign, as IAM does where the account may not; with `None` it signs again.
    pub fn refuse_to_sign(&self, message: Option<&str>) {
        self.told().signing_refusal = message.map(answers::denied);
    }

    /// Lets nobody look for an object of Cloud Storage; before, there are none.
    pub fn refuse_objects(&self) {
        self.told().objects_refused = true;
    }

    /// The IAM policy of a service account, as it is now.
    pub fn policy(&self, email: &str) -> Option<Value> {
        self.told().policies.get(email).cloned()
    }

    /// Sets the IAM policy of a service account; one that has none is unknown.
    pub fn set_policy(&self, email: &str, policy: Value) {
        self.told().policies.insert(email.to_owned(), policy);
    }

    /// What was asked so far whose path ends so.
    pub fn requests(&self, end: &str) -> Vec<Request> {
        let requests = self.shared.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.iter().filter(|request| request.path.ends_with(end)).cloned().collect()
    }

    /// How many tokens were asked for.
    pub fn token_requests(&self) -> usize {
        self.requests("/token").len()
    }
}

impl Drop for GoogleRest {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A cluster as GKE lists it, at an API server (`https://HOST:PORT`) with this CA.
pub fn cluster(name: &str, location: &str, server: &str, ca_pem: &str) -> Value {
    let endpoint = server.trim_start_matches("https://").trim_end_matches('/');
    let ca = k8s_openapi::ByteString(ca_pem.as_bytes().to_vec());
    json!({
        "name": name,
        "location": location,
        "status": "RUNNING",
        "endpoint": endpoint,
        "masterAuth": { "clusterCaCertificate": ca },
    })
}

async fn answer(State(shared): State<Arc<Shared>>, asked: Asked<Body>) -> Response<Body> {
    let (parts, body) = asked.into_parts();
    let body = to_bytes(body, LONGEST).await.unwrap_or_default();
    let body = match serde_json::from_slice(&body) {
        Ok(body) => body,
        Err(_) if body.is_empty() => Value::Null,
        Err(_) => String::from_utf8_lossy(&body).into(),
    };
    let flavoured = parts.headers.get("metadata-flavor").is_some_and(|value| value == "Google");
    let path = parts.uri.path().to_owned();
    let (status, answer) = {
        let mut told = shared.told.lock().unwrap_or_else(PoisonError::into_inner);
        answers::to(&mut told, &path, flavoured, &body)
    };
    shared.requests.lock().unwrap_or_else(PoisonError::into_inner).push(Request {
        path,
        body,
        status,
    });
    let text = match answer {
        Value::String(text) => text,
        other => other.to_string(),
    };
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    response
}
