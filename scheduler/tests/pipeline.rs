//! The pipeline over a queue in memory and a backend that does as it is told, on a paused clock.
#![expect(clippy::unwrap_used, reason = "what fails here fails its test")]

#[path = "pipeline/breakers.rs"]
mod breakers;
#[path = "pipeline/farm.rs"]
mod farm;
#[path = "pipeline/follow.rs"]
mod follow;
#[path = "pipeline/gate.rs"]
mod gate;
#[path = "pipeline/posted.rs"]
mod posted;
#[path = "pipeline/view.rs"]
mod view;
#[path = "pipeline/world.rs"]
mod world;

use std::time::Duration;

use katabatch::domain::outcome::*;
use katabatch::domain::room::Room;
use katabatch::pipeline::Ended;
use katabatch::queue::Queue;
use tokio_util::sync::CancellationToken;
use world::put;

fn created(_: &str, _: u32) -> Outcome {
    Outcome::Scheduled(Placed::Created)
}

fn deferred(scope: Scope, kind: HoldKind, seconds: u64) -> Outcome {
    Outcome::Deferred(Deferral::new(scope, kind, "told so", Duration::from_secs(seconds)))
}

#[tokio::test(start_paused = true)]
async fn one_unknown_job_type_is_held_alone_and_the_others_are_acked() {
    let mut world = world::world(Box::new(created), 0, 1000, true);
    world.put("a", "1");
    world.put("ghost", "2");
    world.put("b", "3");
    let counts = world.drain().await;
    assert_eq!((counts.created, counts.acked, counts.released), (2, 2, 1));
    assert_eq!(counts.held, [(HoldKind::UnknownJobType, 1)].into());
    assert_eq!(world.backend.acked.lock().unwrap().len(), 2);
    assert_eq!(world.queue.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_job_type_is_rejected_after_30_minutes_of_fresh_reads() {
    let mut world = world::world(Box::new(created), 0, 1000, false);
    world.put("ghost", "2");
    let counts = world.run_for(Duration::from_secs(29 * 60)).await;
    assert!(counts.rejected.is_empty(), "{counts:?}");
    let mut world = world::world(Box::new(created), 0, 1000, false);
    world.put("ghost", "2");
    let counts = world.run_for(Duration::from_secs(34 * 60)).await;
    assert_eq!(counts.rejected, [(RejectKind::UnknownJobType, 1)].into());
    assert!(world.queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn two_messages_of_one_input_are_one_submission_and_both_acked() {
    let mut world = world::world(Box::new(created), 0, 1000, true);
    put(&world.queue, "7", "a", "https://storage.googleapis.com/in/x?X-Goog-Signature=1");
    put(&world.queue, "8", "a", "https://storage.googleapis.com/in/x?X-Goog-Signature=2");
    let counts = world.drain().await;
    assert_eq!((world.calls().len(), counts.acked), (1, 2));
    assert_eq!((counts.created, counts.already_there), (1, 1));
    assert!(world.queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_create_failed_is_tried_again_alone() {
    let answer = |name: &str, nth| match (name, nth) {
        ("3", 1) => deferred(Scope::Task, HoldKind::BackendFailed, 5),
        _ => created(name, nth),
    };
    let mut world = world::world(Box::new(answer), 0, 1000, true);
    (1..=5).for_each(|n| world.put("a", &n.to_string()));
    let counts = world.drain().await;
    assert_eq!((counts.created, world.calls().len()), (5, 6));
}

#[tokio::test(start_paused = true)]
async fn at_the_limit_nothing_is_leased_just_to_be_sent_back() {
    let mut world = world::world(Box::new(created), 999, 1000, false);
    (0..3000).for_each(|n| world.put("a", &n.to_string()));
    let counts = world.run_for(Duration::from_secs(60)).await;
    assert_eq!((counts.created, counts.leased, counts.released), (1, 1, 0));
    assert_eq!(world.queue.len(), 2999);
}

#[tokio::test(start_paused = true)]
async fn unknown_room_means_that_nothing_is_created() {
    let mut world = world::world(Box::new(created), 0, 1000, false);
    world.backend.room.send_replace(Room::Unknown("the pod list answers 503".into()));
    world.put("a", "1");
    assert_eq!(world.run_for(Duration::from_secs(60)).await.created, 0);
    assert!(world.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_closed_backend_is_not_called_until_its_time_and_nothing_is_lost() {
    let answer = |_: &str, _| deferred(Scope::Backend, HoldKind::Throttled, 7);
    let mut world = world::world(Box::new(answer), 0, 1000, false);
    world.put("a", "first");
    let counts = world.run_for(Duration::from_secs(6)).await;
    assert_eq!((counts.created, world.calls().len()), (0, 1));
    let mut again = world::world(Box::new(answer), 0, 1000, false);
    again.put("a", "first");
    again.run_for(Duration::from_secs(8)).await;
    assert_eq!(again.calls().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_contained_and_rejects_that_message_after_some_tries() {
    let answer = |name: &str, nth| {
        assert_ne!(name, "2", "handling went wrong");
        created(name, nth)
    };
    let mut world = world::world(Box::new(answer), 0, 1000, true);
    (1..=3).for_each(|n| world.put("a", &n.to_string()));
    world.put("explosive", "4");
    let counts = world.drain().await;
    assert_eq!(counts.created, 2);
    assert_eq!(counts.rejected, [(RejectKind::Panicked, 1)].into());
    assert_eq!(counts.held.get(&HoldKind::BadJobType), Some(&1), "a workload's panic holds it");
    let why = world.queue.quarantined().remove("2").unwrap().detail;
    assert!(why.contains("handling went wrong"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn each_bad_message_is_rejected_alone_and_a_dead_url_never_created() {
    let mut world = world::world(Box::new(created), 0, 1000, true);
    world.put("a", "good");
    put(&world.queue, "no job", "", "https://storage.googleapis.com/in/1");
    put(&world.queue, "no url", "a", "nonsense");
    let dead =
        "https://storage.googleapis.com/in/d?X-Goog-Date=20260226T000000Z&X-Goog-Expires=86400";
    put(&world.queue, "dead", "a", dead);
    let late =
        "https://storage.googleapis.com/in/l?X-Goog-Date=20260228T010000Z&X-Goog-Expires=86400";
    put(&world.queue, "late", "a", late);
    let counts = world.drain().await;
    assert_eq!(counts.created, 1);
    let expect = [(RejectKind::BadMessage, 1), (RejectKind::BadUrl, 1), (RejectKind::DeadUrl, 2)];
    assert_eq!(counts.rejected, expect.into());
    assert_eq!(counts.lost_to_dead_urls, Duration::from_secs(2 * 6 * 3600), "both expected runs");
    let quarantined = world.queue.quarantined();
    let why = |id: &str| quarantined.get(id).map_or("", |why| why.detail.as_str());
    assert_eq!(why("dead"), "the input URL died 2880 min ago");
    assert_eq!(why("late"), "the output URL would be dead 300 min before the task's expected end");
}

/// Case 58 as the pipeline plays it: a date that is near counts as come.
#[tokio::test(start_paused = true)]
async fn a_url_that_is_not_valid_yet_waits_for_its_date() {
    let mut world = world::world(Box::new(created), 0, 1000, false);
    for (name, date) in [("near", "20260301T000300Z"), ("far", "20260301T010000Z")] {
        let dates = format!("X-Goog-Date={date}&X-Goog-Expires=86400");
        let url = format!("https://storage.googleapis.com/in/{name}?{dates}");
        put(&world.queue, name, "a", &url);
    }
    let counts = world.run_for(Duration::from_secs(50 * 60)).await;
    assert_eq!((world.calls(), counts.acked), (vec!["near".to_owned()], 1));
    assert_eq!(counts.held, [(HoldKind::NotYetValid, 1)].into());
    let mut world = world::world(Box::new(created), 0, 1000, false);
    let dates = "X-Goog-Date=20260301T010000Z&X-Goog-Expires=86400";
    put(&world.queue, "far", "a", &format!("https://storage.googleapis.com/in/far?{dates}"));
    let counts = world.run_for(Duration::from_secs(56 * 60)).await;
    assert_eq!((counts.created, counts.acked, counts.rejected.len()), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_output_is_there_is_acked_and_counted_apart() {
    let done = |_: &str, _| Outcome::Scheduled(Placed::Done);
    let mut world = world::world(Box::new(done), 0, 1000, true);
    world.put("a", "1");
    let counts = world.drain().await;
    assert_eq!((counts.done, counts.created, counts.already_there, counts.acked), (1, 0, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn the_fuse_stops_intake_before_a_farms_fault_empties_the_queue() {
    let mut world = world::world(Box::new(created), 0, 1000, true);
    (0..2000).for_each(|n| put(&world.queue, &n.to_string(), "", "https://h/x"));
    let ended = world.pipeline.run(CancellationToken::new()).await.unwrap();
    assert_eq!(ended, Ended::FuseBlown);
    assert_eq!(world.queue.quarantined().len(), 50);
    assert_eq!(world.queue.len(), 1950);
}

#[tokio::test(start_paused = true)]
async fn stopping_gives_back_what_is_held_and_finishes_what_is_in_flight() {
    let answer = |name: &str, nth| match name {
        "held" => deferred(Scope::Task, HoldKind::BeingDeleted, 3600),
        _ => created(name, nth),
    };
    let mut world = world::world(Box::new(answer), 0, 1000, false);
    world.put("a", "held");
    world.put("a", "fine");
    let counts = world.run_for(Duration::from_secs(30)).await;
    assert_eq!((counts.acked, counts.released), (1, 1));
    let again = world.queue.lease(9, Duration::from_secs(1), Duration::ZERO).await.unwrap();
    assert_eq!(again.len(), 1, "it can be leased again at once");
}

#[tokio::test(start_paused = true)]
async fn held_tasks_keep_their_leases_for_hours() {
    let answer = |_: &str, _| deferred(Scope::Task, HoldKind::NameTaken, 3600);
    let mut world = world::world(Box::new(answer), 0, 1000, false);
    world.put("a", "1");
    let counts = world.run_for(Duration::from_secs(3 * 3600 + 60)).await;
    assert_eq!((counts.leased, world.calls().len()), (1, 4));
}

#[tokio::test(start_paused = true)]
async fn a_broken_workload_with_a_long_queue_does_not_stop_the_others() {
    let mut world = world::world(Box::new(created), 0, 100_000, false);
    (0..3000).for_each(|n| world.put("ghost", &format!("g{n}")));
    (0..10).for_each(|n| world.put("a", &n.to_string()));
    let counts = world.run_for(Duration::from_secs(300)).await;
    assert_eq!(counts.created, 10);
    assert!(counts.rejected.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_job_is_there_is_acked_though_its_url_has_died() {
    let mut world = world::world(Box::new(created), 0, 1000, true);
    world.backend.there.lock().unwrap().push("/in/old".into());
    for name in ["old", "gone"] {
        let url = format!("https://storage.googleapis.com/in/{name}?{DEAD}");
        put(&world.queue, name, "a", &url);
    }
    let counts = world.drain().await;
    assert_eq!((counts.already_there, counts.acked), (1, 1));
    assert_eq!(counts.rejected, [(RejectKind::DeadUrl, 1)].into());
}

#[tokio::test(start_paused = true)]
async fn every_message_of_a_rejected_task_is_put_away() {
    let mut world = world::world(Box::new(created), 0, 1000, true);
    for (id, signature) in [("7", 1), ("8", 2)] {
        let url =
            format!("https://storage.googleapis.com/in/d?{DEAD}&X-Goog-Signature={signature}");
        put(&world.queue, id, "a", &url);
    }
    let counts = world.drain().await;
    assert_eq!(counts.rejected, [(RejectKind::DeadUrl, 2)].into());
    assert_eq!(counts.lost_to_dead_urls, Duration::from_secs(6 * 3600), "one task's");
    assert!(world.queue.is_empty());
}

/// The dates of a URL that has died.
const DEAD: &str = "X-Goog-Date=20260226T000000Z&X-Goog-Expires=86400";
