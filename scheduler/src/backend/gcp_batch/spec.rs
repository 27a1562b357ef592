//! A workload and its tasks → the body of a Batch Job. Pure.
//!
//! The body is upstream's (the farm's worker images expect it) but for two additions: labels, and in
//! each task's environment its hash, by which a job says for ever which tasks it has. Structs hold
//! what is sent and nothing else of Batch's API. A body holds signed URLs: nothing here has a
//! `Debug`.

use std::collections::BTreeMap;

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::domain::machines::{Machines, Region};
use crate::domain::task::Task;
use crate::domain::workload::{Account, Workload};

/// The most tasks of a job, as upstream has it.
pub const MOST_TASKS: usize = 999;
/// The most bytes of input URLs in a job: a body must stay well under what an API takes.
pub const MOST_BYTES: usize = 4 << 20;
/// The variable that holds a task's hash.
pub const HASH_VARIABLE: &str = "KATABATCH_TASK";
/// The label that holds the scheduler's id.
pub const SCHEDULER_LABEL: &str = "katabatch-scheduler";
/// The variable that a worker reads its input from.
const INPUT_VARIABLE: &str = "UWORKER_INPUT_DOWNLOAD_URL";
/// How often Batch tries a failed task of a mapping that says `retry` (upstream).
const RETRIES: u32 = 4;

/// A Batch Job, as it is sent. Numbers of 64 bits are texts in Google's JSON.
#[derive(Serialize, Clone)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    priority: String,
    task_groups: [TaskGroup; 1],
    allocation_policy: AllocationPolicy,
    labels: BTreeMap<String, String>,
    logs_policy: LogsPolicy,
}

#[derive(Serialize, Clone)]
#[serde(rename_all = "camelCase")]
struct TaskGroup {
    task_count: String,
    task_count_per_node: String,
    task_environments: Vec<Environment>,
    task_spec: TaskSpec,
}

#[derive(Serialize, Clone)]
struct Environment {
    variables: BTreeMap<&'static str, String>,
}

#[derive(Serialize, Clone)]
#[serde(rename_all = "camelCase")]
struct TaskSpec {
    runnables: [Runnable; 1],
    max_retry_count: u32,
    max_run_duration: String,
}

#[derive(Serialize, Clone)]
struct Runnable {
    container: Container,
}

#[derive(Serialize, Clone)]
#[serde(rename_all = "camelCase")]
struct Container {
    image_uri: String,
    options: String,
    volumes: [&'static str; 1],
}

#[derive(Serialize, Clone)]
#[serde(rename_all = "camelCase")]
struct AllocationPolicy {
    instances: [Instances; 1],
    network: Network,
    service_account: ServiceAccount,
}

#[derive(Serialize, Clone)]
struct Instances {
    policy: InstancePolicy,
}

#[derive(Serialize, Clone)]
#[serde(rename_all = "camelCase")]
struct InstancePolicy {
    boot_disk: Disk,
    machine_type: String,
    provisioning_model: &'static str,
}

#[derive(Serialize, Clone)]
#[serde(rename_all = "camelCase")]
struct Disk {
    image: &'static str,
    size_gb: String,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Serialize, Clone)]
#[serde(rename_all = "camelCase")]
struct Network {
    network_interfaces: [Interface; 1],
}

#[derive(Serialize, Clone)]
#[serde(rename_all = "camelCase")]
struct Interface {
    network: String,
    no_external_ip_address: bool,
    subnetwork: String,
}

#[derive(Serialize, Clone)]
struct ServiceAccount {
    email: String,
}

#[derive(Serialize, Clone)]
struct LogsPolicy {
    destination: &'static str,
}

/// What all jobs of a workload share, checked.
#[derive(Debug, Clone)]
pub struct Form<'a> {
    workload: &'a Workload,
    machines: &'a Machines,
    machine_type: &'a str,
    disk_type: &'a str,
    disk_gb: u64,
    email: &'a str,
    /// The project in parents: its number where the file has one.
    parent_project: &'a str,
    /// The project's name, for counting jobs.
    project: &'a str,
}

impl<'a> Form<'a> {
    /// Checks that the workload says all that Batch needs. `project` is the backend's own, which
    /// wins over the farm's.
    ///
    /// # Errors
    /// All that is missing or wrong in the farm's file: its tasks must wait until that is repaired.
    pub fn of(workload: &'a Workload, project: Option<&'a str>) -> Result<Self, String> {
        let mut lacks = Vec::new();
        match Self::read(workload, project, &mut lacks) {
            Some(form) if lacks.is_empty() => Ok(form),
            _ => Err(lacks.join("; ")),
        }
    }

    fn read(
        workload: &'a Workload,
        project: Option<&'a str>,
        lacks: &mut Vec<String>,
    ) -> Option<Self> {
        let mapping = &workload.mapping;
        let mut lack = |what: &str| lacks.push(format!("mapping.{mapping} of batch.yaml {what}"));
        let Some(machines) = workload.machines.as_ref() else {
            lack("says nothing of its machines");
            return None;
        };
        let email = match &workload.account {
            Account::Google { email, .. } => Some(email),
            Account::Existing { .. } => None,
        };
        let needs = [
            (email.is_none(), "names an account without a domain; Batch needs a whole email"),
            (machines.machine_type.is_none(), "has no machine_type"),
            (machines.disk_type.is_none(), "has no disk_type"),
            (workload.disk_gb.is_none(), "has no disk_size_gb"),
            (
                !machines.regions.iter().any(|region| region.weight > 0.0),
                "has no subconfig with a weight above zero",
            ),
            // The options of the container are one text, split at white space.
            (
                !plain(&workload.release) || !plain(&workload.image),
                "has an image or a release with characters that are none of a name",
            ),
        ];
        needs.iter().filter(|(lacking, _)| *lacking).for_each(|(_, what)| lack(what));
        for place in &machines.unknown_places {
            lack(&format!("names the subconfig `{place}`, which is not there"));
        }
        for Region { name, network, subnetwork, .. } in &machines.regions {
            if !is_segment(name) || network.is_none() || subnetwork.is_none() {
                lack(&format!("needs region, network and subnetwork of `{name}`"));
            }
        }
        let farm = machines.project.as_deref();
        let project = project.or(farm).filter(|p| is_segment(p));
        if project.is_none() {
            lacks.push("batch.yaml names no project; write `project: NAME`".to_owned());
        }
        let project = project?;
        let number = machines.project_number.as_deref().filter(|_| Some(project) == farm);
        Some(Self {
            workload,
            machines,
            machine_type: machines.machine_type.as_deref()?,
            disk_type: machines.disk_type.as_deref()?,
            disk_gb: workload.disk_gb?,
            email: email?,
            parent_project: number.unwrap_or(project),
            project,
        })
    }

    /// Where its jobs may be.
    pub fn machines(&self) -> &'a Machines {
        self.machines
    }

    /// The project's name.
    pub fn project(&self) -> &'a str {
        self.project
    }

    /// The parent of its jobs in a region.
    pub fn parent(&self, region: &Region) -> String {
        self.parent_of(&region.name)
    }

    /// The parent of its jobs in the region of this name.
    pub fn parent_of(&self, region: &str) -> String {
        parent(self.parent_project, region)
    }

    /// The region whose jobs have this parent.
    pub fn region_at(&self, parent: &str) -> Option<&'a Region> {
        self.machines.regions.iter().find(|region| self.parent(region) == parent)
    }

    /// The job of these tasks in `region`.
    pub fn job(&self, region: &Region, scheduler: &str, tasks: &[&Task]) -> Job {
        let workload = self.workload;
        let command = workload.key.command.as_str();
        let variables = |task: &Task| {
            BTreeMap::from([
                (INPUT_VARIABLE, task.input.reveal().to_owned()),
                (HASH_VARIABLE, task.hash.to_string()),
            ])
        };
        let retry = self.machines.retry && command != "corpus_pruning";
        Job {
            priority: if command == "fuzz" { "0" } else { "1" }.to_owned(),
            task_groups: [TaskGroup {
                task_count: tasks.len().to_string(),
                // More would let tasks of different targets share a VM.
                task_count_per_node: "1".to_owned(),
                task_environments: tasks
                    .iter()
                    .map(|task| Environment { variables: variables(task) })
                    .collect(),
                task_spec: TaskSpec {
                    runnables: [Runnable {
                        container: Container {
                            image_uri: workload.image.clone(),
                            options: options(&workload.release),
                            volumes: ["/var/scratch0:/mnt/scratch0"],
                        },
                    }],
                    max_retry_count: if retry { RETRIES } else { 0 },
                    max_run_duration: format!("{}s", workload.deadline().as_secs()),
                },
            }],
            allocation_policy: self.allocation(region),
            labels: BTreeMap::from([
                (SCHEDULER_LABEL.to_owned(), label(scheduler)),
                ("task_name".to_owned(), label(command)),
                ("job_name".to_owned(), label(workload.key.job_type.as_str())),
            ]),
            logs_policy: LogsPolicy { destination: "CLOUD_LOGGING" },
        }
    }

    fn allocation(&self, region: &Region) -> AllocationPolicy {
        AllocationPolicy {
            instances: [Instances {
                policy: InstancePolicy {
                    boot_disk: Disk {
                        image: "batch-cos",
                        size_gb: self.disk_gb.to_string(),
                        kind: self.disk_type.to_owned(),
                    },
                    machine_type: self.machine_type.to_owned(),
                    provisioning_model: if self.machines.preemptible {
                        "PREEMPTIBLE"
                    } else {
                        "STANDARD"
                    },
                },
            }],
            network: Network {
                network_interfaces: [Interface {
                    network: region.network.clone().unwrap_or_default(),
                    no_external_ip_address: true,
                    subnetwork: region.subnetwork.clone().unwrap_or_default(),
                }],
            },
            service_account: ServiceAccount { email: self.email.to_owned() },
        }
    }
}

/// The parent of a project's jobs in a region.
pub fn parent(project: &str, region: &str) -> String {
    format!("projects/{project}/locations/{region}")
}

fn options(release: &str) -> String {
    format!(
        "--memory-swappiness=40 --shm-size=1.9g --rm --net=host -e HOST_UID=1337 -P --privileged \
         --cap-add=all -e CLUSTERFUZZ_RELEASE={release} --name=clusterfuzz \
         -e UNTRUSTED_WORKER=False -e UWORKER=True -e USE_GCLOUD_STORAGE_RSYNC=1 \
         -e {INPUT_VARIABLE}"
    )
}

/// Whether `text` is one part of a path and nothing else.
fn is_segment(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':'))
}

/// Whether `text` can stand in an option without meaning more than itself.
fn plain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:/@+".contains(&b))
}

/// A label value of Google's (63 lower-case letters, digits, `_` and `-`): `text` where it is one,
/// else made valid, with eight digits of its hash.
pub fn label(text: &str) -> String {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-');
    if text.len() <= 63 && text.bytes().all(fits) {
        return text.to_owned();
    }
    let digest = hex::encode(&Sha256::digest(text.as_bytes())[..4]);
    let valid = text.chars().map(|c| match c.to_ascii_lowercase() {
        c if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') => c,
        _ => '-',
    });
    format!("{}-{digest}", valid.take(54).collect::<String>())
}

/// Cuts tasks into the jobs that they fit into, in order.
pub fn cut<'t>(tasks: &[&'t Task]) -> Vec<Vec<&'t Task>> {
    let mut jobs: Vec<Vec<&Task>> = Vec::new();
    let mut bytes = 0;
    for task in tasks {
        let size = task.input.reveal().len();
        match jobs.last_mut() {
            Some(job) if job.len() < MOST_TASKS && bytes + size <= MOST_BYTES => job.push(task),
            _ => {
                jobs.push(vec![task]);
                bytes = 0;
            }
        }
        bytes += size;
    }
    jobs
}

#[cfg(test)]
mod tests;
