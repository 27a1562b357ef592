//! The backend against the [fake cluster](super::fake), on paused time. Cases from the field that
//! need more than one part stand here, each named after what it shows.

mod accounts;
mod client;
mod creating;
mod ends;
mod leader;
mod lifecycle;
mod limits;
mod records;
mod retries;
mod tokens;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::api::ApiError;
use super::fake::FakeCluster;
use super::{Fatal, KubernetesBackend, Settings};
use crate::backend::{Backend as _, EndObserver};
use crate::clock::PacedClock;
use crate::domain::input_url::InputUrl;
use crate::domain::outcome::{Deferral, HoldKind, Outcome, Placed, Scope};
use crate::domain::room::{Occupancy, Room};
use crate::domain::task::{Task, WorkloadKey};
use crate::domain::workload::{Account, Isolation, Profile, Workload};
use crate::render::{Policy, Templates};

/// Nothing in these tests takes longer, by the paused clock.
const DEADLINE: Duration = Duration::from_secs(3600);

/// A scheduler's life on a cluster that may outlive it.
struct Farm {
    cluster: FakeCluster,
    backend: Arc<KubernetesBackend>,
    stop: CancellationToken,
    running: JoinHandle<Result<(), Fatal>>,
}

fn new_cluster() -> FakeCluster {
    let epoch: Timestamp = "2026-11-30T10:00:00Z".parse().expect("a date");
    FakeCluster::new(Arc::new(PacedClock::starting_at(epoch)))
}

fn settings() -> Settings {
    Settings {
        name: "k8s".into(),
        namespace: "farm".into(),
        scheduler: "s1".into(),
        pending_limit_default: 1000,
        live_limit: None,
        creates_per_second: None,
        window: 32,
        request_timeout: Duration::from_millis(2800),
        retain_finished: Duration::from_secs(600),
        policy: Policy { strict: false },
        templates: Arc::new(Templates::embedded().expect("the templates")),
        identity: "process".into(),
        seed: 7,
        home: None,
    }
}

impl Farm {
    /// A scheduler that has just begun.
    fn begin(cluster: FakeCluster, settings: Settings) -> Self {
        Self::begin_telling(cluster, settings, None)
    }

    /// One that tells how Jobs end, if somebody listens.
    fn begin_telling(
        cluster: FakeCluster,
        settings: Settings,
        listener: Option<Arc<dyn EndObserver>>,
    ) -> Self {
        Self::begin_with(cluster, settings, |backend| {
            if let Some(listener) = listener {
                backend.tell_ends(listener);
            }
        })
    }

    /// One that is set up further before it runs.
    fn begin_with(
        cluster: FakeCluster,
        settings: Settings,
        set_up: impl FnOnce(&KubernetesBackend),
    ) -> Self {
        let epoch: Timestamp = "2026-11-30T10:00:00Z".parse().expect("a date");
        let clock = Arc::new(PacedClock::starting_at(epoch));
        static PROCESSES: AtomicU32 = AtomicU32::new(0);
        let process = PROCESSES.fetch_add(1, Ordering::Relaxed);
        let settings = Settings { identity: format!("process-{process}"), ..settings };
        let backend = KubernetesBackend::new(Arc::new(cluster.clone()), clock, settings);
        set_up(&backend);
        let stop = CancellationToken::new();
        let running = tokio::spawn({
            let (backend, stop) = (Arc::clone(&backend), stop.clone());
            async move { backend.run(stop).await }
        });
        Self { cluster, backend, stop, running }
    }

    /// One that knows its room.
    async fn start(cluster: FakeCluster, settings: Settings) -> Self {
        let farm = Self::begin(cluster, settings);
        farm.room(|_| true).await;
        farm
    }

    async fn fresh() -> Self {
        Self::start(new_cluster(), settings()).await
    }

    /// Waits until the room is known and as it should be.
    async fn room(&self, should: impl Fn(&Occupancy) -> bool) -> Occupancy {
        let mut room = self.backend.room();
        let is = |room: &Room| matches!(room, Room::Known(occupancy) if should(occupancy));
        let found = timeout(DEADLINE, room.wait_for(is)).await;
        match found.map(|found| found.expect("a sender").clone()) {
            Ok(Room::Known(occupancy)) => occupancy,
            _ => panic!("the room is {:?}", *self.backend.room().borrow()),
        }
    }

    async fn room_unknown(&self) -> String {
        let mut room = self.backend.room();
        let is = |room: &Room| matches!(room, Room::Unknown(_));
        match timeout(DEADLINE, room.wait_for(is)).await {
            Ok(Ok(found)) => match &*found {
                Room::Unknown(why) => why.clone(),
                Room::Known(_) => unreachable!("waited for the other"),
            },
            _ => panic!("the room stays known"),
        }
    }

    async fn submit(&self, tasks: &[Task]) -> Vec<Outcome> {
        let workload = workload();
        let submission = self.backend.submit(&workload, tasks);
        timeout(DEADLINE, submission).await.expect("an end")
    }

    async fn submit_one(&self, n: u32) -> Outcome {
        self.submit(&[task(n)]).await.pop().expect("one outcome")
    }

    /// Waits until something that the backend does by itself has happened.
    async fn until(&self, done: impl Fn(&FakeCluster) -> bool) {
        let wait = async {
            while !done(&self.cluster) {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        timeout(DEADLINE, wait).await.expect("it happens");
    }

    async fn shut_down(self) -> FakeCluster {
        self.stop.cancel();
        self.running.await.expect("no panic").expect("a clean end");
        self.cluster
    }

    /// The process is gone at once.
    async fn crash(self) -> FakeCluster {
        self.running.abort();
        let _ = self.running.await;
        self.cluster
    }
}

fn task(n: u32) -> Task {
    task_signed(n, "one")
}

fn task_signed(n: u32, signature: &str) -> Task {
    let key = WorkloadKey { command: "fuzz".into(), job_type: "libfuzzer_asan_zlib".into() };
    let url = format!("https://storage.googleapis.com/in/{n}?X-Goog-Signature={signature}");
    let url = InputUrl::parse(&url).expect("a URL");
    Task::new(key, url, "message", Timestamp::UNIX_EPOCH)
}

fn tasks(count: u32) -> Vec<Task> {
    (0..count).map(task).collect()
}

fn name(n: u32) -> String {
    task(n).job_name().to_string()
}

fn workload_for(account: Account) -> Arc<Workload> {
    Arc::new(Workload {
        key: task(0).key,
        mapping: "LINUX-PREEMPTIBLE-UNPRIVILEGED".into(),
        platform: "LINUX".into(),
        project: None,
        base_os_version: None,
        image: "gcr.io/clusterfuzz-images/base".into(),
        release: "prod".into(),
        account,
        isolation: Isolation::Kata,
        duration: Duration::from_secs(21_600),
        disk_gb: None,
        profile: Profile { ttl: Duration::from_secs(93_600), ..Profile::default() },
        machines: None,
    })
}

fn workload() -> Arc<Workload> {
    let email = "worker@p.iam.gserviceaccount.com";
    workload_for(Account::Google { name: "worker".into(), email: email.into() })
}

const CREATED: Outcome = Outcome::Scheduled(Placed::Created);
const THERE: Outcome = Outcome::Scheduled(Placed::AlreadyThere);

#[track_caller]
fn deferral(outcome: &Outcome) -> &Deferral {
    match outcome {
        Outcome::Deferred(deferral) => deferral,
        other => panic!("expected a deferral, got {other:?}"),
    }
}

#[track_caller]
fn check_deferred(outcome: &Outcome, scope: Scope, kind: HoldKind) {
    let found = deferral(outcome);
    assert_eq!((found.scope, found.kind), (scope, kind), "{}", found.detail);
}

fn count(outcomes: &[Outcome], outcome: &Outcome) -> usize {
    outcomes.iter().filter(|found| *found == outcome).count()
}

fn error(status: u16, reason: &str, message: &str) -> ApiError {
    ApiError::answered(status, reason, message)
}
