//! How what was created fares, put together for the pipeline: the ends as they are heard, what the
//! backends see now; and which breakers are open, for whoever asks. A retry asks, too: while its
//! workload's breaker is open it goes as the probe, or waits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::sync::Notify;

use super::Loaded;
use crate::backend::EndObserver;
use crate::backend::kubernetes::successive::Successive;
use crate::config::watch::Watched;
use crate::domain::breaker::Open;
use crate::domain::end::{End, EndKind};
use crate::domain::name::{Attempt, TaskHash};
use crate::domain::task::WorkloadKey;
use crate::domain::workload_now::Faring;
use crate::pipeline::work::{Fared, Present, Work};

/// The most ends that wait to be asked for: the last ones tell more than the first.
const MOST: usize = 10_000;

/// Of all backends.
pub struct Watching {
    loaded: Arc<Watched<Loaded>>,
    /// In the order of the configuration; `None` where nothing is seen of what runs.
    backends: Vec<Option<Arc<Successive>>>,
    ends: Mutex<VecDeque<Fared>>,
    failed: Notify,
    open: Mutex<Arc<BTreeMap<WorkloadKey, Open>>>,
    probes: Mutex<BTreeMap<WorkloadKey, TaskHash>>,
}

impl Watching {
    /// Over these backends.
    pub(super) fn new(
        loaded: &Arc<Watched<Loaded>>,
        backends: Vec<Option<Arc<Successive>>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            loaded: Arc::clone(loaded),
            backends,
            ends: Mutex::default(),
            failed: Notify::new(),
            open: Mutex::default(),
            probes: Mutex::default(),
        })
    }

    /// The breakers that are open.
    pub fn open(&self) -> Arc<BTreeMap<WorkloadKey, Open>> {
        Arc::clone(&lock(&self.open))
    }

    /// Why no task of a workload may be run again now.
    pub fn refuses(&self, key: &WorkloadKey, now: Timestamp) -> Option<String> {
        let open = self.open();
        let open = open.get(key)?;
        let due = open.next_probe.is_some_and(|at| at <= now);
        let taken = || lock(&self.probes).contains_key(key);
        (!due || taken()).then(|| open.to_string())
    }

    /// The same; a task that may go where the breaker is open is its probe from now on.
    pub fn goes(&self, key: &WorkloadKey, task: TaskHash, now: Timestamp) -> Result<(), String> {
        if let Some(why) = self.refuses(key, now) {
            return Err(why);
        }
        if self.open().contains_key(key) {
            lock(&self.probes).insert(key.clone(), task);
        }
        Ok(())
    }
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    // Both are whole after every statement, so a panic elsewhere leaves them usable.
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl EndObserver for Watching {
    fn knows(&self, _: &TaskHash, _: Attempt) -> bool {
        // What an earlier process was told is history here.
        true
    }

    fn ended(&self, end: End) {
        let rule = self.loaded.get().config.retries.rule(&end);
        let mut ends = lock(&self.ends);
        if ends.len() >= MOST {
            ends.pop_front();
        }
        ends.push_back(Fared::of(&end, rule));
        if end.verdict.kind != EndKind::Succeeded {
            self.failed.notify_one();
        }
    }
}

#[async_trait]
impl Work for Watching {
    fn ends(&self) -> Vec<Fared> {
        lock(&self.ends).drain(..).collect()
    }

    async fn failed(&self) {
        self.failed.notified().await;
    }

    fn now(&self) -> Present {
        let now = |backend: &Option<Arc<Successive>>| backend.as_ref().map(|b| b.now());
        self.backends.iter().map(now).collect()
    }

    fn fare(&self, tasks: &BTreeSet<TaskHash>) -> BTreeMap<TaskHash, Faring> {
        self.backends.iter().flatten().flat_map(|backend| backend.fare(tasks)).collect()
    }

    fn probes(&self) -> BTreeMap<WorkloadKey, TaskHash> {
        std::mem::take(&mut *lock(&self.probes))
    }

    fn tell(&self, open: BTreeMap<WorkloadKey, Open>) {
        *lock(&self.open) = Arc::new(open);
    }
}
