//! A small world: a queue in memory, and a backend that does as it is told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use katabatch::backend::Backend;
use katabatch::catalog::entity::{Job, JobEntities};
use katabatch::catalog::{Catalog, CatalogError, Freshness};
use katabatch::clock::{Clock, PacedClock};
use katabatch::domain::input_url::InputUrl;
use katabatch::domain::name::{BackendName, Command, JobType, TaskHash};
use katabatch::domain::outcome::*;
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
use katabatch::queue::push::{Answer as Told, Posted, PushQueue};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

/// What the backend does with a task, by the last part of its input's path.
pub type Answer = Box<dyn Fn(&str, u32) -> Outcome + Send + Sync>;

pub struct FakeBackend {
    name: BackendName,
    pub room: watch::Sender<Room>,
    answer: Answer,
    calls: Mutex<Vec<String>>,
    pub acked: Mutex<Vec<TaskHash>>,
    /// The names of inputs that have a Job already.
    pub there: Mutex<Vec<String>>,
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

    async fn has(&self, task: &Task) -> Result<bool, Deferral> {
        let there = self.there.lock().unwrap();
        Ok(there.iter().any(|name| task.input.reveal().contains(name.as_str())))
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
        profile: Profile { ttl: Duration::from_secs(100), ..Profile::default() },
    }
}

/// A whole small world.
pub struct World {
    pub queue: Arc<MemoryQueue>,
    pub push: Arc<PushQueue>,
    pub backend: Arc<FakeBackend>,
    pub pipeline: Pipeline,
}

pub fn world(answer: Answer, pending: usize, limit: usize, once: bool) -> World {
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
        there: Mutex::default(),
    });
    let push = PushQueue::new("push".into(), Arc::clone(&clock));
    let bind = |queue: Arc<dyn Queue>, hold| {
        let leases = Leases::new(Arc::clone(&queue), Duration::from_secs(60));
        tokio::spawn(Arc::clone(&leases).run());
        QueueBinding { leases, queue, base_os_version: None, max_panics: 3, hold }
    };
    let pipeline = Pipeline::new(Deps {
        clock,
        queues: vec![bind(queue.clone(), true), bind(push.clone(), false)],
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
    World { queue, push, backend, pipeline }
}

pub fn put(queue: &MemoryQueue, id: &str, job: &str, url: &str) {
    let pairs = [("command", "fuzz"), ("job", job), ("argument", url)];
    queue.put(id, pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
}

impl World {
    pub fn put(&self, job: &str, name: &str) {
        put(&self.queue, name, job, &format!("https://storage.googleapis.com/in/{name}"));
    }

    /// Posts a task, as the HTTP endpoint does.
    pub fn post(&self, job: &str, name: &str) -> oneshot::Receiver<Told> {
        self.post_url(job, name, &format!("https://storage.googleapis.com/in/{name}"))
    }

    pub fn post_url(&self, job: &str, id: &str, url: &str) -> oneshot::Receiver<Told> {
        let pairs = [("command", "fuzz"), ("job", job), ("argument", url)];
        let key = WorkloadKey { command: "fuzz".into(), job_type: job.into() };
        let hash = Task::new(key, InputUrl::parse(url).unwrap(), id, Timestamp::UNIX_EPOCH).hash;
        let attributes = pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        self.push.push(Posted { hash, message_id: id.to_owned(), attributes }).unwrap()
    }

    pub async fn drain(&mut self) -> Counts {
        let ended = self.pipeline.run(CancellationToken::new()).await.unwrap();
        assert_ne!(ended, Ended::Stopped);
        self.pipeline.tally().read()
    }

    /// Runs for a while of paused time, then stops.
    pub async fn run_for(&mut self, time: Duration) -> Counts {
        let stop = CancellationToken::new();
        let at = stop.clone();
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            at.cancel();
        });
        self.pipeline.run(stop).await.unwrap();
        self.pipeline.tally().read()
    }

    pub fn calls(&self) -> Vec<String> {
        self.backend.calls.lock().unwrap().clone()
    }
}
