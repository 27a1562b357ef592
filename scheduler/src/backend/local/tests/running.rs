//! One task's run: its environment, its end, its log, its deadline.

use super::*;
use crate::domain::name::Attempt;
use std::os::unix::fs::PermissionsExt as _;

const MULTI: &str = "https://storage.googleapis.com/b/o?x=$(HOST_UID) $HOME `id` \"'\\\n{{ 1 }}\t&X-Goog-Signature=SECRET\u{fc}%0a";

#[tokio::test]
async fn the_command_gets_a_workers_environment_byte_for_byte_and_nothing_else() {
    let place = Place::new();
    let running = place.start("env -0 > \"$OUT/env\"", 1);
    let task = task(MULTI);
    let mut workload = place.workload();
    workload.profile.env.insert("UPDATE_WEB_TESTS".into(), "True".into());
    workload.profile.env.insert("UWORKER_INPUT_DOWNLOAD_URL".into(), "another".into());
    assert_eq!(running.submit(&workload, &task).await, CREATED);
    running.ended(1).await;

    let bytes = std::fs::read(place.path("env")).expect("an environment");
    let found: BTreeMap<String, String> = bytes
        .split(|&b| b == 0)
        .filter_map(|line| {
            String::from_utf8(line.to_vec())
                .expect("text")
                .split_once('=')
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
        })
        // What the shell itself adds.
        .filter(|(name, _)| !["PWD", "OLDPWD", "SHLVL", "_"].contains(&name.as_str()))
        .collect();
    let dir = running.backend.tasks.directory(&task.hash).display().to_string();
    let mut expect: BTreeMap<String, String> = [
        ("HOST_UID", "1337"),
        ("CLUSTERFUZZ_RELEASE", "candidate"),
        ("UNTRUSTED_WORKER", "False"),
        ("UWORKER", "True"),
        ("USE_GCLOUD_STORAGE_RSYNC", "1"),
        ("UWORKER_INPUT_DOWNLOAD_URL", MULTI),
        ("DISABLE_MOUNTS", "true"),
        ("UPDATE_WEB_TESTS", "True"),
        ("KATABATCH_TASK", &task.hash.to_string()),
        ("KATABATCH_SCRATCH", &format!("{dir}/scratch")),
        ("KATABATCH_SHM", &format!("{dir}/shm")),
        ("OUT", &place.path("").display().to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    for name in ["PATH", "HOME"] {
        expect.extend(std::env::var(name).ok().map(|value| (name.to_owned(), value)));
    }
    assert_eq!(found, expect);
}

#[tokio::test]
async fn a_tasks_files_are_its_users_alone_and_it_starts_in_its_scratch() {
    let place = Place::new();
    let running =
        place.start("test \"$PWD\" = \"$KATABATCH_SCRATCH\" && echo x > \"$KATABATCH_SHM/x\"", 1);
    let task = task(MULTI);
    running.submit(&place.workload(), &task).await;
    assert_eq!(running.ended(1).await, [(End::Succeeded, 1)].into());
    let dir = running.backend.tasks.directory(&task.hash);
    let mode = |path: &Path| path.metadata().expect("there").permissions().mode() & 0o777;
    assert_eq!((mode(&place.root()), mode(&dir)), (0o700, 0o700));
    for name in ["task.json", "started.json", "exit.json", "log", "lock"] {
        assert_eq!(mode(&dir.join(name)), 0o600, "{name}");
    }
    assert_eq!(mode(&dir.join("scratch")), 0o700);
}

#[tokio::test]
async fn each_kind_of_end_is_told_apart() {
    let place = Place::new();
    let script = "case \"$HOW\" in ok) ;; code) exit 77;; signal) kill -KILL $$;; esac";
    let running = place.start(script, 3);
    let mut ends = running.backend.ends();
    for (how, expect) in
        [("ok", End::Succeeded), ("code", End::Failed(77)), ("signal", End::Killed(9))]
    {
        let task = task(&format!("gs://b/{how}"));
        let mut workload = place.workload();
        workload.profile.env.insert("HOW".into(), how.into());
        assert_eq!(running.submit(&workload, &task).await, CREATED);
        let told = ends.recv().await.expect("an end");
        assert_eq!((told.hash, told.end, &told.key), (task.hash, expect, &task.key));
    }
    assert_eq!(running.backend.summary().len(), 3);
}

#[tokio::test]
async fn the_log_tail_has_both_outputs_and_no_credential() {
    let place = Place::new();
    let running = place.start("echo out; echo \"got $UWORKER_INPUT_DOWNLOAD_URL\" >&2", 1);
    let mut ends = running.backend.ends();
    running.submit(&place.workload(), &task("https://h/o?X-Goog-Signature=SECRET")).await;
    assert_eq!(ends.recv().await.expect("an end").tail, "out\ngot https://h/o?REDACTED\n");
}

#[tokio::test]
async fn a_command_that_prints_without_end_fills_no_disk() {
    let place = Place::new();
    let running = place.start("yes 0123456789 | head -c 3000000; echo last", 1);
    let mut ends = running.backend.ends();
    let task = task("gs://b/o");
    running.submit(&place.workload(), &task).await;
    let tail = ends.recv().await.expect("an end").tail;
    assert!(tail.len() <= TAIL_BYTES && tail.ends_with("last\n"), "{}", tail.len());
    let log = running.backend.tasks.directory(&task.hash).join("log");
    assert!(log.metadata().expect("a log").len() <= 2 * TAIL_BYTES as u64);
}

#[tokio::test]
async fn a_deadline_stops_the_whole_group_whatever_it_ignores() {
    let place = Place::new();
    // A grandchild that ignores SIGTERM, and one that left the group, both holding the output.
    let script = "trap '' TERM; echo $$ >> $OUT/pids
        (trap '' TERM; sh -c 'echo $$ >> $OUT/pids; exec sleep 1000') &
        setsid sh -c 'echo $$ >> $OUT/pids; exec sleep 1000' &
        while :; do sleep 0.1; done";
    let running = place.start(script, 1);
    let mut workload = place.workload();
    workload.profile.deadline = Some(Duration::from_secs(3));
    running.submit(&workload, &task("gs://b/o")).await;
    assert_eq!(running.ended(1).await, [(End::DeadlineExceeded, 1)].into());
    let pids = place.lines("pids");
    assert_eq!(pids.len(), 3, "{pids:?}");
    eventually("the processes' end", || async {
        pids.iter().all(|pid| is_gone(pid)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_end_of_the_first_process_is_the_end_of_all() {
    let place = Place::new();
    let running = place.start(
        "sh -c 'echo $$ > $OUT/pid; exec sleep 1000' & until test -s $OUT/pid; do :; done; exit 3",
        1,
    );
    running.submit(&place.workload(), &task("gs://b/o")).await;
    assert_eq!(running.ended(1).await, [(End::Failed(3), 1)].into());
    let pids = place.lines("pid");
    eventually("the process's end", || async { is_gone(&pids[0]).then_some(()) }).await;
}

#[tokio::test]
async fn a_profile_that_no_process_can_have_holds_its_workload_alone() {
    let place = Place::new();
    let running = place.start(":", 1);
    let mut bad = place.workload();
    bad.profile.env.insert("A=B".into(), String::new());
    let outcome = running.submit(&bad, &task("gs://b/1")).await;
    let Outcome::Deferred(deferral) = outcome else { panic!("{outcome:?}") };
    assert_eq!((deferral.scope, deferral.kind), (Scope::Workload, HoldKind::JobRefused));
    assert_eq!(running.submit(&place.workload(), &task("gs://b/2")).await, CREATED);
}

/// Gone, or dead and only not yet waited for by whoever it was left to.
fn is_gone(pid: &str) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => {
            stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
        }
        Err(_) => true,
    }
}

/// Remembers what it was told.
#[derive(Default)]
struct Told(std::sync::Mutex<Vec<crate::domain::end::End>>);

impl EndObserver for Told {
    fn knows(&self, task: &TaskHash, _: Attempt) -> bool {
        self.0.lock().unwrap().iter().any(|end| end.task == *task)
    }

    fn ended(&self, end: crate::domain::end::End) {
        self.0.lock().unwrap().push(end);
    }
}

#[tokio::test]
async fn an_end_is_told_as_those_of_every_backend_are_and_once_over_a_restart() {
    let place = Place::new();
    let (task, told) = (task("gs://b/o"), Arc::new(Told::default()));
    let script = "echo last words; exit 3";
    let backend = place.open(script, 1);
    backend.tell_ends(Arc::clone(&told) as _);
    let running = Running::of(backend);
    running.submit(&place.workload(), &task).await;
    running.ended(1).await;
    eventually("it is told", || async { told.knows(&task.hash, Attempt::FIRST).then_some(()) })
        .await;
    {
        let ends = told.0.lock().unwrap();
        let end = ends.first().expect("an end");
        assert_eq!((end.verdict.kind.label(), end.verdict.exit_code), ("task_failure", Some(3)));
        assert_eq!(end.tail.text(), Some("last words\n"));
        assert_eq!((&end.key, end.job.as_str()), (&task.key, task.job_name().as_str()));
        assert!(end.started_at.is_some_and(|at| at <= end.ended_at));
    }
    drop(running);
    let again = eventually("the directory", || async {
        LocalBackend::open(place.settings(script, 1), Arc::new(SystemClock)).ok()
    })
    .await;
    again.tell_ends(Arc::clone(&told) as _);
    let mut heard = again.ends();
    let _running = Running::of(again);
    assert_eq!(heard.recv().await.expect("an end").end, End::Failed(3));
    assert_eq!(told.0.lock().unwrap().len(), 1);
}
