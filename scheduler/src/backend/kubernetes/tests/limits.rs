//! How much may be created.

use std::time::Duration;

use super::super::api::{ApiError, JobFacts, Progress};
use super::super::fake::{Fault, Verb};
use super::*;

fn limited(pending: usize) -> Settings {
    Settings { pending_limit_default: pending, ..settings() }
}

#[tokio::test(start_paused = true)]
async fn one_place_left_for_three_thousand_tasks_makes_one_job() {
    let cluster = new_cluster();
    for n in 0..999 {
        cluster.add_loose_pod(&format!("kata-{n}"), true);
    }
    let farm = Farm::start(cluster, limited(1000)).await;
    let outcomes = farm.submit(&tasks(3000)).await;
    assert_eq!((count(&outcomes, &CREATED), farm.cluster.calls(Verb::CreateJob)), (1, 1));
    for outcome in outcomes.iter().filter(|outcome| **outcome != CREATED) {
        check_deferred(outcome, Scope::Backend, HoldKind::PendingLimit);
    }
    assert_eq!(farm.cluster.most_pending(), 1000);
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_zero_creates_nothing() {
    let farm = Farm::fresh().await;
    farm.backend.set_pending_limit(0);
    check_deferred(&farm.submit_one(1).await, Scope::Backend, HoldKind::PendingLimit);
    assert_eq!(farm.cluster.calls(Verb::CreateJob), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lowered_limit_stops_what_waits_for_its_turn() {
    let slow = Settings { creates_per_second: Some(10), ..settings() };
    let farm = Farm::start(new_cluster(), slow).await;
    let (all, lower) = (tasks(200), async {
        farm.until(|cluster| cluster.calls(Verb::CreateJob) >= 20).await;
        farm.backend.set_pending_limit(30);
    });
    let (outcomes, ()) = tokio::join!(farm.submit(&all), lower);
    // Two more may have been on their way.
    let made = count(&outcomes, &CREATED);
    assert!((30..=32).contains(&made), "{made}");
    assert_eq!(farm.cluster.calls(Verb::CreateJob), made);
    for outcome in outcomes.iter().filter(|outcome| **outcome != CREATED) {
        check_deferred(outcome, Scope::Backend, HoldKind::PendingLimit);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_list_that_fails_creates_nothing() {
    let cluster = new_cluster();
    let down = error(503, "ServiceUnavailable", "the server is currently unable");
    cluster.always(Verb::ListPods, Some(Fault::Refuse(down)));
    let farm = Farm::begin(cluster, settings());
    farm.until(|cluster| cluster.calls(Verb::ListPods) >= 3).await;
    check_deferred(&farm.submit_one(1).await, Scope::Backend, HoldKind::RoomUnknown);
    assert_eq!(farm.cluster.calls(Verb::CreateJob), 0);
    farm.cluster.always(Verb::ListPods, None);
    farm.room(|_| true).await;
    assert_eq!(farm.submit_one(1).await, CREATED);
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_too_old_restarts_the_list_and_the_count_is_exact() {
    let cluster = new_cluster();
    for n in 0..1200 {
        cluster.add_loose_pod(&format!("kata-{n}"), true);
    }
    let expired = error(410, "Expired", "The provided continue parameter is too old");
    cluster.script(Verb::ListPods, [Fault::Pass, Fault::Refuse(expired)]);
    let farm = Farm::start(cluster, limited(2000)).await;
    assert_eq!(farm.room(|_| true).await.pending, 1200);
    assert_eq!(farm.cluster.calls(Verb::ListPods), 5);
}

#[tokio::test(start_paused = true)]
async fn standard_pods_count_and_strangers_do_not() {
    let cluster = new_cluster();
    for n in 0..1000 {
        cluster.add_loose_pod(&format!("standard-{n}"), true);
        cluster.add_loose_pod(&format!("cron-{n}"), false);
    }
    let farm = Farm::start(cluster, limited(1000)).await;
    assert_eq!(farm.room(|_| true).await.pending, 1000);
    check_deferred(&farm.submit_one(1).await, Scope::Backend, HoldKind::PendingLimit);
}

fn running(n: u32, template: &JobFacts) -> JobFacts {
    JobFacts {
        name: format!("job-{n}"),
        uid: format!("theirs-{n}"),
        scheduler: None,
        progress: Progress { active: true, started: true, finished: false },
        ..template.clone()
    }
}

#[tokio::test(start_paused = true)]
async fn five_thousand_unfinished_jobs_with_nothing_pending_meet_the_cap_on_live_jobs() {
    let farm = Farm::fresh().await;
    farm.submit_one(1).await;
    let template = farm.cluster.jobs().remove(0);
    farm.cluster.finish(&name(1));
    for n in 0..5000 {
        farm.cluster.add_job(running(n, &template));
    }
    let settings = Settings { live_limit: Some(5001), ..settings() };
    let farm = Farm::start(farm.crash().await, settings).await;
    let room = farm.room(|_| true).await;
    assert_eq!((room.pending, room.live), (0, 5000));
    assert_eq!(farm.submit_one(2).await, CREATED);
    check_deferred(&farm.submit_one(3).await, Scope::Backend, HoldKind::LiveLimit);
}

#[tokio::test(start_paused = true)]
async fn the_creation_rate_holds() {
    let settings = Settings { creates_per_second: Some(10), ..settings() };
    let farm = Farm::start(new_cluster(), settings).await;
    let begin = tokio::time::Instant::now();
    assert_eq!(count(&farm.submit(&tasks(101)).await, &CREATED), 101);
    let took = begin.elapsed().as_secs_f64();
    assert!((9.9..10.5).contains(&took), "{took}");
}

#[tokio::test(start_paused = true)]
async fn a_started_pod_frees_its_place_and_a_finished_job_its_life() {
    let farm = Farm::start(new_cluster(), limited(2)).await;
    assert_eq!(farm.submit(&tasks(2)).await, [CREATED, CREATED]);
    farm.cluster.make_pods();
    check_deferred(&farm.submit_one(3).await, Scope::Backend, HoldKind::PendingLimit);
    farm.cluster.start(&name(0));
    let room = farm.room(|room| room.pending == 1).await;
    assert_eq!(room.live, 2);
    farm.cluster.finish(&name(0));
    farm.room(|room| room.live == 1).await;
    assert_eq!(farm.submit_one(3).await, CREATED);
    farm.cluster.remove(&name(1));
    farm.room(|room| (room.pending, room.live) == (1, 1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_silent_for_90_seconds_makes_the_room_unknown_until_a_list() {
    let farm = Farm::fresh().await;
    farm.cluster.mute_watches(true);
    let down = ApiError::lost("timed out");
    farm.cluster.always(Verb::ListJobs, Some(Fault::Refuse(down)));
    let begin = tokio::time::Instant::now();
    farm.room_unknown().await;
    // The last word may have been a bookmark, or the opening a moment ago.
    assert!((30..=91).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
    check_deferred(&farm.submit_one(1).await, Scope::Backend, HoldKind::RoomUnknown);
    farm.cluster.mute_watches(false);
    farm.cluster.always(Verb::ListJobs, None);
    farm.room(|_| true).await;
}

#[tokio::test(start_paused = true)]
async fn quiet_watches_with_bookmarks_and_cut_ones_keep_the_room_known() {
    let farm = Farm::fresh().await;
    let lists = farm.cluster.calls(Verb::ListJobs);
    for _ in 0..10 {
        farm.cluster.cut_watches();
        tokio::time::sleep(Duration::from_secs(70)).await;
        assert!(matches!(*farm.backend.room().borrow(), Room::Known(_)));
    }
    farm.submit_one(1).await;
    farm.cluster.make_pods();
    farm.cluster.start(&name(1));
    farm.room(|room| (room.pending, room.live) == (0, 1)).await;
    assert_eq!(farm.cluster.calls(Verb::ListJobs), lists);
}

#[tokio::test(start_paused = true)]
async fn what_happened_while_a_watch_was_too_old_is_told_by_the_list() {
    let farm = Farm::fresh().await;
    farm.submit(&tasks(3)).await;
    farm.cluster.make_pods();
    farm.room(|room| room.pending == 3).await;
    farm.cluster.mute_watches(true);
    farm.cluster.start(&name(0));
    farm.cluster.finish(&name(1));
    farm.cluster.remove(&name(2));
    farm.cluster.mute_watches(false);
    farm.cluster.expire_watches();
    farm.room(|room| (room.pending, room.live) == (0, 1)).await;
}
