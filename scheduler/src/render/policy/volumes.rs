//! What pods mount: only volumes that hold nothing of the node and no secret, and memory-backed
//! ones only as large as the containers that fill them may be.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec, Volume};

use super::Verdict;
use super::containers::all;
use super::federation;
use crate::domain::quantity::Quantity;

pub(super) fn judge(pod: &PodSpec, verdict: &mut Verdict) {
    let volumes = pod.volumes.iter().flatten();
    verdict.refuse_if(
        volumes.filter(|volume| volume.projected.is_some()).count() > 1,
        "there are several projected volumes: direct federation needs one token",
    );
    let mut memory = BTreeMap::new();
    for volume in pod.volumes.iter().flatten() {
        if let Some(size) = judge_one(volume, verdict) {
            memory.insert(volume.name.as_str(), size);
        }
    }
    for container in all(pod) {
        judge_mounts(container, pod, verdict);
        judge_memory(container, &memory, verdict);
    }
}

/// Refuses all but harmless volumes; the size of a memory-backed one.
fn judge_one(volume: &Volume, verdict: &mut Verdict) -> Option<Quantity> {
    let name = &volume.name;
    if let Some(empty) = &volume.empty_dir {
        let medium = empty.medium.as_deref().unwrap_or_default();
        if !medium.starts_with("Memory") && !medium.starts_with("HugePages") {
            return None;
        }
        let limit = empty.size_limit.as_ref().map(|limit| Quantity::parse(&limit.0));
        return match limit {
            Some(Ok(size)) if size.milli() > 0 => Some(size),
            Some(Err(error)) => {
                verdict.refuse(format!("volume `{name}`: {error}"));
                None
            }
            Some(Ok(_)) | None => {
                verdict.refuse(format!(
                    "volume `{name}` takes memory without a bound: give its emptyDir a sizeLimit"
                ));
                None
            }
        };
    }
    if volume.config_map.is_some() || volume.downward_api.is_some() {
        return None;
    }
    if let Some(projected) = &volume.projected {
        if let Err(why) = federation::judge(projected) {
            verdict.refuse(format!(
                "volume `{name}` is projected and {why}: use a configMap or downwardAPI, or for \
                 direct federation one serviceAccountToken for a Workload Identity pool provider"
            ));
        }
        return None;
    }
    let kind = kind(volume);
    verdict.refuse(match kind.as_str() {
        "hostPath" => format!("volume `{name}` is a hostPath, which is never allowed: remove it"),
        "secret" => {
            format!("volume `{name}` is a Secret: untrusted work gets no secrets; use a configMap")
        }
        _ => format!(
            "volume `{name}` is of the kind {kind}: only emptyDir, configMap and downwardAPI are \
             allowed"
        ),
    });
    None
}

/// The field that says what a volume is.
fn kind(volume: &Volume) -> String {
    let written = serde_json::to_value(volume).unwrap_or_default();
    let fields = written.as_object().into_iter().flatten();
    fields.map(|(field, _)| field).find(|field| *field != "name").cloned().unwrap_or_else(|| {
        "nothing (Kubernetes makes it an emptyDir; say so with `emptyDir: {}`)".to_owned()
    })
}

/// `/dev/shm` is what the profile sized, and no path is mounted over twice.
fn judge_mounts(container: &Container, pod: &PodSpec, verdict: &mut Verdict) {
    let mut mounted = BTreeMap::new();
    for mount in container.volume_mounts.iter().flatten() {
        let path = mount.mount_path.trim_end_matches('/');
        if let Some(other) = mounted.insert(path, &mount.name) {
            verdict.refuse(format!(
                "container `{}` mounts `{other}` and `{}` both at {path}: choose another path",
                container.name, mount.name
            ));
        }
        verdict.refuse_if(
            mount.mount_propagation.as_deref() == Some("Bidirectional"),
            &format!(
                "container `{}` mounts {path} with propagation to its node: remove it",
                container.name
            ),
        );
        let volume = pod.volumes.iter().flatten().find(|volume| volume.name == mount.name);
        let medium = volume.and_then(|v| v.empty_dir.as_ref()).and_then(|e| e.medium.as_deref());
        verdict.refuse_if(
            path == "/dev/shm" && medium != Some("Memory"),
            &format!(
                "container `{}` mounts `{}` at /dev/shm: that must be an emptyDir of medium \
                 Memory with a sizeLimit",
                container.name, mount.name
            ),
        );
    }
}

/// What a container writes to memory-backed volumes counts as its own memory (Kubernetes, "Memory
/// backed emptyDir"): over its limit it is killed, or its pod evicted.
fn judge_memory(container: &Container, volumes: &BTreeMap<&str, Quantity>, verdict: &mut Verdict) {
    let mounts = container.volume_mounts.iter().flatten();
    let mut used: BTreeMap<&str, u128> = BTreeMap::new();
    for mount in mounts {
        if let Some(size) = volumes.get(mount.name.as_str()) {
            used.insert(mount.name.as_str(), size.milli());
        }
    }
    if used.is_empty() {
        return;
    }
    let limit = container.resources.as_ref().and_then(|r| r.limits.as_ref()?.get("memory"));
    let name = &container.name;
    let Some(limit) = limit else {
        verdict.refuse(format!(
            "container `{name}` mounts memory-backed volumes without a memory limit: set one"
        ));
        return;
    };
    match Quantity::parse(&limit.0) {
        Ok(limit)
            if used.values().fold(0, |sum: u128, size| sum.saturating_add(*size))
                <= limit.milli() => {}
        Ok(limit) => {
            let sizes: Vec<String> = used
                .keys()
                .filter_map(|volume| Some(format!("{volume} {}", volumes.get(volume)?)))
                .collect();
            verdict.refuse(format!(
                "container `{name}` has memory-backed volumes ({}) larger than its memory limit \
                 ({limit}): make them smaller, or the memory larger",
                sizes.join(", ")
            ));
        }
        Err(error) => verdict.refuse(format!("container `{name}`'s memory limit: {error}")),
    }
}
