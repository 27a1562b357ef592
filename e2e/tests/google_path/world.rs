//! A namespace with the shipped Role, a proxy in front of it, the emulators with a farm's entities,
//! and the farm's folder.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::batch::v1::Job;
use katabatch::flags::change::Change;
use katabatch::flags::datastore::DatastoreFlags;
use katabatch_e2e::eventually::{Seen, eventually};
use katabatch_e2e::farm::{Plan, message};
use katabatch_e2e::google::farm::{PENDING_LIMIT, entities, prepare};
use katabatch_e2e::google::{Google, TASKS};
use katabatch_e2e::process::{Output, Process};
use katabatch_e2e::site::{ACCOUNT, rbac};
use katabatch_e2e::{Case, Namespace, Proxy, ndb};
use kube::api::ListParams;
use tempfile::TempDir;

/// Long enough for a busy machine.
pub const SOON: Duration = Duration::from_secs(60);

pub struct World {
    pub google: Google,
    pub namespace: Namespace,
    pub proxy: Proxy,
    /// What the scheduler proves itself with to the API server.
    pub token: String,
    pub dir: TempDir,
}

impl World {
    pub async fn new(case: &Case, plan: Plan) -> Result<Self> {
        let google = Google::start().await?;
        let namespace = case.namespace.clone();
        case.plane.apply_yaml_in(namespace.name(), &rbac()?).await?;
        let token = case.plane.token_for(namespace.name(), ACCOUNT).await?;
        let proxy = Proxy::start(&case.plane).await?;
        let kubeconfig = case.plane.kubeconfig_for(&token, namespace.name(), Some(proxy.url()))?;
        let plan = Plan { image: case.plane.worker_image(), ..plan };
        let dir = tempfile::tempdir().context("make a folder for the farm")?;
        prepare(dir.path(), namespace.name(), &kubeconfig, &plan)?;
        google.put(&entities(&plan)).await?;
        Ok(Self { google, namespace, proxy, token, dir })
    }

    /// Starts katabatch, with the variables that lead to the emulators.
    pub fn start(&self, name: &str, arguments: &[&str]) -> Result<Process> {
        Process::start_with(self.dir.path(), name, arguments, &self.google.environment())
    }

    /// Runs a command to its end.
    pub async fn run(&self, name: &str, arguments: &[&str]) -> Result<Output> {
        self.start(name, arguments)?.end(SOON * 2).await
    }

    /// Publishes a task for each URL.
    pub async fn publish(&self, command: &str, job_type: &str, urls: &[String]) -> Result<()> {
        let task = |url: &String| message(command, job_type, url).attributes;
        self.google.publish(urls.iter().map(task).collect()).await
    }

    /// Sets the pending limit, as an operator does.
    pub async fn set_pending(&self, limit: f64) -> Result<()> {
        let datastore = ndb::open(&self.google.datastore.host()).await?;
        let change = Change { value: Some(Some(limit)), ..Change::default() };
        DatastoreFlags::new(datastore).set(PENDING_LIMIT, &change).await?;
        Ok(())
    }

    pub async fn jobs(&self) -> Result<BTreeSet<String>> {
        let jobs = self.namespace.api::<Job>().list_metadata(&ListParams::default()).await?;
        Ok(jobs.items.into_iter().filter_map(|job| job.metadata.name).collect())
    }

    /// Waits until there are so many Jobs, or more.
    pub async fn until_jobs(&self, count: usize, within: Duration) -> Result<BTreeSet<String>> {
        eventually(&format!("{count} Jobs"), within, || async {
            let jobs = self.jobs().await?;
            let there = jobs.len();
            Ok(if there >= count { Seen::Done(jobs) } else { Seen::NotYet(there.to_string()) })
        })
        .await
    }

    /// Waits until the subscription gives nothing for longer than its ack deadline: what is leased
    /// and not acked would come.
    pub async fn until_empty(&self) -> Result<()> {
        let mut quiet = None;
        let quiet = &mut quiet;
        let deadline = tokio::time::Instant::now() + SOON;
        while tokio::time::Instant::now() < deadline {
            if !self.google.peek(TASKS).await?.is_empty() {
                *quiet = None;
                continue;
            }
            let since = quiet.get_or_insert_with(tokio::time::Instant::now);
            if since.elapsed() > Duration::from_secs(12) {
                return Ok(());
            }
        }
        anyhow::bail!("messages are left")
    }
}
