//! Lost answers, restarts and redeliveries: each task in one job.

use super::*;
use api::Fault;
use fake::Script;
use serde_json::json;

/// Writes a plan and dies before the job is asked for, or right after.
async fn die(site: &Site, script: Option<Script>, count: usize) {
    let backend = site.ready().await;
    let all = tasks(0..count);
    let awaits = if script.is_some() { u32::MAX } else { 0 };
    site.fake.world().scripts.extend(script);
    site.fake.world().gets_fail = Some(Fault::Lost);
    // With in-memory records the first await of the fake is the create's.
    site.fake.world().crash_in = Some(awaits);
    tokio::select! {
        biased;
        outcomes = backend.submit(&site.workload, &all) => {
            assert_eq!(kinds(&outcomes), ["Backend backend_failed"]);
        }
        () = site.fake.crashed.notified() => assert!(script.is_none()),
    }
    site.fake.world().crash_in = None;
    site.fake.world().gets_fail = None;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_lost_is_settled_by_reading_the_job() {
    for script in [
        Script::Done(Fault::Lost),
        Script::Done(Fault::Failed),
        Script::Done(Fault::Exists),
        Script::Empty,
    ] {
        let site = Site::new();
        let backend = site.ready().await;
        site.fake.world().scripts.push_back(script);
        let outcomes = backend.submit(&site.workload, &tasks(0..3)).await;
        assert_eq!(kinds(&outcomes), ["Created"], "{script:?}");
        assert_eq!(site.fake.sizes(), [3]);
        assert_eq!(site.fake.world().asked.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_not_there_is_asked_for_again_under_the_same_ids() {
    for fault in [Fault::Lost, Fault::Failed] {
        let site = Site::new();
        let backend = site.ready().await;
        site.fake.world().scripts.push_back(Script::Fails(fault));
        let outcomes = backend.submit(&site.workload, &tasks(0..3)).await;
        assert_eq!(kinds(&outcomes), ["Created"]);
        let asked = site.fake.world().asked.clone();
        assert_eq!(asked.len(), 2);
        assert_eq!(asked[0], asked[1]);
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_between_plan_and_post_the_same_plan_is_asked_for() {
    let site = Site::new();
    die(&site, None, 3).await;
    assert!(
        site.fake.world().asked.is_empty() && site.records.all().await.expect("read").len() == 2
    );
    let backend = site.ready().await;
    let mut again = tasks(0..3);
    again.reverse();
    assert_eq!(kinds(&backend.submit(&site.workload, &again).await), ["Created"]);
    let first = site.records.all().await.expect("records").into_keys().next().expect("a plan");
    let asked = site.fake.world().asked.clone();
    assert!(first.ends_with(asked[0].id.as_str()), "{first} {asked:?}");
    assert_eq!(site.fake.sizes(), [3]);
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_behind_a_post_its_tasks_are_scheduled() {
    let site = Site::new();
    die(&site, Some(Script::Done(Fault::Lost)), 3).await;
    let backend = site.ready().await;
    let outcomes = backend.submit(&site.workload, &tasks(1..5)).await;
    assert_eq!(kinds(&outcomes), ["AlreadyThere", "Created"]);
    assert_eq!(site.fake.tasks().values().copied().collect::<Vec<_>>(), [1; 5]);
}

#[tokio::test(start_paused = true)]
async fn candidates_that_come_without_the_others_free_them() {
    let site = Site::new();
    die(&site, Some(Script::Fails(Fault::Lost)), 4).await;
    let backend = site.ready().await;
    // 0 comes back alone; 3 is quarantined elsewhere and never comes.
    assert_eq!(kinds(&backend.submit(&site.workload, &tasks(0..1)).await), ["Created"]);
    assert_eq!(
        kinds(&backend.submit(&site.workload, &tasks(0..3)).await),
        ["AlreadyThere", "Created"]
    );
    let jobs = site.fake.tasks();
    assert_eq!(jobs.len(), 3);
    assert!(jobs.values().all(|count| *count == 1), "{jobs:?}");
    // And another process sees it alike.
    let backend = site.ready().await;
    assert_eq!(kinds(&backend.submit(&site.workload, &tasks(0..3)).await), ["AlreadyThere"]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_lands_late_makes_no_second_run() {
    let site = Site::new();
    die(&site, Some(Script::Late(Duration::from_secs(5))), 3).await;
    let backend = site.ready().await;
    tokio::time::advance(Duration::from_secs(4)).await;
    assert_eq!(kinds(&backend.submit(&site.workload, &tasks(0..1)).await), ["Created"]);
    tokio::time::advance(Duration::from_secs(4)).await;
    backend.submit(&site.workload, &tasks(0..3)).await;
    assert_eq!(site.fake.tasks().values().copied().collect::<Vec<_>>(), [1; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_plan_for_which_nobody_comes_is_dropped_when_it_cannot_come_to_be() {
    let site = Site::new();
    die(&site, Some(Script::Fails(Fault::Lost)), 3).await;
    let backend = site.ready().await;
    let held = backend.has(&task(0)).await.expect_err("it can't be told");
    assert_eq!(held.kind, HoldKind::BackendFailed);
    assert_eq!(backend.room().borrow().free(), 100_000 - 3);
    tokio::time::advance(ledger::LATE + Duration::from_secs(1)).await;
    backend.look_once().await.expect("read");
    assert_eq!(backend.has(&task(0)).await, Ok(false));
    assert_eq!(backend.room().borrow().free(), 100_000);
    assert_eq!(site.records.all().await.expect("read").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_open_plan_binds_its_tasks_until_going_on_with_it_settles_them() {
    let site = Site::new();
    die(&site, Some(Script::Fails(Fault::Lost)), 3).await;
    let backend = site.ready().await;
    let bound = |n| backend.binds(&task(n));
    assert_eq!([bound(0), bound(2), bound(3)], [true, true, false]);
    assert_eq!(kinds(&backend.submit(&site.workload, &tasks(0..2)).await), ["Created"]);
    assert_eq!([bound(0), bound(2)], [false, false], "one is there, the other certainly nowhere");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_comes_again_long_after_its_plan_is_found_in_its_job() {
    let site = Site::new();
    let backend = site.ready().await;
    backend.submit(&site.workload, &tasks(0..5)).await;
    backend.look_once().await.expect("read");
    // The plan is closed: nothing of it is left in the records.
    let records = site.records.all().await.expect("records");
    assert!(records.keys().all(|key| key.ends_with("parents")), "{records:?}");
    (0..3).for_each(|_| site.fake.live());
    tokio::time::advance(Duration::from_secs(20 * 3_600)).await;
    let backend = site.ready().await;
    assert_eq!(kinds(&backend.submit(&site.workload, &tasks(2..3)).await), ["AlreadyThere"]);
    assert_eq!((backend.has(&task(4)).await, backend.has(&task(5)).await), (Ok(true), Ok(false)));
    tokio::time::advance(Duration::from_secs(7 * 3_600)).await;
    backend.look_once().await.expect("read");
    assert_eq!(backend.has(&task(4)).await, Ok(false));
}

#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_read_stops_everything() {
    let site = Site::new();
    let key = plan::Keys::of(&"batch".into()).plan(&JobId::random([3; 16]));
    site.records.write(&[(key.clone(), Some("{".into()))]).await.expect("written");
    let backend = site.start();
    assert!(backend.look_once().await.expect_err("unreadable").contains(&key));
    let outcomes = backend.submit(&site.workload, &tasks(0..1)).await;
    assert_eq!(kinds(&outcomes), ["Backend room_unknown"]);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_somebody_deleted_gives_its_room_back() {
    let site = Site::new();
    let backend = site.ready().await;
    backend.submit(&site.workload, &tasks(0..5)).await;
    backend.look_once().await.expect("read");
    site.fake.world().jobs.clear();
    backend.look_once().await.expect("read");
    assert_eq!(backend.room().borrow().free(), 100_000);
}

#[tokio::test(start_paused = true)]
async fn ends_are_told_by_kind_page_by_page() {
    use crate::domain::end::EndKind;
    let site = Site::new();
    let backend = site.ready().await;
    backend.submit(&site.workload, &tasks(0..5)).await;
    let failed = |code: i32| {
        json!({"status": {"state": "FAILED", "statusEvents": [
            {"description": "it failed", "taskExecution": {"exitCode": code}}]}})
    };
    let some =
        json!([failed(50_001), failed(1), failed(50_001), {"status": {"state": "SUCCEEDED"}}]);
    for (told, expect) in [
        (
            some,
            vec![
                (EndKind::Succeeded, 1),
                (EndKind::TaskFailure, 1),
                (EndKind::Preempted, 2),
                (EndKind::NeverStarted, 1),
            ],
        ),
        (json!([]), vec![(EndKind::NeverStarted, 5)]),
    ] {
        let (parent, id) = {
            let mut world = site.fake.world();
            let (key, job) = world.jobs.iter_mut().next().expect("a job");
            job["status"] = json!({"state": "FAILED", "statusEvents": [
                {"description": "Job state is set from QUEUED to FAILED"}]});
            job["tasks"] = told;
            key.clone()
        };
        let ends = backend.ends_of(&parent, &id).await.expect("ends");
        let tasks: BTreeSet<_> = ends.iter().map(|end| end.task).collect();
        assert_eq!(tasks.len(), 5, "one end a task");
        let mut counts = std::collections::BTreeMap::new();
        ends.iter().for_each(|end| *counts.entry(end.verdict.kind).or_insert(0) += 1);
        assert_eq!(counts.into_iter().collect::<Vec<_>>(), expect);
        assert!(ends.iter().all(|end| end.key.job_type.as_str() == "a" && end.job == id.as_str()));
    }
}
