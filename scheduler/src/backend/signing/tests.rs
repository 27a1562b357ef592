//! Signing over a backend that takes everything.

use std::sync::Mutex;

use super::*;
use crate::backend::layered::{Below, CREATED, task, workload};
use crate::domain::input_url::InputUrl;
use crate::domain::outcome::HoldKind;

const HOUR: Duration = Duration::from_secs(3_600);

/// Signs, but for what it was told to fail with.
#[derive(Default)]
struct Signer {
    fails: Mutex<Option<StorageError>>,
    lifetimes: Mutex<Vec<Duration>>,
}

#[async_trait]
impl SignUrls for Signer {
    async fn sign(
        &self,
        object: &ObjectName,
        lifetime: Duration,
    ) -> Result<InputUrl, StorageError> {
        self.lifetimes.lock().expect("unpoisoned").push(lifetime);
        if let Some(error) = self.fails.lock().expect("unpoisoned").clone() {
            return Err(error);
        }
        let nth = self.lifetimes.lock().expect("unpoisoned").len();
        let host = "https://storage.googleapis.com";
        let url = format!("{host}/{}/{}?X-Goog-Signature=SECRET{nth}", object.bucket, object.name);
        Ok(InputUrl::parse(&url).expect("a URL"))
    }
}

#[tokio::test]
async fn a_path_reaches_the_backend_as_a_fresh_url_at_each_submission_and_stays_the_same_task() {
    let (below, signer) = (Below::new(), Arc::new(Signer::default()));
    let signing = Signing::over(below.clone(), signer);
    let path = task("gs://b/dir/o");
    for _ in 0..2 {
        let outcomes = signing.submit(&workload(HOUR, None), std::slice::from_ref(&path)).await;
        assert_eq!(outcomes, [CREATED]);
    }
    assert_eq!(
        below.inputs(),
        [
            "https://storage.googleapis.com/b/dir/o?X-Goog-Signature=SECRET1",
            "https://storage.googleapis.com/b/dir/o?X-Goog-Signature=SECRET2",
        ]
    );
    let got = below.got.lock().expect("unpoisoned").clone();
    assert!(got.iter().all(|task| task.hash == path.hash && task.job_name() == path.job_name()));
    assert!(!format!("{got:?}").contains("SECRET"), "{got:?}");
}

#[tokio::test]
async fn urls_pass_as_they_are_and_nothing_is_signed() {
    let (below, signer) = (Below::new(), Arc::new(Signer::default()));
    let signing = Signing::over(below.clone(), signer.clone());
    for url in ["https://storage.googleapis.com/b/o?X-Goog-Signature=1", "file:///o", "gs://b"] {
        assert_eq!(signing.submit(&workload(HOUR, None), &[task(url)]).await, [CREATED]);
        assert_eq!(below.inputs().pop().as_deref(), Some(url));
    }
    assert!(signer.lifetimes.lock().expect("unpoisoned").is_empty());
}

#[tokio::test]
async fn what_cannot_be_signed_is_held_alone_and_never_created_or_rejected() {
    for (error, kind) in [
        (StorageError::Later("x".into()), HoldKind::StorageUnavailable),
        (StorageError::Forbidden("grant it a role".into()), HoldKind::Forbidden),
        (StorageError::Unauthenticated("x".into()), HoldKind::Unauthenticated),
        (StorageError::Refused("x".into()), HoldKind::StorageRefused),
    ] {
        let (below, signer) = (Below::new(), Arc::new(Signer::default()));
        *signer.fails.lock().expect("unpoisoned") = Some(error.clone());
        let signing = Signing::over(below.clone(), signer);
        let tasks = [task("https://h/1"), task("gs://b/2"), task("https://h/3")];
        let outcomes = signing.submit(&workload(HOUR, None), &tasks).await;
        let [CREATED, Outcome::Deferred(why), CREATED] = outcomes.as_slice() else {
            panic!("{outcomes:?}")
        };
        assert_eq!((why.scope, why.kind), (Scope::Task, kind));
        assert!(why.detail.contains(&error.to_string()), "{}", why.detail);
        assert_eq!(below.inputs(), ["https://h/1", "https://h/3"]);
    }
}

#[test]
fn a_url_lives_for_wait_run_and_margin_and_seven_days_at_most() {
    let check = |duration, deadline, expect: Duration| {
        assert_eq!(lifetime(&workload(duration, deadline)), expect);
    };
    let margin = Duration::from_secs(900);
    check(6 * HOUR, None, 11 * HOUR + margin);
    check(24 * HOUR, None, 29 * HOUR + margin);
    check(6 * HOUR, Some(HOUR), 6 * HOUR + margin);
    check(24 * 30 * HOUR, None, 7 * 24 * HOUR);
    check(Duration::MAX, None, 7 * 24 * HOUR);
    assert!(lifetime(&workload(6 * HOUR, None)) < 12 * HOUR, "IAM's keys");
}
