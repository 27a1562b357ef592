//! A farm whose cluster is known to Google alone: no kubeconfig leads to it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::batch::v1::Job;
use katabatch_e2e::eventually::{Seen, eventually};
use katabatch_e2e::farm::{Farm, Plan};
use katabatch_e2e::google_rest::{GoogleRest, cluster};
use katabatch_e2e::process::{Output, Process};
use katabatch_e2e::site::{ACCOUNT, rbac};
use katabatch_e2e::{Case, ControlPlane};
use kube::api::ListParams;
use serde_json::{Value, json};

/// The cluster and the project that the farm's project.yaml names.
pub const CLUSTER: &str = "e2e";
pub const PROJECT: &str = "katabatch-e2e";

pub struct World {
    pub case: Case,
    pub google: GoogleRest,
    pub farm: Farm,
    /// The credentials file; empty: none.
    pub credentials: String,
    /// More of the environment.
    pub more: Vec<(&'static str, String)>,
}

impl World {
    /// A farm that says nothing of its cluster, Google that knows it, and the shipped account.
    pub async fn new(case: Case) -> Result<Self> {
        Self::with(case, json!({})).await
    }

    /// As [`World::new`], with more members of the backend's `kubernetes` section.
    pub async fn with(case: Case, kubernetes: Value) -> Result<Self> {
        let google = GoogleRest::start().await?;
        google.list_clusters(&[listed(&case.plane, "us-west1")], &[]);
        case.plane.apply_yaml_in(case.namespace.name(), &rbac()?).await?;
        let mut section = json!({ "kubeconfig": null });
        if let (Some(section), Some(more)) = (section.as_object_mut(), kubernetes.as_object()) {
            section.extend(more.clone());
        }
        let plan =
            Plan { image: case.plane.worker_image(), kubernetes: section, ..Plan::default() };
        let farm = Farm::new(case.namespace.name(), Path::new("/nowhere"), plan)?;
        Ok(Self { case, google, farm, credentials: String::new(), more: Vec::new() })
    }

    /// A token of the shipped account, which the API server takes.
    pub async fn good_token(&self) -> Result<String> {
        self.case.plane.token_for(self.case.namespace.name(), ACCOUNT).await
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        let mut variables = self.google.variables();
        // Nobody's own kubeconfig or credentials.
        let home = self.farm.dir().display().to_string();
        variables.extend([("HOME", home), ("K8S_PROJECT", String::new())]);
        variables.extend([("CLOUDSDK_CONFIG", String::new())]);
        variables.extend([("GOOGLE_APPLICATION_CREDENTIALS", self.credentials.clone())]);
        variables.extend(self.more.iter().cloned());
        variables
    }

    pub fn start(&self, name: &str, arguments: &[&str]) -> Result<Process> {
        Process::start_with(self.farm.dir(), name, arguments, &self.variables())
    }

    /// Runs a command to its end.
    pub async fn run(&self, name: &str, arguments: &[&str]) -> Result<Output> {
        self.start(name, arguments)?.end(Duration::from_secs(90)).await
    }

    /// Changes the configuration.
    pub fn configure(&self, change: impl FnOnce(&mut Value)) -> Result<()> {
        let path = self.farm.config();
        let mut config = serde_json::from_str(&fs::read_to_string(&path).context("read it")?)?;
        change(&mut config);
        fs::write(path, config.to_string()).context("write it")
    }

    pub async fn until_acked(&self, process: &mut Process, within: Duration) -> Result<()> {
        let process = std::sync::Mutex::new(process);
        eventually("every message is acked", within, || async {
            process.lock().map_err(|_| anyhow::anyhow!("a panic"))?.must_run()?;
            let counts = self.farm.counts().await?;
            let left = counts.ready + counts.leased + counts.delayed + counts.quarantined;
            Ok(Seen::when(left == 0, || format!("{counts:?}")))
        })
        .await
    }

    pub async fn jobs(&self) -> Result<usize> {
        Ok(self.all_jobs().await?.len())
    }

    pub async fn all_jobs(&self) -> Result<Vec<Job>> {
        Ok(self.case.namespace.api::<Job>().list(&ListParams::default()).await?.items)
    }
}

/// The test's cluster as GKE would list it, in this location.
pub fn listed(plane: &ControlPlane, location: &str) -> Value {
    cluster(CLUSTER, location, plane.server_url(), plane.ca_pem())
}
