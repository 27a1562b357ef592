//! The pipeline over a queue in memory and a backend that does as it is told, on a paused clock.
#![expect(clippy::unwrap_used, reason = "what fails here fails its test")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use katabatch::backend::Backend;
use katabatch::catalog::entity::{Job, JobEntities};
use katabatch::catalog::{Catalog, CatalogError, Freshness};
use katabatch::clock::{Clock, PacedClock};
use katabatch::domain::name::{BackendName, Command, JobType, TaskHash};
use katabatch::domain::outcome::*;
use katabatch::domain::quantity::Quantity;
use katabatch::domain::room::{Occupancy, Room};
use katabatch::domain::task::{Task, WorkloadKey};
use katabatch::domain::workload::*;
use katabatch::flags::{FlagSet, FlagSource, FlagsError};
use katabatch::gate::Candidate;
use katabatch::pipeline::leases::Leases;
use katabatch::pipeline::tally::Counts;
use katabatch::pipeline::*;
use katabatch::queue::Queue;
use katabatch::queue::memory::MemoryQueue;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What the backend does with a task, by the last part of its input's path.
type Answer = Box<dyn Fn(&str, u32) -> Outcome + Send + Sync>;

struct FakeBackend {
    name: BackendName,
    room: watch::Sender<Room>,
    answer: Answer,
    calls: Mutex<Vec<String>>,
    acked: Mutex<Vec<TaskHash>>,
}

impl FakeBackend {
    fn pending(&self, change: impl Fn(usize) -> usize) {
        self.room.send_modify(|room| {
            if let Room::Known(occupancy) = room {
                occupancy.pending = change(occupancy.pending);
            }
        });
    }
}

#[async_trait]
impl Backend for FakeBackend {
    fn name(&self) -> &BackendName {
        &self.name
    }

    fn room(&self) -> watch::Receiver<Room> {
        self.room.subscribe()
    }

    async fn submit(&self, _: &Arc<Workload>, tasks: &[Task]) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for task in tasks {
            let name = task.input.reveal().rsplit('/').next().unwrap_or("").to_owned();
            let name = name.split('?').next().unwrap_or("").to_owned();
            let nth = {
                let mut calls = self.calls.lock().unwrap();
                calls.push(name.clone());
                calls.iter().filter(|call| **call == name).count()
            };
            self.pending(|pending| pending + 1);
            tokio::time::sleep(Duration::from_millis(5)).await;
            let outcome = (self.answer)(&name, u32::try_from(nth).unwrap());
            if !matches!(outcome, Outcome::Scheduled(_)) {
                self.pending(|pending| pending - 1);
            }
            outcomes.push(outcome);
        }
        outcomes
    }

    fn acked(&self, tasks: &[TaskHash]) {
        self.acked.lock().unwrap().extend(tasks);
    }
}

struct FakeCatalog(Vec<&'static str>);

#[async_trait]
impl Catalog for FakeCatalog {
    async fn look_up(
        &self,
        job_types: &[JobType],
        _: Freshness,
    ) -> Result<BTreeMap<JobType, JobEntities>, CatalogError> {
        let found = |name: &JobType| {
            let job = Job { name: name.to_string(), platform: "LINUX".into(), ..Job::default() };
            let jobs = if self.0.contains(&name.as_str()) { vec![job] } else { vec![] };
            (name.clone(), JobEntities { jobs, ..JobEntities::default() })
        };
        Ok(job_types.iter().map(found).collect())
    }
}

struct NoFlags;

#[async_trait]
impl FlagSource for NoFlags {
    async fn read(&self) -> Result<FlagSet, FlagsError> {
        Ok(FlagSet::default())
    }
}

struct FakeResolver;

impl Resolver for FakeResolver {
    fn resolve(
        &self,
        key: &WorkloadKey,
        entities: &JobEntities,
        _: &FlagSet,
    ) -> Result<Workload, Deferral> {
        assert_ne!(key.job_type.as_str(), "explosive", "resolving went wrong");
        if entities.jobs.is_empty() {
            let again = Duration::from_secs(60);
            return Err(Deferral::new(
                Scope::Workload,
                HoldKind::UnknownJobType,
                "no such job type",
                again,
            ));
        }
        Ok(workload(key.clone()))
    }

    fn expected_run(&self, _: &Command) -> Duration {
        Duration::from_secs(6 * 3600)
    }
}

fn workload(key: WorkloadKey) -> Workload {
    let quantity = |text| Quantity::parse(text).unwrap();
    Workload {
        key,
        mapping: "LINUX-PREEMPTIBLE-UNPRIVILEGED".into(),
        platform: "LINUX".into(),
        project: None,
        base_os_version: None,
        image: "image".into(),
        release: "prod".into(),
        account: Account::Existing { name: "sa".into() },
        isolation: Isolation::Kata,
        duration: Duration::from_secs(21_600),
        disk_gb: None,
        profile: Profile {
            cpu: quantity("2"),
            memory: quantity("3.75Gi"),
            shm: quantity("1.9Gi"),
            disk: Disk::Unrequested,
            scratch: BTreeMap::new(),
            privileged: true,
            host_network: false,
            host_network_exception: false,
            dns_policy: "ClusterFirstWithHostNet".into(),
            runtime_class: "kata".into(),
            restart: Restart::Upstream,
            backoff_limit: 0,
            ttl: Duration::from_secs(100),
            deadline: None,
            node_selector: BTreeMap::new(),
            tolerations: vec![],
            priority_class: None,
            env: BTreeMap::new(),
            labels: BTreeMap::new(),
        },
    }
}

/// A whole small world.
struct World {
    queue: Arc<MemoryQueue>,
    backend: Arc<FakeBackend>,
    pipeline: Pipeline,
}

fn world(answer: Answer, pending: usize, limit: usize, once: bool) -> World {
    let clock: Arc<dyn Clock> =
        Arc::new(PacedClock::starting_at("2026-03-01T00:00:00Z".parse::<Timestamp>().unwrap()));
    let queue = Arc::new(MemoryQueue::new("q".into(), Arc::clone(&clock)));
    let room = Room::Known(Occupancy { pending, pending_limit: limit, live: 0, live_limit: None });
    let backend = Arc::new(FakeBackend {
        name: "fake".into(),
        room: watch::Sender::new(room),
        answer,
        calls: Mutex::default(),
        acked: Mutex::default(),
    });
    let leases = Leases::new(queue.clone() as Arc<dyn Queue>, Duration::from_secs(60));
    tokio::spawn(Arc::clone(&leases).run());
    let pipeline = Pipeline::new(Deps {
        clock,
        queues: vec![QueueBinding {
            leases,
            queue: queue.clone(),
            base_os_version: None,
            max_panics: 3,
        }],
        catalog: Arc::new(FakeCatalog(vec!["a", "b", "explosive"])),
        flags: Arc::new(NoFlags),
        resolver: Arc::new(FakeResolver),
        backends: vec![BackendBinding {
            backend: backend.clone(),
            candidate: Candidate { name: "fake".into(), flag: None, default_weight: 1.0 },
        }],
        settings: Settings {
            held: 1000,
            flags_max_age: Duration::from_secs(600),
            once,
            grace: Duration::from_secs(20),
        },
        on_flags: Box::new(|_| {}),
        observer: None,
    });
    World { queue, backend, pipeline }
}

fn put(queue: &MemoryQueue, id: &str, job: &str, url: &str) {
    let pairs = [("command", "fuzz"), ("job", job), ("argument", url)];
    queue.put(id, pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
}

impl World {
    fn put(&self, job: &str, name: &str) {
        put(&self.queue, name, job, &format!("https://storage.googleapis.com/in/{name}"));
    }

    async fn drain(&mut self) -> Counts {
        let ended = self.pipeline.run(CancellationToken::new()).await.unwrap();
        assert_ne!(ended, Ended::Stopped);
        self.pipeline.tally().read()
    }

    /// Runs for a while of paused time, then stops.
    async fn run_for(&mut self, time: Duration) -> Counts {
        let stop = CancellationToken::new();
        let at = stop.clone();
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            at.cancel();
        });
        self.pipeline.run(stop).await.unwrap();
        self.pipeline.tally().read()
    }

    fn calls(&self) -> Vec<String> {
        self.backend.calls.lock().unwrap().clone()
    }
}

fn created(_: &str, _: u32) -> Outcome {
    Outcome::Scheduled(Placed::Created)
}

fn deferred(scope: Scope, kind: HoldKind, seconds: u64) -> Outcome {
    Outcome::Deferred(Deferral::new(scope, kind, "told so", Duration::from_secs(seconds)))
}

#[tokio::test(start_paused = true)]
async fn one_unknown_job_type_is_held_alone_and_the_others_are_acked() {
    let mut world = world(Box::new(created), 0, 1000, true);
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
    let mut world = world(Box::new(created), 0, 1000, false);
    world.put("ghost", "2");
    let counts = world.run_for(Duration::from_secs(29 * 60)).await;
    assert!(counts.rejected.is_empty(), "{counts:?}");
    let mut world = self::world(Box::new(created), 0, 1000, false);
    world.put("ghost", "2");
    let counts = world.run_for(Duration::from_secs(34 * 60)).await;
    assert_eq!(counts.rejected, [(RejectKind::UnknownJobType, 1)].into());
    assert!(world.queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn two_messages_of_one_input_are_one_submission_and_both_acked() {
    let mut world = world(Box::new(created), 0, 1000, true);
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
    let mut world = world(Box::new(answer), 0, 1000, true);
    (1..=5).for_each(|n| world.put("a", &n.to_string()));
    let counts = world.drain().await;
    assert_eq!((counts.created, world.calls().len()), (5, 6));
}

#[tokio::test(start_paused = true)]
async fn at_the_limit_nothing_is_leased_just_to_be_sent_back() {
    let mut world = world(Box::new(created), 999, 1000, false);
    (0..3000).for_each(|n| world.put("a", &n.to_string()));
    let counts = world.run_for(Duration::from_secs(60)).await;
    assert_eq!((counts.created, counts.leased, counts.released), (1, 1, 0));
    assert_eq!(world.queue.len(), 2999);
}

#[tokio::test(start_paused = true)]
async fn unknown_room_means_that_nothing_is_created() {
    let mut world = world(Box::new(created), 0, 1000, false);
    world.backend.room.send_replace(Room::Unknown("the pod list answers 503".into()));
    world.put("a", "1");
    assert_eq!(world.run_for(Duration::from_secs(60)).await.created, 0);
    assert!(world.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_closed_backend_is_not_called_until_its_time_and_nothing_is_lost() {
    let answer = |_: &str, _| deferred(Scope::Backend, HoldKind::Throttled, 7);
    let mut world = world(Box::new(answer), 0, 1000, false);
    world.put("a", "first");
    let counts = world.run_for(Duration::from_secs(6)).await;
    assert_eq!((counts.created, world.calls().len()), (0, 1));
    let mut again = self::world(Box::new(answer), 0, 1000, false);
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
    let mut world = world(Box::new(answer), 0, 1000, true);
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
    let mut world = world(Box::new(created), 0, 1000, true);
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
}

#[tokio::test(start_paused = true)]
async fn the_fuse_stops_intake_before_a_farms_fault_empties_the_queue() {
    let mut world = world(Box::new(created), 0, 1000, true);
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
    let mut world = world(Box::new(answer), 0, 1000, false);
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
    let mut world = world(Box::new(answer), 0, 1000, false);
    world.put("a", "1");
    let counts = world.run_for(Duration::from_secs(3 * 3600 + 60)).await;
    assert_eq!((counts.leased, world.calls().len()), (1, 4));
}

#[tokio::test(start_paused = true)]
async fn a_broken_workload_with_a_long_queue_does_not_stop_the_others() {
    let mut world = world(Box::new(created), 0, 100_000, false);
    (0..3000).for_each(|n| world.put("ghost", &format!("g{n}")));
    (0..10).for_each(|n| world.put("a", &n.to_string()));
    let counts = world.run_for(Duration::from_secs(300)).await;
    assert_eq!(counts.created, 10);
    assert!(counts.rejected.is_empty());
}
