//! The objects that every control plane starts with: the RuntimeClass of isolated
//! pods, and fake nodes to put them on.

use std::fs;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// KWOK looks after the nodes that have this annotation, and by its convention a taint of the same
/// name keeps pods off them.
pub const FAKE: &str = "kwok.x-k8s.io/node";

/// The repository's own RuntimeClass. Where there are no virtual machines, it counts none.
///
/// # Errors
/// When the file can't be read.
pub fn runtime_class(virtual_machines: bool) -> Result<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../kata/runtimeclass.yaml");
    let text = fs::read_to_string(path).with_context(|| format!("read {path}"))?;
    let mut class: Value = serde_saphyr::from_str(&text).with_context(|| format!("read {path}"))?;
    if !virtual_machines {
        class.as_object_mut().context("a RuntimeClass is an object")?.remove("overhead");
    }
    Ok(class.to_string())
}

/// A node without a kubelet, large enough to hold some dozens of fuzzing tasks.
///
/// It carries what a farm's Kata nodes carry, so that a node selector for them fits. If it is to
/// `repel`, only pods that tolerate it come.
pub fn node(index: usize, repel: bool) -> Value {
    let name = format!("fake-{index}");
    let size = json!({
        "cpu": "64",
        "memory": "256Gi",
        "ephemeral-storage": "4Ti",
        "pods": "1000",
    });
    let taints = match repel {
        true => json!([{ "key": FAKE, "value": "fake", "effect": "NoSchedule" }]),
        false => json!([]),
    };
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": { (FAKE): "fake" },
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
                "katacontainers.io/kata-runtime": "true",
                "type": "kwok",
            },
        },
        "spec": { "taints": taints },
        "status": { "allocatable": size, "capacity": size },
    })
}
