//! With the upstream settings the Job is ClusterFuzz's, but for the documented additions.

use serde_json::{Value, json};

use super::super::*;
use super::{URL, filled, task};

/// ClusterFuzz's Job, as its worker images expect it.
fn clusterfuzz(command: &str, kata: bool, deadline: u64, restart: &str, name: &str) -> Value {
    let mut labels = json!({ "task_name": command, "job_name": "libfuzzer_asan_zlib" });
    if kata {
        labels["app.kubernetes.io/name"] = json!("clusterfuzz-kata-job");
    }
    let env: Vec<Value> = [
        ("HOST_UID", "1337"),
        ("CLUSTERFUZZ_RELEASE", "prod"),
        ("UNTRUSTED_WORKER", "False"),
        ("UWORKER", "True"),
        ("USE_GCLOUD_STORAGE_RSYNC", "1"),
        ("UWORKER_INPUT_DOWNLOAD_URL", URL),
        ("IS_K8S_ENV", "true"),
        ("DISABLE_MOUNTS", "true"),
        ("UPDATE_WEB_TESTS", "False"),
    ]
    .into_iter()
    .map(|(name, value)| json!({ "name": name, "value": value }))
    .collect();
    let resources = json!({ "cpu": "2", "memory": "3.75Gi" });
    let mut pod = json!({
        "restartPolicy": restart,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "serviceAccountName": "untrusted-worker",
        "containers": [{
            "name": name,
            "image": "gcr.io/clusterfuzz-images/oss-fuzz/worker",
            "imagePullPolicy": "IfNotPresent",
            "lifecycle": { "postStart": { "exec": { "command": [
                "/bin/sh", "-c", "mkdir -p /tmp/.X11-unix && chmod 1777 /tmp/.X11-unix",
            ] } } },
            "resources": { "requests": resources, "limits": resources },
            "securityContext": { "privileged": true, "capabilities": { "add": ["ALL"] } },
            "env": env,
            "volumeMounts": [{ "name": "dshm", "mountPath": "/dev/shm" }],
        }],
        "volumes": [{ "name": "dshm", "emptyDir": { "medium": "Memory", "sizeLimit": "1.9Gi" } }],
    });
    if kata {
        pod["runtimeClassName"] = json!("kata");
    }
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": name, "labels": labels },
        "spec": {
            "ttlSecondsAfterFinished": 100,
            "activeDeadlineSeconds": deadline,
            "backoffLimit": 0,
            "template": { "metadata": { "labels": labels }, "spec": pod },
        },
    })
}

/// Takes out the additions that templates/README.md documents; each must be there.
fn without_additions(mut job: Value) -> Value {
    let mut remove = |path: &str, key: &str| {
        let removed = job.pointer_mut(path).and_then(Value::as_object_mut).expect("an object");
        removed.remove(key).unwrap_or_else(|| panic!("{path} has no {key}"))
    };
    remove("/metadata", "namespace");
    remove("/metadata", "annotations");
    for path in ["/metadata/labels", "/spec/template/metadata/labels"] {
        for label in [labels::MANAGED_BY, labels::SCHEDULER, labels::TASK, labels::ATTEMPT] {
            remove(path, label);
        }
    }
    remove("/spec", "podReplacementPolicy");
    remove("/spec/template/spec", "automountServiceAccountToken");
    job
}

#[test]
fn upstream_settings_make_clusterfuzz_s_job() {
    for (command, deadline, restart) in [
        ("fuzz", 21_600, "Never"),
        ("corpus_pruning", 86_400, "OnFailure"),
        ("regression", 86_400, "OnFailure"),
        ("minimize", 21_600, "OnFailure"),
    ] {
        for isolation in [Isolation::Kata, Isolation::Standard] {
            let workload = sample::upstream(command, isolation).expect("a sample");
            let name = task(&workload, URL).job_name();
            let kata = isolation == Isolation::Kata;
            assert_eq!(
                without_additions(filled(&workload, URL)),
                clusterfuzz(command, kata, deadline, restart, name.as_str()),
                "{command} {isolation:?}"
            );
        }
    }
}
