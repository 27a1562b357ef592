//! A workload: everything that the tasks of one (command, job type) share.
//!
//! Made by resolving the catalog, `batch.yaml` and the profiles, once a group; what a backend
//! makes of it (a rendered Job, a Batch job) is the backend's.

use std::collections::BTreeMap;
use std::time::Duration;

use super::machines::Machines;
use super::quantity::Quantity;
use super::task::WorkloadKey;

/// What tasks of one (command, job type) run as, whatever the backend.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Command and job type.
    pub key: WorkloadKey,
    /// The key of the mapping in `batch.yaml`, such as `LINUX-PREEMPTIBLE-UNPRIVILEGED`.
    pub mapping: String,
    /// The job's platform, as the catalog has it.
    pub platform: String,
    /// The OSS-Fuzz project or other owner, where known.
    pub project: Option<String>,
    /// The base OS version that chose the image, where one is set.
    pub base_os_version: Option<String>,
    /// The container image.
    pub image: String,
    /// `CLUSTERFUZZ_RELEASE`: `prod`, `candidate`, …
    pub release: String,
    /// The account that its pods run as.
    pub account: Account,
    /// VM-isolated (Kata) or a standard container.
    pub isolation: Isolation,
    /// The longest that a task may run.
    pub duration: Duration,
    /// The disk size asked for, in GB: the job's `DISK_SIZE_GB`, else the mapping's.
    pub disk_gb: Option<u64>,
    /// The settings of its Job.
    pub profile: Profile,
    /// The VMs of its tasks, for a backend that makes some; `None` where no farm said.
    pub machines: Option<Machines>,
}

/// Where untrusted work runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isolation {
    /// In a VM of its own, under a Kata RuntimeClass.
    Kata,
    /// In a standard container: `batch.yaml` said `is_kata: false`. Nowhere called isolated.
    Standard,
}

/// A mapping's `service_account_email`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Account {
    /// `name@…`: the Kubernetes account `name`, annotated with the whole email (Workload Identity),
    /// created when absent.
    Google {
        /// The part before the `@`, checked to be a valid ServiceAccount name.
        name: String,
        /// The whole email.
        email: String,
    },
    /// A value without `@`: an existing Kubernetes account, never created.
    Existing {
        /// Its name, checked to be a valid ServiceAccount name.
        name: String,
    },
}

impl Account {
    /// The Kubernetes ServiceAccount's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Google { name, .. } | Self::Existing { name } => name,
        }
    }
}

/// The settings of a workload's Job, all layers applied. Defaults are ClusterFuzz's values.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// CPU, request and limit.
    pub cpu: Quantity,
    /// Memory, request and limit.
    pub memory: Quantity,
    /// The size of `/dev/shm` (a memory-backed `emptyDir`).
    pub shm: Quantity,
    /// An ephemeral-storage request; `None` asks for nothing, as upstream does.
    pub disk: Disk,
    /// Memory-backed scratch directories: mount path → size.
    pub scratch: BTreeMap<String, Quantity>,
    /// A privileged container with all capabilities, as workers expect.
    pub privileged: bool,
    /// Use the node's network namespace. Refused together with Kata or Workload Identity, unless
    /// [`host_network_exception`](Self::host_network_exception).
    pub host_network: bool,
    /// The configuration names this workload as one that may combine host networking with Kata or
    /// Workload Identity, as a farm that ran so before would.
    pub host_network_exception: bool,
    /// The pod's `dnsPolicy`.
    pub dns_policy: String,
    /// The RuntimeClass of Kata pods.
    pub runtime_class: String,
    /// The pod's restart policy.
    pub restart: Restart,
    /// How often the Job controller may start a failed pod again (`backoffLimit`).
    pub backoff_limit: u32,
    /// `ttlSecondsAfterFinished`: a safety net, as katabatch deletes finished Jobs itself.
    pub ttl: Duration,
    /// Replaces the command's own duration (`activeDeadlineSeconds`).
    pub deadline: Option<Duration>,
    /// Node labels that the pod needs.
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the pod tolerates.
    pub tolerations: Vec<Toleration>,
    /// The pod's PriorityClass.
    pub priority_class: Option<String>,
    /// More environment variables, literal values.
    pub env: BTreeMap<String, String>,
    /// More labels on Job and pod.
    pub labels: BTreeMap<String, String>,
}

/// ClusterFuzz's values for its Kubernetes Jobs, but for two. The time to live: upstream's 100 s
/// would let a redelivered message run again, 26 h is past the death of its signed URLs. And no
/// restart: a container that is started again loses its log; trying again is a rule for ends, which
/// makes the next attempt.
impl Default for Profile {
    fn default() -> Self {
        Self {
            cpu: constant("2"),
            memory: constant("3.75Gi"),
            shm: constant("1.9Gi"),
            disk: Disk::Unrequested,
            scratch: BTreeMap::new(),
            privileged: true,
            host_network: false,
            host_network_exception: false,
            dns_policy: "ClusterFirstWithHostNet".into(),
            runtime_class: "kata".into(),
            restart: Restart::Never,
            backoff_limit: 0,
            ttl: Duration::from_secs(26 * 3_600),
            deadline: None,
            node_selector: BTreeMap::new(),
            tolerations: Vec::new(),
            priority_class: None,
            env: BTreeMap::new(),
            labels: BTreeMap::new(),
        }
    }
}

fn constant(quantity: &'static str) -> Quantity {
    // Every test that takes the defaults reads each constant given here.
    #[expect(clippy::expect_used)]
    Quantity::parse(quantity).expect("a constant quantity")
}

/// Whether the disk size is asked for as ephemeral storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disk {
    /// No request, as upstream: 110 GB requests would leave a working farm Pending.
    Unrequested,
    /// The job's or mapping's size in GB.
    FromJob,
    /// This much.
    Fixed(Quantity),
}

/// A pod's restart policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// As ClusterFuzz: `Never` for `fuzz`, else `OnFailure`.
    Upstream,
    /// `Never`: the log of a failed container survives.
    Never,
}

/// A pod toleration (Kubernetes, "Taints and Tolerations").
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Toleration {
    /// The taint's key; absent with `Exists` tolerates every taint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// `Equal` (the default) or `Exists`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,
    /// The taint's value, for `Equal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`; absent is all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
    /// For `NoExecute`: how long it is tolerated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

impl Workload {
    /// `Never` or `OnFailure`, by the profile and the command.
    pub fn restart_policy(&self) -> &'static str {
        match self.profile.restart {
            Restart::Upstream if self.key.command.as_str() != "fuzz" => "OnFailure",
            Restart::Upstream | Restart::Never => "Never",
        }
    }

    /// The Job's deadline: the profile's, else the command's duration.
    pub fn deadline(&self) -> Duration {
        self.profile.deadline.unwrap_or(self.duration)
    }
}

/// How long a command's tasks may run (ClusterFuzz's task durations).
pub fn upstream_duration(command: &str) -> Duration {
    Duration::from_secs(match command {
        "corpus_pruning" | "regression" => 86_400,
        _ => 21_600,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pruning_and_regression_have_a_day_and_the_others_six_hours() {
        for (command, seconds) in
            [("fuzz", 21_600), ("corpus_pruning", 86_400), ("regression", 86_400)]
        {
            assert_eq!(upstream_duration(command).as_secs(), seconds, "{command}");
        }
    }
}
