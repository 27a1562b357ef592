//! Posted tasks: each gets its answer, and what is deferred is not held.

use std::time::Duration;

use katabatch::domain::glob::Glob;
use katabatch::domain::outcome::*;
use katabatch::domain::room::Room;
use katabatch::gate::routes::{Routes, Rule};
use katabatch::queue::push::Answer;
use tokio::sync::oneshot::Receiver;

use crate::world::{self, Kept, World};
use crate::{created, deferred};

const WHILE: Duration = Duration::from_secs(60);

/// The reason of a deferral.
fn reason(answer: &Answer) -> Option<HoldKind> {
    match answer {
        Answer::Deferred(why) => Some(why.kind),
        Answer::Scheduled | Answer::Rejected(_) | Answer::Stopped => None,
    }
}

fn told(receiver: &mut Receiver<Answer>) -> Answer {
    receiver.try_recv().unwrap()
}

#[tokio::test(start_paused = true)]
async fn more_tasks_than_are_submitted_at_once_all_get_their_turn() {
    let mut world = world::world(Box::new(created), 0, 1000, false);
    let receivers: Vec<_> = (0..300).map(|n| world.post("a", &n.to_string())).collect();
    let counts = world.run_for(WHILE).await;
    assert_eq!((counts.created, counts.acked), (300, 300));
    for mut receiver in receivers {
        assert_eq!(told(&mut receiver), Answer::Scheduled);
    }
}

#[tokio::test(start_paused = true)]
async fn what_finds_no_room_goes_back_with_the_reason_and_is_never_created() {
    let mut world = world::world(Box::new(created), 990, 1000, false);
    let receivers: Vec<_> = (0..30).map(|n| world.post("a", &n.to_string())).collect();
    world.run_for(WHILE).await;
    let answers: Vec<_> = receivers.into_iter().map(|mut r| told(&mut r)).collect();
    let scheduled = answers.iter().filter(|answer| **answer == Answer::Scheduled).count();
    assert_eq!(scheduled, 10);
    let back = answers.iter().filter(|answer| **answer != Answer::Scheduled);
    assert!(back.into_iter().all(|answer| reason(answer) == Some(HoldKind::PendingLimit)));
    assert_eq!(world.calls().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_its_turn_is_told_when_the_room_is_gone_before_it() {
    let mut world = world::world(Box::new(created), 800, 1000, false);
    let receivers: Vec<_> = (0..300).map(|n| world.post("a", &n.to_string())).collect();
    world.run_for(WHILE).await;
    let answers: Vec<_> = receivers.into_iter().map(|mut r| told(&mut r)).collect();
    let full = answers.iter().filter(|answer| reason(answer) == Some(HoldKind::PendingLimit));
    assert_eq!((full.count(), world.calls().len()), (100, 200));
}

#[tokio::test(start_paused = true)]
async fn a_full_an_unknown_and_a_closed_backend_are_answers_at_once() {
    async fn first(mut world: World, job: &str) -> (HoldKind, usize) {
        let mut receiver = world.post(job, "1");
        world.run_for(Duration::from_secs(3)).await;
        let kind = reason(&told(&mut receiver)).unwrap();
        // Whatever changes later, the sender was told.
        world.backend.room.send_modify(|room| {
            if let Room::Known(occupancy) = room {
                occupancy.pending = 0;
            }
        });
        (kind, world.calls().len())
    }
    let full = world::world(Box::new(created), 5, 0, false);
    assert_eq!(first(full, "a").await, (HoldKind::PendingLimit, 0));
    let unknown = world::world(Box::new(created), 0, 9, false);
    unknown.backend.room.send_replace(Room::Unknown("no list".into()));
    assert_eq!(first(unknown, "a").await, (HoldKind::RoomUnknown, 0));
    let closed = |_: &str, _| deferred(Scope::Backend, HoldKind::Forbidden, 60);
    assert_eq!(
        first(world::world(Box::new(closed), 0, 9, false), "a").await,
        (HoldKind::Forbidden, 1)
    );
    let ghost = world::world(Box::new(created), 0, 9, false);
    assert_eq!(first(ghost, "ghost").await, (HoldKind::UnknownJobType, 0));
}

#[tokio::test(start_paused = true)]
async fn a_deferred_task_is_not_tried_again_here() {
    let failed = |_: &str, _| deferred(Scope::Task, HoldKind::BackendFailed, 1);
    let mut world = world::world(Box::new(failed), 0, 9, false);
    let mut receiver = world.post("a", "1");
    world.run_for(WHILE).await;
    assert_eq!(reason(&told(&mut receiver)), Some(HoldKind::BackendFailed));
    assert_eq!(world.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_queued_too_stays_held_for_its_queue_alone() {
    let answer = |name: &str, nth| match nth {
        1 => deferred(Scope::Task, HoldKind::BackendFailed, 20),
        _ => created(name, nth),
    };
    let mut world = world::world(Box::new(answer), 0, 9, false);
    world.put("a", "2");
    let mut receiver = world.post("a", "2");
    let counts = world.run_for(WHILE).await;
    assert_eq!(reason(&told(&mut receiver)), Some(HoldKind::BackendFailed));
    assert_eq!((counts.created, world.calls().len()), (1, 2), "{counts:?}");
    assert!(world.queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn rejected_posts_say_nothing_of_the_farm_and_blow_no_fuse() {
    let mut world = world::world(Box::new(created), 0, 1000, false);
    let dead = "X-Goog-Date=20250101T000000Z&X-Goog-Expires=86400&X-Goog-Signature=1";
    let post = |n: usize| {
        let url = format!("https://storage.googleapis.com/in/{n}?{dead}");
        world.post_url("a", &n.to_string(), &url)
    };
    let receivers: Vec<_> = (0..100).map(post).collect();
    world.put("b", "queued");
    let counts = world.run_for(WHILE).await;
    for mut receiver in receivers {
        let answer = told(&mut receiver);
        assert!(matches!(&answer, Answer::Rejected(why) if why.kind == RejectKind::DeadUrl));
    }
    assert_eq!((counts.created, counts.rejected.len()), (1, 1));
    assert!(!world.pipeline.view().seen().fuse_blown);
}

#[tokio::test(start_paused = true)]
async fn a_label_of_a_posted_task_binds_that_task_and_no_other_and_it_is_made_once() {
    let rule = Rule {
        job_types: Vec::new(),
        platforms: Vec::new(),
        labels: [("task.katabatch.dev/team".to_owned(), Glob::new("blue-*"))].into(),
        backends: vec!["two".into()],
    };
    let kept = Kept { routes: Routes(vec![rule]), ..Kept::default() };
    let backends = vec![
        world::backend("one", Box::new(created), 0, 1000),
        world::backend("two", Box::new(created), 0, 1000),
    ];
    kept.flags.weigh("one", 1.0);
    let mut world = world::world_of(&kept, backends.clone(), false);
    let mut bound = world.post_labelled("1", ("team", "blue-1"));
    let others = [world.post_labelled("2", ("team", "red")), world.post("a", "3")];
    world.run_for(WHILE).await;
    // Nothing takes it, and its workload goes on.
    assert_eq!(reason(&told(&mut bound)), Some(HoldKind::Bound));
    for mut other in others {
        assert_eq!(told(&mut other), Answer::Scheduled);
    }
    kept.flags.weigh("one", 0.5);
    kept.flags.weigh("two", 0.5);
    let mut world = world::world_of(&kept, backends.clone(), false);
    let receivers: Vec<_> =
        (10..50).map(|n| world.post_labelled(&n.to_string(), ("team", "blue-2"))).collect();
    world.run_for(WHILE).await;
    for mut receiver in receivers {
        assert_eq!(told(&mut receiver), Answer::Scheduled);
    }
    assert_eq!((backends[0].calls().len(), backends[1].calls().len()), (2, 40));
    // Posted again without the label, they are found where they are.
    *backends[1].there.lock().unwrap() = (10..50).map(|n| n.to_string()).collect();
    let mut world = world::world_of(&kept, backends.clone(), false);
    let receivers: Vec<_> = (10..50).map(|n| world.post("a", &n.to_string())).collect();
    world.run_for(WHILE).await;
    for mut receiver in receivers {
        assert_eq!(told(&mut receiver), Answer::Scheduled);
    }
    assert_eq!(backends[0].calls().len(), 2, "{:?}", backends[0].calls());
}
