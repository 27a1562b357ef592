//! The kubelet of a real node: its configuration and its start.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::slot::Names;
use crate::component::Component;
use crate::control_plane::ControlPlane;

/// How long the node's Lease lives; it is renewed every quarter of that.
const LEASE_SECONDS: u32 = 20;

/// Starts it; the node is not Ready yet.
///
/// # Errors
/// When it can't be started.
pub fn start(program: &Path, plane: &ControlPlane, names: &Names) -> Result<Component> {
    let config = names.dir.join("kubelet.yaml");
    let text = configuration(names, plane.ca_file()).to_string();
    fs::write(&config, text).context("write the kubelet's configuration")?;
    let dir = names.dir.display();
    Component::spawn(
        "kubelet",
        program,
        &[
            format!("--config={}", config.display()),
            format!("--kubeconfig={}", plane.admin_kubeconfig().display()),
            format!("--root-dir={dir}/kubelet"),
            format!("--cert-dir={dir}/pki"),
            format!("--hostname-override={}", names.node()),
            format!("--node-ip={}", names.address()),
            "--node-labels=katacontainers.io/kata-runtime=true,type=real".into(),
        ],
        &[],
        &names.dir,
    )
}

/// JSON is YAML. What other kubelets of the machine would have too (ports of 127.0.0.1, folders) is
/// moved or switched off; what would change the machine beyond our folder as well.
fn configuration(names: &Names, ca: &Path) -> Value {
    let almost_nothing = "1%";
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": names.address(),
        "healthzPort": 0,
        "readOnlyPort": 0,
        "containerRuntimeEndpoint": format!("unix://{}", names.socket().display()),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", names.cgroup()),
        "enforceNodeAllocatable": ["pods"],
        "failCgroupV1": false,
        "failSwapOn": false,
        "makeIPTablesUtilChains": false,
        "oomScoreAdj": 0,
        "podLogsDir": names.dir.join("pod-logs"),
        "volumePluginDir": names.dir.join("volume-plugins"),
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "50Mi",
            "nodefs.available": almost_nothing,
            "nodefs.inodesFree": almost_nothing,
            "imagefs.available": almost_nothing,
        },
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": false },
            "x509": { "clientCAFile": ca },
        },
        "authorization": { "mode": "AlwaysAllow" },
        "nodeLeaseDurationSeconds": LEASE_SECONDS,
        "serializeImagePulls": false,
    })
}
