//! Lists, then watches, for ever: what keeps the account of room true.
//!
//! A list is read from the quorum in pages of one moment; a page that is too old (410) means that
//! the list begins anew. The watch goes on from the list, over its ordinary ends, until it is too
//! old itself. As long as a list has not ended, or nothing was heard for [`SILENCE`], what is
//! there counts as unknown. What the events mean is the [`Sink`]'s.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tokio::time::{Instant, sleep, timeout_at};

use super::api::{ApiError, ClusterApi, JobFacts, Page, PodFacts, Watch, WatchEvent};
use super::facts::WorkPod;
use super::ledger::Moment;

/// A watch that says nothing for so long, bookmarks included (they come about once a minute), may
/// be a dead connection.
pub const SILENCE: Duration = Duration::from_secs(90);
/// The first wait after a failure; each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The longest wait after failures.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How often a list may begin anew at once after a 410, before that counts as a failure.
const RESTARTS: u32 = 3;

/// A kind of object that is listed and watched.
#[async_trait]
pub trait Watched: Send + Sync + Clone + 'static {
    /// The kind, for messages: `Jobs`.
    const KIND: &'static str;

    /// A page of the list.
    async fn list(api: &dyn ClusterApi, next: Option<&str>) -> Result<Page<Self>, ApiError>;
    /// The watch.
    async fn watch(api: &dyn ClusterApi, from: &str) -> Result<Watch<Self>, ApiError>;
    /// The object's resourceVersion.
    fn resource_version(&self) -> &str;
}

#[async_trait]
impl Watched for JobFacts {
    const KIND: &'static str = "Jobs";

    async fn list(api: &dyn ClusterApi, next: Option<&str>) -> Result<Page<Self>, ApiError> {
        api.list_jobs(next).await
    }
    async fn watch(api: &dyn ClusterApi, from: &str) -> Result<Watch<Self>, ApiError> {
        api.watch_jobs(from).await
    }
    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

#[async_trait]
impl Watched for PodFacts {
    const KIND: &'static str = "pending pods";

    async fn list(api: &dyn ClusterApi, next: Option<&str>) -> Result<Page<Self>, ApiError> {
        api.list_pending_pods(next).await
    }
    async fn watch(api: &dyn ClusterApi, from: &str) -> Result<Watch<Self>, ApiError> {
        api.watch_pending_pods(from).await
    }
    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

#[async_trait]
impl Watched for WorkPod {
    const KIND: &'static str = "pods of our Jobs";

    async fn list(api: &dyn ClusterApi, next: Option<&str>) -> Result<Page<Self>, ApiError> {
        api.list_work_pods(next).await
    }
    async fn watch(api: &dyn ClusterApi, from: &str) -> Result<Watch<Self>, ApiError> {
        api.watch_work_pods(from).await
    }
    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

/// Who is told.
pub trait Sink<T>: Send + Sync {
    /// A list begins.
    fn list_begins(&self) -> Moment;
    /// A consistent list, begun at that moment, has ended.
    fn listed(&self, began: Moment, items: &[T]);
    /// The watch says something.
    fn event(&self, event: &WatchEvent<T>);
    /// What was told is no longer enough, and why.
    fn unknown(&self, why: String);
}

/// Why the watching of a list's sequel ended.
enum Break {
    /// Events are missing: a list is needed.
    Gap(String),
}

/// Lists and watches until it is dropped.
pub async fn follow<T: Watched>(api: Arc<dyn ClusterApi>, sink: &dyn Sink<T>, seed: u64) {
    let mut waits = Waits::new(seed);
    loop {
        let began = sink.list_begins();
        match list::<T>(api.as_ref()).await {
            Ok((items, from)) => {
                sink.listed(began, &items);
                drop(items);
                waits.reset();
                let Break::Gap(why) = watch_from(api.as_ref(), sink, from, &mut waits).await;
                sink.unknown(why);
            }
            Err(error) => {
                sink.unknown(format!("listing the {} failed: {error}", T::KIND));
                tracing::warn!(kind = T::KIND, %error, "list failed; nothing is created meanwhile");
                waits.wait(error.retry_after).await;
            }
        }
    }
}

/// Reads a whole list; a page that is too old begins it anew.
async fn list<T: Watched>(api: &dyn ClusterApi) -> Result<(Vec<T>, String), ApiError> {
    let mut restarts = 0;
    'anew: loop {
        let mut items = Vec::new();
        let mut next: Option<String> = None;
        loop {
            match T::list(api, next.as_deref()).await {
                Ok(page) => {
                    items.extend(page.items);
                    match page.next {
                        Some(token) => next = Some(token),
                        None => return Ok((items, page.resource_version)),
                    }
                }
                Err(error) if error.is_expired() && restarts < RESTARTS => {
                    restarts += 1;
                    continue 'anew;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Watches from `from` on, over ordinary ends, until events are missing.
async fn watch_from<T: Watched>(
    api: &dyn ClusterApi,
    sink: &dyn Sink<T>,
    mut from: String,
    waits: &mut Waits,
) -> Break {
    let mut heard = Instant::now();
    loop {
        let opened = match timeout_at(heard + SILENCE, T::watch(api, &from)).await {
            Ok(Ok(watch)) => watch,
            Ok(Err(error)) if error.is_expired() => return gap::<T>("its watch is too old"),
            Ok(Err(error)) => {
                tracing::warn!(kind = T::KIND, %error, "watch failed");
                if timeout_at(heard + SILENCE, waits.wait(error.retry_after)).await.is_err() {
                    return gap::<T>("its watch can't be opened");
                }
                continue;
            }
            Err(_) => return gap::<T>("its watch was silent for 90 s"),
        };
        let began = Instant::now();
        let mut watch = opened;
        loop {
            match timeout_at(heard + SILENCE, watch.next()).await {
                Err(_) => return gap::<T>("its watch was silent for 90 s"),
                Ok(None) => break,
                Ok(Some(Err(error))) if error.is_expired() => {
                    return gap::<T>("its watch is too old");
                }
                Ok(Some(Err(error))) => {
                    tracing::info!(kind = T::KIND, %error, "watch broke");
                    break;
                }
                Ok(Some(Ok(event))) => {
                    heard = Instant::now();
                    waits.reset();
                    match &event {
                        WatchEvent::Applied(object) | WatchEvent::Deleted(object) => {
                            object.resource_version().clone_into(&mut from);
                        }
                        WatchEvent::Bookmark(version) => version.clone_into(&mut from),
                    }
                    sink.event(&event);
                }
            }
        }
        // A server that ends every watch at once must not be asked in a tight circle.
        if began.elapsed() < Duration::from_secs(1)
            && timeout_at(heard + SILENCE, waits.wait(None)).await.is_err()
        {
            return gap::<T>("its watch does not stay open");
        }
    }
}

fn gap<T: Watched>(why: &str) -> Break {
    tracing::info!(kind = T::KIND, why, "listing anew");
    Break::Gap(format!("the {} are being listed anew: {why}", T::KIND))
}

/// Waits between failures, longer each time, never twice the same.
struct Waits {
    rng: ChaCha8Rng,
    failures: u32,
}

impl Waits {
    fn new(seed: u64) -> Self {
        Self { rng: ChaCha8Rng::seed_from_u64(seed), failures: 0 }
    }

    fn reset(&mut self) {
        self.failures = 0;
    }

    async fn wait(&mut self, wish: Option<Duration>) {
        let own = (FIRST_WAIT * 2_u32.saturating_pow(self.failures.min(8))).min(LONGEST_WAIT);
        self.failures += 1;
        let own = own.mul_f64(self.rng.random_range(0.75..1.25));
        sleep(own.max(wish.unwrap_or_default())).await;
    }
}
