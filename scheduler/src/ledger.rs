//! What was decided about tasks and how their Jobs ended, by workload: explanations, and nothing
//! that correctness needs.
//!
//! [`memory`] is bounded and takes each piece of news in microseconds; [`store`] keeps it in a SQLite
//! file, written in batches off the way of the work. The file may vanish, break or fill its disk at
//! any time: that is said in the log, and costs explanations only. What the answers to people say
//! is [`why`](crate::why)'s.

mod memory;
pub mod record;
pub mod store;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::memory::Memory;
use self::record::{EndRecord, Lost, Record};
use self::store::Store;
use crate::backend::EndObserver;
use crate::clock::Clock;
use crate::domain::end::{End, EndKind};
use crate::domain::name::{Attempt, JobType, TaskHash};
use crate::domain::task::WorkloadKey;
use crate::domain::workload_now::WorkloadNow;
use crate::pipeline::tally::{Decision, Observer};

/// How often news are written.
const WRITE_EVERY: Duration = Duration::from_secs(1);
/// After how many writes it is looked how many Jobs are there of each workload.
const LOOK_EVERY: u32 = 10;
/// How often a file that can't be used is said to be so.
const SAY_EVERY: u32 = 60;

/// What is there now of every workload.
pub type Now = Arc<dyn Fn() -> BTreeMap<WorkloadKey, WorkloadNow> + Send + Sync>;

/// The ledger of one process.
pub struct Ledger {
    clock: Arc<dyn Clock>,
    memory: Mutex<Memory>,
}

impl Ledger {
    /// An empty one.
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { clock, memory: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of the workloads of a job type, their last ends among it, oldest first.
    pub fn of(&self, job_type: &JobType) -> BTreeMap<WorkloadKey, (Record, Vec<EndRecord>)> {
        self.lock().of(job_type)
    }

    /// Ends and work lost, by cause, since the file was begun.
    pub fn lost(&self) -> BTreeMap<EndKind, Lost> {
        self.lock().lost()
    }

    /// Reads what an earlier process wrote, before anything else happens. A file that can't be
    /// read is said to be so, and begun anew by nobody. Blocks for a moment.
    pub fn remember(&self, path: &std::path::Path) {
        match Store::open(path).and_then(|store| store.read_all()) {
            Ok((records, known)) => self.lock().remember(records, known),
            Err(error) => tracing::warn!(
                path = %path.display(), %error, "what happened before can't be read; it goes on without"
            ),
        }
    }

    /// Writes news to the file until `stop`, and then a last time.
    pub async fn keep(self: Arc<Self>, path: PathBuf, now: Now, stop: CancellationToken) {
        let mut store: Option<Store> = None;
        let (mut round, mut silent) = (0_u32, 0_u32);
        self.lock().save();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = sleep(WRITE_EVERY) => {}
            }
            let last = stop.is_cancelled();
            if last || round.is_multiple_of(LOOK_EVERY) {
                let there = now();
                self.lock().set_now(there);
            }
            round = round.wrapping_add(1);
            silent = silent.saturating_sub(1);
            let news = self.lock().news();
            if !news.is_empty() {
                let at = self.clock.wall();
                let (given, path) = (store.take(), path.clone());
                let write = move || {
                    let mut store = match given {
                        Some(store) if store.is_there() => store,
                        _ => Store::open(&path)?,
                    };
                    store.write(&news, at)?;
                    Ok::<_, store::StoreError>(store)
                };
                match tokio::task::spawn_blocking(write).await {
                    Ok(Ok(written)) => store = Some(written),
                    Ok(Err(error)) if silent == 0 => {
                        silent = SAY_EVERY;
                        tracing::warn!(%error, "the ledger could not be written; work goes on");
                    }
                    Ok(Err(_)) => {}
                    Err(error) => tracing::error!(%error, "writing the ledger failed"),
                }
            }
            if last {
                return;
            }
        }
    }
}

impl Observer for Ledger {
    fn decided(&self, decision: &Decision) {
        let at = self.clock.wall();
        self.lock().decided(decision, at);
    }
}

impl EndObserver for Ledger {
    fn knows(&self, task: &TaskHash, attempt: Attempt) -> bool {
        self.lock().knows(task, attempt)
    }

    fn ended(&self, end: End) {
        self.lock().ended(end);
    }
}

#[cfg(test)]
mod tests;
