//! What a person wants to see of a namespace after a test has failed in it.

use std::fmt::Write;

use anyhow::{Context, Result};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use super::ControlPlane;

impl ControlPlane {
    /// Prints the namespace's Jobs, Pods and Events to standard error.
    pub async fn dump(&self, namespace: &str) {
        match self.describe(namespace).await {
            Ok(text) => eprint!("{text}"),
            Err(error) => eprintln!("namespace {namespace} can't be shown: {error:#}"),
        }
    }

    /// The namespace's Jobs, Pods and Events, a line each.
    ///
    /// # Errors
    /// When one of them can't be listed.
    pub async fn describe(&self, namespace: &str) -> Result<String> {
        let all = ListParams::default();
        let client = self.admin_client();
        let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let events: Api<Event> = Api::namespaced(client, namespace);
        let jobs = jobs.list(&all).await.context("list Jobs")?;
        let pods = pods.list(&all).await.context("list Pods")?;
        let mut events = events.list(&all).await.context("list Events")?.items;
        events.sort_by_key(|event| event.metadata.creation_timestamp.clone());

        let mut text = format!("namespace {namespace}\n");
        for job in &jobs {
            writeln!(text, "  Job {}: {}", job.name_any(), job_state(job))?;
        }
        for pod in &pods {
            writeln!(text, "  Pod {}: {}", pod.name_any(), pod_state(pod))?;
        }
        for event in &events {
            writeln!(
                text,
                "  Event {}/{}: {}: {}",
                event.involved_object.kind.as_deref().unwrap_or("?"),
                event.involved_object.name.as_deref().unwrap_or("?"),
                event.reason.as_deref().unwrap_or("?"),
                event.message.as_deref().unwrap_or_default(),
            )?;
        }
        Ok(text)
    }
}

fn job_state(job: &Job) -> String {
    let Some(status) = &job.status else {
        return "no status".into();
    };
    let conditions: Vec<_> = status
        .conditions
        .iter()
        .flatten()
        .filter(|condition| condition.status == "True")
        .map(|condition| {
            let reason = condition.reason.as_deref().unwrap_or_default();
            format!("{} {reason}", condition.type_)
        })
        .collect();
    format!(
        "active {}, succeeded {}, failed {}, conditions [{}]",
        status.active.unwrap_or_default(),
        status.succeeded.unwrap_or_default(),
        status.failed.unwrap_or_default(),
        conditions.join(", "),
    )
}

fn pod_state(pod: &Pod) -> String {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or("no node");
    let Some(status) = &pod.status else {
        return format!("no status, on {node}");
    };
    let containers: Vec<_> = status
        .container_statuses
        .iter()
        .flatten()
        .filter_map(|container| container.state.as_ref())
        .map(|state| {
            if let Some(end) = &state.terminated {
                let reason = end.reason.as_deref().unwrap_or_default();
                format!("exit {} {reason}", end.exit_code)
            } else if let Some(waiting) = &state.waiting {
                waiting.reason.clone().unwrap_or_default()
            } else {
                "running".into()
            }
        })
        .collect();
    format!(
        "{} on {node}, containers [{}]{}",
        status.phase.as_deref().unwrap_or("no phase"),
        containers.join(", "),
        if pod.metadata.deletion_timestamp.is_some() { ", being deleted" } else { "" },
    )
}
