//! `kill -9` at any moment: nothing that was told to be durable is lost, nothing acked comes back.
//!
//! The test runs itself as a child, which says on its stdout what it is about to do and what it
//! was told, and kills it after a random number of lines: in the middle of transactions that
//! several of the child's callers share.

#![expect(clippy::expect_used, reason = "a test, and its child, fail by panicking")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use katabatch::clock::SystemClock;
use katabatch::queue::spool::Spool;
use katabatch::queue::spool::record::NewMessage;
use katabatch::queue::{LeaseId, Queue};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const PATH: &str = "KATABATCH_TEST_CRASH_SPOOL";
const ROUND: &str = "KATABATCH_TEST_CRASH_ROUND";
const ROUNDS: u32 = 20;
/// Longer than the test: a dead child's leases do not lapse, so its messages are not acked by a
/// later round, and what is lost can't hide behind that.
const LEASE: Duration = Duration::from_secs(3_600);

fn open(path: &Path) -> Spool {
    Spool::open(path, "crash".into(), Arc::new(SystemClock)).expect("a spool")
}

/// One write call, so that what was said outlives the kill as one line.
fn say(word: &str, id: &str) {
    let line = format!("\n@{word} {id}\n");
    std::io::stdout().lock().write_all(line.as_bytes()).expect("the parent reads");
}

fn message(id: &str) -> NewMessage {
    let url =
        format!("https://storage.googleapis.com/in/{id}?X-Goog-Signature={}", "f".repeat(600));
    NewMessage {
        id: Some(id.to_owned()),
        attributes: [("command", "fuzz"), ("job", "j"), ("argument", url.as_str())]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
        ..NewMessage::default()
    }
}

async fn put_for_ever(spool: Arc<Spool>, who: String) {
    for n in 0.. {
        let ids: Vec<String> = (0..=n % 5).map(|i| format!("{who}-{n}-{i}")).collect();
        spool.put(ids.iter().map(|id| message(id)).collect()).await.expect("put");
        ids.iter().for_each(|id| say("put", id));
    }
}

async fn ack_for_ever(spool: Arc<Spool>) {
    loop {
        let got = spool.lease(3, LEASE, LEASE).await.expect("a lease");
        let leases: Vec<LeaseId> = got.iter().map(|d| d.lease.clone()).collect();
        got.iter().for_each(|d| say("acking", &d.message_id));
        for (delivery, acked) in got.iter().zip(spool.ack(&leases).await) {
            acked.expect("our lease");
            say("acked", &delivery.message_id);
        }
    }
}

/// The child's whole life; nothing but a pass when run as a test of its own.
#[test]
fn child() {
    let (Ok(path), Ok(round)) = (std::env::var(PATH), std::env::var(ROUND)) else { return };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let spool = Arc::new(open(Path::new(&path)));
        for who in 0..3 {
            tokio::spawn(put_for_ever(Arc::clone(&spool), format!("{round}-{who}")));
        }
        tokio::join!(ack_for_ever(Arc::clone(&spool)), ack_for_ever(Arc::clone(&spool)));
    });
}

struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[derive(Default)]
struct Said {
    put: BTreeSet<String>,
    acking: BTreeSet<String>,
    acked: BTreeSet<String>,
}

impl Said {
    fn take(&mut self, line: &str) -> bool {
        let Some((word, id)) = line.strip_prefix('@').and_then(|line| line.split_once(' ')) else {
            return false;
        };
        match word {
            "put" => self.put.insert(id.to_owned()),
            "acking" => self.acking.insert(id.to_owned()),
            "acked" => self.acked.insert(id.to_owned()),
            _ => false,
        }
    }
}

#[test]
fn nothing_durable_is_lost_and_nothing_acked_comes_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("spool.sqlite");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut random = ChaCha8Rng::seed_from_u64(20);
    let mut said = Said::default();
    for round in 0..ROUNDS {
        let child = Command::new(std::env::current_exe().expect("this test's path"))
            .args(["--exact", "child", "--nocapture", "--test-threads=1"])
            .env(PATH, &path)
            .env(ROUND, round.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let mut child = KillOnDrop(child);
        let lines = BufReader::new(child.0.stdout.take().expect("its stdout")).lines();
        let mut lines = lines.map(|line| line.expect("text"));
        let after = random.random_range(1..400);
        let heard = lines.by_ref().filter(|line| said.take(line)).take(after).count();
        assert_eq!(heard, after, "the child ended by itself in round {round}");
        child.0.kill().expect("killed");
        // What it had said before it died.
        lines.for_each(|line| {
            said.take(&line);
        });
        drop(child);

        let there: BTreeSet<String> = runtime.block_on(async {
            let list = open(&path).list(usize::MAX).await.expect("a list");
            list.into_iter().map(|entry| entry.id).collect()
        });
        let lost: Vec<_> = said.put.iter().filter(|id| !there.contains(*id)).collect();
        let lost: Vec<_> = lost.into_iter().filter(|id| !said.acking.contains(*id)).collect();
        assert!(lost.is_empty(), "round {round} lost {lost:?}");
        let back: Vec<_> = said.acked.intersection(&there).collect();
        assert!(back.is_empty(), "round {round}: acked, but there: {back:?}");
    }
    assert!(said.acked.len() > 100, "the children acked only {}", said.acked.len());
}
