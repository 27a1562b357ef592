//! The queue's semantics on a real file, on a clock that stands until it is moved.

mod file;
mod model;
mod semantics;
mod waiting;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;
use tokio::time::Instant;

use super::record::NewMessage;
use super::{Spool, lock};
use crate::clock::Clock;

/// A wall clock that moves only when told to, and counts how often it is read: once by every
/// transaction.
pub(super) struct TestClock {
    wall: Mutex<Timestamp>,
    reads: AtomicUsize,
}

impl TestClock {
    pub(super) fn new() -> Arc<Self> {
        let wall = Mutex::new("2026-03-01T00:00:00Z".parse().expect("a time"));
        Arc::new(Self { wall, reads: AtomicUsize::new(0) })
    }

    pub(super) fn pass(&self, time: Duration) {
        *lock(&self.wall) += time;
    }

    pub(super) fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }
}

impl Clock for TestClock {
    fn mono(&self) -> Instant {
        Instant::now()
    }

    fn wall(&self) -> Timestamp {
        self.reads.fetch_add(1, Ordering::SeqCst);
        *lock(&self.wall)
    }
}

/// A spool in a folder of its own, which lasts as long as the folder's handle.
pub(super) fn spool(clock: &Arc<TestClock>) -> (TempDir, Spool) {
    let folder = TempDir::new().expect("a folder");
    let spool = open(&folder, clock, 7);
    (folder, spool)
}

pub(super) fn open(folder: &TempDir, clock: &Arc<TestClock>, seed: u64) -> Spool {
    let random = Box::new(ChaCha8Rng::seed_from_u64(seed));
    let path = folder.path().join("spool.sqlite");
    Spool::open_with(&path, "spool".into(), clock.clone(), random).expect("a spool")
}

/// A message of this id.
pub(super) fn message(id: &str) -> NewMessage {
    NewMessage {
        id: Some(id.to_owned()),
        attributes: BTreeMap::from([("job".to_owned(), id.to_owned())]),
        ..NewMessage::default()
    }
}
