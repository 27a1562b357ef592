//! Each rule of the policy refuses by itself: a Job that may run, with one thing changed.

use serde_json::{Value, json};

use super::super::{Templates, sample};
use super::*;
use crate::domain::quantity::Quantity;

const LENIENT: Policy = Policy { strict: false };
const POD: &str = "/spec/template/spec";

fn workload(isolation: Isolation) -> Workload {
    sample::upstream("fuzz", isolation).expect("a sample")
}

fn rendered(workload: &Workload) -> Value {
    let templates = Templates::embedded().expect("templates");
    templates.render(workload, &sample::target()).unwrap_or_else(|e| panic!("{e}")).1
}

fn judge(job: Value, workload: &Workload, policy: Policy) -> Result<Vec<String>, Vec<String>> {
    policy.judge(&serde_json::from_value(job).expect("a Job"), workload)
}

/// Sets `field` of the object at `path` in the Job of `workload`: exactly one refusal, of this.
#[track_caller]
fn refused_for(workload: &Workload, path: &str, field: &str, value: Value, because: &str) {
    let mut job = rendered(workload);
    job.pointer_mut(path).expect("a path")[field] = value;
    let refusals = judge(job, workload, LENIENT).expect_err("refused");
    assert_eq!(refusals.len(), 1, "{refusals:?}");
    assert!(refusals[0].contains(because), "{refusals:?}");
}

#[track_caller]
fn refused(path: &str, field: &str, value: Value, because: &str) {
    refused_for(&workload(Isolation::Kata), &format!("{POD}{path}"), field, value, because);
}

#[test]
fn the_embedded_templates_may_run() {
    let kata = workload(Isolation::Kata);
    assert_eq!(judge(rendered(&kata), &kata, Policy { strict: true }), Ok(vec![]));
    let standard = workload(Isolation::Standard);
    let warnings = judge(rendered(&standard), &standard, LENIENT).expect("it may run");
    assert!(warnings[0].contains("not isolated"), "{warnings:?}");
}

#[test]
fn strict_refuses_standard_containers() {
    let standard = workload(Isolation::Standard);
    let refusals =
        judge(rendered(&standard), &standard, Policy { strict: true }).expect_err("refused");
    assert!(refusals[0].contains("is_kata: false"), "{refusals:?}");
}

#[test]
fn kata_work_without_its_runtime_class_is_refused() {
    refused("", "runtimeClassName", Value::Null, "missing");
    refused("", "runtimeClassName", json!("gvisor"), "`gvisor`");
}

#[test]
fn a_standard_job_that_claims_kata_is_refused() {
    let standard = workload(Isolation::Standard);
    refused_for(&standard, POD, "runtimeClassName", json!("kata"), "claims");
    for path in ["/metadata/labels", "/spec/template/metadata/labels"] {
        refused_for(&standard, path, "app.kubernetes.io/name", json!(KATA_APP), "claims");
    }
}

#[test]
fn the_node_s_namespaces_are_refused() {
    refused("", "hostPID", json!(true), "hostPID");
    refused("", "hostIPC", json!(true), "hostIPC");
    refused("", "nodeName", json!("n"), "nodeName");
    refused("", "resourceClaims", json!([{ "name": "gpu" }]), "resourceClaims");
    let mut existing = workload(Isolation::Standard);
    existing.account = Account::Existing { name: "untrusted-worker".into() };
    refused_for(&existing, POD, "hostNetwork", json!(true), "host_network is off");
}

fn host_network(isolation: Isolation, google: bool, exception: bool) -> Workload {
    let mut workload = workload(isolation);
    workload.profile.host_network = true;
    workload.profile.host_network_exception = exception;
    if !google {
        workload.account = Account::Existing { name: "untrusted-worker".into() };
    }
    workload
}

#[test]
fn host_network_together_with_kata_is_refused() {
    let workload = host_network(Isolation::Kata, false, false);
    let refusals = judge(rendered(&workload), &workload, LENIENT).expect_err("refused");
    assert!(refusals.len() == 1 && refusals[0].contains("together with Kata"), "{refusals:?}");
}

#[test]
fn host_network_together_with_workload_identity_is_refused() {
    let workload = host_network(Isolation::Standard, true, false);
    let refusals = judge(rendered(&workload), &workload, LENIENT).expect_err("refused");
    assert!(refusals.len() == 1 && refusals[0].contains("Workload Identity"), "{refusals:?}");
}

#[test]
fn host_network_by_a_named_exception_is_warned_about_and_with_neither_is_fine() {
    let workload = host_network(Isolation::Kata, true, true);
    let warnings = judge(rendered(&workload), &workload, LENIENT).expect("it may run");
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings.iter().all(|warning| warning.contains("exception")), "{warnings:?}");
    let workload = host_network(Isolation::Standard, false, false);
    assert!(judge(rendered(&workload), &workload, LENIENT).is_ok());
}

#[test]
fn the_kubernetes_token_is_never_mounted_and_the_account_is_the_mapping_s() {
    refused("", "automountServiceAccountToken", Value::Null, "API token");
    refused("", "automountServiceAccountToken", json!(true), "API token");
    let sources = json!([{ "serviceAccountToken": { "path": "token" } }]);
    let volume = json!({ "name": "t", "projected": { "sources": sources } });
    with_volume(volume, Some("API token"));
    refused("", "serviceAccountName", json!("default"), "mapping's account");
    refused("", "serviceAccount", json!("default"), "mapping's account");
}

#[test]
fn only_harmless_volumes_are_allowed() {
    for (kind, source, because) in [
        ("hostPath", json!({ "path": "/" }), "never allowed"),
        ("secret", json!({ "secretName": "s" }), "no secrets"),
        ("projected", json!({ "sources": [] }), "0 sources"),
        ("csi", json!({ "driver": "d" }), "kind csi"),
        ("flexVolume", json!({ "driver": "d" }), "kind flexVolume"),
        ("nfs", json!({ "server": "s", "path": "/" }), "kind nfs"),
        ("persistentVolumeClaim", json!({ "claimName": "c" }), "kind persistentVolumeClaim"),
        ("emptyDir", json!({ "medium": "Memory" }), "without a bound"),
        ("emptyDir", json!({ "medium": "HugePages" }), "without a bound"),
    ] {
        with_volume(json!({ "name": "v", kind: source }), Some(because));
    }
    for (kind, source) in [
        ("emptyDir", json!({})),
        ("emptyDir", json!({ "medium": "Memory", "sizeLimit": "9Gi" })),
        ("configMap", json!({ "name": "c" })),
        ("downwardAPI", json!({})),
    ] {
        with_volume(json!({ "name": "v", kind: source }), None);
    }
}

/// Adds a volume; refused because of it, or not.
#[track_caller]
fn with_volume(volume: Value, because: Option<&str>) {
    let workload = workload(Isolation::Kata);
    let mut job = rendered(&workload);
    let volumes = job.pointer_mut("/spec/template/spec/volumes").and_then(Value::as_array_mut);
    volumes.expect("volumes").push(volume.clone());
    match (judge(job, &workload, LENIENT), because) {
        (Ok(_), None) => {}
        (Err(refusals), Some(because)) => {
            assert!(refusals.len() == 1 && refusals[0].contains(because), "{refusals:?}");
        }
        (judged, _) => panic!("{volume}: {judged:?}"),
    }
}

const PROVIDER: &str =
    "//iam.googleapis.com/projects/12/locations/global/workloadIdentityPools/farm/providers/gke";

fn token(name: &str, audience: Value) -> Value {
    let token = json!({ "path": "token", "audience": audience, "expirationSeconds": 3600 });
    json!({ "name": name, "projected": { "sources": [{ "serviceAccountToken": token }] } })
}

#[test]
fn a_token_for_a_workload_identity_provider_is_the_one_projected_volume_that_is_allowed() {
    with_volume(token("t", json!(PROVIDER)), None);
    with_volume(token("t", json!(format!("https:{PROVIDER}"))), None);
    for audience in [
        "https://kubernetes.default.svc",
        "https://container.googleapis.com/v1/projects/p/locations/z/clusters/c",
        "api",
        "farm.svc.id.goog",
        "//iam.googleapis.com/projects/12/locations/global/workloadIdentityPools/farm",
        "//iam.googleapis.com/projects/12/locations/global/workloadIdentityPools//providers/x",
        &format!("{PROVIDER}/x"),
        &format!("{PROVIDER} "),
        &format!("https://evil.example/{PROVIDER}"),
    ] {
        with_volume(token("t", json!(audience)), Some("no Workload Identity pool provider"));
    }
    for none in [Value::Null, json!("")] {
        with_volume(token("t", none), Some("Kubernetes API token"));
    }
}

#[test]
fn a_projected_volume_holds_the_one_token_and_nothing_else() {
    let mut two = token("t", json!(PROVIDER));
    let sources = two["projected"]["sources"].as_array_mut().expect("sources");
    sources.push(json!({ "secret": { "name": "s" } }));
    with_volume(two, Some("2 sources"));
    let mut mixed = token("t", json!(PROVIDER));
    mixed["projected"]["sources"][0]["secret"] = json!({ "name": "s" });
    with_volume(mixed, Some("no serviceAccountToken"));
    for other in ["secret", "configMap", "downwardAPI", "clusterTrustBundle"] {
        let source = json!({ "sources": [{ other: {"name": "x", "path": "p"} }] });
        with_volume(json!({ "name": "v", "projected": source }), Some("no serviceAccountToken"));
    }
    let workload = workload(Isolation::Kata);
    let mut job = rendered(&workload);
    let volumes = job.pointer_mut("/spec/template/spec/volumes").and_then(Value::as_array_mut);
    let both = ["a", "b"].map(|name| token(name, json!(PROVIDER)));
    volumes.expect("volumes").extend(both);
    let refusals = judge(job, &workload, LENIENT).expect_err("refused");
    assert!(refusals.len() == 1 && refusals[0].contains("several"), "{refusals:?}");
}

#[test]
fn shared_memory_larger_than_the_memory_limit_is_refused() {
    let mut large = workload(Isolation::Kata);
    large.profile.shm = Quantity::parse("4Gi").expect("a size");
    let refusals = judge(rendered(&large), &large, LENIENT).expect_err("refused");
    assert!(refusals[0].contains("dshm 4Gi") && refusals[0].contains("3.75Gi"), "{refusals:?}");

    let mut sum = workload(Isolation::Kata);
    sum.profile.scratch =
        [("/mnt/scratch0".to_owned(), Quantity::parse("1.86Gi").expect("a size"))].into();
    assert!(judge(rendered(&sum), &sum, LENIENT).is_err(), "all memory-backed volumes count");
    sum.profile.scratch =
        [("/mnt/scratch0".to_owned(), Quantity::parse("1.85Gi").expect("a size"))].into();
    assert!(judge(rendered(&sum), &sum, LENIENT).is_ok());
}

#[test]
fn shared_memory_needs_its_size_and_its_medium() {
    let empty = "/volumes/0/emptyDir";
    refused(empty, "sizeLimit", Value::Null, "without a bound");
    refused(empty, "sizeLimit", json!("lots"), "no Kubernetes quantity");
    refused(empty, "medium", Value::Null, "/dev/shm");
    refused("/containers/0/resources", "limits", Value::Null, "without a memory limit");
    let mount = json!([
        { "name": "dshm", "mountPath": "/dev/shm" }, { "name": "dshm", "mountPath": "/dev/shm/" },
    ]);
    refused("/containers/0", "volumeMounts", mount, "both at /dev/shm");
}

#[test]
fn every_container_is_judged() {
    let ports = json!([{ "containerPort": 80, "hostPort": 80 }]);
    refused("/containers/0", "ports", ports.clone(), "hostPort");
    refused("", "initContainers", json!([{ "name": "i", "ports": ports }]), "hostPort");
    let ephemeral = json!([{ "name": "e" }]);
    refused("", "ephemeralContainers", ephemeral, "ephemeralContainers");
    let secret =
        json!([{ "name": "X", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }]);
    refused("/containers/0", "env", secret, "no secrets");
    let secret = json!([{ "secretRef": { "name": "s" } }]);
    refused("/containers/0", "envFrom", secret, "no secrets");
    let devices = json!([{ "name": "d", "devicePath": "/dev/d" }]);
    refused("/containers/0", "volumeDevices", devices, "block device");
    let windows = json!({ "hostProcess": true });
    refused("/containers/0/securityContext", "windowsOptions", windows.clone(), "hostProcess");
    refused("", "securityContext", json!({ "windowsOptions": windows }), "hostProcess");
    let mount = json!([{ "name": "x", "mountPath": "/x", "mountPropagation": "Bidirectional" }]);
    refused("/containers/0", "volumeMounts", mount, "propagation");
}

#[test]
fn privileges_are_as_the_profile_says() {
    for isolation in [Isolation::Kata, Isolation::Standard] {
        let mut plain = workload(isolation);
        plain.profile.privileged = false;
        assert!(judge(rendered(&plain), &plain, LENIENT).is_ok());
        let path = format!("{POD}/containers/0/securityContext");
        refused_for(&plain, &path, "privileged", json!(true), "is privileged");
        refused_for(&plain, &path, "capabilities", json!({ "add": ["SYS_ADMIN"] }), "adds");
        refused_for(&plain, &path, "procMount", json!("Unmasked"), "unmasks");
    }
}
