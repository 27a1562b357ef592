//! Tokens that die: what the client does about a 401, for requests and for watches.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::future::join_all;
use http::{Request, Response};
use kube::client::Body;
use tower::Layer as _;

use super::super::api::{ClusterApi as _, Sent, WatchEvent};
use super::super::bearer::BearerLayer;
use super::super::client::KubeApi;
use crate::gcp::tokens::{Bearer, TokenError, Tokens};

const LEASE: &str = r#"{"metadata":{"name":"l","uid":"u","resourceVersion":"1"},"spec":{}}"#;
const EVENT: &str = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#;

/// A server that takes some tokens, and whoever gives them out.
#[derive(Default)]
struct World {
    good: Mutex<BTreeSet<String>>,
    current: Mutex<u32>,
    renewals: Mutex<u32>,
    refused: Mutex<u32>,
}

#[async_trait]
impl Tokens for World {
    async fn bearer(&self) -> Result<Bearer, TokenError> {
        match *self.current.lock().expect("current") {
            0 => Err(TokenError::Later("no source".into())),
            n => Ok(Bearer::new(format!("t{n}"))),
        }
    }

    async fn renew(&self, refused: &Bearer) -> Result<Bearer, TokenError> {
        if self.bearer().await? == *refused {
            *self.renewals.lock().expect("renewals") += 1;
            *self.current.lock().expect("current") += 1;
        }
        self.bearer().await
    }
}

impl World {
    /// The present token is `current`; the server takes `good`.
    fn new(current: u32, good: &[&str]) -> Arc<Self> {
        let world = Self { current: Mutex::new(current), ..Self::default() };
        world.take(good);
        Arc::new(world)
    }

    fn take(&self, good: &[&str]) {
        *self.good.lock().expect("good") = good.iter().map(|t| format!("Bearer {t}")).collect();
    }

    fn answer(&self, request: &Request<Body>) -> Response<Body> {
        let header = request.headers()["authorization"].clone();
        assert!(header.is_sensitive());
        let good = self.good.lock().expect("good").contains(header.to_str().expect("text"));
        let (status, body) = match (good, request.uri().to_string().contains("watch=1")) {
            (false, _) => (401, ""),
            (true, true) => (200, EVENT),
            (true, false) => (200, LEASE),
        };
        *self.refused.lock().expect("refused") += u32::from(!good);
        let body = if body.is_empty() { Vec::new() } else { format!("{body}\n").into_bytes() };
        Response::builder().status(status).body(Body::from(body)).expect("an answer")
    }

    fn api(self: &Arc<Self>) -> KubeApi {
        let world = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Body>| {
            let answer = world.answer(&request);
            async move { Ok::<_, std::io::Error>(answer) }
        });
        let tokens: Arc<dyn Tokens> = Arc::clone(self) as Arc<dyn Tokens>;
        let client = kube::Client::new(BearerLayer(tokens).layer(service), "farm");
        KubeApi::new(client, "farm", Duration::from_millis(2_800))
    }

    fn renewals(&self) -> u32 {
        *self.renewals.lock().expect("renewals")
    }
}

#[tokio::test]
async fn a_token_that_dies_is_renewed_once_and_the_request_made_again() {
    let world = World::new(1, &["t1"]);
    let api = world.api();
    assert!(api.get_lease("l").await.is_ok());
    world.take(&["t2"]);
    assert!(api.get_lease("l").await.is_ok(), "with the second token");
    assert_eq!((world.renewals(), *world.refused.lock().expect("refused")), (1, 1));
}

#[tokio::test]
async fn many_requests_with_a_dead_token_renew_it_once() {
    let world = World::new(1, &["t2"]);
    let api = world.api();
    let answers = join_all((0..40).map(|_| api.get_lease("l"))).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(world.renewals(), 1);
}

#[tokio::test]
async fn a_watch_is_opened_again_with_the_new_token() {
    let world = World::new(1, &["t1"]);
    let api = world.api();
    for good in ["t1", "t2"] {
        world.take(&[good]);
        let mut watch = api.watch_jobs("8").await.expect("it opens");
        let event = watch.next().await.expect("an event").expect("readable");
        assert!(matches!(event, WatchEvent::Bookmark(version) if version == "9"));
        assert!(watch.next().await.is_none(), "an ordinary end");
    }
    assert_eq!(world.renewals(), 1);
}

#[tokio::test]
async fn a_server_that_takes_no_token_is_asked_twice_and_no_more() {
    let world = World::new(1, &[]);
    let error = world.api().get_lease("l").await.expect_err("refused");
    assert_eq!((error.status, *world.refused.lock().expect("refused")), (Some(401), 2));
}

#[tokio::test]
async fn without_a_token_nothing_is_sent() {
    let world = World::new(0, &["t1"]);
    let error = world.api().create_job("j", b"{}".to_vec()).await.expect_err("no token");
    assert_eq!((error.sent, *world.refused.lock().expect("refused")), (Sent::Never, 0));
    assert!(error.to_string().contains("no access token for now: no source"), "{error}");
}
