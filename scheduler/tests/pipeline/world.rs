//! A small world: a queue in memory, and a backend that does as it is told.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use katabatch::backend::{Backend, Finished};
use katabatch::clock::{Clock, PacedClock};
use katabatch::domain::input_url::InputUrl;
use katabatch::domain::name::{BackendName, TaskHash};
use katabatch::domain::outcome::*;
use katabatch::domain::room::{Occupancy, Room};
use katabatch::domain::task::{Task, WorkloadKey};
use katabatch::domain::workload::*;
use katabatch::gate::Candidate;
use katabatch::gate::routes::Routes;
use katabatch::leadership::Alone;
use katabatch::pipeline::breaker::Patience;
use katabatch::pipeline::leases::Leases;
use katabatch::pipeline::tally::Counts;
use katabatch::pipeline::work::Work;
use katabatch::pipeline::*;
use katabatch::queue::Queue;
use katabatch::queue::memory::MemoryQueue;
use katabatch::queue::push::{Answer as Told, Posted, PushQueue};
use katabatch::records::{InMemory, Records};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::farm::{FakeCatalog, FakeResolver, Flags};

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
    /// The names of inputs that an earlier request may still make a Job of.
    pub bound: Mutex<Vec<String>>,
    /// What it says unasked.
    pub knows: Mutex<Option<bool>>,
    /// It can't say what it has.
    pub silent: Mutex<bool>,
    /// How often it was cleared.
    pub cleared: Mutex<usize>,
}

impl FakeBackend {
    pub fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }

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
            if !matches!(outcome, Outcome::Scheduled(_) | Outcome::Running(..)) {
                self.pending(|pending| pending - 1);
            }
            outcomes.push(outcome);
        }
        outcomes
    }

    async fn has(&self, task: &Task) -> Result<bool, Deferral> {
        if *self.silent.lock().unwrap() {
            let soon = Duration::from_secs(5);
            return Err(Deferral::new(Scope::Task, HoldKind::BackendFailed, "no answer", soon));
        }
        Ok(names(&self.there, task))
    }

    fn knows(&self, _: &Task) -> Option<bool> {
        *self.knows.lock().unwrap()
    }

    fn binds(&self, task: &Task) -> bool {
        names(&self.bound, task)
    }

    async fn clear(&self) -> Result<usize, Deferral> {
        *self.cleared.lock().unwrap() += 1;
        Ok(0)
    }

    fn acked(&self, tasks: &[TaskHash]) {
        self.acked.lock().unwrap().extend(tasks);
    }
}

fn names(inputs: &Mutex<Vec<String>>, task: &Task) -> bool {
    inputs.lock().unwrap().iter().any(|name| task.input.reveal().contains(name.as_str()))
}

/// A whole small world.
pub struct World {
    pub queue: Arc<MemoryQueue>,
    pub push: Arc<PushQueue>,
    /// The first backend.
    pub backend: Arc<FakeBackend>,
    pub backends: Vec<Arc<FakeBackend>>,
    pub pipeline: Pipeline,
}

/// What outlives a process, for a world that goes on in another one.
pub struct Kept {
    pub clock: Arc<dyn Clock>,
    pub queue: Arc<MemoryQueue>,
    pub records: Arc<InMemory>,
    pub controls: Arc<InMemory>,
    pub flags: Arc<Flags>,
    pub routes: Routes,
    /// How what was created fares, where a test says so.
    pub work: Option<Arc<dyn Work>>,
    /// The ends of Jobs, which the queue's messages wait for; `None`: they wait for none.
    pub ends: Mutex<Option<mpsc::UnboundedReceiver<Finished>>>,
}

impl Default for Kept {
    fn default() -> Self {
        let epoch: Timestamp = "2026-03-01T00:00:00Z".parse().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(PacedClock::starting_at(epoch));
        Self {
            queue: Arc::new(MemoryQueue::new("q".into(), Arc::clone(&clock))),
            clock,
            records: Arc::default(),
            controls: Arc::default(),
            flags: Arc::default(),
            routes: Routes::default(),
            work: None,
            ends: Mutex::default(),
        }
    }
}

pub fn backend(name: &str, answer: Answer, pending: usize, limit: usize) -> Arc<FakeBackend> {
    let room = Room::Known(Occupancy { pending, pending_limit: limit, live: 0, live_limit: None });
    Arc::new(FakeBackend {
        name: name.into(),
        room: watch::Sender::new(room),
        answer,
        calls: Mutex::default(),
        acked: Mutex::default(),
        there: Mutex::default(),
        bound: Mutex::default(),
        knows: Mutex::default(),
        silent: Mutex::default(),
        cleared: Mutex::default(),
    })
}

pub fn world(answer: Answer, pending: usize, limit: usize, once: bool) -> World {
    let kept = Kept::default();
    kept.flags.weigh("fake", 1.0);
    world_of(&kept, vec![backend("fake", answer, pending, limit)], once)
}

/// A process over what is kept, with these backends; the flag of each is named as it is.
pub fn world_of(kept: &Kept, backends: Vec<Arc<FakeBackend>>, once: bool) -> World {
    let Kept { clock, queue, records, controls, flags, routes, work, ends } = kept;
    let ends = ends.lock().unwrap().take();
    let push = PushQueue::new("push".into(), Arc::clone(clock));
    let bind_queue = |queue: Arc<dyn Queue>, hold, completes| {
        let leases = Leases::new(Arc::clone(&queue), Duration::from_secs(60));
        tokio::spawn(Arc::clone(&leases).run());
        QueueBinding { leases, queue, base_os_version: None, max_panics: 3, completes, hold }
    };
    let queues = vec![
        bind_queue(queue.clone(), true, ends.is_some()),
        bind_queue(push.clone(), false, false),
    ];
    let bind = |backend: &Arc<FakeBackend>| BackendBinding {
        backend: backend.clone(),
        candidate: Candidate {
            name: backend.name.clone(),
            flag: Some(backend.name.to_string()),
            default_weight: 0.0,
        },
    };
    let pipeline = Pipeline::new(Deps {
        clock: Arc::clone(clock),
        queues,
        catalog: Arc::new(FakeCatalog(vec!["a", "b", "explosive", "android-a"])),
        flags: flags.clone(),
        ends,
        resolver: Arc::new(FakeResolver),
        backends: backends.iter().map(bind).collect(),
        routes: routes.clone(),
        leadership: Arc::new(Alone { since: clock.wall() }),
        records: records.clone() as Arc<dyn Records>,
        controls: controls.clone() as Arc<dyn Records>,
        settings: Settings {
            held: 1000,
            flags_max_age: Duration::from_secs(600),
            once,
            grace: Duration::from_secs(20),
            spill_after: Duration::from_secs(600),
            patience: Patience {
                stuck_after: Duration::from_secs(600),
                probe_after: Duration::from_secs(60),
            },
            workload_share: 0.5,
        },
        on_flags: Box::new(|_| {}),
        work: work.clone(),
        observer: None,
    });
    let backend = backends[0].clone();
    World { queue: queue.clone(), push, backend, backends, pipeline }
}

pub fn put(queue: &MemoryQueue, id: &str, job: &str, url: &str) {
    let pairs = [("command", "fuzz"), ("job", job), ("argument", url)];
    queue.put(id, pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
}

/// A task as the HTTP endpoint hands it on.
pub fn posted<const N: usize>(
    job: &str,
    id: &str,
    url: &str,
    more: [(String, String); N],
) -> Posted {
    let pairs = [("command", "fuzz"), ("job", job), ("argument", url)];
    let key = WorkloadKey { command: "fuzz".into(), job_type: job.into() };
    let hash = Task::new(key, InputUrl::parse(url).unwrap(), id, Timestamp::UNIX_EPOCH).hash;
    let pairs = pairs.map(|(k, v)| (k.to_owned(), v.to_owned()));
    let attributes = pairs.into_iter().chain(more).collect();
    Posted { hash, message_id: id.to_owned(), attributes }
}

impl World {
    pub fn put(&self, job: &str, name: &str) {
        put(&self.queue, name, job, &format!("https://storage.googleapis.com/in/{name}"));
    }

    /// Posts a task, as the HTTP endpoint does.
    pub fn post(&self, job: &str, name: &str) -> oneshot::Receiver<Told> {
        self.post_url(job, name, &format!("https://storage.googleapis.com/in/{name}"))
    }

    /// Posts a task with one label.
    pub fn post_labelled(&self, name: &str, label: (&str, &str)) -> oneshot::Receiver<Told> {
        let url = format!("https://storage.googleapis.com/in/{name}");
        let (key, value) = label;
        let key = format!("{}{key}", katabatch::domain::labels::PREFIX);
        self.post_with("a", name, &url, [(key, value.to_owned())])
    }

    pub fn post_url(&self, job: &str, id: &str, url: &str) -> oneshot::Receiver<Told> {
        self.post_with(job, id, url, [])
    }

    fn post_with<const N: usize>(
        &self,
        job: &str,
        id: &str,
        url: &str,
        more: [(String, String); N],
    ) -> oneshot::Receiver<Told> {
        self.push.push(posted(job, id, url, more)).unwrap()
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
        self.backend.calls()
    }
}
