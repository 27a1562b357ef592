//! Outputs over a backend that takes everything.

use super::*;
use crate::backend::layered::{Below, CREATED, task, workload};
use crate::domain::outcome::HoldKind;
use crate::gcp::storage::fake::Bucket;

const DONE: Outcome = Outcome::Scheduled(Placed::Done);

fn signed(name: &str) -> Task {
    task(&format!("https://storage.googleapis.com/inputs/{name}?X-Goog-Signature=1"))
}

async fn submit(bucket: Bucket, tasks: &[Task]) -> (Vec<Outcome>, Arc<Below>) {
    let below = Below::new();
    let outputs = Outputs::over(below.clone(), Arc::new(bucket), "outputs".into());
    let outcomes = outputs.submit(&workload(Duration::from_secs(60), None), tasks).await;
    (outcomes, below)
}

#[tokio::test]
async fn a_task_whose_output_is_there_is_done_and_the_others_are_created() {
    let bucket = Bucket {
        there: ["gs://outputs/dir/1", "gs://outputs/3"].map(str::to_owned).into(),
        ..Bucket::default()
    };
    let tasks = [signed("dir%2F1"), signed("2"), task("gs://inputs/3"), task("https://h/3")];
    let (outcomes, below) = submit(bucket, &tasks).await;
    assert_eq!(outcomes, [DONE, CREATED, DONE, CREATED]);
    assert_eq!(below.inputs(), [tasks[1].input.reveal(), tasks[3].input.reveal()]);
}

#[tokio::test]
async fn a_look_that_fails_holds_the_backend_and_creates_nothing() {
    for (error, kind) in [
        (StorageError::Later("x".into()), HoldKind::StorageUnavailable),
        (StorageError::Forbidden("x".into()), HoldKind::Forbidden),
        (StorageError::Unauthenticated("x".into()), HoldKind::Unauthenticated),
        (StorageError::Refused("no bucket".into()), HoldKind::StorageRefused),
    ] {
        let bucket = Bucket { fails: Some(error), ..Bucket::default() };
        let (outcomes, below) = submit(bucket, &[signed("1")]).await;
        let [Outcome::Deferred(why)] = outcomes.as_slice() else { panic!("{outcomes:?}") };
        assert_eq!((why.scope, why.kind), (Scope::Backend, kind));
        assert!(below.inputs().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_that_gets_no_answer_ends() {
    let bucket = Bucket { hangs: true, ..Bucket::default() };
    let (outcomes, below) = submit(bucket, &[signed("1")]).await;
    let [Outcome::Deferred(why)] = outcomes.as_slice() else { panic!("{outcomes:?}") };
    assert_eq!(why.kind, HoldKind::StorageUnavailable);
    assert!(below.inputs().is_empty());
}

/// A message whose URL has died is not put away when its task has run.
#[tokio::test]
async fn a_backend_has_what_has_left_an_output() {
    let bucket = Bucket { there: ["gs://outputs/1".to_owned()].into(), ..Bucket::default() };
    let outputs = Outputs::over(Below::new(), Arc::new(bucket), "outputs".into());
    assert_eq!(outputs.has(&signed("1")).await, Ok(true));
    assert_eq!(outputs.has(&signed("2")).await, Ok(false));
}
