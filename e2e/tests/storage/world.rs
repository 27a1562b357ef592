//! What the tests share: a site whose scheduler takes the fake for Cloud Storage.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::batch::v1::Job;
use katabatch_e2e::Case;
use katabatch_e2e::farm::Plan;
use katabatch_e2e::gcs::{FakeGcs, environment};
use katabatch_e2e::process::{Output, Process};
use katabatch_e2e::site::Site;
use serde_json::{Value, json};

/// Long enough for a busy machine; nothing here takes nearly so long.
pub const SOON: Duration = Duration::from_secs(60);
const BUCKETS: [&str; 3] = ["farm", "inputs", "outputs"];

/// A site and a fake.
pub struct World {
    pub site: Site,
    pub gcs: FakeGcs,
    pub environment: Vec<(&'static str, String)>,
}

impl World {
    /// A farm in files, with these sections in its configuration.
    pub async fn new(case: &Case, sections: Value) -> Result<Self> {
        let gcs = FakeGcs::start(&BUCKETS).await?;
        let plan = Plan { sections, ..Plan::default() };
        let site = Site::new(&case.plane, &case.namespace, plan).await?;
        let environment = environment(&gcs, site.farm.dir())?;
        Ok(Self { site, gcs, environment })
    }

    /// A farm of which all but the configuration is in a bucket, and nowhere else.
    pub async fn in_bucket(case: &Case) -> Result<Self> {
        let world = Self::new(
            case,
            json!({
                "clusterfuzz": { "config_dir": "gs://farm/config/" },
                "catalog": { "file": "gs://farm/entities.jsonl" },
                "flags": { "file": "gs://farm/flags.yaml" },
            }),
        )
        .await?;
        for (file, object) in [
            ("clusterfuzz-config/project.yaml", "config/project.yaml"),
            ("clusterfuzz-config/batch/batch.yaml", "config/batch/batch.yaml"),
            ("entities.jsonl", "entities.jsonl"),
            ("flags.yaml", "flags.yaml"),
        ] {
            let path = world.site.farm.dir().join(file);
            let text = fs::read_to_string(&path).with_context(|| format!("read {file}"))?;
            world.gcs.put(&format!("gs://farm/{object}"), &text).await?;
            fs::remove_file(&path).with_context(|| format!("remove {file}"))?;
        }
        Ok(world)
    }

    /// Starts `katabatch run`.
    pub fn run(&self) -> Result<Process> {
        self.start("run", &["--log", "trace", "run"])
    }

    /// Starts a command.
    pub fn start(&self, name: &str, arguments: &[&str]) -> Result<Process> {
        Process::start_with(self.site.farm.dir(), name, arguments, &self.environment)
    }

    /// Stops it, and gives what it said.
    pub async fn stop(&self, process: Process) -> Result<Output> {
        process.terminate()?;
        process.end(SOON).await
    }
}

/// A variable of a Job's worker.
pub fn variable(job: &Job, name: &str) -> Result<String> {
    let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let env = pod.and_then(|pod| pod.containers.first()?.env.as_ref());
    let found = env.and_then(|env| env.iter().find(|variable| variable.name == name));
    found.and_then(|variable| variable.value.clone()).with_context(|| format!("no {name}"))
}

/// The image of a Job's worker.
pub fn image(job: &Job) -> Option<&str> {
    let pod = job.spec.as_ref()?.template.spec.as_ref()?;
    pod.containers.first()?.image.as_deref()
}
