//! The variables of a template, as templates/README.md documents them, made from a workload.
//!
//! A task's values are sentinels here: texts that nothing else can equal, which the filling step
//! finds again. Values go in as they are; escaping and doubling `$` come later.

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::Target;
use crate::domain::name::label_value;
use crate::domain::workload::{Disk, Isolation, Workload};

/// The members of `task`.
pub(super) const TASK_VALUES: [&str; 6] =
    ["name", "url", "hash", "hash_label", "attempt", "published_at"];

/// What stands in a rendered Job in the place of a task's values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Sentinels {
    pub name: String,
    pub url: String,
    pub hash: String,
    pub hash_label: String,
    pub attempt: String,
    pub published_at: String,
}

impl Sentinels {
    /// Sentinels for a rendering of `variables` by `source`. They hold a digest of both, so that
    /// they are the same for the same input, and no part of that input can hold them.
    fn new(source: &str, variables: &Variables) -> Self {
        let mut digest = Sha256::new();
        digest.update(source.as_bytes());
        digest.update(serde_json::to_vec(variables).unwrap_or_default());
        let digest = hex::encode(&digest.finalize()[..12]);
        // Valid as an object name and as a label value, as the real values are.
        let of = |kind: &str| format!("katabatch-{kind}-{digest}");
        Self {
            name: of("name"),
            url: of("url"),
            hash: of("hash"),
            hash_label: of("label"),
            attempt: of("attempt"),
            published_at: of("published"),
        }
    }

    /// All of them.
    pub(super) fn all(&self) -> [&str; 6] {
        let Self { name, url, hash, hash_label, attempt, published_at } = self;
        [name, url, hash, hash_label, attempt, published_at]
    }
}

/// The whole context of a template.
#[derive(Debug, Serialize)]
pub(super) struct Variables {
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<Sentinels>,
    namespace: String,
    scheduler: String,
    command: String,
    command_label: String,
    job_type: String,
    job_type_label: String,
    mapping: String,
    platform: String,
    project: Option<String>,
    base_os_version: Option<String>,
    image: String,
    release: String,
    service_account: String,
    isolation: &'static str,
    runtime_class: String,
    cpu: String,
    memory: String,
    shm: String,
    disk: Option<String>,
    scratch: Vec<Scratch>,
    privileged: bool,
    host_network: bool,
    dns_policy: String,
    restart_policy: &'static str,
    backoff_limit: u32,
    ttl_seconds: u64,
    deadline_seconds: u64,
    node_selector: Vec<Pair>,
    tolerations: Vec<Toleration>,
    priority_class: Option<String>,
    env: Vec<Pair>,
    labels: Vec<Pair>,
}

#[derive(Debug, Serialize)]
struct Pair {
    name: String,
    value: String,
}

#[derive(Debug, Serialize)]
struct Scratch {
    name: String,
    path: String,
    size: String,
}

#[derive(Debug, Serialize)]
struct Toleration {
    key: Option<String>,
    operator: String,
    value: Option<String>,
    effect: Option<String>,
    seconds: Option<i64>,
}

impl Variables {
    /// The variables of a workload, and the sentinels among them.
    pub(super) fn new(workload: &Workload, target: &Target, source: &str) -> (Self, Sentinels) {
        let mut variables = Self::of_workload(workload, target);
        let sentinels = Sentinels::new(source, &variables);
        variables.task = Some(sentinels.clone());
        (variables, sentinels)
    }

    fn of_workload(workload: &Workload, target: &Target) -> Self {
        let profile = &workload.profile;
        Self {
            task: None,
            namespace: target.namespace.clone(),
            scheduler: target.scheduler.clone(),
            command: workload.key.command.as_str().to_owned(),
            command_label: label_value(workload.key.command.as_str()),
            job_type: workload.key.job_type.as_str().to_owned(),
            job_type_label: label_value(workload.key.job_type.as_str()),
            mapping: workload.mapping.clone(),
            platform: workload.platform.clone(),
            project: workload.project.clone(),
            base_os_version: workload.base_os_version.clone(),
            image: workload.image.clone(),
            release: workload.release.clone(),
            service_account: workload.account.name().to_owned(),
            isolation: match workload.isolation {
                Isolation::Kata => "kata",
                Isolation::Standard => "standard",
            },
            runtime_class: profile.runtime_class.clone(),
            cpu: profile.cpu.to_string(),
            memory: profile.memory.to_string(),
            shm: profile.shm.to_string(),
            disk: disk(workload),
            scratch: scratch(workload),
            privileged: profile.privileged,
            host_network: profile.host_network,
            dns_policy: profile.dns_policy.clone(),
            restart_policy: workload.restart_policy(),
            backoff_limit: profile.backoff_limit,
            ttl_seconds: profile.ttl.as_secs(),
            deadline_seconds: workload.deadline().as_secs(),
            node_selector: pairs(&profile.node_selector),
            tolerations: tolerations(workload),
            priority_class: profile.priority_class.clone(),
            env: pairs(&profile.env),
            labels: pairs(&profile.labels),
        }
    }
}

fn pairs(map: &std::collections::BTreeMap<String, String>) -> Vec<Pair> {
    map.iter().map(|(name, value)| Pair { name: name.clone(), value: value.clone() }).collect()
}

/// `DISK_SIZE_GB` counts as Compute Engine counts a disk's `sizeGb`: in units of 2^30 bytes.
fn disk(workload: &Workload) -> Option<String> {
    match &workload.profile.disk {
        Disk::Unrequested => None,
        Disk::FromJob => workload.disk_gb.map(|gb| format!("{gb}Gi")),
        Disk::Fixed(size) => Some(size.to_string()),
    }
}

fn scratch(workload: &Workload) -> Vec<Scratch> {
    let volumes = workload.profile.scratch.iter().enumerate();
    volumes
        .map(|(index, (path, size))| Scratch {
            name: format!("scratch-{index}"),
            path: path.clone(),
            size: size.to_string(),
        })
        .collect()
}

fn tolerations(workload: &Workload) -> Vec<Toleration> {
    let all = workload.profile.tolerations.iter();
    all.map(|toleration| Toleration {
        key: toleration.key.clone(),
        operator: toleration.operator.clone().unwrap_or_else(|| "Equal".to_owned()),
        value: toleration.value.clone(),
        effect: toleration.effect.clone(),
        seconds: toleration.toleration_seconds,
    })
    .collect()
}
