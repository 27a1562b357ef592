//! Flags as ndb writes them, and changes of them.

use std::collections::VecDeque;

use gcloud_sdk::tonic::Code;

use super::*;
use crate::gcp::datastore::fake::{Fake, entity, named, s};

fn store(fake: &Fake) -> DatastoreFlags {
    DatastoreFlags::new(fake.datastore())
}

fn weight(value: ValueType) -> Entity {
    named(
        KIND,
        "k8s_jobs_frequency",
        &[
            ("enabled", ValueType::BooleanValue(true)),
            ("value", value),
            ("string_value", ValueType::NullValue(0)),
            ("description", s("share of the tasks")),
        ],
    )
}

async fn only(entity: Entity) -> Result<Flag, FlagsError> {
    let flags = store(&Fake::holding(vec![entity])).read().await?;
    Ok(flags.0.get("k8s_jobs_frequency").cloned().unwrap_or_default())
}

#[tokio::test]
async fn an_integer_weight_is_a_number_and_null_is_none() {
    for (value, expect, integer) in [
        (ValueType::IntegerValue(1), Some(1.0), true),
        (ValueType::DoubleValue(0.5), Some(0.5), false),
        (ValueType::DoubleValue(-1.0), Some(-1.0), false),
        (ValueType::NullValue(0), None, false),
    ] {
        let flag = only(weight(value)).await.expect("a flag");
        assert_eq!((flag.enabled, flag.value, flag.integer), (true, expect, integer));
    }
    let nan = only(weight(ValueType::DoubleValue(f64::NAN))).await.expect("a flag");
    assert!(nan.value.is_some_and(f64::is_nan), "for the gate to judge");
}

#[tokio::test]
async fn a_flag_that_cannot_be_read_is_an_error_and_never_fewer_flags() {
    let error = only(weight(s("1"))).await.expect_err("an error").to_string();
    assert!(error.contains("FeatureFlag `k8s_jobs_frequency`: `value` is text"), "{error}");
    let fake = Fake::holding(vec![weight(ValueType::IntegerValue(1))]);
    fake.with(|state| state.failures = [Some(Code::PermissionDenied)].into());
    assert!(store(&fake).read().await.is_err());
    let unnamed = entity(KIND, 7, &[("value", s("no flag: flags are found by name"))]);
    assert_eq!(only(unnamed).await, Ok(Flag::default()));
}

#[tokio::test]
async fn a_change_keeps_all_else_writes_a_float_and_tells_what_was() {
    let fake = Fake::holding(vec![weight(ValueType::IntegerValue(1))]);
    let change = Change { value: Some(Some(0.0)), ..Change::default() };
    let (before, after) = store(&fake).set("k8s_jobs_frequency", &change).await.expect("set");
    assert_eq!(before.and_then(|flag| flag.value), Some(1.0));
    assert_eq!((after.enabled, after.value), (true, Some(0.0)));
    let mut expect = weight(ValueType::DoubleValue(0.0));
    let stored = fake.with(|state| state.entities.clone()).pop().expect("an entity");
    expect.key.clone_from(&stored.key);
    assert_eq!(stored, expect);
    let unset = Change { value: Some(None), ..Change::default() };
    let (_, after) = store(&fake).set("k8s_jobs_frequency", &unset).await.expect("set");
    assert_eq!(after.value, None);
}

#[tokio::test]
async fn a_flag_that_is_not_there_is_made_only_where_it_is_said_whether_it_counts() {
    let fake = Fake::holding(vec![weight(ValueType::NullValue(0))]);
    let mut change = Change { value: Some(Some(5.0)), ..Change::default() };
    let error = store(&fake).set("k8s_job_frequency", &change).await.expect_err("none");
    assert_eq!(
        error.to_string(),
        "there is no flag `k8s_job_frequency`; did you mean `k8s_jobs_frequency`?"
    );
    assert_eq!(fake.with(|state| state.entities.len()), 1);
    change.enabled = Some(true);
    let (before, after) = store(&fake).set("limit", &change).await.expect("made");
    assert_eq!((before, after.enabled, after.value), (None, true, Some(5.0)));
    let flags = store(&fake).read().await.expect("flags");
    assert_eq!(flags.0.get("limit"), Some(&after));
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_tried_again_and_a_lost_answer_does_not_hide_what_was_before() {
    for commits in [
        vec![(Code::Aborted, false)],
        vec![(Code::Aborted, false), (Code::Aborted, false), (Code::Unavailable, false)],
        vec![(Code::Unavailable, true)],
        vec![(Code::DeadlineExceeded, true)],
    ] {
        let fake = Fake::holding(vec![weight(ValueType::DoubleValue(1.0))]);
        fake.with(|state| state.commits = VecDeque::from(commits.clone()));
        let change = Change { value: Some(Some(0.5)), ..Change::default() };
        let (before, after) = store(&fake).set("k8s_jobs_frequency", &change).await.expect("set");
        assert_eq!(before.and_then(|flag| flag.value), Some(1.0), "{commits:?}");
        assert_eq!(after.value, Some(0.5));
        assert_eq!(fake.with(|state| state.open), 0, "a transaction left open keeps its locks");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_others_keep_coming_before_is_made_in_the_end_or_given_up_after_a_minute() {
    let change = Change { value: Some(Some(0.5)), ..Change::default() };
    let fake = Fake::holding(vec![weight(ValueType::DoubleValue(1.0))]);
    fake.with(|state| state.commits = vec![(Code::Aborted, false); 15].into());
    store(&fake).set("k8s_jobs_frequency", &change).await.expect("set");
    fake.with(|state| state.commits = vec![(Code::Aborted, false); 999].into());
    let begun = tokio::time::Instant::now();
    store(&fake).set("k8s_jobs_frequency", &change).await.expect_err("contended for ever");
    assert!((60..70).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    assert_eq!(fake.with(|state| state.open), 0);
    // A change that is refused, and one that can't read, leave nothing locked either.
    fake.with(|state| state.commits.clear());
    store(&fake).set("no_such_flag", &change).await.expect_err("no such flag");
    fake.with(|state| state.failures = [None, Some(Code::PermissionDenied)].into());
    store(&fake).set("k8s_jobs_frequency", &change).await.expect_err("forbidden");
    assert_eq!(fake.with(|state| state.open), 0);
}
