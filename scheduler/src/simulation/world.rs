//! The world of one simulated run: what outlives a crash, and what must hold in it.

mod completed;
mod life;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::select_all;
use jiff::Timestamp;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::chaos::{Chaos, ChaosApi, ChaosQueue};
use super::farm::{AnyCatalog, OneWorkload, Weighing};
use super::fates::{ATTEMPTS, Fates, RetryFailures};
use super::listener::Told;
use super::posted::{Door, Sender};
use crate::backend::kubernetes::fake::FakeCluster;
use crate::backend::kubernetes::successive::Successive;
use crate::backend::kubernetes::{Fatal, Settings as BackendSettings};
use crate::clock::{Clock, PacedClock};
use crate::domain::message::{Decoded, decode};
use crate::flags::{Flag, FlagSet};
use crate::gate::Candidate;
use crate::gate::routes::Routes;
use crate::leadership::Leadership;
use crate::pipeline::breaker::Patience;
use crate::pipeline::leases::Leases;
use crate::pipeline::{BackendBinding, Deps, Pipeline, PipelineError, QueueBinding, Settings};
use crate::queue::memory::MemoryQueue;
use crate::queue::push::PushQueue;
use crate::queue::{LeaseId, Queue};
use crate::records::InMemory;
use crate::render::{Policy, Templates};

/// The pending limit of each cluster, below the number of tasks.
const LIMIT: usize = 5;
/// Everything must be done by then.
const DEADLINE: Duration = Duration::from_secs(3 * 3600);
/// The clusters; the first is home.
const CLUSTERS: usize = 2;
/// The weights that a change of flags may set, each a pair.
const WEIGHTS: [[f64; CLUSTERS]; 6] =
    [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.2, 0.8], [0.3, 0.3], [0.8, 0.2]];

/// A cluster, and until when it is away.
struct Place {
    cluster: FakeCluster,
    away: Arc<Mutex<Instant>>,
}

/// What outlives a crash.
pub struct World {
    pub chaos: Arc<Chaos>,
    clock: Arc<dyn Clock>,
    queue: Arc<MemoryQueue>,
    places: Vec<Place>,
    flags: Arc<Mutex<FlagSet>>,
    controls: Arc<InMemory>,
    templates: Arc<Templates>,
    /// Messages that are published later.
    to_come: Mutex<VecDeque<(String, BTreeMap<String, String>)>>,
    sender: Sender,
    /// The Job's name by message id, of the messages that are tasks.
    tasks: BTreeMap<String, String>,
    bad: usize,
    /// The first breach of the contract.
    broken: Arc<Mutex<Option<String>>>,
    /// The Jobs whose end was told, by whatever process.
    told: Told,
    /// The exit codes of the Jobs that have ended.
    fates: Fates,
    /// Messages wait for their Jobs' ends.
    completes: bool,
}

fn made(clusters: &[FakeCluster], job: &str) -> usize {
    clusters.iter().map(|cluster| cluster.made(job)).sum()
}

fn flags(weights: [f64; CLUSTERS]) -> FlagSet {
    let flag = |value| Flag { enabled: true, value: Some(value), ..Flag::default() };
    FlagSet(weights.iter().enumerate().map(|(at, w)| (format!("w{at}"), flag(*w))).collect())
}

impl World {
    /// With `completes`, messages wait for their Jobs' ends.
    pub fn new(seed: u64, completes: bool) -> Self {
        let epoch: Timestamp = "2026-03-01T00:00:00Z".parse().expect("a time");
        let clock: Arc<dyn Clock> = Arc::new(PacedClock::starting_at(epoch));
        let chaos = Arc::new(Chaos::new(seed));
        let queue = Arc::new(MemoryQueue::new("q".into(), Arc::clone(&clock)));
        if completes {
            queue.allow_attempts(ATTEMPTS);
        }
        let (mut tasks, mut bad, mut to_come) = (BTreeMap::new(), 0, VecDeque::new());
        for n in 0..6 + chaos.draw(8) {
            let (id, job) = (format!("m{n}"), format!("job_{}", chaos.draw(3)));
            // Some inputs are queued twice, under two signatures.
            let object = chaos.draw(12);
            let url = format!("https://storage.googleapis.com/in/{object}?X-Goog-Signature={n}");
            let url = if chaos.draw(12) == 0 { "nonsense".to_owned() } else { url };
            let pairs = [("command", "fuzz"), ("job", &job), ("argument", &url)];
            let attributes: BTreeMap<String, String> =
                pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
            match decode(&attributes, &id, epoch, None) {
                Ok(Decoded::Task(task)) => {
                    tasks.insert(id.clone(), task.job_name().to_string());
                }
                _ => bad += 1,
            }
            match chaos.draw(2) {
                0 => queue.put(&id, attributes),
                _ => to_come.push_back((id, attributes)),
            }
        }
        let sender = Sender::new(Arc::clone(&chaos), epoch, 6);
        tasks.extend(sender.jobs());
        let place = |_| Place {
            cluster: FakeCluster::new(Arc::clone(&clock)),
            away: Arc::new(Mutex::new(Instant::now())),
        };
        Self {
            places: (0..CLUSTERS).map(place).collect(),
            flags: Arc::new(Mutex::new(flags(WEIGHTS[chaos.draw(6) as usize]))),
            controls: Arc::default(),
            templates: Arc::new(Templates::embedded().expect("templates")),
            to_come: Mutex::new(to_come),
            sender,
            broken: Arc::default(),
            told: Told::default(),
            fates: Fates::new(completes),
            completes,
            chaos,
            clock,
            queue,
            tasks,
            bad,
        }
    }

    pub fn history(&self) -> Vec<String> {
        self.chaos.history()
    }

    fn clusters(&self) -> Vec<FakeCluster> {
        self.places.iter().map(|place| place.cluster.clone()).collect()
    }

    /// Nothing is acked whose Job was never made.
    fn watched_queue(&self) -> Arc<ChaosQueue> {
        let (clusters, tasks) = (self.clusters(), self.tasks.clone());
        let broken = Arc::clone(&self.broken);
        let (fates, completes) = (self.fates.clone(), self.completes);
        let before_ack = move |lease: &LeaseId| {
            let id = lease.0.split('/').next().unwrap_or_default();
            if completes && tasks.get(id).is_some_and(|job| !fates.of(job).contains(&0)) {
                let breach = format!("message {id} is acked before its Job is complete");
                broken.lock().unwrap().get_or_insert(breach);
            }
            if tasks.get(id).map(|job| made(&clusters, job)) == Some(0) {
                let breach = format!("message {id} is acked before its Job was made");
                broken.lock().unwrap().get_or_insert(breach);
            }
        };
        Arc::new(ChaosQueue {
            chaos: Arc::clone(&self.chaos),
            queue: Arc::clone(&self.queue),
            before_ack: Box::new(before_ack),
        })
    }

    /// What must hold at any time.
    fn check(&self) -> Result<(), String> {
        if let Some(broken) = self.broken.lock().unwrap().clone() {
            return Err(broken);
        }
        let clusters = self.clusters();
        if let Some(job) = self.tasks.values().find(|job| made(&clusters, job) > 1) {
            let on: Vec<usize> = clusters.iter().map(|cluster| cluster.made(job)).collect();
            return Err(format!("{job} was made twice: {on:?}"));
        }
        self.fates.check(&clusters, self.tasks.values())?;
        let most = clusters.iter().map(FakeCluster::most_pending).max().unwrap_or_default();
        if most > LIMIT {
            return Err(format!("{most} were pending, over the limit of {LIMIT}"));
        }
        Ok(())
    }

    /// Whether nothing is left to do.
    fn done(&self) -> bool {
        self.queue.is_empty()
            && self.to_come.lock().unwrap().is_empty()
            && self.fates.unanswered(&self.clusters()).is_none()
            && self.sender.is_done()
    }

    /// What must hold at the end.
    fn check_end(&self) -> Result<(), String> {
        self.check()?;
        if !self.done() {
            return Err(format!("{} messages are left", self.queue.len()));
        }
        let clusters = self.clusters();
        if let Some(job) = self.tasks.values().find(|job| made(&clusters, job) != 1) {
            return Err(format!("{job} was made {} times", made(&clusters, job)));
        }
        let there = |job: &str| {
            clusters.iter().any(|cluster| cluster.jobs().iter().any(|there| there.name == job))
        };
        if let Some(job) = self.tasks.values().find(|job| !self.told.has(job) && !there(job)) {
            return Err(format!("{job} went without its end being told"));
        }
        if self.completes {
            return self.check_completed();
        }
        let quarantined = self.queue.quarantined().len();
        if quarantined != self.bad {
            return Err(format!("{quarantined} in quarantine, {} bad messages", self.bad));
        }
        Ok(())
    }

    fn backend(&self, at: usize, home: Option<Arc<dyn Leadership>>) -> Arc<Successive> {
        let Place { cluster, away } = &self.places[at];
        let api = Arc::new(ChaosApi {
            chaos: Arc::clone(&self.chaos),
            cluster: cluster.clone(),
            away: Arc::clone(away),
        });
        let settings = BackendSettings {
            name: format!("k8s-{at}").into(),
            namespace: "farm".into(),
            scheduler: "sim".into(),
            pending_limit_default: LIMIT,
            live_limit: None,
            creates_per_second: None,
            window: 4,
            request_timeout: Duration::from_secs(3),
            retain_finished: Duration::from_secs(600),
            policy: Policy { strict: false },
            templates: Arc::clone(&self.templates),
            identity: format!("process-{}", self.chaos.draw(u64::MAX)),
            seed: self.chaos.draw(u64::MAX),
            home,
        };
        Successive::new(api, Arc::clone(&self.clock), settings)
    }

    /// Starts a process of the scheduler over the world as it is.
    fn start(&self, which: usize) -> Process {
        let mut parts = Process::new();
        let home = self.backend(0, None);
        let leadership = home.current().leadership();
        let backends = [Arc::clone(&home), self.backend(1, Some(Arc::clone(&leadership)))];
        let listener = self.told.listener(&self.chaos, &self.broken, &self.fates);
        let (follower, ends) = completed::follower();
        for backend in &backends {
            backend.tell_ends(Arc::clone(&listener));
            backend.retry_by(Arc::new(RetryFailures));
            backend.follow_by(Arc::clone(&follower));
        }
        let queue = self.watched_queue();
        let push = PushQueue::new("push".into(), Arc::clone(&self.clock));
        let door = Door { queue: Arc::clone(&push), leadership: Arc::clone(&leadership) };
        self.sender.open(which, door);
        let mut bind_queue = |queue: Arc<dyn Queue>, hold| {
            let leases = Leases::new(Arc::clone(&queue), Duration::from_secs(30));
            let keeping = Arc::clone(&leases).run();
            parts.spawn(async move {
                keeping.await;
                Ok(())
            });
            // Who posts waits for an answer, not for an end.
            let completes = self.completes && hold;
            QueueBinding { leases, queue, base_os_version: None, max_panics: 3, completes, hold }
        };
        let queues = vec![bind_queue(queue, true), bind_queue(push, false)];
        for backend in backends.clone() {
            parts.spawn(async move { backend.run(CancellationToken::new()).await });
        }
        let bind = |(at, backend): (usize, Arc<Successive>)| BackendBinding {
            candidate: Candidate {
                name: format!("k8s-{at}").into(),
                flag: Some(format!("w{at}")),
                default_weight: 0.0,
            },
            backend,
        };
        let mut pipeline = Pipeline::new(Deps {
            clock: Arc::clone(&self.clock),
            queues,
            ends: Some(ends),
            catalog: Arc::new(AnyCatalog),
            flags: Arc::new(Weighing(Arc::clone(&self.flags))),
            resolver: Arc::new(OneWorkload),
            backends: backends.into_iter().enumerate().map(bind).collect(),
            routes: Routes::default(),
            leadership,
            records: home.records(),
            controls: self.controls.clone(),
            settings: Settings {
                held: 100,
                flags_max_age: Duration::from_secs(600),
                once: false,
                grace: Duration::from_secs(20),
                spill_after: Duration::from_secs(20),
                patience: Patience {
                    stuck_after: Duration::from_secs(600),
                    probe_after: Duration::from_secs(60),
                },
                workload_share: 0.5,
            },
            on_flags: Box::new(|_| {}),
            work: None,
            observer: None,
        });
        parts.spawn(async move {
            match pipeline.run(CancellationToken::new()).await {
                Ok(_) => Ok(()),
                Err(PipelineError::Overtaken(why)) => {
                    let (scheduler, why) = ("sim".to_owned(), why.to_string());
                    Err(Fatal::LostLease { scheduler, why })
                }
                Err(error) => panic!("{error}"),
            }
        });
        parts
    }
}

/// One process of the scheduler, by its parts, none of which ends but for a lost Lease.
type Process = JoinSet<Result<(), Fatal>>;

/// Waits until one of the processes ends, as each may that has lost its Lease: which one.
async fn next_end(processes: &mut [Process]) -> Result<usize, String> {
    let ends = processes.iter_mut().map(|process| Box::pin(process.join_next()));
    let (ended, which, _) = select_all(ends).await;
    match ended {
        Some(Ok(Err(Fatal::LostLease { .. }))) => Ok(which),
        ended => Err(format!("a part ended: {ended:?}")),
    }
}

/// Runs until everything is done, over all crashes. One process or, in a third of the runs, two.
pub async fn run_to_the_end(world: &World) -> Result<(), String> {
    let deadline = Instant::now() + DEADLINE;
    let count = if world.chaos.draw(3) == 0 { 2 } else { 1 };
    loop {
        let crash = world.chaos.next_crash();
        let mut processes: Vec<Process> = (0..count).map(|which| world.start(which)).collect();
        loop {
            let pause = Duration::from_millis(100 + world.chaos.draw(900));
            tokio::select! {
                biased;
                () = crash.cancelled() => break,
                ended = next_end(&mut processes) => {
                    let which = ended?;
                    world.chaos.note(&format!("process {which} has lost its Lease"));
                    processes[which].shutdown().await;
                    processes[which] = world.start(which);
                }
                () = tokio::time::sleep(pause) => life::live(world),
            }
            world.check()?;
            if world.done() && world.chaos.calm() {
                return world.check_end();
            }
            if Instant::now() > deadline {
                return Err(format!("not done in time: {} messages left", world.queue.len()));
            }
        }
        // A crash: everything of these processes is gone at once.
        for process in &mut processes {
            process.shutdown().await;
        }
        world.sender.crashed();
        world.check()?;
    }
}
