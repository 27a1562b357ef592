//! That a prepared farm is what it says it is, as far as the files themselves can tell.

use std::collections::BTreeSet;

use super::*;
use crate::domain::message::{Decoded, decode};
use crate::domain::signed_url::{Validity, Verdict};
use crate::domain::task::Task;

fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().expect("a time")
}

fn local(tasks: usize, seed: u64) -> Plan {
    let worker = vec!["/opt/it's \"here\"/katabatch".to_owned(), "demo-worker".to_owned()];
    Plan { tasks, seed, now: now(), place: Place::Local { worker, jobs: 2 } }
}

fn cluster(tasks: usize) -> Plan {
    let place = Place::Cluster { kubeconfig: Some("/k".into()), namespace: "demo".into() };
    Plan { place, ..local(tasks, 7) }
}

struct Prepared {
    _dir: tempfile::TempDir,
    world: World,
    lines: Vec<BTreeMap<String, String>>,
}

fn prepared(plan: &Plan) -> Prepared {
    let dir = tempfile::tempdir().expect("a directory");
    let world = prepare(dir.path(), plan).expect("prepared");
    let text = std::fs::read_to_string(&world.tasks).expect("tasks");
    let lines = text.lines().map(|line| serde_json::from_str(line).expect("a line")).collect();
    Prepared { _dir: dir, world, lines }
}

/// What the messages come to, as far as no catalog is asked.
fn decoded(prepared: &Prepared) -> (Vec<Task>, usize, BTreeMap<RejectKind, usize>) {
    let mut rejected: BTreeMap<RejectKind, usize> = BTreeMap::new();
    let (mut tasks, mut others) = (Vec::new(), 0);
    for (n, line) in prepared.lines.iter().enumerate() {
        use crate::domain::message::BadMessage;
        match decode(line, &n.to_string(), now(), Some(farm::VERSION)) {
            Ok(Decoded::Task(task)) => {
                match Validity::of(&task.input).map(|v| v.judge(now(), toy_run())) {
                    Some(Verdict::Dead(_)) => {
                        *rejected.entry(RejectKind::DeadUrl).or_default() += 1
                    }
                    None | Some(Verdict::Usable) => tasks.push(*task),
                    other => panic!("{other:?}"),
                }
            }
            Ok(Decoded::AnotherVersion(_)) => others += 1,
            Err(BadMessage::Notification(_)) => {
                *rejected.entry(RejectKind::Notification).or_default() += 1;
            }
            Err(BadMessage::Url(_)) => *rejected.entry(RejectKind::BadUrl).or_default() += 1,
            Err(_) => *rejected.entry(RejectKind::BadMessage).or_default() += 1,
        }
    }
    (tasks, others, rejected)
}

fn toy_run() -> std::time::Duration {
    std::time::Duration::from_secs(6 * 3600)
}

#[test]
fn the_messages_come_to_what_was_announced() {
    for plan in [local(FEWEST_TASKS, 1), local(300, 2), cluster(300)] {
        let prepared = prepared(&plan);
        let expected = &prepared.world.expected;
        let (tasks, others, rejected) = decoded(&prepared);
        assert_eq!(prepared.lines.len(), plan.tasks);
        assert_eq!(&rejected, &expected.rejected);
        assert_eq!(others, expected.another_version);
        let held: usize = expected.held.values().sum();
        assert_eq!(tasks.len(), expected.created + expected.already_there + held);
        let distinct: BTreeSet<_> = tasks.iter().map(|task| task.hash).collect();
        assert_eq!(distinct.len(), expected.created + held);
        let rejected: usize = rejected.values().sum();
        assert_eq!(rejected + others + tasks.len(), plan.tasks);
        assert_eq!(plan.tasks - expected.created, tasks::BAD);
    }
}

#[test]
fn held_tasks_are_those_whose_job_type_the_catalog_is_wrong_about() {
    let prepared = prepared(&local(100, 3));
    let path = prepared.world.config.with_file_name("entities.jsonl");
    let text = std::fs::read_to_string(path).expect("entities");
    let entities: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("an entity")).collect();
    let of = |kind: &str, name: &str| {
        entities.iter().find(|e| e["kind"] == kind && e["name"] == name).cloned()
    };
    let mut held: BTreeMap<HoldKind, usize> = BTreeMap::new();
    for task in decoded(&prepared).0 {
        let job = of("Job", task.key.job_type.as_str());
        let kind = match &job {
            None => HoldKind::UnknownJobType,
            Some(job) if job["platform"] != "LINUX" => HoldKind::BadMapping,
            Some(job) => {
                let environment = job["environment_string"].as_str().expect("text");
                if environment.contains("DISK_SIZE_GB = None\n") {
                    let templates = job["templates"].as_array().expect("a list");
                    assert!(
                        templates
                            .iter()
                            .all(|t| of("JobTemplate", t.as_str().expect("text")).is_some())
                    );
                    assert!(of("OssFuzzProject", job["project"].as_str().expect("text")).is_some());
                    continue;
                }
                HoldKind::BadJobType
            }
        };
        *held.entry(kind).or_default() += 1;
    }
    assert_eq!(held, prepared.world.expected.held);
}

#[test]
fn the_inputs_end_as_was_announced() {
    let prepared = prepared(&local(80, 4));
    let mut ends = Ends::default();
    for task in decoded(&prepared).0 {
        let Some(path) =
            url::Url::parse(task.input.reveal()).ok().and_then(|u| u.to_file_path().ok())
        else {
            continue;
        };
        let input = std::fs::read(path).expect("an input");
        match toy::Kind::of(&input) {
            toy::Kind::Endless => ends.deadline_exceeded += 1,
            _ if toy::fuzz(&input, |_| false).crash.is_some() => ends.crashed += 1,
            _ => ends.succeeded += 1,
        }
    }
    // The one task with two messages has no file: its worker finds nothing.
    ends.succeeded += 1;
    let expected = prepared.world.expected.ends;
    assert_eq!(ends, expected);
    assert!(ends.crashed >= 2 && ends.deadline_exceeded == 1, "{ends:?}");
}

#[test]
fn one_seed_makes_one_world_and_another_seed_another() {
    let lines = |seed| prepared(&Plan { seed, ..cluster(50) }).lines;
    assert_eq!(lines(1), lines(1));
    assert_ne!(lines(1), lines(2));
}

#[test]
fn the_settings_are_yaml_that_says_what_was_asked() {
    let read = |path: &Path| -> serde_json::Value {
        serde_saphyr::from_str(&std::fs::read_to_string(path).expect("a file")).expect("YAML")
    };
    let world = prepared(&local(50, 5));
    let config = read(&world.world.config);
    let backend = &config["backends"][0]["local"];
    assert_eq!(backend["command"][0], "/opt/it's \"here\"/katabatch");
    assert_eq!(backend["jobs"], 2);
    let slow = config["profiles"]["job_types"].as_object().expect("a mapping");
    assert_eq!(slow.values().next().expect("one")["deadline"], "2s");
    for name in
        ["clusterfuzz-config/project.yaml", "clusterfuzz-config/batch/batch.yaml", "flags.yaml"]
    {
        assert!(read(&world.world.config.with_file_name(name)).is_object(), "{name}");
    }
    let on_cluster = prepared(&cluster(50));
    let config = read(&on_cluster.world.config);
    assert_eq!(config["backends"][0]["kubernetes"]["kubeconfig"], "/k");
    assert!(config.get("profiles").is_none());
}

#[test]
fn too_few_tasks_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let error = prepare(dir.path(), &local(FEWEST_TASKS - 1, 1)).expect_err("too few");
    assert!(error.to_string().ends_with("ask for at least 24"), "{error}");
}
