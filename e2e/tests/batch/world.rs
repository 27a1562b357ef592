//! A Batch, a farm in a folder, and a backend inside of the test.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use katabatch::backend::Backend;
use katabatch::backend::gcp_batch::client::RestApi;
use katabatch::backend::gcp_batch::{GcpBatch, Settings, spec};
use katabatch::clock::SystemClock;
use katabatch::domain::machines::{Machines, Region};
use katabatch::domain::room::Room;
use katabatch::domain::task::Task;
use katabatch::domain::workload::{Account, Isolation, Profile, Workload};
use katabatch::leadership::Alone;
use katabatch::queue::spool::Spool;
use katabatch::records::{InMemory, Records};
use katabatch_e2e::batch::Batch;
use katabatch_e2e::farm::{JOB_TYPE, input, message, task};
use katabatch_e2e::process::{Output, Process};
use serde_json::json;
use tempfile::TempDir;
use tokio_util::sync::{CancellationToken, DropGuard};

pub const SOON: Duration = Duration::from_secs(30);
static SEED: AtomicU64 = AtomicU64::new(1);

/// A farm whose only backend is a Batch of this machine.
pub struct World {
    pub batch: Batch,
    pub dir: TempDir,
    pub spool: Spool,
}

impl World {
    pub async fn new(tasks: usize, job_types: usize) -> Result<Self> {
        let batch = Batch::start(&["us-central1"]).await?;
        let dir = tempfile::tempdir().context("a folder")?;
        for (name, text) in files(batch.url(), job_types) {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().context("a folder")?)?;
            std::fs::write(&path, text).with_context(|| format!("write {name}"))?;
        }
        let path = dir.path().join("spool.sqlite");
        let spool = Spool::open(&path, "main".into(), Arc::new(SystemClock))?;
        let messages = (0..tasks).map(|n| message("fuzz", &job_type(n % job_types), &input(n)));
        spool.put(messages.collect()).await.context("put messages")?;
        Ok(Self { batch, dir, spool })
    }

    pub fn start(&self, name: &str) -> Result<Process> {
        Process::start(self.dir.path(), name, &["run", "--once"])
    }

    pub async fn run(&self, name: &str) -> Result<Output> {
        self.start(name)?.end(4 * SOON).await
    }

    pub async fn left(&self) -> Result<u64> {
        let counts = self.spool.counts().await.context("count the messages")?;
        Ok(counts.ready + counts.leased + counts.delayed)
    }
}

fn job_type(n: usize) -> String {
    format!("{JOB_TYPE}_{n}")
}

fn files(url: &str, job_types: usize) -> Vec<(&'static str, String)> {
    let mapping = json!({
        "docker_image": "gcr.io/p/worker:1",
        "service_account_email": "w@p.iam.gserviceaccount.com",
        "disk_size_gb": 110,
        "disk_type": "pd-standard",
        "machine_type": "n1-standard-1",
        "preemptible": true,
        "subconfigs": [{"name": "central1", "weight": 1}],
    });
    let place = json!({"region": "us-central1", "network": "n", "subnetwork": "s"});
    let batch = json!({
        "project": "katabatch-e2e",
        "project-number": 123_456_789_012_u64,
        "subconfigs": {"central1": place},
        "mapping": {"LINUX-PREEMPTIBLE-UNPRIVILEGED": mapping},
    });
    let config = json!({
        "apiVersion": "katabatch.dev/v1alpha1",
        "scheduler": "e2e",
        "clusterfuzz": {"config_dir": "farm"},
        "queues": [{"name": "main", "spool": {"path": "spool.sqlite"}}],
        "backends": [{"name": "batch", "gcp_batch": {"endpoint": url, "request_timeout": "2s"}}],
        "catalog": {"file": "entities.jsonl"},
        "limits": {"lease": "10s"},
    });
    let job = |n| json!({"kind": "Job", "name": job_type(n), "platform": "LINUX"}).to_string();
    let jobs: Vec<String> = (0..job_types).map(job).collect();
    vec![
        ("katabatch.yaml", config.to_string()),
        ("farm/project.yaml", "env: {PROJECT_NAME: katabatch-e2e}\n".to_owned()),
        ("farm/batch/batch.yaml", batch.to_string()),
        ("entities.jsonl", jobs.join("\n")),
    ]
}

/// A backend inside of the test.
pub struct Inside {
    pub backend: Arc<GcpBatch>,
    pub records: Arc<dyn Records>,
    _stop: DropGuard,
}

pub async fn inside(batch: &Batch, regions: &[&str], timeout: Duration) -> Result<Inside> {
    let records: Arc<dyn Records> = Arc::new(InMemory::default());
    let settings = Settings {
        name: "batch".into(),
        scheduler: "e2e".into(),
        project: None,
        parents: regions.iter().map(|r| spec::parent("p", r)).collect::<BTreeSet<_>>(),
        pending_limit_default: 10_000,
        live_limit: None,
        poll: Duration::from_millis(200),
        // Each process has its own chance.
        seed: SEED.fetch_add(1, Ordering::Relaxed),
    };
    let api = Arc::new(RestApi::new(batch.url(), None, timeout)?);
    let clock = Arc::new(SystemClock);
    let backend = GcpBatch::new(
        api,
        Arc::clone(&records),
        clock,
        Arc::new(Alone { since: jiff::Timestamp::UNIX_EPOCH }),
        settings,
    );
    let stop = CancellationToken::new();
    let running = Arc::clone(&backend);
    tokio::spawn({
        let stop = stop.clone();
        async move { running.run(stop).await }
    });
    let mut room = backend.room();
    let known = room.wait_for(|room| matches!(room, Room::Known(_)));
    tokio::time::timeout(SOON, known).await.context("its jobs are read")??;
    drop(room);
    Ok(Inside { backend, records, _stop: stop.drop_guard() })
}

pub fn workload(regions: &[&str], checked: &[&str]) -> Arc<Workload> {
    let region = |name: &&str| Region {
        name: (*name).to_owned(),
        network: Some("n".into()),
        subnetwork: Some("s".into()),
        weight: 1.0,
    };
    Arc::new(Workload {
        key: katabatch::domain::task::WorkloadKey {
            command: "fuzz".into(),
            job_type: JOB_TYPE.into(),
        },
        mapping: "LINUX-PREEMPTIBLE-UNPRIVILEGED".into(),
        platform: "LINUX".into(),
        project: None,
        base_os_version: None,
        image: "gcr.io/p/worker:1".into(),
        release: "prod".into(),
        account: Account::Google { name: "w".into(), email: "w@p.iam.gserviceaccount.com".into() },
        isolation: Isolation::Kata,
        duration: Duration::from_secs(21_600),
        disk_gb: Some(110),
        profile: Profile::default(),
        machines: Some(Machines {
            project: Some("p".into()),
            machine_type: Some("n1-standard-1".into()),
            disk_type: Some("pd-standard".into()),
            preemptible: true,
            regions: regions.iter().map(region).collect(),
            checked: checked.iter().map(|r| (*r).to_owned()).collect(),
            ..Machines::default()
        }),
    })
}

pub fn tasks(range: std::ops::Range<usize>) -> Result<Vec<Task>> {
    range.map(|n| task("fuzz", JOB_TYPE, &input(n))).collect()
}
