//! Breakers and shares at work: a workload that can't start leaves the others alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use katabatch::domain::breaker::{Cause, Open};
use katabatch::domain::end::EndKind;
use katabatch::domain::name::TaskHash;
use katabatch::domain::task::WorkloadKey;
use katabatch::domain::workload_now::{Faring, Stuck, WorkloadNow};
use katabatch::pipeline::work::{Fared, Present, Work};
use tokio::time::Instant;

use crate::created;
use crate::world::{FakeBackend, Kept, World, backend, world_of};

/// A cluster in which every Job of job type `a` can't pull its image, and no other waits.
struct Cluster {
    backend: Arc<FakeBackend>,
    mended: Mutex<bool>,
    told: Mutex<BTreeMap<WorkloadKey, Open>>,
    /// A task that the backend runs again as a probe, from then on.
    retried: Mutex<Option<(Instant, TaskHash)>>,
}

impl Cluster {
    fn jobs(&self, of: &str) -> usize {
        self.backend.calls().iter().filter(|call| call.starts_with(of)).count()
    }
}

#[async_trait]
impl Work for Cluster {
    fn ends(&self) -> Vec<Fared> {
        Vec::new()
    }

    async fn failed(&self) {
        std::future::pending().await
    }

    fn now(&self) -> Present {
        let (n, mended) = (self.jobs("a"), *self.mended.lock().unwrap());
        let stuck = Stuck { jobs: n, own: n, detail: "not there".into(), ..Stuck::default() };
        let now = match mended {
            true => WorkloadNow { running: n, ..WorkloadNow::default() },
            false => {
                WorkloadNow { pending: n, running: 0, stuck: [(EndKind::ImagePull, stuck)].into() }
            }
        };
        vec![Some(if n > 0 { [(a(), now)].into() } else { BTreeMap::new() })]
    }

    fn fare(&self, tasks: &BTreeSet<TaskHash>) -> BTreeMap<TaskHash, Faring> {
        tasks.iter().map(|task| (*task, Faring::Stuck("not there".into()))).collect()
    }

    fn probes(&self) -> BTreeMap<WorkloadKey, TaskHash> {
        let due = self.retried.lock().unwrap().take_if(|(at, _)| *at <= Instant::now());
        due.map(|(_, task)| (a(), task)).into_iter().collect()
    }

    fn tell(&self, open: BTreeMap<WorkloadKey, Open>) {
        *self.told.lock().unwrap() = open;
    }
}

fn a() -> WorkloadKey {
    WorkloadKey { command: "fuzz".into(), job_type: "a".into() }
}

fn cluster(limit: usize) -> (Arc<Cluster>, Kept) {
    let backend = backend("fake", Box::new(created), 0, limit);
    let cluster = Arc::new(Cluster {
        backend: backend.clone(),
        mended: Mutex::default(),
        told: Mutex::default(),
        retried: Mutex::default(),
    });
    let kept = Kept { work: Some(cluster.clone()), ..Kept::default() };
    kept.flags.weigh("fake", 1.0);
    (cluster, kept)
}

/// A process of the scheduler, which remembers nothing of the one before.
fn process(cluster: &Cluster, kept: &Kept) -> World {
    world_of(kept, vec![cluster.backend.clone()], false)
}

fn put(world: &World, job: &str, count: usize) {
    (0..count).for_each(|n| world.put(job, &format!("{job}-{n}")));
}

// Case 26.
#[tokio::test(start_paused = true)]
async fn ten_tasks_whose_image_is_not_there_leave_room_for_the_others() {
    let (cluster, kept) = cluster(10);
    let mut world = process(&cluster, &kept);
    put(&world, "a", 10);
    put(&world, "b", 5);
    world.run_for(Duration::from_secs(30)).await;
    assert_eq!((cluster.jobs("a"), cluster.jobs("b")), (5, 5));
    let told = cluster.told.lock().unwrap().clone();
    assert_eq!(told.values().map(|open| open.cause).collect::<Vec<_>>(), [Cause::ImagePull]);
    assert_eq!(world.queue.len(), 5, "the rest stays in the queue");
}

#[tokio::test(start_paused = true)]
async fn exactly_one_task_is_tried_after_each_pause_and_all_go_on_when_it_is_mended() {
    let (cluster, kept) = cluster(1_000);
    let mut world = process(&cluster, &kept);
    put(&world, "a", 700);
    world.run_for(Duration::from_secs(50)).await;
    let before = cluster.jobs("a");
    assert!(before <= 500, "{before}");
    // A new process learns it from what is stuck.
    let mut world = process(&cluster, &kept);
    world.run_for(Duration::from_secs(59)).await;
    assert_eq!(cluster.jobs("a"), before);
    let mut world = process(&cluster, &kept);
    world.run_for(Duration::from_secs(100)).await;
    assert_eq!(cluster.jobs("a"), before + 1, "one probe after a minute");
    let mut world = process(&cluster, &kept);
    world.run_for(Duration::from_secs(450)).await;
    assert_eq!(cluster.jobs("a"), before + 4, "after one, two and four minutes");
    *cluster.mended.lock().unwrap() = true;
    let mut world = process(&cluster, &kept);
    world.run_for(Duration::from_secs(1_000)).await;
    assert_eq!(cluster.jobs("a"), 700);
}

/// How many of 700 Jobs a process makes in this time, if the backend runs one again after some of it.
async fn made_within(seconds: u64, run_again_after: Option<u64>) -> usize {
    let (cluster, kept) = cluster(1_000);
    let task = TaskHash::parse(&"ab".repeat(32)).unwrap();
    let at = |seconds| Instant::now() + Duration::from_secs(seconds);
    *cluster.retried.lock().unwrap() = run_again_after.map(|after| (at(after), task));
    let mut world = process(&cluster, &kept);
    put(&world, "a", 700);
    world.run_for(Duration::from_secs(seconds)).await;
    cluster.jobs("a")
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_run_again_is_the_probe_and_none_from_the_queue_goes_beside_it() {
    let before = made_within(50, None).await;
    assert_eq!(made_within(100, None).await, before + 1, "a probe after a minute");
    assert_eq!(made_within(160, Some(50)).await, before, "two minutes after the one run again");
    assert_eq!(made_within(200, Some(50)).await, before + 1);
}
