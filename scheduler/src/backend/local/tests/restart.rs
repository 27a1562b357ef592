//! Restarts and crashes: nothing lost, nothing run twice, whatever state a directory is in.

use super::*;
use crate::backend::local::record::{Exit, How, Started, write};

/// Counts its runs; goes on until `go` is there.
const COUNTED: &str = "echo ran >> $OUT/ran; until test -e $OUT/go; do sleep 0.05; done";

impl Place {
    /// The directory of a task, as a crash between two steps leaves it.
    fn crashed(&self, task: &Task, script: &str, steps: impl FnOnce(&Path)) {
        let backend = self.open(script, 1);
        let record = backend.record(&self.workload(), task).expect("a record");
        claim::claim(&self.root(), &record).expect("claimed");
        steps(&backend.tasks.directory(&task.hash));
    }
}

async fn wait_for_lines(place: &Place, name: &str, n: usize) {
    eventually(name, || async { (place.lines(name).len() >= n).then_some(()) }).await;
}

#[tokio::test]
async fn a_restart_adopts_what_is_running_and_hears_of_its_end() {
    let place = Place::new();
    let task = task("gs://b/o");
    let first = place.start(COUNTED, 1);
    first.submit(&place.workload(), &task).await;
    wait_for_lines(&place, "ran", 1).await;
    drop(first);

    // The directory is free once the first backend's `run` has let go of it.
    let settings = || place.settings(COUNTED, 1);
    let second = eventually("the directory", || async {
        LocalBackend::open(settings(), Arc::new(SystemClock)).ok()
    })
    .await;
    assert_eq!(second.room().borrow().free(), 0, "an adopted task counts");
    assert_eq!(submit(&second, &place.workload(), &task).await, ALREADY_THERE);
    let mut ends = second.ends();
    let second = Running::of(second);
    std::fs::write(place.path("go"), "").expect("written");
    assert_eq!(ends.recv().await.expect("an end").end, End::Succeeded);
    assert_eq!(second.backend.room().borrow().free(), 1);
    assert_eq!(place.lines("ran").len(), 1);
}

#[tokio::test]
async fn two_owners_of_one_directory_are_refused() {
    let place = Place::new();
    let _first = place.open(":", 1);
    let second = LocalBackend::open(place.settings(":", 1), Arc::new(SystemClock));
    assert!(matches!(second.map(|_| ()), Err(LocalError::InUse(_))));
}

#[tokio::test]
async fn a_directory_without_a_record_was_never_claimed() {
    let place = Place::new();
    let task = task("gs://b/o");
    for half in [None, Some(""), Some("{\"version\":1,\"task\":\"")] {
        place.crashed(&task, COUNTED, |dir| match half {
            None => std::fs::remove_file(dir.join("task.json")).expect("removed"),
            Some(text) => std::fs::write(dir.join("task.json"), text).expect("written"),
        });
        let backend = place.open(COUNTED, 1);
        assert_eq!(backend.room().borrow().free(), 1);
        assert!(!backend.tasks.directory(&task.hash).exists());
    }
    // Also when it comes to be there under a running backend: a claim that could not be undone.
    let running = place.start("echo ran >> $OUT/ran", 1);
    std::fs::create_dir(running.backend.tasks.directory(&task.hash)).expect("made");
    assert_eq!(running.submit(&place.workload(), &task).await, CREATED);
    running.ended(1).await;
    assert_eq!(place.lines("ran").len(), 1);
}

#[tokio::test]
async fn a_claim_whose_supervisor_never_started_is_run_after_the_restart() {
    let place = Place::new();
    let task = task("gs://b/o");
    place.crashed(&task, "echo ran >> $OUT/ran", |_| {});
    let running = place.start("other command", 1);
    assert_eq!(running.submit(&place.workload(), &task).await, ALREADY_THERE);
    assert_eq!(running.ended(1).await, [(End::Succeeded, 1)].into());
    assert_eq!(place.lines("ran").len(), 1);
}

#[tokio::test]
async fn supervisors_started_twice_for_a_task_run_it_once() {
    let place = Place::new();
    let task = task("gs://b/o");
    let mut children = Vec::new();
    place.crashed(&task, "echo ran >> $OUT/ran", |dir| {
        for _ in 0..4 {
            children.push(supervisor().command(dir).spawn().expect("started"));
        }
    });
    for mut child in children {
        assert!(child.wait().expect("ended").success());
    }
    let running = place.start(":", 1);
    assert_eq!(running.ended(1).await, [(End::Succeeded, 1)].into());
    assert_eq!(place.lines("ran").len(), 1);
}

#[tokio::test]
async fn a_task_that_may_have_run_and_has_no_exit_is_unknown_and_never_run_again() {
    let place = Place::new();
    let task = task("gs://b/o");
    place.crashed(&task, COUNTED, |dir| {
        let started = Started { supervisor: 1, started_at: Timestamp::now() };
        write(dir, "started.json", &started).expect("written");
    });
    for _ in 0..2 {
        let backend = place.open(COUNTED, 1);
        assert_eq!(backend.summary(), [(End::Unknown, 1)].into());
        assert_eq!(submit(&backend, &place.workload(), &task).await, ALREADY_THERE);
        assert_eq!(backend.room().borrow().free(), 1);
    }
    assert!(place.lines("ran").is_empty());
}

#[tokio::test]
async fn a_killed_supervisors_task_is_unknown_and_leaves_nothing_running() {
    let place = Place::new();
    let task = task("gs://b/o");
    let running = place.start("echo $$ > $OUT/pid; exec sleep 1000", 1);
    running.submit(&place.workload(), &task).await;
    wait_for_lines(&place, "pid", 1).await;
    let dir = running.backend.tasks.directory(&task.hash);
    let started: Started = record::read(&dir.join("started.json")).expect("read").expect("started");
    let supervisor = nix::unistd::Pid::from_raw(started.supervisor.cast_signed());
    nix::sys::signal::kill(supervisor, nix::sys::signal::Signal::SIGKILL).expect("killed");
    assert_eq!(running.ended(1).await, [(End::Unknown, 1)].into());
    let pid = place.lines("pid");
    eventually("its process's end", || async {
        let environ = std::fs::read(format!("/proc/{}/environ", pid[0])).unwrap_or_default();
        environ.is_empty().then_some(())
    })
    .await;
    assert_eq!(running.submit(&place.workload(), &task).await, ALREADY_THERE);
}

#[tokio::test]
async fn an_end_while_nobody_looked_is_told_at_the_next_start() {
    let place = Place::new();
    let task = task("gs://b/o");
    place.crashed(&task, COUNTED, |dir| {
        let now = Timestamp::now();
        let exit = Exit { started_at: Some(now), ..Exit::at(now, How::Code(5), false) };
        write(dir, "exit.json", &exit).expect("written");
    });
    let backend = place.open(COUNTED, 1);
    let mut ends = backend.ends();
    let _running = Running::of(backend);
    assert_eq!(ends.recv().await.expect("an end").end, End::Failed(5));
}

#[tokio::test]
async fn what_a_removal_left_behind_is_deleted_and_its_name_is_free() {
    let place = Place::new();
    let task = task("gs://b/o");
    place.crashed(&task, "echo ran >> $OUT/ran", |dir| {
        let name = dir.file_name().expect("a name").to_str().expect("text");
        std::fs::rename(dir, dir.with_file_name(format!(".gone-{name}"))).expect("renamed");
    });
    let running = place.start("echo ran >> $OUT/ran", 1);
    let left = std::fs::read_dir(place.root()).expect("read").count();
    assert_eq!(left, 1, "only the owner's lock");
    assert_eq!(running.submit(&place.workload(), &task).await, CREATED);
    running.ended(1).await;
}

#[tokio::test]
async fn a_supervisor_that_never_begins_ends_its_task_as_not_started() {
    let place = Place::new();
    let mut settings = place.settings(":", 1);
    settings.supervisor = Supervisor { program: "/bin/false".into(), arguments: Vec::new() };
    let running = Running::of(LocalBackend::open(settings, Arc::new(SystemClock)).expect("opened"));
    assert_eq!(running.submit(&place.workload(), &task("gs://b/o")).await, CREATED);
    assert_eq!(running.ended(1).await, [(End::NotStarted, 1)].into());
}

#[tokio::test]
async fn a_supervisor_that_can_not_be_started_leaves_no_claim() {
    let place = Place::new();
    let mut settings = place.settings(":", 1);
    settings.supervisor = Supervisor { program: "/no/such".into(), arguments: Vec::new() };
    let backend = LocalBackend::open(settings, Arc::new(SystemClock)).expect("opened");
    let task = task("gs://b/o");
    let outcome = submit(&backend, &place.workload(), &task).await;
    assert!(matches!(outcome, Outcome::Deferred(_)), "{outcome:?}");
    assert!(!backend.tasks.directory(&task.hash).exists());
    assert_eq!(backend.room().borrow().free(), 1);
}

#[tokio::test]
async fn a_directory_of_another_version_is_left_alone() {
    let place = Place::new();
    let task = task("gs://b/o");
    place.crashed(&task, ":", |dir| {
        std::fs::write(dir.join("task.json"), "{\"version\":2}").expect("written");
    });
    let backend = place.open(":", 1);
    let outcome = submit(&backend, &place.workload(), &task).await;
    assert!(matches!(&outcome, Outcome::Deferred(d) if d.scope == Scope::Task), "{outcome:?}");
    assert!(backend.tasks.directory(&task.hash).join("task.json").exists());
}
