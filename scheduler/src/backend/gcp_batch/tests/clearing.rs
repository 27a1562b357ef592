//! A backend that was declared lost: what runs there is deleted.

use super::*;
use api::Fault;
use fake::Script;

#[tokio::test(start_paused = true)]
async fn all_that_is_not_over_is_deleted_and_counts_until_it_is_gone() {
    let site = Site::new();
    let backend = site.start();
    let unread = backend.clear().await.expect_err("nothing is known");
    assert_eq!(unread.kind, HoldKind::RoomUnknown);
    backend.look_once().await.expect("read");
    backend.submit(&site.workload, &tasks(0..2)).await;
    (0..3).for_each(|_| site.fake.live());
    backend.look_once().await.expect("read");
    backend.submit(&site.workload, &tasks(2..5)).await;
    backend.submit(&site.workload, &tasks(5..6)).await;

    assert_eq!(backend.clear().await, Ok(2));
    let going = backend.clear().await.expect_err("they are not gone yet");
    assert_eq!(going.kind, HoldKind::BeingDeleted);
    // Its tasks are neither there nor free, for the next process too.
    let held = backend.submit(&site.workload, &tasks(2..3)).await;
    assert_eq!(kinds(&held), ["Task being_deleted"]);
    let backend = site.ready().await;
    assert_eq!(backend.knows(&task(2)), None);
    assert_eq!(backend.has(&task(2)).await.expect_err("held").kind, HoldKind::BeingDeleted);
    assert_eq!(backend.has(&task(0)).await, Ok(true));

    site.fake.world().sweep();
    backend.look_once().await.expect("read");
    assert_eq!(backend.clear().await, Ok(0));
    assert_eq!(site.fake.sizes(), [2], "what is over stays");
    assert_eq!(backend.has(&task(2)).await, Ok(false));
    assert_eq!(kinds(&backend.submit(&site.workload, &tasks(2..3)).await), ["Created"]);
}

#[tokio::test(start_paused = true)]
async fn it_is_not_clear_while_a_job_may_still_come_to_be() {
    let site = Site::new();
    let backend = site.ready().await;
    site.fake.world().scripts.push_back(Script::Late(Duration::from_secs(60)));
    site.fake.world().gets_fail = Some(Fault::Lost);
    backend.submit(&site.workload, &tasks(0..3)).await;
    site.fake.world().gets_fail = None;
    let open = backend.clear().await.expect_err("an open plan");
    assert_eq!(open.kind, HoldKind::BackendFailed);
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(backend.clear().await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn one_that_does_not_lead_or_is_refused_says_so() {
    let site = Site::new();
    let started = site.ready().await;
    started.submit(&site.workload, &tasks(0..1)).await;
    site.fake.world().chaos = 1.0;
    let refused = started.clear().await.expect_err("faults");
    assert_eq!(refused.kind, HoldKind::BackendFailed);
    site.fake.world().chaos = 0.0;
    let (api, records) = (Arc::clone(&started.api), Arc::clone(&started.records));
    let (clock, settings) = (Arc::clone(&started.clock), started.settings.clone());
    let other = GcpBatch::new(api, records, clock, Arc::new(placing::Another), settings);
    other.look_once().await.expect("read");
    assert_eq!(other.clear().await.expect_err("another leads").kind, HoldKind::NotLeader);
    assert_eq!(started.clear().await, Ok(1));
}
