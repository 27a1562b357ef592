//! A scheduler that is killed, again and again: its tasks outlive it, none is lost, none runs twice.

use std::process::{Child, Command, Stdio};

use super::*;

const PLACE_VARIABLE: &str = "KATABATCH_TEST_SCHEDULE";
const TASKS: usize = 30;

#[test]
fn this_binary_is_a_scheduler_when_asked() {
    let Some(dir) = std::env::var_os(PLACE_VARIABLE) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(schedule_all(Place { dir: dir.into(), _temporary: None }));
}

/// Places every task, and waits until all have ended.
async fn schedule_all(place: Place) {
    let settings = || place.settings("echo $KATABATCH_TASK >> $OUT/ran", 2);
    let backend = eventually("the directory", || async {
        LocalBackend::open(settings(), Arc::new(SystemClock)).ok()
    })
    .await;
    let running = Running::of(backend);
    let workload = place.workload();
    for task in tasks() {
        eventually("room", || async {
            let outcome = running.submit(&workload, &task).await;
            matches!(outcome, Outcome::Scheduled(_)).then_some(())
        })
        .await;
    }
    assert_eq!(running.ended(TASKS).await, [(End::Succeeded, TASKS)].into());
}

fn tasks() -> impl Iterator<Item = Task> {
    (0..TASKS).map(|n| task(&format!("gs://b/{n}")))
}

fn scheduler(place: &Place) -> Child {
    Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "backend::local::tests::killed::this_binary_is_a_scheduler_when_asked"])
        .env(PLACE_VARIABLE, &place.dir)
        .stdout(Stdio::null())
        .spawn()
        .expect("started")
}

#[tokio::test]
async fn a_scheduler_killed_at_any_point_loses_no_task_and_runs_none_twice() {
    let place = Place::new();
    for kill_at in [1, 2, 3, 6, 9, 13, 18, 24, 29] {
        let mut child = scheduler(&place);
        eventually("its claims", || async {
            let claims = std::fs::read_dir(place.root()).map_or(0, Iterator::count);
            // The owner's lock is there, too.
            (claims > kill_at).then_some(())
        })
        .await;
        child.kill().expect("killed");
        child.wait().expect("ended");
    }
    assert!(scheduler(&place).wait().expect("ended").success());
    let mut ran = place.lines("ran");
    ran.sort();
    let mut expect: Vec<String> = tasks().map(|task| task.hash.to_string()).collect();
    expect.sort();
    assert_eq!(ran, expect);
}
