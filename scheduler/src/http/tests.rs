//! The endpoint's answers, by the router alone; the pipeline is played by the tests.

use std::sync::Mutex;

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::access::Access;
use super::*;
use crate::clock::{Clock, SystemClock};
use crate::config::http::TaskLimits;
use crate::domain::outcome::{Deferral, HoldKind, RejectKind, Rejection, Scope};
use crate::ledger::record::Record;
use crate::queue::push::PushQueue;
use crate::queue::{LeaseId, Queue};
use crate::status::Role;
use crate::why::{About, InCatalog};

struct Said(Mutex<Status>);

#[async_trait]
impl Source for Said {
    fn status(&self) -> Status {
        self.0.lock().expect("a status").clone()
    }

    fn stages(&self) -> Stages {
        Stages::default()
    }

    fn stopping(&self) -> bool {
        false
    }

    async fn why(&self, job_type: &JobType, command: Option<&str>) -> Option<Answer> {
        let at = ("2026-11-30T10:00:00Z".parse().expect("a time"), crate::why::Source::Scheduler);
        let about = command.map(|command| About {
            command: command.to_owned(),
            record: Record::default(),
            ends: Vec::new(),
            breaker: None,
        });
        let about = about.into_iter().collect();
        (job_type.as_str() != "unkept")
            .then(|| Answer::new(job_type.as_str(), at, InCatalog::Unknown, Vec::new(), about))
    }
}

struct World {
    router: Router,
    queue: Arc<PushQueue>,
    said: Arc<Said>,
}

fn world(limits: TaskLimits) -> World {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let queue = PushQueue::new("push".into(), Arc::clone(&clock));
    let status = Status { role: Role::Leader, can_create: true, ..Status::default() };
    let said = Arc::new(Said(Mutex::new(status)));
    let tasks = Tasks::new(Arc::clone(&queue), clock, Access::new(None, None), limits);
    let endpoint = Endpoint { source: Arc::clone(&said) as _, tasks: Some(tasks) };
    World { router: router(endpoint), queue, said }
}

struct Got {
    status: u16,
    kind: String,
    retry_after: Option<String>,
    body: String,
}

impl World {
    async fn send(&self, method: Method, path: &str, body: &str) -> Got {
        let request = Request::builder().method(method).uri(path).header("host", "localhost");
        let request = request.header("content-type", "application/json");
        self.ask(request.body(Body::from(body.to_owned())).expect("a request")).await
    }

    async fn ask(&self, request: Request<Body>) -> Got {
        let response = self.router.clone().oneshot(request).await.expect("an answer");
        let text = |name: &str| {
            let value = response.headers().get(name)?;
            Some(value.to_str().expect("text").to_owned())
        };
        let (status, kind) = (response.status().as_u16(), text("content-type").unwrap_or_default());
        let retry_after = text("retry-after");
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.expect("a body");
        let body = String::from_utf8(body.to_vec()).expect("text");
        Got { status, kind, retry_after, body }
    }

    async fn get(&self, path: &str) -> Got {
        self.send(Method::GET, path, "").await
    }

    async fn post(&self, body: &str) -> Got {
        self.send(Method::POST, "/v1/tasks", body).await
    }

    /// Plays the pipeline: leases `n` tasks and answers each by the last letter of its input.
    fn play(&self, n: usize) {
        let queue = Arc::clone(&self.queue);
        tokio::spawn(async move {
            let mut left = n;
            while left > 0 {
                let long = Duration::from_secs(9);
                for delivery in queue.lease(9, long, long).await.expect("a lease") {
                    left -= 1;
                    let last = delivery.attributes["argument"].chars().last();
                    answer(&queue, delivery.lease, last.unwrap_or(' ')).await;
                }
            }
        });
    }
}

async fn answer(queue: &PushQueue, lease: LeaseId, last: char) {
    match last {
        'd' => {
            let wait = Duration::from_secs(9);
            let why = Deferral::new(Scope::Backend, HoldKind::PendingLimit, "3 of 3 pending", wait);
            queue.defer(&[lease], &why).await;
        }
        'r' => {
            let why = Rejection::new(RejectKind::DeadUrl, "it is dead");
            queue.quarantine(&lease, &why).await.expect("quarantined");
        }
        // Never answered.
        'n' => {}
        _ => drop(queue.ack(&[lease]).await),
    }
}

fn tasks(urls: &[&str]) -> String {
    let task = |url: &&str| json!({"command": "fuzz", "job_type": "j", "input_url": url});
    json!({"tasks": urls.iter().map(task).collect::<Vec<_>>()}).to_string()
}

fn outcomes(got: &Got) -> Vec<Value> {
    assert_eq!((got.status, got.kind.as_str()), (200, "application/json"), "{}", got.body);
    let body: Value = serde_json::from_str(&got.body).expect("json");
    body["tasks"].as_array().expect("a list").clone()
}

#[tokio::test(start_paused = true)]
async fn each_task_has_its_own_outcome_in_the_order_in_which_they_were_posted() {
    let world = world(TaskLimits::default());
    world.play(3);
    let got = world.post(&tasks(&["gs://b/r", "gs://b/s", "no url", "gs://b/d"])).await;
    let outcomes = outcomes(&got);
    let shown: Vec<_> =
        outcomes.iter().map(|o| (o["outcome"].clone(), o["reason"].clone())).collect();
    let expect = [
        (json!("rejected"), json!("dead_url")),
        (json!("scheduled"), Value::Null),
        (json!("rejected"), json!("bad_url")),
        (json!("deferred"), json!("pending_limit")),
    ];
    assert_eq!(shown, expect);
    assert!(outcomes[1]["job"].as_str().is_some_and(|job| job.starts_with("cf-job-")));
    assert_eq!(outcomes[3]["retry_after_seconds"], json!(9));
    assert!(world.queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_the_pipeline_does_not_take_is_taken_back_with_the_reason() {
    let world = world(TaskLimits::default());
    world.said.0.lock().expect("a status").why_not = vec!["the fuse blew".to_owned()];
    let outcomes = outcomes(&world.post(&tasks(&["gs://b/s"])).await);
    assert_eq!(outcomes[0]["reason"], json!("not_taken"));
    assert_eq!(
        (&outcomes[0]["detail"], &outcomes[0]["maybe_created"]),
        (&json!("the fuse blew"), &json!(false))
    );
    assert!(world.queue.is_empty(), "nothing comes of it later");
}

#[tokio::test(start_paused = true)]
async fn a_task_without_an_answer_in_time_is_said_to_be_under_way() {
    let world = world(TaskLimits::default());
    world.play(1);
    let outcomes = outcomes(&world.post(&tasks(&["gs://b/n"])).await);
    assert_eq!(outcomes[0]["reason"], json!("under_way"));
    assert_eq!(outcomes[0]["maybe_created"], json!(true));
}

#[tokio::test(start_paused = true)]
async fn a_sender_that_goes_away_stops_nothing() {
    let world = world(TaskLimits::default());
    let (body, gone) = (tasks(&["gs://b/s"]), Duration::from_millis(10));
    let post = world.post(&body);
    assert!(tokio::time::timeout(gone, post).await.is_err());
    assert_eq!(world.queue.len(), 1);
    // It is delivered once, or once again after the first answer.
    world.play(2);
    let again = outcomes(&world.post(&body).await);
    assert_eq!(again[0]["outcome"], json!("scheduled"), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn errors_are_problem_details_with_the_right_status() {
    let limits = TaskLimits { body_bytes: 400, tasks: 2, requests_per_second: 100 };
    let world = world(limits);
    let many = tasks(&["gs://b/1", "gs://b/2", "gs://b/3"]);
    let long = tasks(&["gs://b/".repeat(100).as_str()]);
    for (got, status, expect) in [
        (world.post("{").await, 422, "no JSON"),
        (world.post(&many).await, 422, "send 1 to 2"),
        (world.post(&long).await, 413, "longer than 400 bytes"),
        (world.get("/v1/tasks").await, 405, "Allow"),
        (world.get("/nothing").await, 404, "nothing here"),
    ] {
        assert_eq!((got.status, got.kind.as_str()), (status, "application/problem+json"));
        let body: Value = serde_json::from_str(&got.body).expect("json");
        assert_eq!((&body["type"], &body["status"]), (&json!("about:blank"), &json!(status)));
        assert!(body["detail"].to_string().contains(expect), "{body}");
    }
    let plain = Request::post("/v1/tasks").header("host", "localhost").body(Body::from(many));
    assert_eq!(world.ask(plain.expect("a request")).await.status, 415);
    let elsewhere = Request::post("/v1/tasks").header("host", "evil.test").body(Body::empty());
    assert_eq!(world.ask(elsewhere.expect("a request")).await.status, 403);
}

#[tokio::test(start_paused = true)]
async fn a_standby_and_too_many_requests_say_when_to_come_again() {
    let world = world(TaskLimits { requests_per_second: 2, ..TaskLimits::default() });
    world.said.0.lock().expect("a status").role = Role::Standby;
    let got = world.post(&tasks(&["gs://b/s"])).await;
    assert_eq!((got.status, got.retry_after.as_deref()), (503, Some("5")), "{}", got.body);
    assert!(world.queue.is_empty());
    world.post("{").await;
    let got = world.post("{").await;
    assert_eq!((got.status, got.retry_after.as_deref()), (429, Some("1")), "{}", got.body);
}

#[tokio::test(start_paused = true)]
async fn health_metrics_and_status_are_served() {
    let world = world(TaskLimits::default());
    for (path, kind, expect) in [
        ("/livez", "text/plain; charset=utf-8", "ok"),
        ("/readyz", "text/plain; charset=utf-8", "ok"),
        ("/healthz/create", "text/plain; charset=utf-8", "ok"),
        ("/metrics", metrics::CONTENT_TYPE, "katabatch_can_create 1.0"),
        ("/v1/status", "application/json", "\"role\":\"leader\""),
        ("/openapi.json", "application/json", "\"openapi\": \"3.1.0\""),
    ] {
        let got = world.get(path).await;
        assert_eq!((got.status, got.kind.as_str()), (200, kind), "{path}");
        assert!(got.body.contains(expect), "{path}: {}", got.body);
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_can_post_tasks_unless_it_is_turned_on() {
    let World { said, queue, .. } = world(TaskLimits::default());
    let router = router(Endpoint { source: Arc::clone(&said) as _, tasks: None });
    let world = World { router, queue, said };
    let got = world.post(&tasks(&["gs://b/s"])).await;
    assert_eq!(got.status, 404, "{}", got.body);
    assert!(got.body.contains("http.tasks"), "{}", got.body);
}

/// The description names every path, and the limits that the implementation holds by default.
#[tokio::test(start_paused = true)]
async fn the_description_is_of_what_is_served() {
    let description: Value = serde_json::from_str(OPENAPI).expect("json");
    let paths = description["paths"].as_object().expect("paths");
    assert_eq!(paths.len(), 8, "a route was added or taken away");
    let world = world(TaskLimits::default());
    for path in paths.keys() {
        assert_ne!(world.get(path).await.status, 404, "{path}");
    }
    let most = &description["components"]["schemas"]["Tasks"]["properties"]["tasks"]["maxItems"];
    assert_eq!(most, &json!(TaskLimits::default().tasks));
}

#[tokio::test]
async fn why_a_job_type_does_not_run_is_answered_for_all_or_one_of_its_commands() {
    let world = world(TaskLimits::default());
    let ask = async |query: &str| world.send(Method::GET, &format!("/v1/why{query}"), "").await;
    let got = ask("?job_type=libfuzzer_x&command=fuzz").await;
    assert_eq!((got.status, got.kind.as_str()), (200, "application/json"));
    let answer: Answer = serde_json::from_str(&got.body).expect("an answer");
    assert_eq!(answer.job_type, "libfuzzer_x");
    assert_eq!(answer.sentences.first().expect("a sentence").state, "unknown_job_type");
    let commands: Vec<_> = answer.workloads.iter().map(|about| about.command.as_str()).collect();
    assert_eq!(commands, ["fuzz"]);
    for (query, status) in
        [("?job_type=a", 200), ("", 400), ("?job_type=a&b=c", 400), ("?job_type=unkept", 404)]
    {
        assert_eq!(ask(query).await.status, status, "{query}");
    }
}
