//! Jobs run, and their pods do what they are told.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use katabatch_e2e::eventually::Seen;
use katabatch_e2e::stages::BEHAVIOUR;
use katabatch_e2e::{Behaviour, Case, Namespace, eventually};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;

const SOON: Duration = Duration::from_secs(60);

/// A Job as a farm's worker images expect it, as far as a cluster cares.
pub fn job(name: &str, image: &str, behaviour: Behaviour) -> Result<Job> {
    serde_json::from_value(json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": name },
        "spec": {
            "backoffLimit": 0,
            "template": {
                "metadata": { "labels": { (BEHAVIOUR): behaviour.to_string() } },
                "spec": {
                    "runtimeClassName": "kata",
                    "restartPolicy": "Never",
                    "containers": [{
                        "name": name,
                        "image": image,
                        "securityContext": { "privileged": true },
                        "resources": {
                            "requests": { "cpu": "2", "memory": "3.75Gi" },
                            "limits": { "cpu": "2", "memory": "3.75Gi" },
                        },
                        "volumeMounts": [{ "name": "shm", "mountPath": "/dev/shm" }],
                    }],
                    "volumes": [{
                        "name": "shm",
                        "emptyDir": { "medium": "Memory", "sizeLimit": "1.9Gi" },
                    }],
                },
            },
        },
    }))
    .context("make the Job")
}

async fn create(case: &Case, name: &str, behaviour: Behaviour) -> Result<()> {
    let image = case.plane.worker_image();
    case.namespace
        .api::<Job>()
        .create(&PostParams::default(), &job(name, &image, behaviour)?)
        .await
        .with_context(|| format!("create {name}"))?;
    Ok(())
}

async fn until_job(namespace: &Namespace, name: &str, condition: &str) -> Result<()> {
    let api = namespace.api::<Job>();
    eventually(&format!("{name} is {condition}"), SOON, || async {
        let status = api.get(name).await?.status.unwrap_or_default();
        let true_ones: Vec<_> = status
            .conditions
            .iter()
            .flatten()
            .filter(|found| found.status == "True")
            .map(|found| found.type_.clone())
            .collect();
        Ok(Seen::when(true_ones.iter().any(|found| found == condition), || {
            format!("conditions {true_ones:?}")
        }))
    })
    .await
}

/// The one pod of a Job, once it satisfies `is`.
async fn until_pod<F>(namespace: &Namespace, job: &str, what: &str, is: F) -> Result<Pod>
where
    F: Fn(&Pod) -> bool,
{
    let api: Api<Pod> = namespace.api();
    let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
    eventually(&format!("{job}'s pod is {what}"), SOON, || async {
        let pods = api.list(&of_job).await?.items;
        Ok(match pods.iter().find(|pod| is(pod)) {
            Some(pod) => Seen::Done(pod.clone()),
            None => Seen::NotYet(format!("{:?}", pods.iter().map(phase).collect::<Vec<_>>())),
        })
    })
    .await
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn is_scheduled(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
}

fn exit(pod: &Pod) -> Option<(i32, &str)> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let end = statuses.first()?.state.as_ref()?.terminated.as_ref()?;
    Some((end.exit_code, end.reason.as_deref().unwrap_or_default()))
}

pub async fn a_kata_job_completes(case: Case) -> Result<()> {
    create(&case, "quick", Behaviour::Default).await?;
    until_job(&case.namespace, "quick", "Complete").await
}

pub async fn pods_behave_as_their_label_says(case: Case) -> Result<()> {
    case.plane.require_local("telling pods how to behave")?;
    let namespace = &case.namespace;
    let slow = Behaviour::Slow(Duration::from_secs(2));
    create(&case, "pending", Behaviour::StayPending).await?;
    create(&case, "absent", Behaviour::ImageAbsent).await?;
    create(&case, "forever", Behaviour::RunForever).await?;
    create(&case, "evicted", Behaviour::Evicted).await?;
    create(&case, "slow", slow).await?;

    until_pod(namespace, "slow", "running", |pod| phase(pod) == "Running").await?;
    until_job(namespace, "slow", "Complete").await?;
    until_job(namespace, "evicted", "Failed").await?;
    until_pod(namespace, "forever", "running", |pod| phase(pod) == "Running").await?;
    until_pod(namespace, "absent", "waiting", |pod| {
        let text = serde_json::to_string(&pod.status).unwrap_or_default();
        phase(pod) == "Pending" && text.contains("ImagePullBackOff")
    })
    .await?;
    // By now a pod created first would have been started, if anything started it.
    let pending = |pod: &Pod| phase(pod) == "Pending" && is_scheduled(pod);
    until_pod(namespace, "pending", "pending on a node", pending).await?;
    Ok(())
}

pub async fn a_failing_pod_fails_its_job(case: Case) -> Result<()> {
    case.plane.require_local("telling pods how to behave")?;
    let namespace = &case.namespace;
    let at_once = Behaviour::Fail { code: 3, after: Duration::ZERO };
    let later = Behaviour::Fail { code: 137, after: Duration::from_secs(1) };
    create(&case, "three", at_once).await?;
    create(&case, "memory", later).await?;
    for (name, end) in [("three", (3, "Error")), ("memory", (137, "OOMKilled"))] {
        until_job(namespace, name, "Failed").await?;
        let pod = until_pod(namespace, name, "failed", |pod| phase(pod) == "Failed").await?;
        ensure!(exit(&pod) == Some(end), "{name} ended with {:?}", exit(&pod));
    }
    Ok(())
}

pub async fn a_deleted_pod_ends_and_goes(case: Case) -> Result<()> {
    case.plane.require_local("telling pods how to behave")?;
    let namespace = &case.namespace;
    create(&case, "doomed", Behaviour::RunForever).await?;
    until_pod(namespace, "doomed", "running", |pod| phase(pod) == "Running").await?;
    namespace.api::<Job>().delete("doomed", &DeleteParams::foreground()).await?;
    let pods = namespace.api::<Pod>();
    eventually("the pod is gone", SOON, || async {
        let left = pods.list(&ListParams::default()).await?.items.len();
        Ok(Seen::when(left == 0, || format!("{left} left")))
    })
    .await
}

pub async fn a_dump_shows_what_is_there(case: Case) -> Result<()> {
    case.plane.require_local("telling pods how to behave")?;
    create(&case, "shown", Behaviour::StayPending).await?;
    until_pod(&case.namespace, "shown", "scheduled", is_scheduled).await?;
    // Events are written behind the work.
    eventually("all is shown", SOON, || async {
        let text = case.plane.describe(case.namespace.name()).await?;
        let expected = [
            "Job shown: active 1",
            "Pod shown-",
            "Pending on fake-",
            "Job/shown: SuccessfulCreate",
        ];
        let missing = expected.iter().find(|expected| !text.contains(**expected));
        Ok(Seen::when(missing.is_none(), || format!("{missing:?} is not in:\n{text}")))
    })
    .await
}
