//! The world of one simulated run: what outlives a crash, and what must hold in it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::select_all;
use jiff::Timestamp;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::chaos::{Chaos, ChaosApi, ChaosQueue};
use crate::backend::kubernetes::fake::FakeCluster;
use crate::backend::kubernetes::{Fatal, KubernetesBackend, Settings as BackendSettings};
use crate::catalog::entity::{Job, JobEntities};
use crate::catalog::{Catalog, CatalogError, Freshness};
use crate::clock::{Clock, PacedClock};
use crate::domain::message::{Decoded, decode};
use crate::domain::name::{Command, JobType};
use crate::domain::outcome::Deferral;
use crate::domain::task::WorkloadKey;
use crate::domain::workload::{Account, Isolation, Workload, upstream_duration};
use crate::flags::{FlagSet, FlagSource, FlagsError};
use crate::gate::Candidate;
use crate::pipeline::leases::Leases;
use crate::pipeline::{BackendBinding, Deps, Pipeline, QueueBinding, Resolver, Settings};
use crate::queue::memory::MemoryQueue;
use crate::queue::{LeaseId, Queue};
use crate::render::{Policy, Templates};

/// The pending limit of the run, below the number of tasks.
const LIMIT: usize = 5;
/// Everything must be done by then.
const DEADLINE: Duration = Duration::from_secs(3 * 3600);

/// What outlives a crash.
pub struct World {
    pub chaos: Arc<Chaos>,
    clock: Arc<dyn Clock>,
    queue: Arc<MemoryQueue>,
    cluster: FakeCluster,
    templates: Arc<Templates>,
    /// The Job's name by message id, of the messages that are tasks.
    tasks: BTreeMap<String, String>,
    bad: usize,
    /// The first breach of the contract.
    broken: Arc<Mutex<Option<String>>>,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let epoch: Timestamp = "2026-03-01T00:00:00Z".parse().expect("a time");
        let clock: Arc<dyn Clock> = Arc::new(PacedClock::starting_at(epoch));
        let chaos = Arc::new(Chaos::new(seed));
        let queue = Arc::new(MemoryQueue::new("q".into(), Arc::clone(&clock)));
        let (mut tasks, mut bad) = (BTreeMap::new(), 0);
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
            queue.put(&id, attributes);
        }
        Self {
            cluster: FakeCluster::new(Arc::clone(&clock)),
            templates: Arc::new(Templates::embedded().expect("templates")),
            broken: Arc::default(),
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

    /// Nothing is acked whose Job was never made.
    fn watched_queue(&self) -> Arc<ChaosQueue> {
        let (cluster, tasks) = (self.cluster.clone(), self.tasks.clone());
        let broken = Arc::clone(&self.broken);
        let before_ack = move |lease: &LeaseId| {
            let id = lease.0.split('/').next().unwrap_or_default();
            let made = tasks.get(id).map(|job| cluster.made(job));
            if made == Some(0) {
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
        if let Some(job) = self.tasks.values().find(|job| self.cluster.made(job) > 1) {
            return Err(format!("{job} was made twice"));
        }
        let most = self.cluster.most_pending();
        if most > LIMIT {
            return Err(format!("{most} were pending, over the limit of {LIMIT}"));
        }
        Ok(())
    }

    /// Whether nothing is left to do.
    fn done(&self) -> bool {
        self.queue.is_empty()
    }

    /// What must hold at the end.
    fn check_end(&self) -> Result<(), String> {
        self.check()?;
        if !self.done() {
            return Err(format!("{} messages are left", self.queue.len()));
        }
        if let Some(job) = self.tasks.values().find(|job| self.cluster.made(job) != 1) {
            return Err(format!("{job} was made {} times", self.cluster.made(job)));
        }
        let quarantined = self.queue.quarantined().len();
        if quarantined != self.bad {
            return Err(format!("{quarantined} in quarantine, {} bad messages", self.bad));
        }
        Ok(())
    }

    /// Starts a process of the scheduler over the world as it is.
    fn start(&self) -> Process {
        let mut parts = Process::new();
        let api =
            Arc::new(ChaosApi { chaos: Arc::clone(&self.chaos), cluster: self.cluster.clone() });
        let backend = KubernetesBackend::new(
            api,
            Arc::clone(&self.clock),
            BackendSettings {
                name: "k8s".into(),
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
            },
        );
        let queue = self.watched_queue();
        let leases = Leases::new(Arc::clone(&queue) as Arc<dyn Queue>, Duration::from_secs(30));
        let keeping = Arc::clone(&leases).run();
        parts.spawn(async move {
            keeping.await;
            Ok(())
        });
        let running = Arc::clone(&backend);
        parts.spawn(async move { running.run(CancellationToken::new()).await });
        let mut pipeline = Pipeline::new(Deps {
            clock: Arc::clone(&self.clock),
            queues: vec![QueueBinding {
                leases,
                queue,
                base_os_version: None,
                max_panics: 3,
                hold: true,
            }],
            catalog: Arc::new(AnyCatalog),
            flags: Arc::new(NoFlags),
            resolver: Arc::new(OneWorkload),
            backends: vec![BackendBinding {
                backend,
                candidate: Candidate { name: "k8s".into(), flag: None, default_weight: 1.0 },
            }],
            settings: Settings {
                held: 100,
                flags_max_age: Duration::from_secs(600),
                once: false,
                grace: Duration::from_secs(20),
            },
            on_flags: Box::new(|_| {}),
            observer: None,
        });
        parts.spawn(async move {
            pipeline.run(CancellationToken::new()).await.expect("it can go on");
            Ok(())
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
    let deadline = tokio::time::Instant::now() + DEADLINE;
    let count = if world.chaos.draw(3) == 0 { 2 } else { 1 };
    loop {
        let crash = world.chaos.next_crash();
        let mut processes: Vec<Process> = (0..count).map(|_| world.start()).collect();
        loop {
            let pause = Duration::from_millis(100 + world.chaos.draw(900));
            tokio::select! {
                biased;
                () = crash.cancelled() => break,
                ended = next_end(&mut processes) => {
                    let which = ended?;
                    world.chaos.note(&format!("process {which} has lost its Lease"));
                    processes[which].shutdown().await;
                    processes[which] = world.start();
                }
                () = tokio::time::sleep(pause) => live(world),
            }
            world.check()?;
            if world.done() && world.chaos.calm() {
                return world.check_end();
            }
            if tokio::time::Instant::now() > deadline {
                return Err(format!("not done in time: {} messages left", world.queue.len()));
            }
        }
        // A crash: everything of these processes is gone at once.
        for process in &mut processes {
            process.shutdown().await;
        }
        world.check()?;
    }
}

/// The cluster's own life: pods are made, start and end; watches are cut, expire and fall silent.
fn live(world: &World) {
    let cluster = &world.cluster;
    cluster.make_pods();
    for job in cluster.jobs() {
        match world.chaos.draw(6) {
            0 if job.progress.active => cluster.start(&job.name),
            1 if job.progress.started => cluster.finish(&job.name),
            _ => {}
        }
    }
    // What was on its way when its answer was given up arrives within a request's time.
    cluster.land_late();
    if world.chaos.calm() {
        return cluster.mute_watches(false);
    }
    match world.chaos.draw(30) {
        0 => cluster.cut_watches(),
        1 => cluster.expire_watches(),
        2 => cluster.mute_watches(true),
        3..6 => cluster.mute_watches(false),
        _ => {}
    }
}

struct AnyCatalog;

#[async_trait]
impl Catalog for AnyCatalog {
    async fn look_up(
        &self,
        job_types: &[JobType],
        _: Freshness,
    ) -> Result<BTreeMap<JobType, JobEntities>, CatalogError> {
        let entities = |name: &JobType| {
            let job = Job { name: name.to_string(), platform: "LINUX".into(), ..Job::default() };
            (name.clone(), JobEntities { jobs: vec![job], ..JobEntities::default() })
        };
        Ok(job_types.iter().map(entities).collect())
    }
}

struct NoFlags;

#[async_trait]
impl FlagSource for NoFlags {
    async fn read(&self) -> Result<FlagSet, FlagsError> {
        Ok(FlagSet::default())
    }
}

struct OneWorkload;

impl Resolver for OneWorkload {
    fn resolve(
        &self,
        key: &WorkloadKey,
        _: &JobEntities,
        _: &FlagSet,
    ) -> Result<Workload, Deferral> {
        let profiles = crate::config::profiles::Profiles::default();
        let mapping = "LINUX-PREEMPTIBLE-UNPRIVILEGED";
        Ok(Workload {
            key: key.clone(),
            mapping: mapping.into(),
            platform: "LINUX".into(),
            project: None,
            base_os_version: None,
            image: "image".into(),
            release: "prod".into(),
            account: Account::Google { name: "sa".into(), email: "sa@p.example".into() },
            isolation: Isolation::Kata,
            duration: upstream_duration(key.command.as_str()),
            disk_gb: None,
            profile: profiles.resolve(mapping, key),
        })
    }

    fn expected_run(&self, _: &Command) -> Duration {
        Duration::from_secs(3600)
    }
}
