//! The gate at work: several backends, weights that change, pauses, and tasks that may be elsewhere.

use std::sync::Arc;
use std::time::Duration;

use katabatch::controls::{Mark, Pause, Target, lost};
use katabatch::domain::glob::Glob;
use katabatch::domain::outcome::*;
use katabatch::domain::room::Room;
use katabatch::gate::routes::{Routes, Rule};
use katabatch::queue::push::Answer as Told;
use katabatch::records::Records;

use crate::created;
use crate::world::{Answer, FakeBackend, Kept, World, backend, posted, world_of};

const MINUTE: Duration = Duration::from_secs(60);

fn making() -> Answer {
    Box::new(created)
}

fn two() -> Vec<Arc<FakeBackend>> {
    vec![backend("one", making(), 0, 100_000), backend("two", making(), 0, 100_000)]
}

fn kept(weights: &[(&str, f64)]) -> Kept {
    let kept = Kept::default();
    weights.iter().for_each(|(name, weight)| kept.flags.weigh(name, *weight));
    kept
}

fn put(world: &World, job: &str, names: std::ops::Range<usize>) {
    names.for_each(|n| world.put(job, &format!("{job}-{n}")));
}

/// Puts tasks two minutes from now, when it is certain that no other process handles them.
fn put_later(world: &World, count: usize) {
    let queue = world.queue.clone();
    tokio::spawn(async move {
        tokio::time::sleep(2 * MINUTE).await;
        for n in 0..count {
            let url = format!("https://storage.googleapis.com/in/a-{n}");
            crate::world::put(&queue, &format!("a-{n}"), "a", &url);
        }
    });
}

fn mark() -> Mark {
    let at = "2026-03-01T00:00:00Z".parse().unwrap();
    Mark { who: "ann".into(), why: "a bad build".into(), at, until: None }
}

async fn pause(kept: &Kept, target: Target) {
    let record = Pause { target, mark: mark() }.record().unwrap();
    kept.controls.write(&[record]).await.unwrap();
}

fn away(backend: &FakeBackend) {
    backend.room.send_replace(Room::Unknown("the API server does not answer".into()));
    *backend.silent.lock().unwrap() = true;
}

// Case 77.
#[tokio::test(start_paused = true)]
async fn a_full_backend_never_spills_to_one_without_a_weight() {
    let kept = kept(&[("k8s", 1.0), ("batch", 0.0)]);
    let backends = vec![backend("k8s", making(), 10, 10), backend("batch", making(), 0, 1000)];
    let mut world = world_of(&kept, backends, false);
    put(&world, "a", 0..20);
    let counts = world.run_for(60 * MINUTE).await;
    assert_eq!(counts.created, 0);
    assert!(world.backends[1].calls().is_empty());
    assert_eq!(world.queue.len(), 20, "all stay in the queue");
}

// Case 14.
#[tokio::test(start_paused = true)]
async fn a_backend_with_weight_zero_gets_none_of_three_tasks() {
    let kept = kept(&[("k8s", 0.0), ("batch", 0.9995)]);
    let backends = vec![backend("k8s", making(), 0, 1000), backend("batch", making(), 0, 1000)];
    let mut world = world_of(&kept, backends, false);
    put(&world, "a", 0..3);
    let counts = world.run_for(10 * MINUTE).await;
    assert_eq!((counts.created, world.backends[0].calls().len()), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn a_broken_backend_stops_no_task_of_the_others() {
    let kept = kept(&[("one", 0.5), ("two", 0.5)]);
    let mut world = world_of(&kept, two(), false);
    away(&world.backends[0]);
    // These may have been created there before this process began, and fill what may be held.
    put(&world, "b", 0..2000);
    put_later(&world, 3000);
    let counts = world.run_for(11 * MINUTE).await;
    let share = world.backends[1].calls().len();
    assert!((1350..1650).contains(&share), "{share} of 3000 went to the half that works");
    assert_eq!((counts.created, world.backends[0].calls().len()), (share as u64, 0));
}

#[tokio::test(start_paused = true)]
async fn after_ten_minutes_a_task_that_is_certainly_nowhere_moves_from_a_broken_backend() {
    let kept = kept(&[("one", 0.5), ("two", 0.5)]);
    let mut world = world_of(&kept, two(), false);
    away(&world.backends[0]);
    // Published about when this process began to lead: another may have created them.
    put(&world, "b", 0..40);
    put_later(&world, 100);
    let other = world.backends[1].clone();
    let early = tokio::spawn(async move {
        tokio::time::sleep(9 * MINUTE).await;
        other.calls().iter().filter(|name| name.starts_with("a-")).count()
    });
    world.run_for(30 * MINUTE).await;
    let early = early.await.unwrap();
    assert!((30..70).contains(&early), "{early} before its time");
    let calls = world.backends[1].calls();
    assert_eq!(calls.iter().filter(|name| name.starts_with("a-")).count(), 100);
    assert!(!calls.iter().any(|name| name.starts_with("b-")), "not certain, and moved");
    assert!(world.backends[0].calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_redelivered_task_is_acked_where_it_is_after_the_weights_have_moved() {
    let kept = kept(&[("one", 1.0), ("two", 0.0)]);
    let mut first = world_of(&kept, two(), false);
    first.run_for(Duration::from_secs(5)).await;
    put(&first, "a", 0..20);
    // Created by a process whose acks were lost with it.
    first.backends[0].there.lock().unwrap().extend((3..9).map(|n| format!("/in/a-{n}")));
    kept.flags.weigh("one", 0.0);
    kept.flags.weigh("two", 1.0);
    let mut second = world_of(&kept, first.backends.clone(), false);
    let counts = second.run_for(10 * MINUTE).await;
    assert_eq!((counts.created, counts.already_there, counts.acked), (14, 6, 20));
    assert!(second.queue.is_empty() && second.backends[0].calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_task_that_may_be_on_a_backend_that_cant_be_asked_is_held_until_it_can_or_is_lost() {
    let kept = kept(&[("one", 1.0), ("two", 0.0)]);
    let mut world = world_of(&kept, two(), false);
    world.run_for(Duration::from_secs(5)).await;
    put(&world, "a", 0..10);
    away(&world.backends[0]);
    kept.flags.weigh("one", 0.0);
    kept.flags.weigh("two", 1.0);
    let backends = world.backends.clone();
    let mut world = world_of(&kept, backends, false);
    let counts = world.run_for(30 * MINUTE).await;
    assert_eq!(counts.created, 0);
    assert_eq!(counts.held.get(&HoldKind::ElsewhereUnknown), Some(&10), "{counts:?}");
    let changes = lost(&"one".into(), Some(&mark())).unwrap();
    kept.controls.write(&changes).await.unwrap();
    let backends = world.backends.clone();
    let mut world = world_of(&kept, backends, false);
    let counts = world.run_for(10 * MINUTE).await;
    assert_eq!((counts.created, world.backends[1].calls().len()), (10, 10));
    assert!(*world.backends[0].cleared.lock().unwrap() > 10, "what runs there is deleted");
    let controls = kept.controls.all().await.unwrap();
    assert!(controls.contains_key("cleared.one"), "{controls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_left_the_configuration_holds_what_may_be_on_it() {
    let kept = kept(&[("one", 1.0), ("two", 0.0)]);
    let mut world = world_of(&kept, two(), false);
    put(&world, "a", 0..3);
    away(&world.backends[0]);
    world.run_for(MINUTE).await;
    kept.flags.weigh("two", 1.0);
    let mut world = world_of(&kept, vec![world.backends[1].clone()], false);
    let counts = world.run_for(10 * MINUTE).await;
    assert_eq!((counts.created, counts.held.get(&HoldKind::ElsewhereUnknown)), (0, Some(&3)));
}

#[tokio::test(start_paused = true)]
async fn a_pause_holds_its_tasks_alone_and_a_resume_lets_them_go_within_seconds() {
    let kept = kept(&[("one", 1.0)]);
    let mut world = world_of(&kept, vec![backend("one", making(), 0, 100_000)], false);
    pause(&kept, Target::JobType(Glob::new("a"))).await;
    put(&world, "a", 0..3000);
    put(&world, "b", 0..50);
    let counts = world.run_for(5 * MINUTE).await;
    assert_eq!((counts.created, counts.held.contains_key(&HoldKind::Paused)), (50, true));
    let snapshot = world.pipeline.snapshot().borrow().clone();
    assert_eq!(snapshot.controls.pauses.len(), 1);
    kept.controls
        .write(&[katabatch::controls::resumed(&Target::JobType(Glob::new("a")))])
        .await
        .unwrap();
    let backends = world.backends.clone();
    let mut world = world_of(&kept, backends, false);
    assert!(world.run_for(15 * MINUTE).await.created >= 3000);
}

#[tokio::test(start_paused = true)]
async fn a_drained_backend_gets_nothing_and_the_others_go_on() {
    let kept = kept(&[("one", 0.5), ("two", 0.5)]);
    let mut world = world_of(&kept, two(), false);
    pause(&kept, Target::Backend(Glob::new("one"))).await;
    put(&world, "a", 0..200);
    let counts = world.run_for(30 * MINUTE).await;
    assert!(world.backends[0].calls().is_empty());
    assert!((60..140).contains(&counts.created), "{counts:?}");
    let snapshot = world.pipeline.snapshot().borrow().clone();
    let shown: Vec<_> = snapshot.backends.iter().map(|b| (b.configured, b.effective)).collect();
    assert_eq!(shown, [(0.5, 0.0), (0.5, 0.5)]);
    let why = snapshot.backends[0].stopped.clone().unwrap();
    assert!(why.contains("by ann") && why.contains("a bad build"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_bound_job_type_goes_where_it_is_bound_and_is_held_by_name_where_that_takes_nothing() {
    let rule = Rule {
        job_types: vec![Glob::new("android-*")],
        platforms: Vec::new(),
        labels: Default::default(),
        backends: vec!["phones".into()],
    };
    let kept = Kept { routes: Routes(vec![rule]), ..kept(&[("linux", 0.9), ("phones", 0.0)]) };
    let backends = vec![backend("linux", making(), 0, 1000), backend("phones", making(), 0, 1000)];
    let mut world = world_of(&kept, backends, false);
    put(&world, "android-a", 0..20);
    put(&world, "a", 0..5);
    let counts = world.run_for(10 * MINUTE).await;
    assert_eq!(counts.held.get(&HoldKind::Bound), Some(&20));
    assert!(world.backends[0].calls().iter().all(|name| name.starts_with("a-")));
    kept.flags.weigh("phones", 0.1);
    let backends = world.backends.clone();
    let mut world = world_of(&kept, backends, false);
    world.run_for(10 * MINUTE).await;
    assert_eq!(world.backends[1].calls().len(), 20);
}

#[tokio::test(start_paused = true)]
async fn achieved_shares_are_shown_beside_configured_ones() {
    let kept = kept(&[("one", 0.7), ("two", 0.3)]);
    let mut world = world_of(&kept, two(), false);
    put(&world, "a", 0..1000);
    let counts = world.run_for(3 * MINUTE).await;
    assert_eq!(counts.created, 1000);
    let snapshot = world.pipeline.snapshot().borrow().clone();
    let achieved = snapshot.backends[0].achieved.unwrap();
    assert!((achieved - 0.7).abs() < 0.07, "{achieved}");
    assert_eq!(snapshot.epoch.map(|epoch| epoch.0), Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_task_bound_by_an_earlier_request_goes_on_there_while_there_is_a_weight() {
    let kept = kept(&[("one", 1.0), ("two", 0.0)]);
    let mut world = world_of(&kept, two(), false);
    world.run_for(Duration::from_secs(5)).await;
    put(&world, "a", 0..20);
    // What an earlier process asked for may still come to be: only asking again settles it.
    let one = Arc::clone(&world.backends[0]);
    one.bound.lock().unwrap().push("/in/a-".to_owned());
    *one.silent.lock().unwrap() = true;
    kept.flags.weigh("one", 0.0);
    kept.flags.weigh("two", 1.0);
    let mut world = world_of(&kept, world.backends.clone(), false);
    assert_eq!(world.run_for(MINUTE).await.created, 0, "one takes nothing, and can't say");
    kept.flags.weigh("one", 0.01);
    let mut world = world_of(&kept, world.backends.clone(), false);
    assert_eq!(world.run_for(2 * MINUTE).await.created, 20);
    assert_eq!((one.calls().len(), world.backends[1].calls().len()), (20, 0));
}

/// Its sender keeps a task whose answer was lost, and posts it again when it likes.
#[tokio::test(start_paused = true)]
async fn a_task_posted_again_long_after_the_weights_have_moved_is_found_where_it_was_made() {
    let kept = kept(&[("one", 1.0), ("two", 0.0)]);
    let mut world = world_of(&kept, two(), false);
    world.run_for(Duration::from_secs(5)).await;
    world.backends[0].there.lock().unwrap().push("/posted".to_owned());
    kept.flags.weigh("one", 0.0);
    kept.flags.weigh("two", 1.0);
    for (is_away, expect) in [(false, None), (true, Some(HoldKind::ElsewhereUnknown))] {
        let mut world = world_of(&kept, world.backends.clone(), false);
        if is_away {
            away(&world.backends[0]);
        }
        let push = Arc::clone(&world.push);
        let told = tokio::spawn(async move {
            tokio::time::sleep(10 * MINUTE).await;
            push.push(posted("a", "1", "gs://in/posted", [])).unwrap().await.unwrap()
        });
        let counts = world.run_for(11 * MINUTE).await;
        match (told.await.unwrap(), expect) {
            (Told::Scheduled, None) => assert_eq!(counts.already_there, 1),
            (Told::Deferred(why), Some(kind)) => assert_eq!(why.kind, kind),
            (told, _) => panic!("{told:?}"),
        }
        assert!(world.backends[1].calls().is_empty(), "made a second time");
    }
}
