//! A small farm in a temporary folder: the farm's own files, a catalog, flags, a spool, and a
//! configuration with one Kubernetes backend. What runs on it is the caller's.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use katabatch::clock::SystemClock;
use katabatch::domain::input_url::InputUrl;
use katabatch::domain::task::{Task, WorkloadKey};
use katabatch::queue::spool::Spool;
use katabatch::queue::spool::record::{Counts, NewMessage};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::stages::{BEHAVIOUR, Behaviour};

/// The job type that every farm has, unless its plan says otherwise.
pub const JOB_TYPE: &str = "libfuzzer_asan_e2e";
/// The account of a farm's workers, unless its plan says otherwise.
pub const ACCOUNT: &str = "untrusted-worker@katabatch-e2e.iam.gserviceaccount.com";
/// Stands in every signature, so that a test can look for it where none may be.
pub const SIGNATURE: &str = "5ec2e7516ba7c4e";

/// What the farm is like.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The scheduler's id.
    pub scheduler: String,
    /// What becomes of the pods.
    pub behaviour: Behaviour,
    /// The catalog's job types, all of the platform LINUX.
    pub job_types: Vec<String>,
    /// `docker_image` of every mapping.
    pub image: String,
    /// `service_account_email` of every mapping.
    pub account: String,
    /// The pending limit, as the flag says it.
    pub pending: usize,
    /// The cap on live Jobs.
    pub live: Option<usize>,
    /// The creation rate.
    pub creates_per_second: Option<u32>,
    /// The most creates at once.
    pub window: usize,
    /// How long finished Jobs stay.
    pub retain_finished: Duration,
    /// How long messages are leased for; at least ten seconds.
    pub lease: Duration,
    /// More members of the backend's `kubernetes` section.
    pub kubernetes: Value,
    /// Members of the default profile that replace the small ones given here.
    pub profile: Value,
    /// The `http` section; null: none.
    pub http: Value,
    /// Sections of the configuration that replace those given here.
    pub sections: Value,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            scheduler: "e2e".into(),
            behaviour: Behaviour::Default,
            job_types: vec![JOB_TYPE.into()],
            image: "registry.test/worker:1".into(),
            account: ACCOUNT.into(),
            pending: 1_000,
            live: None,
            creates_per_second: None,
            window: 32,
            retain_finished: Duration::from_secs(3600),
            lease: Duration::from_secs(10),
            kubernetes: json!({}),
            profile: json!({}),
            http: Value::Null,
            sections: json!({}),
        }
    }
}

/// A farm. Its folder goes with it.
pub struct Farm {
    dir: TempDir,
    plan: Plan,
    spool: Spool,
}

impl Farm {
    /// Writes it all, with a backend in `namespace` that is reached by `kubeconfig`.
    ///
    /// # Errors
    /// When a file can't be written or the spool can't be made.
    pub fn new(namespace: &str, kubeconfig: &Path, plan: Plan) -> Result<Self> {
        let dir = tempfile::tempdir().context("make a folder for the farm")?;
        let config = configuration(namespace, kubeconfig, &plan);
        write(dir.path(), "katabatch.yaml", &config.to_string())?;
        write_own_files(dir.path(), &plan, &project("katabatch-e2e"))?;
        write(dir.path(), "entities.jsonl", &entities(&plan.job_types))?;
        write(dir.path(), "flags.yaml", &flags(plan.pending))?;
        let clock = Arc::new(SystemClock);
        let spool = Spool::open(&dir.path().join("spool.sqlite"), "main".into(), clock)?;
        Ok(Self { dir, plan, spool })
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The configuration's file.
    pub fn config(&self) -> PathBuf {
        self.dir().join("katabatch.yaml")
    }

    /// What it was made from.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The queue.
    pub fn spool(&self) -> &Spool {
        &self.spool
    }

    /// Changes the flag of the pending limit; the file is replaced whole.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn set_pending(&self, limit: usize) -> Result<()> {
        let next = self.dir().join("flags.next");
        fs::write(&next, flags(limit)).context("write the flags")?;
        fs::rename(next, self.dir().join("flags.yaml")).context("replace the flags")
    }

    /// Replaces top-level keys of the configuration.
    ///
    /// # Errors
    /// When the file can't be read or written.
    pub fn configure(&self, keys: &Value) -> Result<()> {
        let text = fs::read_to_string(self.config()).context("read the configuration")?;
        let mut config: Value = serde_json::from_str(&text).context("read the configuration")?;
        merge(&mut config, keys);
        fs::write(self.config(), config.to_string()).context("write the configuration")
    }

    /// Replaces the flags: numbers by name.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn set_flags(&self, values: &[(&str, f64)]) -> Result<()> {
        let flag = |(name, value): &(&str, f64)| {
            ((*name).to_owned(), json!({ "enabled": true, "value": value }))
        };
        let flags: serde_json::Map<String, Value> = values.iter().map(flag).collect();
        let next = self.dir().join("flags.next");
        fs::write(&next, Value::from(flags).to_string()).context("write the flags")?;
        fs::rename(next, self.dir().join("flags.yaml")).context("replace the flags")
    }

    /// Puts `count` fuzzing tasks of the first job type, numbered from zero.
    ///
    /// # Errors
    /// As [`Farm::put`].
    pub async fn fill(&self, count: usize) -> Result<()> {
        let job_type = self.plan.job_types.first().map_or(JOB_TYPE, String::as_str);
        self.put((0..count).map(|n| message("fuzz", job_type, &input(n))).collect()).await
    }

    /// Puts messages.
    ///
    /// # Errors
    /// When the spool refuses.
    pub async fn put(&self, messages: Vec<NewMessage>) -> Result<()> {
        self.spool.put(messages).await.context("put messages")?;
        Ok(())
    }

    /// How many messages there are.
    ///
    /// # Errors
    /// When the spool can't be read.
    pub async fn counts(&self) -> Result<Counts> {
        self.spool.counts().await.context("count the messages")
    }

    /// What the fuzzing task of this number is, as everyone must see it.
    ///
    /// # Errors
    /// None is expected.
    pub fn task(&self, n: usize) -> Result<Task> {
        let job_type = self.plan.job_types.first().map_or(JOB_TYPE, String::as_str);
        task("fuzz", job_type, &input(n))
    }
}

/// The input URL of the task of this number: an object of Cloud Storage, signed.
pub fn input(n: usize) -> String {
    signed(&format!("uworker-input/{n:05}"), SIGNATURE)
}

/// The URL of an object, with a signature.
pub fn signed(object: &str, signature: &str) -> String {
    format!(
        "https://storage.googleapis.com/{object}?X-Goog-Algorithm=GOOG4-RSA-SHA256\
         &X-Goog-Credential=worker%40p.iam&X-Goog-Signature={signature}"
    )
}

/// A message, as ClusterFuzz publishes it.
pub fn message(command: &str, job_type: &str, url: &str) -> NewMessage {
    let pairs = [("command", command), ("job", job_type), ("argument", url)];
    NewMessage {
        attributes: pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        ..NewMessage::default()
    }
}

/// The task of such a message, if its URL names an object.
///
/// # Errors
/// When the URL is none.
pub fn task(command: &str, job_type: &str, url: &str) -> Result<Task> {
    let key = WorkloadKey { command: command.into(), job_type: job_type.into() };
    let input = InputUrl::parse(url).context("read the URL")?;
    Ok(Task::new(key, input, "unused", Timestamp::UNIX_EPOCH))
}

/// Writes one file of a farm, and the folders that it is in.
pub(crate) fn write(dir: &Path, name: &str, text: &str) -> Result<()> {
    let path = dir.join(name);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).context("make the farm's folders")?;
    }
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))
}

/// Writes the files that are the farm's own, not katabatch's.
pub(crate) fn write_own_files(dir: &Path, plan: &Plan, project: &str) -> Result<()> {
    write(dir, "clusterfuzz-config/project.yaml", project)?;
    let batch = serde_saphyr::to_string(&batch(plan)).context("write batch.yaml")?;
    write(dir, "clusterfuzz-config/batch/batch.yaml", &batch)
}

/// `project.yaml` of a farm whose Google Cloud project is of that name.
pub(crate) fn project(project: &str) -> String {
    format!(
        "env:\n  PROJECT_NAME: katabatch-e2e\n  APPLICATION_ID: {project}\n  \
         K8S_PROJECT: {project}\ncluster_name: e2e\n"
    )
}

fn batch(plan: &Plan) -> Value {
    let mapping = |preemptible: bool| {
        json!({
            "clusterfuzz_release": "prod",
            "docker_image": plan.image,
            "user_data": "file://linux-init.yaml",
            "disk_size_gb": 110,
            "disk_type": "pd-standard",
            "service_account_email": plan.account,
            "preemptible": preemptible,
            "machine_type": "n1-standard-1",
            "subconfigs": [{ "name": "central1", "weight": 1 }],
        })
    };
    json!({
        "project": "katabatch-e2e",
        "mapping": {
            "LINUX-PREEMPTIBLE-UNPRIVILEGED": mapping(true),
            "LINUX-NONPREEMPTIBLE-UNPRIVILEGED": mapping(false),
        },
        "subconfigs": { "central1": {
            "region": "us-central1", "network": "n", "subnetwork": "s",
        }},
    })
}

fn entities(job_types: &[String]) -> String {
    let job = |name: &String| {
        let job = json!({
            "kind": "Job",
            "name": name,
            "platform": "LINUX",
            "project": "e2e",
            "templates": [],
            "environment_string": "PROJECT_NAME = e2e\nMANAGED = True\nDISK_SIZE_GB = None\n",
        });
        format!("{job}\n")
    };
    job_types.iter().map(job).collect()
}

fn flags(pending: usize) -> String {
    json!({ "k8s_jobs_pending_limit": { "enabled": true, "value": pending } }).to_string()
}

/// JSON is YAML.
pub(crate) fn configuration(namespace: &str, kubeconfig: &Path, plan: &Plan) -> Value {
    let millis = |time: Duration| format!("{}ms", time.as_millis());
    // Small, so that hundreds of pods fit on the fake nodes.
    let mut profile = json!({
        "cpu": "10m",
        "memory": "64Mi",
        "shm": "16Mi",
        "labels": { (BEHAVIOUR): plan.behaviour.to_string() },
    });
    merge(&mut profile, &plan.profile);
    let mut kubernetes = json!({ "namespace": namespace, "kubeconfig": kubeconfig });
    merge(&mut kubernetes, &plan.kubernetes);
    let mut configuration = json!({
        "apiVersion": "katabatch.dev/v1alpha1",
        "scheduler": plan.scheduler,
        "clusterfuzz": { "config_dir": "clusterfuzz-config" },
        "queues": [{ "name": "main", "spool": { "path": "spool.sqlite" } }],
        "backends": [{
            "name": "cluster",
            "kubernetes": kubernetes,
            "limits": {
                "live": plan.live,
                "creates_per_second": plan.creates_per_second,
                "window": plan.window,
            },
            "retain_finished": millis(plan.retain_finished),
        }],
        "catalog": { "file": "entities.jsonl" },
        "flags": { "file": "flags.yaml" },
        "limits": { "lease": millis(plan.lease) },
        "profiles": { "default": profile },
        "http": plan.http,
    });
    merge(&mut configuration, &plan.sections);
    configuration
}

fn merge(into: &mut Value, from: &Value) {
    if let (Some(into), Some(from)) = (into.as_object_mut(), from.as_object()) {
        into.extend(from.clone());
    }
}
