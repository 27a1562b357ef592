//! The body of a Batch Job, from the farm's own files on.

use std::path::Path;

use serde_json::{Value, json};

use super::*;
use crate::backend::gcp_batch::tests::task;
use crate::catalog::entity::JobEntities;
use crate::config::batch_yaml::BatchYaml;
use crate::config::farm::Farm;
use crate::config::profiles::Profiles;
use crate::config::project_yaml::ProjectYaml;
use crate::domain::task::WorkloadKey;
use crate::flags::FlagSet;
use crate::pipeline::resolve::resolve;

const MAPPINGS: &str = "\
subconfigs:
  central1: {region: us-central1, network: projects/p/global/networks/n, subnetwork: projects/p/regions/us-central1/subnetworks/s}
mapping:
  LINUX-PREEMPTIBLE-UNPRIVILEGED: &linux
    docker_image: gcr.io/p/worker:1
    clusterfuzz_release: candidate
    user_data: file://linux-init.yaml
    disk_size_gb: 110
    disk_type: pd-standard
    service_account_email: w@p.iam.gserviceaccount.com
    preemptible: true
    machine_type: n1-standard-1
    subconfigs: [{name: central1, weight: 1}]
  LINUX-NONPREEMPTIBLE-UNPRIVILEGED:
    <<: *linux
    preemptible: false
    retry: true
";

/// The workload of a job with this environment on a farm with this `batch.yaml`.
fn workload(batch: &str, command: &str, environment: &str) -> Workload {
    let project = ProjectYaml::parse(Path::new("project.yaml"), "env: {}").expect("a project");
    let batch = BatchYaml::parse(Path::new("batch.yaml"), batch).unwrap_or_else(|e| panic!("{e}"));
    let farm = Farm::of(project, batch, None);
    let job = crate::catalog::entity::Job {
        name: "Libfuzzer_asan".into(),
        platform: "LINUX".into(),
        environment_string: environment.into(),
        ..Default::default()
    };
    let entities = JobEntities { jobs: vec![job], ..JobEntities::default() };
    let key = WorkloadKey { command: command.into(), job_type: "Libfuzzer_asan".into() };
    let resolved = resolve(&key, &entities, &farm, &Profiles::default(), &FlagSet::default());
    resolved.expect("a workload").workload
}

fn farm(head: &str) -> String {
    format!("{head}\n{MAPPINGS}")
}

fn body(workload: &Workload, tasks: &[&Task]) -> (String, Value) {
    let form = Form::of(workload, None).expect("all that is needed");
    let region = &form.machines().regions[0];
    let job = serde_json::to_value(form.job(region, "s", tasks)).expect("JSON");
    (form.parent(region), job)
}

#[test]
fn a_job_is_what_a_worker_image_expects() {
    let batch = farm("project: p\nproject-number: '123456789012'");
    let (a, b) = (task(0), task(1));
    let (parent, job) = body(&workload(&batch, "fuzz", "DISK_SIZE_GB = 200"), &[&a, &b]);
    assert_eq!(parent, "projects/123456789012/locations/us-central1");
    let environment = |task: &Task| {
        json!({"variables": {
            "UWORKER_INPUT_DOWNLOAD_URL": task.input.reveal(),
            "KATABATCH_TASK": task.hash.to_string(),
        }})
    };
    let expect = json!({
        "priority": "0",
        "taskGroups": [{
            "taskCount": "2",
            "taskCountPerNode": "1",
            "taskEnvironments": [environment(&a), environment(&b)],
            "taskSpec": {
                "runnables": [{"container": {
                    "imageUri": "gcr.io/p/worker:1",
                    "options": "--memory-swappiness=40 --shm-size=1.9g --rm --net=host \
                        -e HOST_UID=1337 -P --privileged --cap-add=all \
                        -e CLUSTERFUZZ_RELEASE=candidate --name=clusterfuzz \
                        -e UNTRUSTED_WORKER=False -e UWORKER=True \
                        -e USE_GCLOUD_STORAGE_RSYNC=1 -e UWORKER_INPUT_DOWNLOAD_URL",
                    "volumes": ["/var/scratch0:/mnt/scratch0"],
                }}],
                "maxRetryCount": 0,
                "maxRunDuration": "21600s",
            },
        }],
        "allocationPolicy": {
            "instances": [{"policy": {
                "bootDisk": {"image": "batch-cos", "sizeGb": "200", "type": "pd-standard"},
                "machineType": "n1-standard-1",
                "provisioningModel": "PREEMPTIBLE",
            }}],
            "network": {"networkInterfaces": [{
                "network": "projects/p/global/networks/n",
                "noExternalIpAddress": true,
                "subnetwork": "projects/p/regions/us-central1/subnetworks/s",
            }]},
            "serviceAccount": {"email": "w@p.iam.gserviceaccount.com"},
        },
        "labels": {
            "job_name": label("Libfuzzer_asan"),
            "katabatch-scheduler": "s",
            "task_name": "fuzz",
        },
        "logsPolicy": {"destination": "CLOUD_LOGGING"},
    });
    assert_eq!(job, expect);
}

#[test]
fn other_commands_are_standard_machines_with_retries_but_for_pruning() {
    for (command, retries, duration) in
        [("minimize", 4, "21600s"), ("corpus_pruning", 0, "86400s"), ("regression", 4, "86400s")]
    {
        let (_, job) = body(&workload(&farm("project: p"), command, ""), &[&task(0)]);
        let spec = &job["taskGroups"][0]["taskSpec"];
        assert_eq!(
            (&spec["maxRetryCount"], &spec["maxRunDuration"]),
            (&json!(retries), &json!(duration))
        );
        assert_eq!(job["priority"], "1");
        let policy = &job["allocationPolicy"]["instances"][0]["policy"];
        assert_eq!(policy["provisioningModel"], "STANDARD");
        assert_eq!(policy["bootDisk"]["sizeGb"], "110");
    }
}

#[test]
fn a_project_number_is_its_digits_and_without_one_the_name_stands_in_parents() {
    for (head, own, parent, project) in [
        ("project: p\nproject-number: 123456789012", None, "123456789012", "p"),
        ("project: p\nproject-number: '012'", None, "012", "p"),
        ("project: p", None, "p", "p"),
        ("project: p\nproject-number: 1", Some("other"), "other", "other"),
        ("", Some("other"), "other", "other"),
    ] {
        let workload = workload(&farm(head), "fuzz", "");
        let form = Form::of(&workload, own).expect("all that is needed");
        assert_eq!(
            form.parent(&form.machines().regions[0]),
            format!("projects/{parent}/locations/us-central1")
        );
        assert_eq!(form.project(), project);
    }
}

#[test]
fn what_batch_needs_and_the_mapping_lacks_is_named() {
    for (from, to, expect) in [
        ("machine_type: n1-standard-1", "x: 1", "has no machine_type"),
        ("disk_type: pd-standard", "x: 1", "has no disk_type"),
        ("disk_size_gb: 110", "x: 1", "has no disk_size_gb"),
        ("w@p.iam.gserviceaccount.com", "w", "a whole email"),
        ("name: central1, weight: 1", "name: west1, weight: 1", "the subconfig `west1`"),
        ("name: central1, weight: 1", "name: central1, weight: 0", "a weight above zero"),
        (
            "region: us-central1, network: projects/p/global/networks/n,",
            "region: us-central1,",
            "network",
        ),
        ("region: us-central1", "region: us/../x", "needs region"),
        ("clusterfuzz_release: candidate", "clusterfuzz_release: 'a -v /:/host'", "none of a name"),
        ("project: p", "x: 1", "names no project"),
    ] {
        let batch = farm("project: p").replace(from, to);
        let workload = workload(&batch, "fuzz", "");
        let error = Form::of(&workload, None).expect_err(expect);
        assert!(error.contains(expect), "{error}");
    }
    let batch = farm("project: p").replace("machine_type: n1-standard-1", "x: 1");
    let batch = batch.replace("disk_type: pd-standard", "y: 1");
    let error = Form::of(&workload(&batch, "fuzz", ""), None).expect_err("two");
    assert!(error.contains("no machine_type; ") && error.contains("no disk_type"), "{error}");
}

#[test]
fn labels_are_valid_and_apart() {
    let long = "x".repeat(70);
    for (text, whole) in
        [("fuzz", true), ("a_b-1", true), ("Libfuzzer", false), (&long, false), ("", true)]
    {
        let label = label(text);
        assert!(label.len() <= 63, "{label}");
        assert!(
            label
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b))
        );
        assert_eq!(label == text, whole, "{label}");
    }
    assert_ne!(label("A"), label("a"));
    assert_ne!(label(&format!("{long}1")), label(&format!("{long}2")));
}

#[test]
fn long_inputs_share_a_job_only_as_far_as_it_can_carry_them() {
    let long = |n: usize| {
        let url = format!("https://storage.googleapis.com/in/{n}?x={}", "f".repeat(130_000));
        let key = WorkloadKey { command: "fuzz".into(), job_type: "j".into() };
        let input = crate::domain::input_url::InputUrl::parse(&url).expect("a URL");
        Task::new(key, input, "m", jiff::Timestamp::UNIX_EPOCH)
    };
    let tasks: Vec<Task> = (0..70).map(long).collect();
    let jobs = cut(&tasks.iter().collect::<Vec<_>>());
    assert_eq!(jobs.iter().map(Vec::len).collect::<Vec<_>>(), [32, 32, 6]);
}
