//! A local backend inside of the test, and a farm in a folder whose only backend is this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use katabatch::backend::Backend;
use katabatch::backend::local::{Cgroups, LocalBackend, LocalEnd, Settings};
use katabatch::clock::SystemClock;
use katabatch::domain::outcome::{Outcome, Placed};
use katabatch::domain::quantity::Quantity;
use katabatch::domain::workload::{Account, Isolation, Profile, Workload};
use katabatch::queue::spool::Spool;
use katabatch_e2e::eventually;
use katabatch_e2e::eventually::Seen;
use katabatch_e2e::farm::{JOB_TYPE, input, message, task};
use katabatch_e2e::process::{Output, Process};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::broadcast::Receiver;
use tokio_util::sync::{CancellationToken, DropGuard};

pub const SOON: Duration = Duration::from_secs(60);

/// A folder that tasks write into.
pub struct Place {
    dir: TempDir,
}

/// A backend that runs until this is dropped.
pub struct Inside {
    pub backend: Arc<LocalBackend>,
    pub ends: Receiver<LocalEnd>,
    _stop: DropGuard,
}

impl Place {
    pub fn new() -> Result<Self> {
        Ok(Self { dir: tempfile::tempdir().context("a folder")? })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A backend whose tasks run `script`; `$OUT` is this folder.
    pub async fn inside(&self, script: &str) -> Result<Inside> {
        let program = std::env::current_exe().context("this program")?;
        let command = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        let mut settings = Settings::new("here".into(), self.path("work"), command, 8, program);
        settings.grace = Duration::from_millis(200);
        settings.cgroups = Cgroups::find().ok();
        let backend = eventually("the folder is free", SOON, || async {
            let opened = LocalBackend::open(settings.clone(), Arc::new(SystemClock));
            Ok(Seen::Done(opened.map_err(|error| anyhow::anyhow!("{error}"))?))
        })
        .await?;
        let (ends, stop) = (backend.ends(), CancellationToken::new());
        let (running, until) = (Arc::clone(&backend), stop.clone());
        tokio::spawn(async move { running.run(until).await });
        Ok(Inside { backend, ends, _stop: stop.drop_guard() })
    }

    /// A workload with a limit of memory, whose tasks get these variables.
    pub fn workload(&self, memory: &str, variables: &[(&str, &str)]) -> Result<Workload> {
        let mut profile = Profile { memory: Quantity::parse(memory)?, ..Profile::default() };
        profile.env.insert("OUT".into(), self.dir.path().display().to_string());
        for (name, value) in variables {
            profile.env.insert((*name).into(), (*value).into());
        }
        Ok(Workload {
            key: task("fuzz", JOB_TYPE, &input(0))?.key,
            mapping: "LINUX-PREEMPTIBLE-UNPRIVILEGED".into(),
            platform: "LINUX".into(),
            project: None,
            base_os_version: None,
            image: "gcr.io/p/worker:1".into(),
            release: "prod".into(),
            account: Account::Existing { name: "w".into() },
            isolation: Isolation::Kata,
            duration: SOON,
            disk_gb: None,
            profile,
            machines: None,
        })
    }

    /// What tasks wrote into a file, as soon as there are so many lines.
    pub async fn lines(&self, name: &str, count: usize) -> Result<Vec<String>> {
        let path = self.path(name);
        eventually(&format!("{name} has {count} lines"), SOON, || async {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            Ok(if lines.len() >= count { Seen::Done(lines) } else { Seen::NotYet(text) })
        })
        .await
    }
}

impl Inside {
    pub async fn submit(&self, workload: Workload, n: usize) -> Result<()> {
        let task = task("fuzz", JOB_TYPE, &input(n))?;
        let outcomes = self.backend.submit(&Arc::new(workload), &[task]).await;
        ensure!(outcomes == [Outcome::Scheduled(Placed::Created)], "{outcomes:?}");
        Ok(())
    }

    pub async fn end(&mut self) -> Result<LocalEnd> {
        Ok(tokio::time::timeout(SOON, self.ends.recv()).await.context("an end")??)
    }
}

/// Whether a process is gone, or dead and only not waited for.
pub fn is_gone(pid: &str) -> bool {
    match fs::read_to_string(format!("/proc/{}/stat", pid.trim())) {
        Ok(stat) => stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim().starts_with('Z')),
        Err(_) => true,
    }
}

pub async fn until_gone(pids: &[String]) -> Result<()> {
    eventually("the processes are gone", SOON, || async {
        Ok(Seen::when(pids.iter().all(|pid| is_gone(pid)), || format!("{pids:?}")))
    })
    .await
}

/// A farm whose only backend is this machine, or a cluster that nobody asks.
pub struct Farm {
    pub place: Place,
    spool: Spool,
}

impl Farm {
    /// With two job types, `one` and `two`, whose tasks run `script`.
    pub fn new(script: Option<&str>) -> Result<Self> {
        let place = Place::new()?;
        let backend = match script {
            Some(script) => json!({"name": "here", "local": {
                "command": ["/bin/sh", "-c", script], "dir": "work", "jobs": 1}}),
            None => json!({"name": "there", "gcp_batch": {"endpoint": "http://127.0.0.1:9"}}),
        };
        let mapping = json!({
            "docker_image": "gcr.io/p/worker:1",
            "service_account_email": "w@p.iam.gserviceaccount.com",
        });
        let config = json!({
            "apiVersion": "katabatch.dev/v1alpha1",
            "clusterfuzz": {"config_dir": "farm"},
            "queues": [{"name": "main", "spool": {"path": "spool.sqlite"}}],
            "backends": [backend],
            "catalog": {"file": "entities.jsonl"},
            "limits": {"lease": "10s"},
            "profiles": {"default": {"env": {"OUT": place.dir.path()}}},
        });
        let job = |name| json!({"kind": "Job", "name": name, "platform": "LINUX", "project": name});
        let batch = json!({"project": "p", "mapping": {"LINUX-PREEMPTIBLE-UNPRIVILEGED": mapping}});
        for (name, text) in [
            ("katabatch.yaml", config.to_string()),
            ("farm/project.yaml", "env: {PROJECT_NAME: e2e}\n".to_owned()),
            ("farm/batch/batch.yaml", batch.to_string()),
            ("entities.jsonl", format!("{}\n{}\n", job("one"), job("two"))),
        ] {
            let path = place.path(name);
            fs::create_dir_all(path.parent().context("a folder")?)?;
            fs::write(path, text).with_context(|| format!("write {name}"))?;
        }
        let spool = Spool::open(&place.path("spool.sqlite"), "main".into(), Arc::new(SystemClock))?;
        Ok(Self { place, spool })
    }

    fn dir(&self) -> &Path {
        self.place.dir.path()
    }

    pub async fn put(&self, job_type: &str, numbers: std::ops::Range<usize>) -> Result<()> {
        let messages = numbers.map(|n| message("fuzz", job_type, &input(n)));
        self.spool.put(messages.collect()).await.context("put messages")?;
        Ok(())
    }

    pub fn start(&self, name: &str, arguments: &[&str]) -> Result<Process> {
        Process::start(self.dir(), name, arguments)
    }

    pub async fn run(&self, name: &str, arguments: &[&str]) -> Result<Output> {
        let ended = self.start(name, arguments)?.end(SOON).await?;
        if ended.code != Some(0) {
            bail!("{arguments:?}: {ended:?}");
        }
        Ok(ended)
    }
}
