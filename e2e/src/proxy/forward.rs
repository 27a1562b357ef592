//! One request on its way: to a rule's action if one fires, else to the API server and
//! back.

use std::sync::{Arc, PoisonError};

use anyhow::{Context, Result};
use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request as HttpRequest, Response, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use tokio::time::sleep;

use super::body::{Body, Error, Then, passing, whole};
use super::request::Request;
use super::rule::Action;
use super::{Shared, rule::Rule};
use crate::control_plane::ca_der;

/// The API server as the proxy reaches it.
pub(super) struct Upstream {
    base: String,
    client: Client<HttpsConnector<HttpConnector>, Body>,
}

impl Upstream {
    pub(super) fn new(server: &str, ca_pem: &str) -> Result<Self> {
        let mut roots = rustls::RootCertStore::empty();
        for der in ca_der(ca_pem)? {
            roots.add(der).context("trust the CA")?;
        }
        let tls =
            rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        // One connection a request: what breaks one doesn't break another.
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1().build();
        Ok(Self {
            base: server.to_owned(),
            client: Client::builder(TokioExecutor::new()).build(connector),
        })
    }

    async fn send(&self, request: HttpRequest<Bytes>) -> Result<Response<Incoming>, Error> {
        let (mut parts, bytes) = request.into_parts();
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
        parts.uri = format!("{}{target}", self.base).parse::<Uri>()?;
        parts.version = hyper::Version::HTTP_11;
        remove_hop_by_hop(&mut parts.headers);
        parts.headers.remove(header::HOST);
        Ok(self.client.request(HttpRequest::from_parts(parts, whole(bytes))).await?)
    }
}

/// Answers one request. An error makes hyper close the connection (or reset the HTTP/2
/// stream) without an answer.
pub(super) async fn answer(
    shared: Arc<Shared>,
    request: HttpRequest<Incoming>,
) -> Result<Response<Body>, Error> {
    let seen = Request::read(request.method(), request.uri());
    let watches = seen.verb == "watch";
    let action =
        first_action(&mut shared.rules.lock().unwrap_or_else(PoisonError::into_inner), &seen);
    let place = record(&shared, seen, action.as_ref());

    // Taken whole: a client that goes away halfway has asked for nothing.
    let (parts, body) = request.into_parts();
    let request = HttpRequest::from_parts(parts, body.collect().await?.to_bytes());

    let response = match action {
        None => pass(&shared, request, watches, None).await,
        Some(action) => apply(&shared, action, request, watches).await,
    }?;
    let mut requests = shared.requests.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(entry) = requests.get_mut(place) {
        entry.status = Some(response.status().as_u16());
    }
    drop(requests);
    Ok(response)
}

fn first_action(rules: &mut [Rule], request: &Request) -> Option<Action> {
    rules.iter_mut().find_map(|rule| rule.fire(request))
}

fn record(shared: &Shared, mut seen: Request, action: Option<&Action>) -> usize {
    seen.fault = action.map(Action::name);
    let mut requests = shared.requests.lock().unwrap_or_else(PoisonError::into_inner);
    requests.push(seen);
    requests.len() - 1
}

async fn apply(
    shared: &Shared,
    action: Action,
    request: HttpRequest<Bytes>,
    watches: bool,
) -> Result<Response<Body>, Error> {
    match action {
        Action::Answer { status, reason, message, retry_after } => {
            let mut response = status_answer(status, &reason, &message)?;
            if let Some(time) = retry_after {
                let seconds = HeaderValue::from(time.as_secs());
                response.headers_mut().insert(header::RETRY_AFTER, seconds);
            }
            Ok(response)
        }
        Action::DropBefore => Err("dropped on purpose".into()),
        Action::DropAfter => {
            finish(shared.upstream.send(request).await?).await?;
            Err("dropped on purpose".into())
        }
        Action::Empty201 => {
            finish(shared.upstream.send(request).await?).await?;
            Ok(Response::builder().status(StatusCode::CREATED).body(whole(""))?)
        }
        Action::Delay(time) => {
            sleep(time).await;
            pass(shared, request, watches, None).await
        }
        Action::DelayAnswer(time) => {
            let response = pass(shared, request, watches, None).await;
            sleep(time).await;
            response
        }
        Action::Cut { after_bytes } => {
            pass(shared, request, watches, Some((after_bytes, Then::Break))).await
        }
        Action::Silence { after_bytes } => {
            pass(shared, request, watches, Some((after_bytes, Then::Silence))).await
        }
        Action::Expire if watches => {
            let event = json!({ "type": "ERROR", "object": expired() });
            json_answer(200, format!("{event}\n"))
        }
        Action::Expire => json_answer(410, expired().to_string()),
    }
}

async fn pass(
    shared: &Shared,
    request: HttpRequest<Bytes>,
    watches: bool,
    limit: Option<(u64, Then)>,
) -> Result<Response<Body>, Error> {
    let cuts = watches.then(|| shared.cuts.subscribe());
    let (mut parts, body) = shared.upstream.send(request).await?.into_parts();
    remove_hop_by_hop(&mut parts.headers);
    parts.version = hyper::Version::HTTP_11;
    Ok(Response::from_parts(parts, passing(body, limit, cuts)))
}

/// Reads an answer to its end, so that the server has surely done its work.
async fn finish(response: Response<Incoming>) -> Result<(), Error> {
    response.into_body().collect().await?;
    Ok(())
}

fn expired() -> serde_json::Value {
    status_object(410, "Expired", "too old resource version")
}

fn status_object(code: u16, reason: &str, message: &str) -> serde_json::Value {
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    })
}

fn status_answer(code: u16, reason: &str, message: &str) -> Result<Response<Body>, Error> {
    json_answer(code, status_object(code, reason, message).to_string())
}

fn json_answer(code: u16, text: String) -> Result<Response<Body>, Error> {
    Ok(Response::builder()
        .status(code)
        .header(header::CONTENT_TYPE, "application/json")
        .body(whole(text))?)
}

/// Headers that speak of one connection only.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
    for name in [
        header::CONNECTION,
        KEEP_ALIVE,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        header::PROXY_AUTHORIZATION,
    ] {
        headers.remove(name);
    }
}
