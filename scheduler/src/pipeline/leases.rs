//! The lease keeper: keeps the leases of all messages that are being worked on or held.
//!
//! One keeper a queue, on its own task, so that nothing else can starve it. A lease is renewed by
//! half its time; a failed renewal is tried again, spaced out, while the lease lives. A lease known
//! to be lost or lapsed is never used for a create: [`Leases::alive`] says so.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::queue::{LeaseId, Queue, QueueError};

/// The most leases that one renewal call carries (Pub/Sub takes about 1,000 ids a call).
const CHUNK: usize = 1_000;
/// The first wait after a failed renewal; doubled up to [`RETRY_MAX`].
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(15);

#[derive(Debug, Clone, Copy)]
struct Held {
    expires: Instant,
    renew_at: Instant,
    retry: Duration,
}

/// The leases of one queue.
pub struct Leases {
    queue: Arc<dyn Queue>,
    lease_for: Duration,
    held: Mutex<BTreeMap<LeaseId, Held>>,
    changed: Notify,
    extended: AtomicU64,
    failed: AtomicU64,
    lapsed: AtomicU64,
}

/// What was counted of leases so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeaseCounts {
    /// Kept now.
    pub kept: usize,
    /// Renewals that came about.
    pub extended: u64,
    /// Renewals that did not.
    pub failed: u64,
    /// Leases that lapsed or were lost before they could be renewed.
    pub lapsed: u64,
}

impl Leases {
    /// A keeper for `queue` that renews to `lease_for` each time.
    pub fn new(queue: Arc<dyn Queue>, lease_for: Duration) -> Arc<Self> {
        Arc::new(Self {
            queue,
            lease_for,
            held: Mutex::default(),
            changed: Notify::new(),
            extended: AtomicU64::default(),
            failed: AtomicU64::default(),
            lapsed: AtomicU64::default(),
        })
    }

    /// What was counted so far.
    pub fn counts(&self) -> LeaseCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LeaseCounts {
            kept: self.lock().len(),
            extended: read(&self.extended),
            failed: read(&self.failed),
            lapsed: read(&self.lapsed),
        }
    }

    /// The lease time asked for.
    pub fn lease_for(&self) -> Duration {
        self.lease_for
    }

    /// Keeps these leases, asked for at `asked_at` (the time before the call that got them, since
    /// the lease runs from somewhere in it).
    pub fn keep(&self, leases: impl IntoIterator<Item = LeaseId>, asked_at: Instant) {
        let held = Held {
            expires: asked_at + self.lease_for,
            renew_at: asked_at + self.lease_for / 2,
            retry: RETRY,
        };
        self.lock().extend(leases.into_iter().map(|lease| (lease, held)));
        self.changed.notify_one();
    }

    /// Stops keeping this lease.
    pub fn drop_lease(&self, lease: &LeaseId) {
        self.lock().remove(lease);
    }

    /// Whether the lease is kept and has not lapsed, as far as this side knows.
    pub fn alive(&self, lease: &LeaseId, now: Instant) -> bool {
        self.lock().get(lease).is_some_and(|held| held.expires > now)
    }

    /// Renews for ever; to be spawned.
    pub async fn run(self: Arc<Self>) {
        loop {
            let next = self.lock().values().map(|held| held.renew_at).min();
            let wait = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = wait => self.renew().await,
                () = self.changed.notified() => {}
            }
        }
    }

    async fn renew(&self) {
        let asked_at = Instant::now();
        let (due, lapsed): (Vec<LeaseId>, Vec<LeaseId>) = {
            let held = self.lock();
            // What is due soon goes along, so that leases taken together stay together.
            let soon = asked_at + self.lease_for / 20;
            let due =
                held.iter().filter(|(_, h)| h.renew_at <= soon).map(|(lease, _)| lease.clone());
            due.partition(|lease| held.get(lease).is_some_and(|h| h.expires > asked_at))
        };
        if !lapsed.is_empty() {
            tracing::warn!(queue = %self.queue.name(), lapsed = lapsed.len(), "leases lapsed before they could be renewed");
            self.lapsed.fetch_add(lapsed.len() as u64, Ordering::Relaxed);
            let mut held = self.lock();
            for lease in &lapsed {
                held.remove(lease);
            }
        }
        for chunk in due.chunks(CHUNK) {
            let results = self.queue.extend(chunk, self.lease_for).await;
            self.note(chunk, &results, asked_at);
        }
    }

    fn note(&self, chunk: &[LeaseId], results: &[Result<(), QueueError>], asked_at: Instant) {
        let mut held = self.lock();
        let (mut failed, mut lost) = (0_usize, 0_u64);
        for (at, lease) in chunk.iter().enumerate() {
            match results.get(at) {
                Some(Ok(())) => {
                    if let Some(entry) = held.get_mut(lease) {
                        entry.expires = asked_at + self.lease_for;
                        entry.renew_at = asked_at + self.lease_for / 2;
                        entry.retry = RETRY;
                    }
                }
                Some(Err(QueueError::LeaseLost)) => {
                    held.remove(lease);
                    failed += 1;
                    lost += 1;
                }
                Some(Err(_)) | None => {
                    failed += 1;
                    if let Some(entry) = held.get_mut(lease) {
                        entry.renew_at = Instant::now() + entry.retry;
                        entry.retry = (entry.retry * 2).min(RETRY_MAX);
                    }
                }
            }
        }
        self.extended.fetch_add((chunk.len() - failed) as u64, Ordering::Relaxed);
        self.failed.fetch_add(failed as u64, Ordering::Relaxed);
        self.lapsed.fetch_add(lost, Ordering::Relaxed);
        if failed > 0 {
            tracing::warn!(queue = %self.queue.name(), failed, of = chunk.len(), "lease renewals failed");
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<LeaseId, Held>> {
        // The map is whole after every statement, so a panic elsewhere leaves it usable.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
