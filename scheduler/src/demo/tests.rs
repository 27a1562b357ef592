//! That a prepared farm is what it says it is, as far as the files themselves can tell.

use std::collections::BTreeSet;

use super::*;
use crate::backend::local::{End, tests as machine};
use crate::catalog::file::FileCatalog;
use crate::config::Config;
use crate::config::backends::BackendKind;
use crate::config::entities::{CatalogConfig, FlagsFrom};
use crate::config::farm::Farm;
use crate::config::queues::QueueSource;
use crate::config::watch::Sources;
use crate::domain::message::{Decoded, decode};
use crate::domain::signed_url::Verdict;
use crate::domain::task::Task;
use crate::flags::FlagSet;
use crate::pipeline::resolve::{Resolved, Unresolved, resolve};

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
                match task.input.validity().map(|v| v.judge(now(), toy_run())) {
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

/// What the task's job type runs as, by the program's own reading of every file.
struct Read {
    config: Config,
    farm: Farm,
    catalog: FileCatalog,
    flags: FlagSet,
}

impl Read {
    fn of(world: &World) -> Self {
        let config = Config::load(&world.config).expect("a configuration");
        let farm =
            Farm::load(&config.farm_dir, None, &mut Sources::default()).expect("the farm's files");
        let (CatalogConfig::Files(entities), FlagsFrom::Files(flags)) =
            (&config.catalog, &config.flags.source)
        else {
            panic!("the demo's entities are in files")
        };
        let catalog = FileCatalog::open(entities.clone()).expect("a catalog");
        let path = &flags[0];
        let text = std::fs::read_to_string(path).expect("flags");
        let flags = crate::flags::file::parse(path, &text).expect("flags");
        Self { config, farm, catalog, flags }
    }

    fn resolve(&self, task: &Task) -> Result<Resolved, Unresolved> {
        let entities = self.catalog.index().look_up(task.key.job_type.as_str());
        resolve(&task.key, &entities, &self.farm, &self.config.profiles, &self.flags)
    }
}

#[test]
fn every_good_task_has_a_workload_without_a_warning_and_the_others_are_held_as_announced() {
    let prepared = prepared(&local(200, 3));
    let read = Read::of(&prepared.world);
    assert!(read.farm.warnings.is_empty(), "{:?}", read.farm.warnings);
    assert!(read.catalog.index().faults().is_empty());
    let mut held: BTreeMap<HoldKind, usize> = BTreeMap::new();
    let mut images = BTreeSet::new();
    for task in decoded(&prepared).0 {
        match read.resolve(&task) {
            Ok(Resolved { workload, warnings }) => {
                assert!(warnings.is_empty(), "{warnings:?}");
                images.insert(workload.image);
            }
            Err(unresolved) => *held.entry(unresolved.kind).or_default() += 1,
        }
    }
    assert_eq!(held, prepared.world.expected.held);
    assert_eq!(images.len(), 2, "both base OS versions: {images:?}");
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
fn the_configuration_says_what_was_asked() {
    let world = prepared(&local(50, 5));
    let config = Read::of(&world.world).config;
    let queue = QueueSource::Spool { path: world.world.spool.clone() };
    assert_eq!(config.queues[0].source, queue);
    let Plan { place: Place::Local { worker, jobs }, .. } = local(50, 5) else {
        panic!("a machine")
    };
    let dir = world.world.config.with_file_name("work");
    assert_eq!(config.backends[0].kind, BackendKind::Local { command: worker, dir, jobs });
    assert!(config.backends[0].weight.default > 0.99);

    let on_cluster = prepared(&cluster(50));
    let config = Read::of(&on_cluster.world).config;
    let BackendKind::Kubernetes { kubeconfig, namespace, .. } = &config.backends[0].kind else {
        panic!("a cluster")
    };
    assert_eq!((kubeconfig.as_deref(), namespace.as_str()), (Some(Path::new("/k")), "demo"));
}

/// The worker of the test below is this test binary, as told by a variable.
const WORKER_VARIABLE: &str = "KATABATCH_TEST_WORK";

#[test]
fn this_binary_is_the_worker_when_asked() {
    if std::env::var_os(WORKER_VARIABLE).is_some() {
        std::process::exit(crate::cli::demo_worker::run().into());
    }
}

#[tokio::test]
async fn on_this_machine_the_tasks_end_as_was_announced() {
    let prepared = prepared(&local(40, 6));
    let read = Read::of(&prepared.world);
    let script = format!(
        "{WORKER_VARIABLE}=1 exec \"$0\" --exact --nocapture \
         demo::tests::this_binary_is_the_worker_when_asked"
    );
    let this = std::env::current_exe().expect("this binary").display().to_string();
    let worker = vec!["/bin/sh".to_owned(), "-c".to_owned(), script, this];
    let running = machine::start(&prepared.world.config.with_file_name("work"), worker, 3);
    for task in decoded(&prepared).0 {
        if let Ok(Resolved { workload, .. }) = read.resolve(&task) {
            running.submit_until_placed(&workload, &task).await;
        }
    }
    let expected = &prepared.world.expected;
    let Ends { succeeded, crashed, deadline_exceeded } = expected.ends;
    let crash = End::Failed(toy::CRASH_EXIT.into());
    assert_eq!(
        running.ended(expected.created).await,
        [(End::Succeeded, succeeded), (crash, crashed), (End::DeadlineExceeded, deadline_exceeded)]
            .into()
    );
}

#[test]
fn too_few_tasks_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let error = prepare(dir.path(), &local(FEWEST_TASKS - 1, 1)).expect_err("too few");
    assert!(error.to_string().ends_with("ask for at least 24"), "{error}");
}
