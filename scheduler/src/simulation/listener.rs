//! Who hears of ends in the simulated world, and what must hold of them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use super::chaos::Chaos;
use super::fates::Fates;
use crate::backend::EndObserver;
use crate::domain::end::End;
use crate::domain::name::{Attempt, JobName, TaskHash};

/// The first breach of the contract.
type Broken = Arc<Mutex<Option<String>>>;

/// The Jobs whose end was told, by whatever process.
#[derive(Default)]
pub struct Told(Arc<Mutex<BTreeSet<String>>>);

impl Told {
    pub fn has(&self, job: &str) -> bool {
        self.0.lock().unwrap().contains(job)
    }

    /// The listener of a process, over all its backends and their terms.
    pub fn listener(
        &self,
        chaos: &Arc<Chaos>,
        broken: &Broken,
        fates: &Fates,
    ) -> Arc<dyn EndObserver> {
        Arc::new(Listener {
            chaos: Arc::clone(chaos),
            told: Arc::clone(&self.0),
            mine: Mutex::default(),
            broken: Arc::clone(broken),
            fates: fates.clone(),
        })
    }
}

/// One process's listener: each end once, and none that isn't the pod's own.
struct Listener {
    chaos: Arc<Chaos>,
    told: Arc<Mutex<BTreeSet<String>>>,
    mine: Mutex<BTreeSet<String>>,
    broken: Broken,
    fates: Fates,
}

impl EndObserver for Listener {
    fn knows(&self, task: &TaskHash, attempt: Attempt) -> bool {
        self.told.lock().unwrap().contains(JobName::of(task, attempt).as_str())
    }

    fn ended(&self, end: End) {
        let kind = end.verdict.kind;
        self.chaos.note(&format!("{} ended: {kind}", end.job));
        let again = !self.mine.lock().unwrap().insert(end.job.clone());
        if again || self.fates.kind(&end.job) != Some(kind) {
            let breach = format!("{} is told to have ended as {kind}, again: {again}", end.job);
            self.broken.lock().unwrap().get_or_insert(breach);
        }
        self.told.lock().unwrap().insert(end.job);
    }
}
