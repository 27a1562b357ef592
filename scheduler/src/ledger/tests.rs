//! The ledger with its file: what outlives a restart, and what the loss of the file changes.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use jiff::Timestamp;

use super::*;
use crate::clock::PacedClock;
use crate::domain::end::Verdict as EndVerdict;
use crate::domain::log_tail::LogTail;
use crate::domain::name::Subject;
use crate::domain::outcome::{HoldKind, Placed, RejectKind};
use crate::pipeline::tally::Verdict;

fn at() -> Timestamp {
    "2026-11-30T10:00:00Z".parse().expect("a date")
}

fn key(n: u32) -> WorkloadKey {
    WorkloadKey { command: "fuzz".into(), job_type: format!("job_{n}").into() }
}

fn end(key: &WorkloadKey, n: u32, kind: EndKind) -> End {
    let started = at().checked_sub(Duration::from_secs(3600)).expect("a date");
    End {
        task: TaskHash::of(&key.command, &key.job_type, &Subject::Message(n.to_string())),
        attempt: Attempt::FIRST,
        job: format!("cf-job-{n}"),
        key: key.clone(),
        backend: "gke".into(),
        verdict: EndVerdict::new(kind, Some(1), "exit code 1"),
        tail: LogTail::Text(format!("the log of {n}")),
        started_at: Some(started),
        ended_at: at(),
    }
}

fn decision(key: &WorkloadKey, message: u32, verdict: Verdict) -> Decision {
    Decision {
        message_id: message.to_string(),
        key: Some(key.clone()),
        job: None,
        backend: None,
        verdict,
    }
}

fn ledger() -> Arc<Ledger> {
    Ledger::new(Arc::new(PacedClock::starting_at(at())))
}

/// Runs a ledger over the file for as long as `work` takes, and ends it in order.
async fn kept(path: &Path, work: impl AsyncFnOnce(&Ledger)) -> Arc<Ledger> {
    let ledger = ledger();
    ledger.remember(path);
    let stop = CancellationToken::new();
    let now: Now = Arc::new(BTreeMap::new);
    let keeping = Arc::clone(&ledger).keep(path.to_owned(), now, stop.clone());
    let keeping = tokio::spawn(keeping);
    tokio::task::yield_now().await;
    work(&ledger).await;
    stop.cancel();
    keeping.await.expect("no panic");
    ledger
}

/// Waits until the writer has been at work.
async fn a_while() {
    tokio::time::sleep(3 * WRITE_EVERY).await;
}

fn stored(path: &Path, of: &WorkloadKey) -> Option<(Record, Vec<EndRecord>)> {
    let all = Store::open(path).expect("a file").read_of(&of.job_type).expect("rows");
    all.into_iter().find(|(key, ..)| key == of).map(|(_, record, ends)| (record, ends))
}

#[test]
fn tasks_that_wait_are_counted_by_reason_until_they_go_on() {
    let (ledger, key) = (ledger(), key(1));
    let held = |kind, detail: &str| Verdict::Held(kind, detail.to_owned());
    ledger.decided(&decision(&key, 1, held(HoldKind::PendingLimit, "1000 of 1000")));
    ledger.decided(&decision(&key, 2, held(HoldKind::PendingLimit, "1000 of 1000")));
    ledger.decided(&decision(&key, 2, held(HoldKind::Quota, "used up")));
    ledger.decided(&decision(&key, 3, Verdict::Rejected(RejectKind::DeadUrl, "dead".into())));
    let (record, _) = ledger.of(&key.job_type).remove(&key).expect("a record");
    let tasks: Vec<(&str, usize)> =
        record.held.iter().map(|(kind, held)| (kind.as_str(), held.tasks)).collect();
    assert_eq!(tasks, [("pending_limit", 1), ("quota", 1)]);
    assert_eq!(record.rejected["dead_url"].count, 1);
    ledger.decided(&decision(&key, 1, Verdict::Scheduled(Placed::Created)));
    ledger.decided(&decision(&key, 2, Verdict::Released));
    let (record, _) = ledger.of(&key.job_type).remove(&key).expect("a record");
    assert!(record.held.is_empty() && record.scheduled == 1);
}

#[test]
fn memory_is_bounded_whatever_comes() {
    let ledger = ledger();
    for n in 0..6_000 {
        ledger.decided(&decision(&key(n), n, Verdict::Released));
    }
    let there = (0..6_000).filter(|n| !ledger.of(&key(*n).job_type).is_empty()).count();
    assert!((4_000..=5_000).contains(&there), "{there}");
    assert!(!ledger.of(&key(5_999).job_type).is_empty(), "the latest stays");
    for n in 0..500 {
        ledger.ended(end(&key(5_999), n, EndKind::TaskFailure));
    }
    let (record, ends) = ledger.of(&key(5_999).job_type).remove(&key(5_999)).expect("a record");
    assert_eq!((ends.len(), record.ends[&EndKind::TaskFailure].count), (20, 500));
}

#[tokio::test(start_paused = true)]
async fn ends_and_lost_hours_outlive_a_restart_and_are_counted_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let (path, key) = (dir.path().join("ledger.sqlite"), key(1));
    kept(&path, async |ledger| {
        ledger.ended(end(&key, 1, EndKind::Evicted));
        ledger.ended(end(&key, 1, EndKind::Evicted));
        ledger.ended(end(&key, 2, EndKind::Succeeded));
    })
    .await;
    let mode = std::fs::metadata(&path).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = kept(&path, async |ledger| {
        assert!(ledger.knows(&end(&key, 1, EndKind::Evicted).task, Attempt::FIRST));
        ledger.ended(end(&key, 1, EndKind::Evicted));
        ledger.ended(end(&key, 3, EndKind::Evicted));
    })
    .await;
    let lost = again.lost();
    assert_eq!(lost[&EndKind::Evicted], Lost { count: 2, seconds: 7200.0 });
    assert_eq!(lost[&EndKind::Succeeded], Lost { count: 1, seconds: 0.0 });
    let (record, ends) = stored(&path, &key).expect("a row");
    assert_eq!(record.ends, lost);
    let tails: Vec<_> = ends.iter().filter_map(|end| end.tail.text()).collect();
    assert_eq!(tails, ["the log of 1", "the log of 2", "the log of 3"]);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_vanishes_while_in_use_changes_nothing_else_and_is_made_anew() {
    let dir = tempfile::tempdir().expect("a folder");
    let (path, key) = (dir.path().join("ledger.sqlite"), key(1));
    let ledger = kept(&path, async |ledger| {
        ledger.ended(end(&key, 1, EndKind::Evicted));
        a_while().await;
        assert!(stored(&path, &key).is_some());
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{suffix}", path.display()));
        }
        ledger.ended(end(&key, 2, EndKind::Evicted));
        a_while().await;
    })
    .await;
    assert_eq!(ledger.lost()[&EndKind::Evicted].count, 2);
    let (record, ends) = stored(&path, &key).expect("a row");
    assert_eq!((record.ends[&EndKind::Evicted].count, ends.len()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_something_else_is_left_alone_and_work_goes_on() {
    let dir = tempfile::tempdir().expect("a folder");
    for name in ["text", "no/such/folder"] {
        let path = dir.path().join(name);
        if name == "text" {
            std::fs::write(&path, "somebody's notes, long enough to be no database")
                .expect("written");
        }
        let ledger = kept(&path, async |ledger| {
            ledger.ended(end(&key(1), 1, EndKind::Evicted));
            a_while().await;
        })
        .await;
        assert_eq!(ledger.lost()[&EndKind::Evicted].count, 1);
    }
    let notes = std::fs::read_to_string(dir.path().join("text")).expect("a file");
    assert!(notes.starts_with("somebody's notes"));
}
