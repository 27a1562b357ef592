//! The account of room as the backend's parts share it: reservations that can't leak, and the
//! room as others see it.
//!
//! A [`Flight`] gives its room back by being dropped, whatever ended it (a refusal, a panic, a
//! dropped future), but never for a request that was sent and not answered: that stays taken until
//! a GET settles it. The rules are the [ledger](super::ledger)'s.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio::time::Instant;

use super::api::JobFacts;
use super::ledger::{Full, Ledger};
use crate::domain::room::Room;

/// One backend's room.
#[derive(Debug)]
pub struct Rooms {
    ledger: Mutex<Ledger>,
    published: watch::Sender<Room>,
    jobs_known: watch::Sender<bool>,
}

impl Rooms {
    /// Room of which nothing is known yet.
    pub fn new(pending_limit: usize, live_limit: Option<usize>) -> Arc<Self> {
        let ledger = Ledger::new(pending_limit, live_limit);
        let published = watch::Sender::new(ledger.room());
        let jobs_known = watch::Sender::new(false);
        Arc::new(Self { ledger: Mutex::new(ledger), published, jobs_known })
    }

    /// The room, now and as it changes.
    pub fn subscribe(&self) -> watch::Receiver<Room> {
        self.published.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        // The ledger's methods don't panic half-way; a poisoned lock says only that a caller did.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the ledger.
    pub fn read<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T {
        read(&self.lock())
    }

    /// Reads or changes the ledger, and tells the subscribers if the room became another.
    pub fn with<T>(&self, change: impl FnOnce(&mut Ledger) -> T) -> T {
        let mut ledger = self.lock();
        let result = change(&mut ledger);
        let room = ledger.room();
        let known = ledger.jobs_are_known();
        self.jobs_known.send_if_modified(|was| std::mem::replace(was, known) != known);
        self.published.send_if_modified(|published| {
            let changed = *published != room;
            *published = room;
            changed
        });
        result
    }

    /// Waits until the Jobs are known.
    pub async fn jobs_listed(&self) {
        // The sender is our own: it can't have gone.
        let _ = self.jobs_known.subscribe().wait_for(|known| *known).await;
    }

    /// Waits until the room is known.
    pub async fn known(&self) {
        let mut room = self.subscribe();
        // As above.
        let _ = room.wait_for(|room| matches!(room, Room::Known(_))).await;
    }

    /// Takes room for one Job.
    ///
    /// # Errors
    /// [`Full`] when there is none, or it is not known.
    pub fn reserve(self: &Arc<Self>, name: &str) -> Result<Flight, Full> {
        self.with(|ledger| ledger.reserve(name))?;
        Ok(Flight {
            rooms: Arc::clone(self),
            name: name.to_owned(),
            sending: None,
            doubt: None,
            landed: false,
        })
    }
}

/// Room taken for one Job, from before its first POST until it is known what became of it.
#[derive(Debug)]
pub struct Flight {
    rooms: Arc<Rooms>,
    name: String,
    /// A POST is out: from when on it can no longer take effect.
    sending: Option<Instant>,
    /// An earlier POST's answer was lost, likewise.
    doubt: Option<Instant>,
    landed: bool,
}

impl Flight {
    /// A POST is about to be sent; after `due` it can no longer take effect.
    pub fn sending(&mut self, due: Instant) {
        self.sending = Some(due);
    }

    /// The POST was answered: nothing was made.
    pub fn not_made(&mut self) {
        self.sending = None;
    }

    /// The POST's answer was lost.
    pub fn in_doubt(&mut self) {
        self.doubt = self.doubt.max(self.sending.take());
    }

    /// Whether an answer of this flight was lost, so that a Job found may be its own.
    pub fn is_in_doubt(&self) -> bool {
        self.doubt.is_some()
    }

    /// The Job is there; if the watch has not shown it by `check`, a GET should.
    pub fn landed(mut self, facts: &JobFacts, check: Instant) {
        self.landed = true;
        self.rooms.with(|ledger| ledger.confirmed(facts, check));
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if self.landed {
            return;
        }
        let Self { name, sending, doubt, .. } = self;
        self.rooms.with(|ledger| match (*sending).max(*doubt) {
            Some(due) => ledger.lost(name, due),
            None => ledger.released(name),
        });
    }
}
