//! The farm of a benchmark: files in a directory, and a spool full of tasks.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use katabatch::clock::SystemClock;
use katabatch::queue::spool::Spool;
use katabatch::queue::spool::record::NewMessage;

/// A pending limit above any load.
pub const UNLIMITED: usize = 1_000_000;

/// How many job types share the tasks.
const JOB_TYPES: usize = 20;

const PROJECT: &str = "cluster_name: bench\nenv:\n  PROJECT_NAME: bench\n";

const BATCH: &str = "\
project: bench
mapping:
  LINUX-PREEMPTIBLE-UNPRIVILEGED:
    docker_image: registry.test/worker:1
    disk_size_gb: 110
    service_account_email: worker@bench.iam.gserviceaccount.com
    preemptible: true
    machine_type: n1-standard-1
";

/// Writes everything and puts the tasks; the path of the configuration.
pub async fn write(
    dir: &Path,
    kubeconfig: &Path,
    namespace: &str,
    tasks: usize,
    limit: usize,
) -> Result<PathBuf> {
    std::fs::create_dir_all(dir.join("clusterfuzz-config/batch"))?;
    std::fs::write(dir.join("clusterfuzz-config/project.yaml"), PROJECT)?;
    std::fs::write(dir.join("clusterfuzz-config/batch/batch.yaml"), BATCH)?;
    let mut entities = String::new();
    for n in 0..JOB_TYPES {
        writeln!(entities, "{{\"kind\":\"Job\",\"name\":\"{}\",\"platform\":\"LINUX\"}}", job(n))?;
    }
    std::fs::write(dir.join("entities.jsonl"), entities)?;
    let config = dir.join("katabatch.yaml");
    std::fs::write(
        &config,
        format!(
            "apiVersion: katabatch.dev/v1alpha1\nscheduler: bench\ncatalog: {{file: entities.jsonl}}\n\
             backends:\n  - name: bench\n    kubernetes: {{kubeconfig: '{}', namespace: {namespace}}}\n    \
             limits: {{pending: {{flag: null, default: {limit}}}}}\n",
            kubeconfig.display()
        ),
    )?;
    let clock = Arc::new(SystemClock);
    let spool = Spool::open(&dir.join("spool.sqlite"), "main".into(), clock)?;
    spool.put_many((0..tasks).map(message), |_| {}).await?;
    Ok(config)
}

fn job(n: usize) -> String {
    format!("libfuzzer_asan_bench_{}", n % JOB_TYPES)
}

/// The n-th task's attributes, its input signed as ClusterFuzz signs.
pub fn message(n: usize) -> NewMessage {
    let signature = "0123456789abcdef".repeat(32);
    let url = format!(
        "https://storage.googleapis.com/uworker-input/{n:08x}?X-Goog-Algorithm=GOOG4-RSA-SHA256\
         &X-Goog-Credential=worker%40bench&X-Goog-SignedHeaders=host&X-Goog-Signature={signature}"
    );
    let pairs = [("command", "fuzz".to_owned()), ("job", job(n)), ("argument", url)];
    NewMessage {
        id: None,
        attributes: pairs.map(|(key, value)| (key.to_owned(), value)).into(),
        attempts: None,
        not_before: None,
        timeout: None,
    }
}
