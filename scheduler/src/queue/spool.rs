//! The spool: a durable queue in one SQLite file on this machine.
//!
//! Several processes may put and lease at once. An answer of `Ok` is on the disk, so it outlives
//! `kill -9` and a power cut. Times are the wall clock's, since leases outlive the process that
//! took them: a clock set forward makes leases lapse early (a second delivery, which the task's
//! identity absorbs), one set back makes them last. It is for one host: SQLite's log needs shared
//! memory, which network file systems lack.
//!
//! Leaves out what a message means, and which file is the spool.

mod fault;
mod file;
mod group;
pub mod inspect;
mod lease;
pub mod lines;
mod put;
mod quarantine;
pub mod record;
mod schema;
mod view;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use rand::{RngCore, SeedableRng, rngs::StdRng};
use rusqlite::{Connection, types::ValueRef};
use tokio::sync::Notify;

use self::fault::queue_error;
use self::group::{Group, Work, Writer, lock};
use self::lease::Held;
use self::record::{Counts, Entry, NewMessage, PutCount, Quarantined, Selection};
use super::{Delivery, LeaseId, Queue, QueueError};
use crate::clock::Clock;
use crate::domain::name::QueueName;
use crate::domain::outcome::Rejection;

/// How often a caller that waits looks for what other processes put: often at first, when a
/// message that is just being put is likeliest.
const POLL_FIRST: Duration = Duration::from_millis(50);
/// The most that the wait between two looks grows to.
const POLL_MOST: Duration = Duration::from_millis(500);

/// A durable queue in one SQLite file.
pub struct Spool {
    name: QueueName,
    clock: Arc<dyn Clock>,
    /// Looking must not wait for writing, nor writing for looking. Before the writer here, so that
    /// the writer is closed last: only a writer empties the log into the file.
    reader: Arc<Mutex<Connection>>,
    group: Arc<Group>,
    arrived: Notify,
}

impl Spool {
    /// Opens the spool at `path`, making it (mode 0600) if there is none. Blocks for a moment.
    ///
    /// # Errors
    /// [`QueueError::Unusable`]: the file is no spool, damaged, of a newer version, or not ours to
    /// use. [`QueueError::Unavailable`]: another process holds it; try again.
    pub fn open(path: &Path, name: QueueName, clock: Arc<dyn Clock>) -> Result<Self, QueueError> {
        Self::open_with(path, name, clock, Box::new(StdRng::from_os_rng()))
    }

    /// As [`open`](Self::open), with lease tokens and message ids from `random`: what replays a
    /// run from its seed. Two open spools on one file need sources of their own.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(
        path: &Path,
        name: QueueName,
        clock: Arc<dyn Clock>,
        random: Box<dyn RngCore + Send>,
    ) -> Result<Self, QueueError> {
        let connection = file::open(path)?;
        let reader = Arc::new(Mutex::new(file::open_reader(path)?));
        let place = file::Place::of(path)?;
        let writer = Writer { connection, place, clock: Arc::clone(&clock), random };
        let group = Group::new(writer);
        Ok(Self { name, clock, group, reader, arrived: Notify::new() })
    }

    /// Puts messages, all or none. `Ok` only when they are durable.
    ///
    /// # Errors
    /// [`QueueError`]: none was put.
    pub async fn put(&self, messages: Vec<NewMessage>) -> Result<PutCount, QueueError> {
        let put = self.group.commit(move |work| put::put(work, &messages)).await?;
        self.arrived.notify_waiters();
        Ok(put)
    }

    /// Puts any number of messages in flat memory, a chunk at a time; `progress` hears of each
    /// chunk once it is durable, with the sum so far.
    ///
    /// # Errors
    /// [`QueueError`]: what `progress` heard of stays put, the rest was not.
    pub async fn put_many(
        &self,
        messages: impl IntoIterator<Item = NewMessage>,
        mut progress: impl FnMut(PutCount),
    ) -> Result<PutCount, QueueError> {
        let mut sum = PutCount::default();
        let mut messages = messages.into_iter();
        loop {
            let chunk: Vec<_> = messages.by_ref().take(lines::CHUNK).collect();
            if chunk.is_empty() {
                return Ok(sum);
            }
            sum += self.put(chunk).await?;
            progress(sum);
        }
    }

    /// How many messages there are.
    ///
    /// # Errors
    /// [`QueueError`], as for every method.
    pub async fn counts(&self) -> Result<Counts, QueueError> {
        let now = self.clock.wall().as_microsecond();
        self.read(move |connection| view::counts(connection, now)).await
    }

    /// The first `limit` messages in the order in which they will be leased.
    ///
    /// # Errors
    /// [`QueueError`], as for every method.
    pub async fn list(&self, limit: usize) -> Result<Vec<Entry>, QueueError> {
        let now = self.clock.wall().as_microsecond();
        self.read(move |connection| view::list(connection, now, limit)).await
    }

    /// The first `limit` selected records of the quarantine, the latest first.
    ///
    /// # Errors
    /// [`QueueError`], as for every method.
    pub async fn quarantined(
        &self,
        selection: Selection,
        limit: usize,
    ) -> Result<Vec<Quarantined>, QueueError> {
        self.read(move |connection| quarantine::list(connection, &selection, limit)).await
    }

    /// Puts the selected messages of the quarantine back, as if never delivered; says how many.
    ///
    /// # Errors
    /// [`QueueError`]: none was put back.
    pub async fn retry(&self, selection: Selection) -> Result<u64, QueueError> {
        let back = self.group.commit(move |work| quarantine::retry(work, &selection)).await?;
        self.arrived.notify_waiters();
        Ok(back)
    }

    /// The wall clock that this spool goes by.
    pub fn now(&self) -> Timestamp {
        self.clock.wall()
    }

    async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, QueueError> {
        let reader = Arc::clone(&self.reader);
        tokio::task::spawn_blocking(move || look(&lock(&reader)).map_err(|e| queue_error(&e)))
            .await
            .unwrap_or_else(|_| Err(QueueError::Unavailable("the program is stopping".into())))
    }

    async fn lease_now(&self, n: usize, lease_for: Duration) -> Result<Vec<Delivery>, QueueError> {
        let unlease = |unheard: Vec<Delivery>| {
            let held: Vec<Held> = unheard.iter().filter_map(|d| Held::parse(&d.lease)).collect();
            (!held.is_empty()).then_some(move |work: &mut Work<'_>| {
                held.iter().try_for_each(|held| lease::unlease(work, held))
            })
        };
        self.group.commit_or_undo(move |work| lease::lease(work, n, lease_for), unlease).await
    }

    /// Does the same to each lease, all in one transaction.
    async fn each(
        &self,
        leases: &[LeaseId],
        act: impl Fn(&mut Work<'_>, &Held) -> rusqlite::Result<bool> + Send + 'static,
    ) -> Vec<Result<(), QueueError>> {
        if leases.is_empty() {
            return Vec::new();
        }
        let held: Vec<Option<Held>> = leases.iter().map(Held::parse).collect();
        let done = self.group.commit(move |work| {
            held.iter()
                .map(|held| held.as_ref().map_or(Ok(false), |held| act(work, held)))
                .collect::<rusqlite::Result<Vec<bool>>>()
        });
        match done.await {
            Ok(ours) => {
                { ours.into_iter().map(|ours| ours.then_some(()).ok_or(QueueError::LeaseLost)) }
                    .collect()
            }
            Err(error) => vec![Err(error); leases.len()],
        }
    }
}

#[async_trait]
impl Queue for Spool {
    fn name(&self) -> &QueueName {
        &self.name
    }

    async fn lease(
        &self,
        n: usize,
        lease_for: Duration,
        wait: Duration,
    ) -> Result<Vec<Delivery>, QueueError> {
        let end = self.clock.mono() + wait;
        let mut poll = POLL_FIRST;
        loop {
            let arrived = self.arrived.notified();
            tokio::pin!(arrived);
            // Heard from here on: a put between the look and the wait is not missed.
            arrived.as_mut().enable();
            let leased = self.lease_now(n, lease_for).await?;
            let left = end.saturating_duration_since(self.clock.mono());
            if !leased.is_empty() || n == 0 || left.is_zero() {
                return Ok(leased);
            }
            tokio::select! {
                biased;
                () = arrived => {}
                () = tokio::time::sleep(poll.min(left)) => poll = (poll * 2).min(POLL_MOST),
            }
        }
    }

    async fn extend(&self, leases: &[LeaseId], lease_for: Duration) -> Vec<Result<(), QueueError>> {
        self.each(leases, move |work, held| lease::extend(work, held, lease_for)).await
    }

    async fn ack(&self, leases: &[LeaseId]) -> Vec<Result<(), QueueError>> {
        self.each(leases, lease::ack).await
    }

    async fn release(&self, leases: &[LeaseId], after: Duration) -> Vec<Result<(), QueueError>> {
        let released = self.each(leases, move |work, held| lease::release(work, held, after)).await;
        self.arrived.notify_waiters();
        released
    }

    async fn fail(&self, lease: &LeaseId, why: &str) -> Result<(), QueueError> {
        let held = Held::parse(lease).ok_or(QueueError::LeaseLost)?;
        let why = why.to_owned();
        let ours = self.group.commit(move |work| lease::fail(work, &held, &why)).await?;
        self.arrived.notify_waiters();
        ours.then_some(()).ok_or(QueueError::LeaseLost)
    }

    async fn quarantine(&self, lease: &LeaseId, rejection: &Rejection) -> Result<(), QueueError> {
        let held = Held::parse(lease).ok_or(QueueError::LeaseLost)?;
        let rejection = rejection.clone();
        let ours = self.group.commit(move |work| quarantine::quarantine(work, &held, &rejection));
        if ours.await? { Ok(()) } else { Err(QueueError::LeaseLost) }
    }
}

/// A row's attributes; `None` if they are not what we write. The error would show them.
fn attributes(value: ValueRef<'_>) -> Option<BTreeMap<String, String>> {
    serde_json::from_str(value.as_str().ok()?).ok()
}
