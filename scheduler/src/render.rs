//! A stand-in, to be replaced.
#![allow(missing_docs)]

use crate::domain::name::{Attempt, JobName};
use crate::domain::outcome::HoldKind;
use crate::domain::task::Task;
use crate::domain::workload::Workload;

pub struct Templates(());

impl Templates {
    pub fn embedded() -> Result<Self, RenderError> {
        Ok(Self(()))
    }

    pub fn check(
        &self,
        w: &Workload,
        target: &Target,
        _policy: &Policy,
    ) -> Result<CheckedJob, RenderError> {
        if w.profile.host_network {
            return Err(RenderError(HoldKind::PolicyRefused, "hostNetwork".into()));
        }
        Ok(CheckedJob {
            image: w.image.clone(),
            account: w.account.name().to_owned(),
            namespace: target.namespace.clone(),
            scheduler: target.scheduler.clone(),
        })
    }
}

pub struct Target {
    pub namespace: String,
    pub scheduler: String,
}

pub struct Policy {
    pub strict: bool,
}

#[derive(Clone)]
pub struct CheckedJob {
    image: String,
    account: String,
    namespace: String,
    scheduler: String,
}

impl CheckedJob {
    pub fn fill(&self, task: &Task, attempt: Attempt) -> FilledJob {
        let name = JobName::of(&task.hash, attempt);
        let labels = serde_json::json!({
            "app.kubernetes.io/managed-by": "katabatch",
            "app.kubernetes.io/name": "clusterfuzz-kata-job",
            "katabatch.dev/scheduler": self.scheduler,
            "task_name": task.key.command.as_str(),
            "job_name": task.key.job_type.as_str(),
        });
        let body = serde_json::json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name.as_str(),
                "namespace": self.namespace,
                "labels": labels,
                "annotations": {"katabatch.dev/task": task.hash.to_string()},
            },
            "spec": {"backoffLimit": 0, "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "restartPolicy": "Never",
                    "serviceAccountName": self.account,
                    "containers": [{"name": "main", "image": self.image,
                        "env": [{"name": "U", "value": task.input.reveal()}]}],
                },
            }},
        });
        FilledJob { name, body: body.to_string().into_bytes() }
    }

    pub fn warnings(&self) -> &[String] {
        &[]
    }
}

pub struct FilledJob {
    pub name: JobName,
    body: Vec<u8>,
}

impl FilledJob {
    pub fn to_body(&self) -> Vec<u8> {
        self.body.clone()
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{1}")]
pub struct RenderError(HoldKind, String);

impl RenderError {
    pub fn kind(&self) -> HoldKind {
        self.0
    }
}
