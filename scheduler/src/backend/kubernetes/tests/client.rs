//! The real client against answers made up here, and against sockets that fail.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use kube::client::Body;
use tokio::net::TcpListener;

use super::super::api::{ApiError, ClusterApi as _, JobFacts, Sent, WatchEvent};
use super::super::client::KubeApi;
use super::super::connect::connect;
use super::super::place::Cluster;
use crate::gcp::credentials::Credentials;

const JOB: &str = r#"{"kind":"PartialObjectMetadata","metadata":{"name":"cf-job-1","uid":"u1",
    "resourceVersion":"7","creationTimestamp":"2026-11-30T10:00:00Z",
    "labels":{"task_name":"fuzz","katabatch.dev/scheduler":"s1","x":"y"},
    "annotations":{"katabatch.dev/task":"zz"},"managedFields":[{"manager":"m"}]}}"#;

type Seen = Arc<Mutex<Vec<String>>>;

/// A client that gets these answers, and the requests that it made.
fn answering(answers: Vec<Response<Body>>) -> (KubeApi, Seen) {
    let seen: Seen = Arc::default();
    let answers = Arc::new(Mutex::new(VecDeque::from(answers)));
    let log = Arc::clone(&seen);
    let service = tower::service_fn(move |request: Request<Body>| {
        let accept = request.headers()["accept"].to_str().expect("text").to_owned();
        let line = format!("{} {} {accept}", request.method(), request.uri());
        log.lock().expect("a log").push(line);
        let answer = answers.lock().expect("answers").pop_front();
        async move { answer.ok_or_else(|| std::io::Error::other("cut off")) }
    });
    let client = kube::Client::new(service, "farm");
    (KubeApi::new(client, "farm", Duration::from_millis(2800)), seen)
}

fn answer(status: u16, body: &str) -> Response<Body> {
    Response::builder()
        .status(status)
        .body(Body::from(body.as_bytes().to_vec()))
        .expect("an answer")
}

async fn create(answers: Vec<Response<Body>>) -> (Result<JobFacts, ApiError>, Vec<String>) {
    let (api, seen) = answering(answers);
    let result = api.create_job("cf-job-1", b"{}".to_vec()).await;
    let seen = seen.lock().expect("a log").clone();
    (result, seen)
}

#[tokio::test]
async fn a_create_asks_for_metadata_only_and_bounds_the_server_too() {
    let (result, seen) = create(vec![answer(201, JOB)]).await;
    let job = result.expect("a Job");
    assert_eq!((job.name.as_str(), job.uid.as_str(), job.farm), ("cf-job-1", "u1", true));
    assert_eq!((job.task, job.scheduler.as_deref()), (None, Some("s1")));
    assert_eq!(
        seen,
        ["POST /apis/batch/v1/namespaces/farm/jobs?timeout=2800ms&fieldManager=katabatch \
          application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"]
    );
}

#[tokio::test]
async fn a_201_with_an_empty_or_broken_body_is_no_success() {
    for body in ["", "{", "{}", r#"{"metadata":{"name":"cf-job-1"}}"#] {
        let (result, seen) = create(vec![answer(201, body)]).await;
        let error = result.expect_err("not readable");
        assert_eq!((error.status, seen.len()), (Some(201), 1), "{body}");
    }
}

#[tokio::test]
async fn a_dead_token_is_tried_once_more_and_nothing_else_is() {
    let (result, seen) = create(vec![answer(401, ""), answer(201, JOB)]).await;
    assert!(result.is_ok() && seen.len() == 2);
    let (result, seen) = create(vec![answer(401, ""), answer(401, ""), answer(201, JOB)]).await;
    assert_eq!((result.expect_err("dead").status, seen.len()), (Some(401), 2));
    for status in [429, 500, 503, 504] {
        let (result, seen) = create(vec![answer(status, ""), answer(201, JOB)]).await;
        assert_eq!((result.expect_err("once").status, seen.len()), (Some(status), 1));
    }
}

#[tokio::test]
async fn a_wish_to_wait_comes_from_the_header_or_the_status() {
    let status = r#"{"kind":"Status","reason":"TooManyRequests","message":"slow",
        "details":{"retryAfterSeconds":9},"code":429}"#;
    let (result, _) = create(vec![answer(429, status)]).await;
    let error = result.expect_err("throttled");
    assert_eq!(
        (error.retry_after, error.reason.as_str()),
        (Some(Duration::from_secs(9)), "TooManyRequests")
    );
    let mut both = answer(429, status);
    both.headers_mut().insert("retry-after", "7".parse().expect("a header"));
    let (result, _) = create(vec![both]).await;
    assert_eq!(result.expect_err("throttled").retry_after, Some(Duration::from_secs(7)));
}

#[tokio::test]
async fn an_absent_job_is_none_only_on_the_servers_own_word() {
    let status =
        r#"{"kind":"Status","reason":"NotFound","message":"jobs \"a\" not found","code":404}"#;
    let (api, _) = answering(vec![answer(404, status), answer(404, "404 page not found")]);
    assert_eq!(api.get_job("cf-job-1").await, Ok(None));
    assert_eq!(api.get_job("cf-job-1").await.expect_err("no Status").status, Some(404));
}

#[tokio::test]
async fn a_watch_reads_lines_bookmarks_and_an_error_event() {
    use futures::StreamExt as _;
    let pod = r#"{"type":"ADDED","object":{"metadata":{"name":"p","resourceVersion":"8",
        "labels":{"app.kubernetes.io/name":"clusterfuzz-kata-job"},
        "ownerReferences":[{"kind":"Job","name":"j","uid":"u"}]}}}"#
        .replace('\n', "");
    let mark = r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#;
    let gone = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired",
        "message":"too old resource version"}}"#
        .replace('\n', "");
    let (api, seen) = answering(vec![answer(200, &format!("{pod}\n{mark}\n{gone}\n"))]);
    let watch = api.watch_pending_pods("5").await.expect("a watch");
    let events: Vec<_> = watch.collect().await;
    assert!(matches!(&events[0], Ok(WatchEvent::Applied(pod)) if pod.farm && pod.job.is_some()));
    assert_eq!(events[1], Ok(WatchEvent::Bookmark("9".into())));
    assert!(events[2].as_ref().expect_err("a 410").is_expired());
    let seen = seen.lock().expect("a log").remove(0);
    assert!(seen.contains("fieldSelector=status.phase%3DPending"), "{seen}");
    assert!(seen.contains("resourceVersion=5"), "{seen}");
}

async fn over_a_socket(address: &str) -> ApiError {
    // The first caller of a process installs it; a second finds it there.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let config = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}]\n\
         users: [{{name: u, user: {{token: t}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: u, namespace: farm}}}}]\n"
    );
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("kubeconfig");
    std::fs::write(&path, config).expect("a file");
    let cluster = Cluster { kubeconfig: Some(path), ..Cluster::default() };
    let found = connect(&cluster, &Credentials::anonymous()).await.expect("a client");
    let api = KubeApi::new(found.client, &found.namespace, Duration::from_millis(500));
    api.create_job("cf-job-1", b"{}".to_vec()).await.expect_err("no server")
}

#[tokio::test]
async fn a_refused_connection_was_never_sent_and_a_cut_or_silent_one_may_have_been() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let accepting = tokio::spawn(async move {
        let mut kept = Vec::new();
        for n in 0..2 {
            let (socket, _) = listener.accept().await.expect("a connection");
            if n == 0 {
                socket.readable().await.expect("a request");
            } else {
                kept.push(socket);
            }
        }
        (listener, kept)
    });
    assert_eq!(over_a_socket(&address).await.sent, Sent::Maybe, "cut off");
    assert_eq!(over_a_socket(&address).await.sent, Sent::Maybe, "silent");
    drop(accepting.await.expect("no panic"));
    assert_eq!(over_a_socket(&address).await.sent, Sent::Never, "refused");
}
