//! Requests as they are read, and answers in Google's form.

use std::collections::BTreeMap;
use std::time::Duration;

use http::{Method, Uri};
use serde_json::{Value, json};
use url::form_urlencoded;

/// A request's parts.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub method: Method,
    /// The path's parts.
    pub parts: Vec<String>,
    pub query: BTreeMap<String, String>,
    /// The `Authorization` header.
    pub authorization: Option<String>,
}

impl Asked {
    pub(super) fn read(parts: &http::request::Parts) -> Self {
        let (method, uri): (&Method, &Uri) = (&parts.method, &parts.uri);
        let header = parts.headers.get("authorization").and_then(|value| value.to_str().ok());
        let query = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
        Self {
            method: method.clone(),
            parts: uri.path().split('/').skip(1).map(str::to_owned).collect(),
            query: query.into_owned().collect(),
            authorization: header.map(str::to_owned),
        }
    }

    pub(super) fn path(&self) -> String {
        self.parts.join("/")
    }

    pub(super) fn query(&self, key: &str) -> &str {
        self.query.get(key).map_or("", String::as_str)
    }
}

/// What is answered.
pub(super) enum Answer {
    Said {
        status: u16,
        retry_after: Option<u64>,
        body: Value,
        after: Duration,
    },
    /// The connection closes.
    Closed,
}

impl Answer {
    pub(super) fn good(body: Value) -> Self {
        Self::Said { status: 200, retry_after: None, body, after: Duration::ZERO }
    }

    /// An error (AIP-193).
    pub(super) fn error(status: u16, code: &str, message: &str) -> Self {
        let body = json!({"error": {"code": status, "message": message, "status": code}});
        Self::Said { status, retry_after: None, body, after: Duration::ZERO }
    }

    pub(super) fn not_found(what: &str) -> Self {
        Self::error(404, "NOT_FOUND", &format!("Resource '{what}' was not found"))
    }

    pub(super) fn quota(seconds: u64) -> Self {
        let message = "Quota exceeded for quota metric 'Job creates'";
        let retry = json!({
            "@type": "type.googleapis.com/google.rpc.RetryInfo",
            "retryDelay": format!("{seconds}s"),
        });
        let body = json!({"error": {
            "code": 429, "message": message, "status": "RESOURCE_EXHAUSTED", "details": [retry],
        }});
        Self::Said { status: 429, retry_after: Some(seconds), body, after: Duration::ZERO }
    }
}
