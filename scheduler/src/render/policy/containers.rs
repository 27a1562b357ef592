//! Each container of a pod, init and ephemeral ones included: privileges, ports, secrets.
//!
//! What they mount is `volumes`'s to judge.

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EnvFromSource, EnvVar, PodSpec, SecurityContext, VolumeDevice,
};

use super::Verdict;
use crate::domain::workload::Workload;

pub(super) fn judge(pod: &PodSpec, workload: &Workload, verdict: &mut Verdict) {
    verdict.refuse_if(
        pod.ephemeral_containers.as_ref().is_some_and(|all| !all.is_empty()),
        "ephemeralContainers are for debugging a pod that runs: remove them",
    );
    let windows = pod.security_context.as_ref().and_then(|s| s.windows_options.as_ref());
    verdict.refuse_if(
        windows.is_some_and(|options| options.host_process == Some(true)),
        "a hostProcess pod is never allowed: remove windowsOptions",
    );
    for container in all(pod) {
        judge_one(container, workload, verdict);
    }
}

/// Init containers and containers.
pub(super) fn all(pod: &PodSpec) -> impl Iterator<Item = &Container> {
    pod.init_containers.iter().flatten().chain(&pod.containers)
}

fn judge_one(container: &Container, workload: &Workload, verdict: &mut Verdict) {
    // Exactly the parts that can weaken isolation; the others say what runs, not where.
    let Container { name, env, env_from, ports, security_context, volume_devices, .. } = container;
    judge_ports(name, ports.as_deref().unwrap_or_default(), verdict);
    judge_env(name, env.as_deref().unwrap_or_default(), verdict);
    judge_env_from(name, env_from.as_deref().unwrap_or_default(), verdict);
    let devices: &[VolumeDevice] = volume_devices.as_deref().unwrap_or_default();
    verdict.refuse_if(
        !devices.is_empty(),
        &format!("container `{name}` takes a block device (volumeDevices): remove it"),
    );
    if let Some(context) = security_context {
        judge_privileges(name, context, workload, verdict);
    }
}

fn judge_ports(name: &str, ports: &[ContainerPort], verdict: &mut Verdict) {
    verdict.refuse_if(
        ports.iter().any(|port| port.host_port.is_some_and(|number| number != 0)),
        &format!("container `{name}` takes a port of its node (hostPort): remove it"),
    );
}

fn judge_env(name: &str, env: &[EnvVar], verdict: &mut Verdict) {
    for variable in env {
        let source = variable.value_from.as_ref();
        verdict.refuse_if(
            source.is_some_and(|source| source.secret_key_ref.is_some()),
            &format!(
                "container `{name}` reads a Secret into {}: untrusted work gets no secrets; \
                 give it a plain value",
                variable.name
            ),
        );
    }
}

fn judge_env_from(name: &str, sources: &[EnvFromSource], verdict: &mut Verdict) {
    verdict.refuse_if(
        sources.iter().any(|source| source.secret_ref.is_some()),
        &format!(
            "container `{name}` reads a Secret into its environment (envFrom): untrusted work \
             gets no secrets; use a ConfigMap or plain values"
        ),
    );
}

/// Privileges only as the profile says: in a VM they end at its wall, in a standard container they
/// are the operator's explicit choice.
fn judge_privileges(
    name: &str,
    context: &SecurityContext,
    workload: &Workload,
    verdict: &mut Verdict,
) {
    let windows = context.windows_options.as_ref();
    verdict.refuse_if(
        windows.is_some_and(|options| options.host_process == Some(true)),
        &format!("container `{name}` is a hostProcess: remove windowsOptions"),
    );
    if workload.profile.privileged {
        return;
    }
    let adds = context.capabilities.as_ref().and_then(|c| c.add.as_ref());
    let unmasked = context.proc_mount.as_deref().is_some_and(|mount| mount != "Default");
    verdict.refuse_if(
        context.privileged == Some(true) || adds.is_some_and(|add| !add.is_empty()) || unmasked,
        &format!(
            "container `{name}` is privileged, adds capabilities or unmasks /proc, and the \
             profile's `privileged` is off: use `{{{{ privileged }}}}`"
        ),
    );
}
