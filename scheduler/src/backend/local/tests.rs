//! The backend as a whole, with /bin/sh commands: what the tests below it share.
//!
//! The supervisor is this test binary itself, started with one test's name and a variable that
//! tells it the directory.

mod killed;
mod limits;
mod restart;
mod running;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tempfile::TempDir;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::*;
use crate::clock::SystemClock;
use crate::domain::input_url::InputUrl;
use crate::domain::outcome::Placed;
use crate::domain::task::WorkloadKey;
use crate::domain::workload::{Account, Isolation, Profile, upstream_duration};

const DIRECTORY_VARIABLE: &str = "KATABATCH_TEST_SUPERVISE";

#[test]
fn this_binary_is_the_supervisor_when_asked() {
    if let Some(dir) = std::env::var_os(DIRECTORY_VARIABLE) {
        std::process::exit(supervise(Path::new(&dir)).into());
    }
}

fn supervisor() -> Supervisor {
    let script = format!(
        "{DIRECTORY_VARIABLE}=\"$2\" exec \"$0\" --exact --nocapture \
         backend::local::tests::this_binary_is_the_supervisor_when_asked"
    );
    let this = std::env::current_exe().expect("this binary").display().to_string();
    Supervisor { program: "/bin/sh".into(), arguments: vec!["-c".into(), script, this] }
}

/// A directory for a backend, and what the shell commands write.
struct Place {
    dir: PathBuf,
    _temporary: Option<TempDir>,
}

/// A backend whose `run` goes on until this is dropped.
pub(crate) struct Running {
    backend: Arc<LocalBackend>,
    _stop: DropGuard,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        Self { dir: dir.path().to_owned(), _temporary: Some(dir) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn root(&self) -> PathBuf {
        self.path("work")
    }

    fn settings(&self, script: &str, jobs: usize) -> Settings {
        let command = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        let mut settings =
            Settings::new("local".into(), self.root(), command, jobs, PathBuf::new());
        settings.supervisor = supervisor();
        settings.grace = Duration::from_millis(200);
        settings
    }

    fn open(&self, script: &str, jobs: usize) -> Arc<LocalBackend> {
        LocalBackend::open(self.settings(script, jobs), Arc::new(SystemClock)).expect("opened")
    }

    fn start(&self, script: &str, jobs: usize) -> Running {
        Running::of(self.open(script, jobs))
    }

    /// What a script wrote into `out`; `$OUT` in the scripts' environment names that directory.
    fn workload(&self) -> Workload {
        let mut workload = workload();
        workload.profile.env.insert("OUT".into(), self.path("").display().to_string());
        workload
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.path(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

impl Running {
    fn of(backend: Arc<LocalBackend>) -> Self {
        let stop = CancellationToken::new();
        let (running, until) = (backend.clone(), stop.clone());
        tokio::spawn(async move { running.run(until).await });
        Self { backend, _stop: stop.drop_guard() }
    }

    /// Submits a task, again whenever there is room, until it is placed.
    pub(crate) async fn submit_until_placed(&self, workload: &Workload, task: &Task) {
        let mut room = self.backend.room();
        loop {
            match self.submit(workload, task).await {
                Outcome::Scheduled(_) => return,
                Outcome::Deferred(deferral) => assert_eq!(deferral.kind, HoldKind::LiveLimit),
                Outcome::Running(..) => panic!("ends are not told here"),
                Outcome::Rejected(rejection) => panic!("{rejection:?}"),
            }
            room.wait_for(|room| room.free() > 0).await.expect("a backend");
        }
    }

    async fn submit(&self, workload: &Workload, task: &Task) -> Outcome {
        submit(&self.backend, workload, task).await
    }

    /// Waits until as many tasks have ended.
    pub(crate) async fn ended(&self, tasks: usize) -> BTreeMap<End, usize> {
        eventually("the tasks' ends", || async {
            let summary = self.backend.summary();
            (summary.values().sum::<usize>() >= tasks).then_some(summary)
        })
        .await
    }
}

/// A backend of its own for a test elsewhere.
pub(crate) fn start(dir: &Path, command: Vec<String>, jobs: usize) -> Running {
    let mut settings = Settings::new("local".into(), dir.to_owned(), command, jobs, PathBuf::new());
    settings.supervisor = supervisor();
    Running::of(LocalBackend::open(settings, Arc::new(SystemClock)).expect("opened"))
}

async fn submit(backend: &LocalBackend, workload: &Workload, task: &Task) -> Outcome {
    let outcomes = backend.submit(&Arc::new(workload.clone()), std::slice::from_ref(task)).await;
    outcomes.into_iter().next().expect("an outcome")
}

/// What `look` finds, as soon as it finds it.
async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, look: impl Fn() -> F) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut every = tokio::time::interval(Duration::from_millis(10));
    loop {
        every.tick().await;
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
    }
}

fn task(url: &str) -> Task {
    let key = WorkloadKey { command: "fuzz".into(), job_type: "libfuzzer_asan_zlib".into() };
    let input = InputUrl::parse(url).expect("a URL");
    Task::new(key, input, url, Timestamp::UNIX_EPOCH)
}

fn workload() -> Workload {
    Workload {
        key: task("gs://b/o").key,
        mapping: "LINUX-PREEMPTIBLE-UNPRIVILEGED".into(),
        platform: "LINUX".into(),
        project: None,
        base_os_version: None,
        image: "gcr.io/p/worker".into(),
        release: "candidate".into(),
        account: Account::Existing { name: "sa".into() },
        isolation: Isolation::Kata,
        duration: upstream_duration("fuzz"),
        disk_gb: None,
        profile: Profile { ttl: Duration::from_secs(100), ..Profile::default() },
        machines: None,
    }
}

const CREATED: Outcome = Outcome::Scheduled(Placed::Created);
const ALREADY_THERE: Outcome = Outcome::Scheduled(Placed::AlreadyThere);
