//! Faults between the scheduler and its world, drawn from the run's seed.
//!
//! [`Chaos`] decides; the two wrappers put it before and after every call to the queue and to the
//! API server. What is done by a call is done by the wrapped model, at one instant.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use rand::Rng;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backend::kubernetes::api::*;
use crate::backend::kubernetes::facts::WorkPod;
use crate::backend::kubernetes::fake::{FakeCluster, Fault, Verb};
use crate::domain::log_tail::LogTail;
use crate::domain::name::QueueName;
use crate::domain::outcome::Rejection;
use crate::queue::memory::MemoryQueue;
use crate::queue::{Delivery, LeaseId, Queue, QueueError};

/// What may happen around one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Fine,
    Slow(u64),
    Fail,
    LoseAnswer,
    CrashBefore,
    CrashAfter,
}

/// Decides about every call, and keeps the history.
pub struct Chaos {
    rng: Mutex<ChaCha8Rng>,
    history: Mutex<Vec<String>>,
    start: Instant,
    /// Faults stop then, so that the run can end.
    calm_after: Duration,
    /// Until then no answer comes from anyone.
    outage: Mutex<Instant>,
    crashes_left: Mutex<u32>,
    crash: Mutex<CancellationToken>,
}

impl Chaos {
    pub fn new(seed: u64) -> Self {
        Self {
            rng: Mutex::new(ChaCha8Rng::seed_from_u64(seed)),
            history: Mutex::default(),
            start: Instant::now(),
            calm_after: Duration::from_secs(180),
            outage: Mutex::new(Instant::now()),
            crashes_left: Mutex::new(4),
            crash: Mutex::default(),
        }
    }

    /// A number below `n`.
    pub fn draw(&self, n: u64) -> u64 {
        self.rng.lock().unwrap().random_range(0..n)
    }

    pub fn note(&self, what: &str) {
        let at = self.start.elapsed().as_millis();
        self.history.lock().unwrap().push(format!("{at:>7} ms  {what}"));
    }

    pub fn history(&self) -> Vec<String> {
        self.history.lock().unwrap().clone()
    }

    /// Whether faults have stopped.
    pub fn calm(&self) -> bool {
        self.start.elapsed() > self.calm_after
    }

    /// The token that the next crash cancels.
    pub fn next_crash(&self) -> CancellationToken {
        let token = CancellationToken::new();
        *self.crash.lock().unwrap() = token.clone();
        token
    }

    fn fate(&self) -> Fate {
        if self.calm() {
            return Fate::Fine;
        }
        let now = Instant::now();
        let mut outage = self.outage.lock().unwrap();
        if *outage > now {
            return if self.draw(2) == 0 { Fate::Fail } else { Fate::LoseAnswer };
        }
        let roll = self.draw(1000);
        match roll {
            0..10 => {
                // Shorter than a Lease: a longer one ends the process.
                *outage = now + Duration::from_millis(self.draw(8_000));
                Fate::LoseAnswer
            }
            10..700 => Fate::Fine,
            700..850 => Fate::Slow(self.draw(4_000)),
            850..910 => Fate::Fail,
            910..970 => Fate::LoseAnswer,
            970..985 => Fate::CrashBefore,
            _ => Fate::CrashAfter,
        }
    }

    async fn crash(&self, call: &str, when: &str) {
        let crashes = {
            let mut left = self.crashes_left.lock().unwrap();
            if *left == 0 {
                return;
            }
            *left -= 1;
            *left
        };
        self.note(&format!("CRASH {when} {call} ({crashes} left)"));
        self.crash.lock().unwrap().cancel();
        std::future::pending::<()>().await;
    }

    /// Around one call: its fate before, the work, its fate after.
    async fn around<T, E>(
        &self,
        call: &str,
        fail: impl Fn(bool) -> E,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let fate = self.fate();
        match fate {
            Fate::Slow(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
            Fate::CrashBefore => self.crash(call, "before").await,
            Fate::Fail => {
                self.note(&format!("{call} fails"));
                return Err(fail(false));
            }
            Fate::Fine | Fate::LoseAnswer | Fate::CrashAfter => {}
        }
        let result = work.await;
        match fate {
            Fate::LoseAnswer => {
                self.note(&format!("{call} done, its answer lost"));
                Err(fail(true))
            }
            Fate::CrashAfter => {
                self.crash(call, "after").await;
                result
            }
            _ => {
                self.note(&format!("{call} {}", if result.is_ok() { "done" } else { "refused" }));
                result
            }
        }
    }
}

/// The API server behind faults.
pub struct ChaosApi {
    pub chaos: Arc<Chaos>,
    pub cluster: FakeCluster,
    /// Until then nobody reaches it, and it answers nobody.
    pub away: Arc<Mutex<Instant>>,
}

impl ChaosApi {
    /// One call; `reads` changes nothing.
    async fn call<T>(
        &self,
        call: &str,
        reads: bool,
        work: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        if *self.away.lock().unwrap() > Instant::now() {
            tokio::time::sleep(Duration::from_millis(self.chaos.draw(1_000))).await;
            return Err(ApiError::lost("nobody is there"));
        }
        self.chaos.around(call, |done| self.error(done && !reads), work).await
    }

    /// An error as the server or the connection gives it. `done`: the server has done the work.
    fn error(&self, done: bool) -> ApiError {
        if done {
            return match self.chaos.draw(3) {
                0 => ApiError::answered(504, "Timeout", "the gateway gave up"),
                1 => ApiError::answered(201, "", "an empty body"),
                _ => ApiError::lost("the connection closed"),
            };
        }
        match self.chaos.draw(6) {
            0 => ApiError::answered(429, "TooManyRequests", "slow down")
                .with_retry_after(Duration::from_secs(2)),
            1 => ApiError::answered(500, "InternalError", "an internal error"),
            2 => ApiError::answered(503, "ServiceUnavailable", "not now"),
            3 => ApiError::answered(500, "InternalError", "failed calling webhook \"w\": timeout"),
            4 => ApiError::unsent("connection refused"),
            _ => ApiError::lost("the connection closed"),
        }
    }
}

#[async_trait]
impl ClusterApi for ChaosApi {
    async fn create_job(&self, name: &str, body: Vec<u8>) -> Result<JobFacts, ApiError> {
        let away = *self.away.lock().unwrap() > Instant::now();
        if !away && !self.chaos.calm() && self.chaos.draw(25) == 0 {
            // Answered as lost, and done a moment later.
            self.chaos.note(&format!("create {name} is late"));
            self.cluster.script(Verb::CreateJob, [Fault::Late(ApiError::lost("timed out"))]);
            return self.cluster.create_job(name, body).await;
        }
        let work = self.cluster.create_job(name, body);
        self.call(&format!("create {name}"), false, work).await
    }

    async fn get_job(&self, name: &str) -> Result<Option<JobFacts>, ApiError> {
        let work = self.cluster.get_job(name);
        self.call(&format!("get {name}"), true, work).await
    }

    async fn read_job(&self, name: &str) -> Result<Option<serde_json::Value>, ApiError> {
        let work = self.cluster.read_job(name);
        self.call(&format!("read {name}"), true, work).await
    }

    async fn delete_job(&self, name: &str, uid: &str) -> Result<(), ApiError> {
        let work = self.cluster.delete_job(name, uid);
        self.call(&format!("delete {name}"), false, work).await
    }

    async fn list_jobs(&self, next: Option<&str>) -> Result<Page<JobFacts>, ApiError> {
        let work = self.cluster.list_jobs(next);
        self.call("list jobs", true, work).await
    }

    async fn watch_jobs(&self, from: &str) -> Result<Watch<JobFacts>, ApiError> {
        let work = self.cluster.watch_jobs(from);
        self.call("watch jobs", true, work).await
    }

    async fn list_pending_pods(&self, next: Option<&str>) -> Result<Page<PodFacts>, ApiError> {
        let work = self.cluster.list_pending_pods(next);
        self.call("list pods", true, work).await
    }

    async fn watch_pending_pods(&self, from: &str) -> Result<Watch<PodFacts>, ApiError> {
        let work = self.cluster.watch_pending_pods(from);
        self.call("watch pods", true, work).await
    }

    async fn list_work_pods(&self, next: Option<&str>) -> Result<Page<WorkPod>, ApiError> {
        let work = self.cluster.list_work_pods(next);
        self.chaos.around("list work pods", |_| self.error(false), work).await
    }

    async fn watch_work_pods(&self, from: &str) -> Result<Watch<WorkPod>, ApiError> {
        let work = self.cluster.watch_work_pods(from);
        self.chaos.around("watch work pods", |_| self.error(false), work).await
    }

    async fn list_pods_of(&self, uid: &str) -> Result<Vec<WorkPod>, ApiError> {
        let work = self.cluster.list_pods_of(uid);
        self.chaos.around("list pods of a job", |_| self.error(false), work).await
    }

    async fn pod_log(&self, pod: &str, of: &str, previous: bool) -> Result<LogTail, ApiError> {
        let work = self.cluster.pod_log(pod, of, previous);
        self.chaos.around("read log", |_| self.error(false), work).await
    }

    async fn list_events(&self, uid: &str) -> Result<Vec<EventFacts>, ApiError> {
        let work = self.cluster.list_events(uid);
        self.chaos.around("list events", |_| self.error(false), work).await
    }

    async fn get_account(&self, name: &str) -> Result<Option<AccountFacts>, ApiError> {
        let work = self.cluster.get_account(name);
        self.call("get account", true, work).await
    }

    async fn create_account(&self, name: &str, email: &str) -> Result<(), ApiError> {
        let work = self.cluster.create_account(name, email);
        self.call("create account", false, work).await
    }

    async fn get_config_map(&self, name: &str) -> Result<Option<ConfigMapFacts>, ApiError> {
        let work = self.cluster.get_config_map(name);
        self.call("get config map", true, work).await
    }

    async fn put_config_map(
        &self,
        name: &str,
        facts: &ConfigMapFacts,
    ) -> Result<ConfigMapFacts, ApiError> {
        let work = self.cluster.put_config_map(name, facts);
        self.call("put config map", false, work).await
    }

    async fn get_lease(&self, name: &str) -> Result<Option<LeaseFacts>, ApiError> {
        let work = self.cluster.get_lease(name);
        self.call("get lease", true, work).await
    }

    async fn put_lease(
        &self,
        name: &str,
        facts: &LeaseFacts,
        renewed: Timestamp,
    ) -> Result<LeaseFacts, ApiError> {
        let work = self.cluster.put_lease(name, facts, renewed);
        self.call("put lease", false, work).await
    }
}

/// The queue behind faults.
pub struct ChaosQueue {
    pub chaos: Arc<Chaos>,
    pub queue: Arc<MemoryQueue>,
    /// Called with each lease right before it is acked.
    pub before_ack: Box<dyn Fn(&LeaseId) + Send + Sync>,
}

fn unavailable(_: bool) -> QueueError {
    QueueError::Unavailable("simulated".into())
}

impl ChaosQueue {
    async fn each(
        &self,
        call: &str,
        leases: &[LeaseId],
        work: impl Future<Output = Vec<Result<(), QueueError>>>,
    ) -> Vec<Result<(), QueueError>> {
        let all = self.chaos.around(call, unavailable, async { Ok(work.await) }).await;
        all.unwrap_or_else(|error| leases.iter().map(|_| Err(error.clone())).collect())
    }
}

#[async_trait]
impl Queue for ChaosQueue {
    fn name(&self) -> &QueueName {
        self.queue.name()
    }

    async fn lease(
        &self,
        n: usize,
        lease_for: Duration,
        wait: Duration,
    ) -> Result<Vec<Delivery>, QueueError> {
        let work = self.queue.lease(n, lease_for, wait);
        self.chaos.around("lease", unavailable, work).await
    }

    async fn extend(&self, leases: &[LeaseId], lease_for: Duration) -> Vec<Result<(), QueueError>> {
        self.each("extend", leases, self.queue.extend(leases, lease_for)).await
    }

    async fn ack(&self, leases: &[LeaseId]) -> Vec<Result<(), QueueError>> {
        let work = async {
            leases.iter().for_each(|lease| (self.before_ack)(lease));
            self.queue.ack(leases).await
        };
        self.each("ack", leases, work).await
    }

    async fn release(&self, leases: &[LeaseId], after: Duration) -> Vec<Result<(), QueueError>> {
        self.each("release", leases, self.queue.release(leases, after)).await
    }

    async fn fail(&self, lease: &LeaseId, why: &str) -> Result<(), QueueError> {
        self.chaos.around("fail", unavailable, self.queue.fail(lease, why)).await
    }

    async fn quarantine(&self, lease: &LeaseId, rejection: &Rejection) -> Result<(), QueueError> {
        let work = self.queue.quarantine(lease, rejection);
        self.chaos.around("quarantine", unavailable, work).await
    }
}
