//! One process of a scheduler at a time creates, whatever becomes of the others.

use std::pin::pin;

use tokio::time::{Instant, sleep};

use super::super::fake::{Fault, Verb};
use super::*;

const LEASE: &str = "katabatch-s1";
const SECOND: Duration = Duration::from_secs(1);
/// A record must stand unchanged for so long to have expired.
const EXPIRES: Duration = Duration::from_secs(10);
/// How long after its last good renewal a leader creates.
const CREATES: Duration = Duration::from_secs(7);

fn down() -> Option<Fault> {
    Some(Fault::Refuse(error(503, "ServiceUnavailable", "not now")))
}

fn holder(cluster: &FakeCluster) -> String {
    cluster.lease(LEASE).map(|lease| lease.holder).unwrap_or_default()
}

/// Waits until the Lease was renewed just now.
async fn renewed(cluster: &FakeCluster) -> Instant {
    let before = cluster.lease(LEASE);
    while cluster.lease(LEASE) == before {
        sleep(Duration::from_millis(1)).await;
    }
    Instant::now()
}

async fn lost_lease(farm: Farm) -> String {
    match timeout(DEADLINE, farm.running).await.expect("an end").expect("no panic") {
        Err(Fatal::LostLease { why, .. }) => why,
        other => panic!("expected a lost Lease, got {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_process_knows_no_room_while_the_first_one_leads() {
    let first = Farm::fresh().await;
    let second = Farm::begin(first.cluster.clone(), settings());
    sleep(60 * SECOND).await;
    let why = second.room_unknown().await;
    let text = format!("another process of this scheduler leads: {}", holder(&first.cluster));
    assert_eq!(why, text);
    check_deferred(&second.submit_one(1).await, Scope::Backend, HoldKind::RoomUnknown);
    assert_eq!(first.submit_one(1).await, CREATED);
    assert_eq!(first.cluster.calls(Verb::ListJobs), 1, "who doesn't lead needs no lists");
}

#[tokio::test(start_paused = true)]
async fn it_takes_over_within_15_seconds_of_a_crash_and_counts_what_the_first_one_sent_last() {
    for crash_after in [0, 500, 1_000, 1_500, 1_999] {
        let first = Farm::start(new_cluster(), settings()).await;
        let second = Farm::begin(first.cluster.clone(), settings());
        let was = holder(&first.cluster);
        sleep(20 * SECOND + Duration::from_millis(crash_after)).await;
        // Sent by a leader that dies with it: it lands as late as it can.
        let late = Duration::from_millis(2_800);
        let begin = Instant::now();
        let cluster = first.cluster.clone();
        cluster.script(Verb::CreateJob, [Fault::Late(ApiError::lost("timed out"))]);
        let mut sent = Box::pin(async { first.submit(&tasks(1)).await });
        assert!(futures::poll!(sent.as_mut()).is_pending());
        while cluster.calls(Verb::CreateJob) == 0 {
            let _ = timeout(Duration::from_millis(1), sent.as_mut()).await;
        }
        drop(sent);
        first.crash().await;
        second.until(|cluster| holder(cluster) != was).await;
        let taken = Instant::now();
        let lists = cluster.calls(Verb::ListJobs);
        sleep(late - Duration::from_millis(200)).await;
        assert_eq!(cluster.calls(Verb::ListJobs), lists, "it lists before they have landed");
        cluster.land_late();
        assert_eq!(second.room(|_| true).await.pending, 1);
        // It was looked at every 100 ms.
        assert!(taken.elapsed() >= late - SECOND / 10, "{:?}", taken.elapsed());
        assert!(begin.elapsed() <= 15 * SECOND, "{:?}", begin.elapsed());
        assert_eq!(second.submit_one(0).await, THERE);
    }
}

#[tokio::test(start_paused = true)]
async fn when_renewals_fail_the_old_leader_stops_before_a_new_one_may_start() {
    let first = Farm::fresh().await;
    let second = Farm::begin(first.cluster.clone(), settings());
    sleep(20 * SECOND).await;
    let last = renewed(&first.cluster).await;
    first.cluster.always(Verb::PutLease, down());
    let (mut stopped, mut n) = (None, 0);
    while last.elapsed() < EXPIRES - SECOND {
        n += 1;
        let at = last.elapsed();
        match first.submit_one(n).await {
            Outcome::Scheduled(_) => assert!(stopped.is_none() && at < CREATES, "{at:?}"),
            outcome => {
                check_deferred(&outcome, Scope::Backend, HoldKind::NotLeader);
                assert_eq!(deferral(&outcome).retry_after, SECOND);
                stopped.get_or_insert(at);
            }
        }
        sleep(Duration::from_millis(100)).await;
    }
    let stopped = stopped.expect("it stopped");
    assert!(stopped < CREATES + SECOND && stopped + SECOND > CREATES, "{stopped:?}");
    assert_eq!(first.room(|_| true).await.pending, first.cluster.made_in_all());
    let made = first.cluster.made_in_all();
    let cluster = first.cluster.clone();
    assert_eq!(lost_lease(first).await, "its Lease was not renewed for 10 s");
    cluster.always(Verb::PutLease, None);
    assert_eq!(second.room(|_| true).await.pending, made);
    let passed = last.elapsed();
    assert!(passed >= EXPIRES + settings().request_timeout, "{passed:?}");
    assert_eq!(second.submit_one(0).await, CREATED);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_leader_that_wakes_sends_nothing_and_ends() {
    // The whole process is polled by hand; it has got room and waits for the rate's next slot.
    let settings = || Settings { creates_per_second: Some(1), ..settings() };
    let first = Farm::begin(new_cluster(), settings());
    let second = Farm::begin(first.cluster.clone(), settings());
    first.running.abort();
    second.running.abort();
    let (shutdown, cluster) = (CancellationToken::new(), first.cluster.clone());
    let mut running = pin!(first.backend.run(shutdown));
    tokio::select! {
        biased;
        _ = running.as_mut() => panic!("it ended"),
        _ = first.room(|_| true) => {}
    }
    let (workload, two) = (workload(), tasks(2));
    let mut submission = pin!(first.backend.submit(&workload, &two));
    while cluster.made_in_all() == 0 {
        let _ = timeout(Duration::from_millis(1), submission.as_mut()).await;
    }
    let was = holder(&cluster);
    let second = Farm::start(cluster.clone(), settings()).await;
    assert_ne!(holder(&cluster), was);
    let outcomes = submission.await;
    assert_eq!(count(&outcomes, &CREATED), 1);
    check_deferred(&outcomes[1], Scope::Backend, HoldKind::NotLeader);
    assert_eq!(cluster.calls(Verb::CreateJob), 1, "it sent one after it woke");
    let ended = running.await.expect_err("it must not go on");
    assert!(matches!(ended, Fatal::LostLease { .. }), "{ended}");
    assert_eq!(second.submit_one(1).await, CREATED);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_leader_whose_lease_nobody_took_ends_all_the_same() {
    let first = Farm::fresh().await;
    tokio::time::advance(20 * SECOND).await;
    assert_eq!(deferral(&first.submit_one(1).await).scope, Scope::Backend);
    assert_eq!(first.cluster.calls(Verb::CreateJob), 0);
    assert_eq!(lost_lease(first).await, "its Lease was not renewed for 10 s");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_lets_go_of_the_lease_and_the_next_one_starts_at_once() {
    let first = Farm::fresh().await;
    let second = Farm::begin(first.cluster.clone(), settings());
    first.submit(&tasks(3)).await;
    sleep(20 * SECOND).await;
    first.shut_down().await;
    let begin = Instant::now();
    assert_eq!(second.room(|_| true).await.pending, 3);
    assert!(begin.elapsed() < 2 * SECOND, "{:?}", begin.elapsed());
    let cluster = second.shut_down().await;
    let begin = Instant::now();
    Farm::start(cluster, settings()).await;
    assert!(begin.elapsed() < SECOND, "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_keeps_the_lease_until_a_create_without_an_answer_has_landed() {
    let first = Farm::fresh().await;
    let (cluster, begin) = (first.cluster.clone(), Instant::now());
    cluster.script(Verb::CreateJob, [Fault::Late(ApiError::lost("timed out"))]);
    cluster.always(Verb::GetJob, down());
    let outcome = first.submit_one(1).await;
    check_deferred(&outcome, Scope::Task, HoldKind::BackendFailed);
    let second = Farm::begin(cluster.clone(), settings());
    first.shut_down().await;
    assert!(begin.elapsed() >= settings().request_timeout, "{:?}", begin.elapsed());
    cluster.land_late();
    assert_eq!(second.room(|_| true).await.pending, 1);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_another_holds_ends_the_process_without_touching_it() {
    let first = Farm::fresh().await;
    let cluster = first.cluster.clone();
    cluster.set_lease(LEASE, "somebody");
    assert_eq!(lost_lease(first).await, "`somebody` holds its Lease");
    assert_eq!(holder(&cluster), "somebody");
}

#[tokio::test(start_paused = true)]
async fn renewals_whose_answers_are_lost_renew_all_the_same() {
    let first = Farm::fresh().await;
    let lost = Fault::DoneThen(ApiError::lost("the connection closed"));
    for _ in 0..20 {
        first.cluster.script(Verb::PutLease, [lost.clone()]);
        sleep(3 * SECOND).await;
    }
    assert!(!first.running.is_finished());
    assert_eq!(first.submit_one(1).await, CREATED);
}
