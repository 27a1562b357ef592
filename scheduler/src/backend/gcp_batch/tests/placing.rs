//! Where tasks go, and what is said of those that go nowhere.

use super::*;
use api::Fault;
use fake::Script;

/// Another process leads.
pub struct Another;

impl Leadership for Another {
    fn may_create(&self) -> bool {
        false
    }

    fn since(&self) -> Option<Timestamp> {
        None
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_holds_at_most_999_tasks_and_one_task_a_node() {
    for (count, sizes) in [(999, vec![999]), (1_000, vec![1, 999]), (1_999, vec![1, 999, 999])] {
        let site = Site::new();
        let backend = site.ready().await;
        let outcomes = backend.submit(&site.workload, &tasks(0..count)).await;
        assert_eq!(kinds(&outcomes), ["Created"], "{count}");
        let mut made = site.fake.sizes();
        made.sort_unstable();
        assert_eq!(made, sizes);
        assert!(site.fake.tasks().values().all(|jobs| *jobs == 1));
        for job in site.fake.world().jobs.values() {
            assert_eq!(job["taskGroups"][0]["taskCountPerNode"], "1");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_mapping_whose_regions_are_full_goes_back_alone() {
    let site = Site::new();
    let (a, b) = (
        workload("a", &[("r1", 1.0), ("r2", 1.0)], &["r1", "r2"]),
        workload("b", &[("r1", 1.0)], &[]),
    );
    site.fake.world().counts.extend([("r1".to_owned(), Ok(100)), ("r2".to_owned(), Ok(250))]);
    let backend = site.ready().await;
    let full = backend.submit(&a, &tasks(0..3)).await;
    assert_eq!(kinds(&full), ["Workload regions_full"]);
    assert_eq!(kinds(&backend.submit(&b, &tasks(3..5)).await), ["Created"]);
    assert_eq!(site.fake.sizes(), [2]);
}

#[tokio::test(start_paused = true)]
async fn counts_are_used_for_a_minute_and_listing_stands_in_for_them() {
    let mut site = Site::new();
    site.workload = workload("a", &[("r1", 1.0)], &["r1"]);
    let backend = site.ready().await;
    site.fake.world().counts.insert("r1".into(), Ok(99));
    for n in 0..3 {
        assert_eq!(kinds(&backend.submit(&site.workload, &tasks(n..n + 1)).await), ["Created"]);
    }
    assert_eq!(site.fake.world().counted, 1);
    tokio::time::advance(Duration::from_secs(61)).await;
    backend.look_once().await.expect("read");
    site.fake.world().counts.insert("r1".into(), Err(Fault::NotFound));
    assert_eq!(kinds(&backend.submit(&site.workload, &tasks(3..4)).await), ["Created"]);
    tokio::time::advance(Duration::from_secs(61)).await;
    backend.look_once().await.expect("read");
    site.fake.world().lists_fail = Some(Fault::Forbidden);
    let outcomes = backend.submit(&site.workload, &tasks(4..5)).await;
    assert_eq!(kinds(&outcomes), ["Workload regions_full"]);
}

#[tokio::test(start_paused = true)]
async fn a_region_without_weight_is_never_chosen_and_others_by_their_weights() {
    let mut site = Site::new();
    site.workload = workload("a", &[("r0", 0.0), ("r1", 1.0), ("r2", 3.0)], &[]);
    let backend = site.ready().await;
    for n in 0..120 {
        backend.submit(&site.workload, &tasks(n..n + 1)).await;
        backend.look_once().await.expect("read");
        backend.submit(&site.workload, &tasks(n..n + 1)).await;
    }
    let of = |region: &str| {
        let world = site.fake.world();
        world.jobs.keys().filter(|(parent, _)| parent.ends_with(region)).count()
    };
    assert_eq!((of("r0"), of("r1") + of("r2")), (0, 120));
    assert!((70..110).contains(&of("r2")), "{}", of("r2"));
}

#[tokio::test(start_paused = true)]
async fn never_more_than_the_pending_limit_and_nothing_while_it_is_not_known() {
    let mut site = Site::new();
    site.pending = 10;
    let backend = site.start();
    let unread = backend.submit(&site.workload, &tasks(0..4)).await;
    assert_eq!(kinds(&unread), ["Backend room_unknown"]);
    backend.look_once().await.expect("read");
    let outcomes = backend.submit(&site.workload, &tasks(0..14)).await;
    assert_eq!(kinds(&outcomes), ["Created", "Backend pending_limit"]);
    assert_eq!(site.fake.sizes(), [10]);
    assert_eq!(backend.room().borrow().free(), 0);
    site.fake.live();
    site.fake.live();
    backend.look_once().await.expect("read");
    assert_eq!(backend.room().borrow().free(), 10);
    site.fake.world().lists_fail = Some(Fault::Failed);
    tokio::time::advance(Duration::from_secs(91)).await;
    backend.look_once().await.expect_err("lists fail");
    let stale = backend.submit(&site.workload, &tasks(14..15)).await;
    assert_eq!(kinds(&stale), ["Backend room_unknown"]);
    assert_eq!(site.fake.world().asked.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn each_refusal_says_whom_it_concerns_and_leaves_no_plan() {
    for (fault, expect) in [
        (Fault::Throttled(None), "Backend throttled"),
        (Fault::Forbidden, "Backend forbidden"),
        (Fault::Unauthenticated, "Backend unauthenticated"),
        (Fault::NotFound, "Workload bad_mapping"),
        (Fault::Refused, "Workload job_refused"),
        (Fault::NotSent, "Backend backend_failed"),
    ] {
        let site = Site::new();
        let backend = site.ready().await;
        site.fake.world().scripts.push_back(Script::Fails(fault));
        let outcomes = backend.submit(&site.workload, &tasks(0..2)).await;
        assert_eq!(kinds(&outcomes), [expect]);
        let Outcome::Deferred(why) = &outcomes[0] else { panic!("{outcomes:?}") };
        assert!(!why.detail.contains("abc"), "{}", why.detail);
        // A job of its own, as nothing binds them to the refused one.
        assert_eq!(kinds(&backend.submit(&site.workload, &tasks(1..3)).await), ["Created"]);
        assert_eq!(kinds(&backend.submit(&site.workload, &tasks(0..1)).await), ["Created"]);
        backend.look_once().await.expect("read");
        let left = site.records.all().await.expect("records");
        assert!(left.keys().all(|key| key.ends_with("parents")), "{left:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_the_server_asks_for_is_kept() {
    let site = Site::new();
    let backend = site.ready().await;
    let after = Duration::from_secs(7);
    site.fake.world().scripts.push_back(Script::Fails(Fault::Throttled(Some(after))));
    let outcomes = backend.submit(&site.workload, &tasks(0..1)).await;
    assert!(matches!(&outcomes[0], Outcome::Deferred(why) if why.retry_after == after));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_may_not_create_sends_nothing() {
    let site = Site::new();
    let started = site.start();
    let settings = started.settings.clone();
    let (api, records) = (Arc::clone(&started.api), Arc::clone(&started.records));
    let clock = Arc::clone(&started.clock);
    let backend = GcpBatch::new(api, records, clock, Arc::new(Another), settings);
    backend.look_once().await.expect("read");
    let outcomes = backend.submit(&site.workload, &tasks(0..1)).await;
    assert_eq!(kinds(&outcomes), ["Backend not_leader"]);
    assert!(site.fake.world().asked.is_empty());
}
