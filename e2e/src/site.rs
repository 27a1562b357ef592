//! Where a suite of the scheduler takes place: a namespace with the ServiceAccount and Role that
//! we ship, a proxy in front of it, and a farm whose kubeconfig leads through that proxy under
//! that account.

use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use crate::control_plane::{ControlPlane, Namespace};
use crate::eventually::{Seen, eventually};
use crate::farm::{Farm, Plan};
use crate::process::Process;
use crate::proxy::{Proxy, Request};
pub use crate::rbac::rbac;
use crate::scheduler::Scheduler;

/// The account of the shipped manifests.
pub const ACCOUNT: &str = "katabatch";

/// A namespace, a proxy and a farm.
pub struct Site {
    /// The namespace.
    pub namespace: Namespace,
    /// What the scheduler talks to.
    pub proxy: Proxy,
    /// The farm.
    pub farm: Farm,
    /// The way through the proxy, under the shipped account.
    pub kubeconfig: PathBuf,
}

impl Site {
    /// Sets it all up, for workers that this control plane can run unless the plan names an image
    /// of its own.
    ///
    /// # Errors
    /// When something can't be applied or written.
    pub async fn new(plane: &ControlPlane, namespace: &Namespace, plan: Plan) -> Result<Self> {
        plane.apply_yaml_in(namespace.name(), &rbac()?).await?;
        let token = plane.token_for(namespace.name(), ACCOUNT).await?;
        let proxy = Proxy::start(plane).await?;
        let kubeconfig = plane.kubeconfig_for(&token, namespace.name(), Some(proxy.url()))?;
        let own = plan.image != Plan::default().image;
        let plan = if own { plan } else { Plan { image: plane.worker_image(), ..plan } };
        let farm = Farm::new(namespace.name(), &kubeconfig, plan)?;
        Ok(Self { namespace: namespace.clone(), proxy, farm, kubeconfig })
    }

    /// Starts the scheduler in this process.
    ///
    /// # Errors
    /// As [`Scheduler::start`].
    pub async fn scheduler(&self) -> Result<Scheduler> {
        Scheduler::start(&self.farm).await
    }

    /// Starts `katabatch run` as a process; its output is kept under `name`.
    ///
    /// # Errors
    /// As [`Process::start`].
    pub fn run(&self, name: &str) -> Result<Process> {
        Process::start(self.farm.dir(), name, &["run"])
    }

    /// The administrator's view of a kind of objects.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        self.namespace.api()
    }

    /// The administrator's view, to be moved elsewhere.
    pub fn look(&self) -> Look {
        Look { namespace: self.namespace.clone() }
    }

    /// All Jobs.
    ///
    /// # Errors
    /// When they can't be listed.
    pub async fn jobs(&self) -> Result<Vec<Job>> {
        self.look().jobs().await
    }

    /// As [`Look::waiting`].
    ///
    /// # Errors
    /// As there.
    pub async fn waiting(&self) -> Result<usize> {
        self.look().waiting().await
    }

    /// Waits until there are exactly so many Jobs.
    ///
    /// # Errors
    /// When there aren't within that time.
    pub async fn until_jobs(&self, count: usize, within: Duration) -> Result<Vec<Job>> {
        eventually(&format!("{count} Jobs"), within, || async {
            let jobs = self.jobs().await?;
            Ok(if jobs.len() == count {
                Seen::Done(jobs)
            } else {
                Seen::NotYet(format!("{} Jobs", jobs.len()))
            })
        })
        .await
    }

    /// Waits until the spool is empty and nothing went to quarantine.
    ///
    /// # Errors
    /// When it isn't within that time.
    pub async fn until_acked(&self, within: Duration) -> Result<()> {
        eventually("every message is acked", within, || async {
            let counts = self.farm.counts().await?;
            let left = counts.ready + counts.leased + counts.delayed + counts.quarantined;
            Ok(Seen::when(left == 0, || format!("{counts:?}")))
        })
        .await
    }

    /// The creates of Jobs that the proxy saw, in order of arrival.
    pub fn creates(&self) -> Vec<Request> {
        let all = self.proxy.requests().into_iter();
        all.filter(|seen| seen.verb == "create" && seen.resource == "jobs").collect()
    }
}

/// What the administrator sees of a namespace.
#[derive(Clone)]
pub struct Look {
    namespace: Namespace,
}

impl Look {
    /// All Jobs.
    ///
    /// # Errors
    /// When they can't be listed.
    pub async fn jobs(&self) -> Result<Vec<Job>> {
        Ok(self
            .namespace
            .api::<Job>()
            .list(&ListParams::default())
            .await
            .context("list the Jobs")?
            .items)
    }

    /// How many Jobs wait to start: those without an end and without a pod that has left Pending.
    /// Never more than there were when the Jobs were listed, since none comes back to waiting.
    ///
    /// # Errors
    /// When Jobs or pods can't be listed.
    pub async fn waiting(&self) -> Result<usize> {
        let jobs = self.jobs().await?;
        let pods = self
            .namespace
            .api::<Pod>()
            .list(&ListParams::default())
            .await
            .context("list the pods")?;
        let started = |job: &Job| {
            let uid = job.metadata.uid.as_deref();
            pods.items.iter().any(|pod| {
                let owners = pod.metadata.owner_references.iter().flatten();
                let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
                owners.map(|owner| owner.uid.as_str()).any(|owner| Some(owner) == uid)
                    && phase != Some("Pending")
            })
        };
        Ok(jobs.iter().filter(|job| !is_finished(job) && !started(job)).count())
    }
}

/// Whether a Job has ended.
pub fn is_finished(job: &Job) -> bool {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .filter(|condition| condition.status == "True")
        .any(|condition| matches!(condition.type_.as_str(), "Complete" | "Failed"))
}
