//! Deletes finished Jobs, and stores the settled watermark. What may go is
//! [`acks`](super::acks)'s to say.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use tokio::time::{sleep, timeout};

use super::acks::Acks;
use super::api::{ApiError, ClusterApi, ConfigMapFacts};
use super::leader::Leader;
use super::observe::Observe;
use crate::clock::Clock;
use crate::leadership::Leadership as _;

/// How often it looks.
const EVERY: Duration = Duration::from_secs(2);
/// How many deletes one look makes at most before it looks anew, and how many at once.
const BATCH: usize = 64;
const AT_ONCE: usize = 8;
/// How many looks pass between two writes of the watermark.
const WRITE_EVERY: u32 = 3;
/// How long a shutdown waits for the last write.
const LAST_WRITE: Duration = Duration::from_secs(3);
/// The watermark's key in the scheduler's ConfigMap.
const SETTLED: &str = "settled";

/// The acks as the backend's parts share them.
#[derive(Debug, Clone)]
pub struct SharedAcks(Arc<Mutex<Acks>>);

impl SharedAcks {
    /// The acks of one scheduler.
    pub fn new(scheduler: &str) -> Self {
        Self(Arc::new(Mutex::new(Acks::new(scheduler))))
    }

    /// Reads or changes them.
    pub fn lock(&self) -> MutexGuard<'_, Acks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tidies one namespace up.
pub struct Janitor {
    api: Arc<dyn ClusterApi>,
    clock: Arc<dyn Clock>,
    acks: SharedAcks,
    leader: Arc<Leader>,
    observe: Arc<Observe>,
    config_map: String,
    retain: Duration,
}

impl Janitor {
    /// A janitor for the Jobs of `scheduler`, which are kept for `retain` after their end.
    pub fn new(
        api: Arc<dyn ClusterApi>,
        clock: Arc<dyn Clock>,
        acks: SharedAcks,
        leader: Arc<Leader>,
        observe: Arc<Observe>,
        scheduler: &str,
        retain: Duration,
    ) -> Self {
        let config_map = format!("katabatch-{scheduler}");
        Self { api, clock, acks, leader, observe, config_map, retain }
    }

    /// Reads the stored watermark; before the first list.
    ///
    /// # Errors
    /// The API server did not say.
    pub async fn resume(&self) -> Result<(), ApiError> {
        let facts = self.api.get_config_map(&self.config_map).await?.unwrap_or_default();
        self.acks.lock().resume(settled(&facts));
        Ok(())
    }

    /// Deletes and stores until it is dropped.
    pub async fn run(&self) {
        let mut looks: u32 = 0;
        loop {
            sleep(EVERY).await;
            // A watermark of ours says nothing of what another leader has made by now.
            if !self.leader.may_create() {
                continue;
            }
            while self.sweep().await == BATCH {}
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(WRITE_EVERY)
                && let Err(error) = self.store().await
            {
                tracing::warn!(%error, "the settled watermark could not be stored; later again");
            }
        }
    }

    /// Stores the watermark a last time.
    pub async fn close(&self) {
        match timeout(LAST_WRITE, self.store()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the settled watermark was not stored"),
            Err(_) => tracing::warn!("the settled watermark was not stored in time"),
        }
    }

    /// Deletes what is due, up to a batch; how many are gone. The first failure ends it.
    async fn sweep(&self) -> usize {
        let may_go = |uid: &str| self.observe.may_go(uid);
        let due = self.acks.lock().due(self.clock.mono(), self.retain, BATCH, may_go);
        let mut answers = futures::stream::iter(due)
            .map(|(name, uid)| async move {
                let answer = self.api.delete_job(&name, &uid).await;
                (name, uid, answer)
            })
            .buffered(AT_ONCE);
        let mut gone = 0;
        while let Some((name, uid, answer)) = answers.next().await {
            match answer {
                Ok(()) => {}
                // Gone already, or another Job by now.
                Err(error) if error.is_not_found() || error.is_conflict() => {}
                Err(error) => {
                    tracing::warn!(job = name, %error, "a finished Job could not be deleted");
                    return gone;
                }
            }
            self.acks.lock().gone(&name, &uid);
            gone += 1;
        }
        gone
    }

    async fn store(&self) -> Result<(), ApiError> {
        let Some(mark) = self.acks.lock().watermark() else { return Ok(()) };
        let mut facts = self.api.get_config_map(&self.config_map).await?.unwrap_or_default();
        // Never backwards, whoever wrote it.
        let mark = settled(&facts).map_or(mark, |stored| stored.max(mark));
        facts.data.insert(SETTLED.to_owned(), mark.to_string());
        self.api.put_config_map(&self.config_map, &facts).await?;
        self.acks.lock().stored(mark);
        Ok(())
    }
}

fn settled(facts: &ConfigMapFacts) -> Option<Timestamp> {
    let text = facts.data.get(SETTLED)?;
    match text.parse() {
        Ok(at) => Some(at),
        Err(error) => {
            tracing::warn!(%error, "the stored settled watermark is no date; it counts as none");
            None
        }
    }
}
