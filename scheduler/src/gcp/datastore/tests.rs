//! Chunks, pages, retries and refusals, on a Datastore in memory.

use gcloud_sdk::tonic::Code;
use proptest::prelude::*;

use super::fake::{Fake, entity, s};
use super::properties::key_name;
use super::*;

fn jobs(count: i64) -> Vec<Entity> {
    (0..count).map(|n| entity("Job", n, &[("name", s(&format!("job-{n:04}")))])).collect()
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("job-{n:04}")).collect()
}

async fn ask(fake: &Fake, names: &[String]) -> Result<Found, DatastoreError> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    fake.datastore().by_values("Job", "name", &names).await
}

#[tokio::test]
async fn thirty_one_names_are_two_queries_of_at_most_thirty_values_and_all_are_found() {
    let fake = Fake::holding(jobs(40));
    let found = ask(&fake, &names(31)).await.expect("found");
    assert!(found.entities.keys().eq(names(31).iter()));
    let mut sizes = fake.with(|state| state.queries.clone());
    sizes.sort_unstable();
    assert_eq!(sizes, [1, 30]);
}

#[tokio::test]
async fn for_very_many_names_the_kind_is_listed_once() {
    let fake = Fake::holding(jobs(1_000));
    let found = ask(&fake, &names(900)).await.expect("found");
    assert!(found.entities.keys().eq(names(900).iter()));
    assert_eq!(fake.with(|state| state.queries.clone()), [0; 4]);
}

#[tokio::test]
async fn where_in_is_not_known_each_name_is_asked_for_alone_and_in_is_not_tried_again() {
    let fake = Fake::holding(jobs(40));
    fake.with(|state| state.without_in = true);
    let datastore = fake.datastore();
    let names = names(31);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for _ in 0..2 {
        let found = datastore.by_values("Job", "name", &names).await.expect("found");
        assert_eq!((found.entities.len(), found.refused.len()), (31, 0));
    }
    assert_eq!(fake.with(|state| state.queries.clone()), [1; 62]);
}

#[tokio::test]
async fn a_name_that_datastore_refuses_is_its_own_fault_and_in_goes_on_for_the_others() {
    let fake = Fake::holding(jobs(100));
    fake.with(|state| state.refused = ["job-0003".to_owned()].into());
    let found = ask(&fake, &names(60)).await.expect("found");
    assert_eq!(found.entities.len(), 59);
    assert!(found.refused.keys().eq(["job-0003"]), "{:?}", found.refused);
    // The chunk of the bad name went one by one, the other did not.
    assert_eq!(fake.with(|state| state.queries.iter().max().copied()), Some(30));
    let alone = ask(&fake, &["job-0003".to_owned()]).await;
    assert!(matches!(alone, Err(DatastoreError::Refused(_))), "{alone:?}");
}

#[tokio::test]
async fn a_name_that_can_stand_in_no_index_is_absent_without_being_asked_for() {
    let fake = Fake::holding(jobs(1));
    let found = ask(&fake, &[String::new(), "x".repeat(1_501)]).await.expect("found");
    assert!(found.entities.is_empty() && found.refused.is_empty());
    assert!(fake.with(|state| state.queries.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn transient_failures_are_tried_again_a_bounded_number_of_times() {
    for code in [
        Code::Unavailable,
        Code::DeadlineExceeded,
        Code::Aborted,
        Code::ResourceExhausted,
        Code::Internal,
    ] {
        let fake = Fake::holding(jobs(1));
        fake.with(|state| state.failures = [Some(code); 3].into());
        assert_eq!(fake.datastore().all("Job").await.map(|all| all.len()), Ok(1), "{code:?}");
        fake.with(|state| state.failures = [Some(code); 9].into());
        let failed = fake.datastore().all("Job").await;
        assert!(matches!(failed, Err(DatastoreError::Unavailable(_))), "{failed:?}");
        assert_eq!(fake.with(|state| state.failures.len()), 5, "{code:?}");
    }
}

#[tokio::test]
async fn what_stays_wrong_is_not_tried_again_and_says_what_would_be_right() {
    for (code, expect) in [
        (Code::PermissionDenied, "grant this account roles/datastore.viewer in project p"),
        (Code::Unauthenticated, "roles/datastore.viewer"),
        (Code::NotFound, "(project p)"),
    ] {
        let fake = Fake::holding(jobs(1));
        fake.with(|state| state.failures = [Some(code)].into());
        let error = fake.datastore().all("Job").await.expect_err("refused");
        assert!(
            matches!(&error, DatastoreError::Refused(text) if text.contains(expect)),
            "{error}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_on_a_later_page_never_gives_fewer_entities() {
    let fake = Fake::holding(jobs(500));
    fake.with(|state| state.failures = [None, Some(Code::NotFound)].into());
    assert!(fake.datastore().all("Job").await.is_err());
    fake.with(|state| state.failures = [None, Some(Code::Unavailable)].into());
    assert_eq!(fake.datastore().all("Job").await.map(|all| all.len()), Ok(500));
}

#[tokio::test]
async fn entities_come_in_the_order_of_their_keys_whatever_the_order_of_the_answer() {
    let twin = |id, platform| entity("Job", id, &[("name", s("x")), ("platform", s(platform))]);
    let fake = Fake::holding(vec![twin(9, "LINUX"), twin(2, "ANDROID")]);
    let found = ask(&fake, &["x".to_owned()]).await.expect("found");
    let ids: Vec<_> = found.entities["x"].iter().map(properties::shown).collect();
    assert_eq!(ids, ["Job 2", "Job 9"]);
    assert_eq!(key_name(&found.entities["x"][0]), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn however_the_answer_is_cut_into_pages_all_entities_come_once(
        count in 0_i64..900, page in 0_usize..400
    ) {
        let fake = Fake::holding(jobs(count));
        fake.with(|state| state.page = page);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let all = runtime.block_on(fake.datastore().all("Job")).expect("all");
        prop_assert_eq!(all, jobs(count));
    }
}
