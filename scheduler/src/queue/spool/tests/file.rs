//! The file: who may read it, what it refuses, and what many may do with it at once.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::queue::spool::file::with_companions;
use crate::queue::{Queue, QueueError};

fn path(folder: &TempDir) -> std::path::PathBuf {
    folder.path().join("spool.sqlite")
}

fn modes(folder: &TempDir) -> Vec<u32> {
    let mode = |path| fs::metadata(path).map(|found| found.permissions().mode() & 0o777);
    with_companions(&path(folder)).map(|path| mode(path).expect("a file")).to_vec()
}

fn try_open(path: &std::path::Path) -> Result<Spool, QueueError> {
    Spool::open(path, "spool".into(), TestClock::new())
}

#[tokio::test]
async fn only_the_owner_can_read_the_spool_and_its_log() {
    let clock = TestClock::new();
    let (folder, spool) = spool(&clock);
    let before = fs::metadata(folder.path()).expect("a folder").permissions().mode();
    spool.put(vec![message("a")]).await.expect("put");
    assert_eq!(modes(&folder), [0o600; 3]);
    // A copy made with wider modes is narrowed when it is opened.
    for path in with_companions(&path(&folder)) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o666)).expect("widened");
    }
    let again = open(&folder, &clock, 8);
    assert_eq!(modes(&folder), [0o600; 3]);
    assert_eq!(fs::metadata(folder.path()).expect("a folder").permissions().mode(), before);
    drop(again);
}

#[tokio::test]
async fn what_was_put_is_there_when_opened_again() {
    let clock = TestClock::new();
    let (folder, spool) = spool(&clock);
    spool.put(vec![message("a")]).await.expect("put");
    let held = spool.lease(1, Duration::from_secs(60), Duration::ZERO).await.expect("leased");
    drop(spool);
    let spool = open(&folder, &clock, 8);
    assert_eq!(spool.counts().await.expect("counts").leased, 1);
    assert_eq!(spool.ack(std::slice::from_ref(&held[0].lease)).await, [Ok(())]);
}

#[track_caller]
fn refused(path: &std::path::Path, expect: &str) {
    match try_open(path).map(drop) {
        Err(QueueError::Unusable(text)) => assert!(text.contains(expect), "{text}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_no_spool_is_refused_and_left_as_it_is() {
    let folder = TempDir::new().expect("a folder");
    let text =
        "not a database, but longer than SQLite's header of one hundred bytes is. ".repeat(9);
    fs::write(path(&folder), &text).expect("written");
    refused(&path(&folder), "not a spool");
    assert_eq!(fs::read_to_string(path(&folder)).expect("read"), text);
    refused(folder.path(), "is no file");
    refused(&folder.path().join("no/such/folder"), "folder does not exist");

    let theirs = folder.path().join("theirs.sqlite");
    let connection = rusqlite::Connection::open(&theirs).expect("a database");
    connection.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1)").expect("a table");
    refused(&theirs, "another program's");
}

#[test]
fn a_spool_of_a_newer_version_is_refused() {
    let clock = TestClock::new();
    let (folder, spool) = spool(&clock);
    drop(spool);
    let connection = rusqlite::Connection::open(path(&folder)).expect("a database");
    connection.pragma_update(None, "user_version", 999).expect("newer");
    refused(&path(&folder), "schema version is 999");
}

#[tokio::test]
async fn a_damaged_spool_is_unusable() {
    let clock = TestClock::new();
    let (folder, spool) = spool(&clock);
    spool.put((0..500).map(|i| message(&i.to_string())).collect()).await.expect("put");
    // All of it into the main file: the last commit may hold the spool open for a moment yet.
    let connection = rusqlite::Connection::open(path(&folder)).expect("a database");
    connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0))
        .expect("a checkpoint");
    drop((connection, spool));
    let mut bytes = fs::read(path(&folder)).expect("read");
    bytes[4096..].fill(0x5a);
    fs::write(path(&folder), bytes).expect("written");
    let outcome = match try_open(&path(&folder)) {
        Ok(spool) => {
            spool.lease(500, Duration::from_secs(60), Duration::ZERO).await.map(|got| got.len())
        }
        Err(error) => Err(error),
    };
    assert!(matches!(outcome, Err(QueueError::Unusable(_))), "{outcome:?}");
}

#[tokio::test]
async fn a_put_into_a_file_that_was_deleted_is_no_put() {
    let (folder, spool) = spool(&TestClock::new());
    spool.put(vec![message("a")]).await.expect("put");
    with_companions(&path(&folder)).iter().for_each(|path| fs::remove_file(path).expect("removed"));
    for _ in 0..2 {
        let put = spool.put(vec![message("b")]).await;
        assert!(
            matches!(&put, Err(QueueError::Unusable(why)) if why.contains("deleted")),
            "{put:?}"
        );
    }
}

/// Several processes are several connections to SQLite: so are several spools in one.
#[test]
fn two_spools_on_one_file_never_lease_one_message_at_once() {
    const MESSAGES: usize = 600;
    let clock = TestClock::new();
    let (folder, first) = spool(&clock);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let put = first.put((0..MESSAGES).map(|i| message(&i.to_string())).collect());
    runtime.block_on(put).expect("put");
    let spools = [Arc::new(first), Arc::new(open(&folder, &clock, 8))];
    let work = |spool: Arc<Spool>| async move {
        let mut mine = Vec::new();
        loop {
            let got = spool.lease(7, Duration::from_secs(60), Duration::ZERO).await.expect("lease");
            if got.is_empty() {
                return mine;
            }
            let leases: Vec<_> = got.iter().step_by(2).map(|d| d.lease.clone()).collect();
            assert!(spool.ack(&leases).await.iter().all(Result::is_ok));
            mine.extend(got.into_iter().map(|d| d.message_id));
        }
    };
    let mut delivered: BTreeMap<String, usize> = BTreeMap::new();
    let workers = spools.iter().cycle().take(6).map(|spool| runtime.spawn(work(Arc::clone(spool))));
    for worker in workers.collect::<Vec<_>>() {
        for id in runtime.block_on(worker).expect("a worker") {
            *delivered.entry(id).or_default() += 1;
        }
    }
    assert_eq!(delivered.len(), MESSAGES);
    assert!(delivered.values().all(|n| *n == 1), "{delivered:?}");
}

#[test]
fn many_may_make_one_spool_at_once() {
    let folder = TempDir::new().expect("a folder");
    std::thread::scope(|scope| {
        let opened: Vec<_> =
            (0..8).map(|_| scope.spawn(|| try_open(&path(&folder)).map(drop))).collect();
        for opened in opened {
            assert_eq!(opened.join().expect("no panic"), Ok(()));
        }
    });
}
