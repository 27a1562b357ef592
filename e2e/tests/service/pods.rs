//! Pods that are there before the scheduler, and stay pending.

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

/// What upstream's Kata pods are known by.
pub fn kata_labels() -> Value {
    json!({
        "app.kubernetes.io/name": "clusterfuzz-kata-job",
        "task_name": "fuzz",
        "job_name": "libfuzzer_asan_other",
    })
}

/// What our own pods are known by.
pub fn our_labels() -> Value {
    let mut labels = kata_labels();
    labels["katabatch.dev/scheduler"] = "e2e".into();
    labels
}

/// What upstream's standard pods are known by.
pub fn standard_labels() -> Value {
    json!({ "task_name": "fuzz", "job_name": "libfuzzer_asan_other" })
}

/// Makes `count` pods that no scheduler looks at, of `size` more bytes each.
pub async fn make(pods: &Api<Pod>, count: usize, labels: &Value, size: usize) -> Result<()> {
    let filler = "x".repeat(size);
    let ours = labels.get("katabatch.dev/scheduler").is_some();
    let pod = |n: usize| {
        // Of Jobs that nobody has, where nothing collects garbage.
        let owner = ours.then(|| {
            json!([{
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": format!("there-{n:05}"),
                "uid": format!("0b5e77e0-0000-4000-8000-{n:012}"),
            }])
        });
        serde_json::from_value::<Pod>(json!({
            "metadata": {
                "name": format!("there-{n:05}"),
                "labels": labels,
                "annotations": { "filler": filler },
                "ownerReferences": owner,
            },
            "spec": {
                "schedulerName": "nobody",
                "automountServiceAccountToken": false,
                "restartPolicy": "Never",
                "containers": [{ "name": "worker", "image": "registry.test/worker:1" }],
            },
        }))
        .context("make a pod")
    };
    stream::iter(0..count)
        .map(|n| async move {
            pods.create(&PostParams::default(), &pod(n)?).await.context("create a pod")?;
            anyhow::Ok(())
        })
        .buffer_unordered(32)
        .try_collect()
        .await
}
