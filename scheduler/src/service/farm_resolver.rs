//! Resolves workloads by the farm's files and the profiles in force, following reloads.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::Loaded;
use crate::catalog::entity::JobEntities;
use crate::config::watch::Watched;
use crate::domain::name::Command;
use crate::domain::outcome::{Deferral, Scope};
use crate::domain::task::WorkloadKey;
use crate::domain::workload::Workload;
use crate::flags::FlagSet;
use crate::pipeline::Resolver;
use crate::pipeline::resolve::resolve;

/// How long a workload that can't be resolved is held before it is looked up again. A reload wakes
/// it at once.
const AGAIN: Duration = Duration::from_secs(30);
/// The most warnings that are remembered, so that each is said once.
const WARNINGS: usize = 10_000;

/// The resolver of a farm.
pub struct FarmResolver {
    loaded: Arc<Watched<Loaded>>,
    changes: Mutex<watch::Receiver<Arc<Loaded>>>,
    generation: AtomicU64,
    warned: Mutex<BTreeSet<String>>,
}

impl FarmResolver {
    /// A resolver that follows `loaded`.
    pub fn over(loaded: Arc<Watched<Loaded>>) -> Arc<Self> {
        let changes = Mutex::new(loaded.subscribe());
        Arc::new(Self { loaded, changes, generation: AtomicU64::new(0), warned: Mutex::default() })
    }

    fn warn_once(&self, key: &WorkloadKey, warnings: Vec<String>) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        for warning in warnings {
            let line = format!("{key}: {warning}");
            if warned.len() < WARNINGS && warned.insert(line.clone()) {
                tracing::warn!("{line}");
            }
        }
    }
}

impl Resolver for FarmResolver {
    fn resolve(
        &self,
        key: &WorkloadKey,
        entities: &JobEntities,
        flags: &FlagSet,
    ) -> Result<Workload, Deferral> {
        let loaded = self.loaded.get();
        match resolve(key, entities, &loaded.farm, &loaded.config.profiles, flags) {
            Ok(resolved) => {
                self.warn_once(key, resolved.warnings);
                Ok(resolved.workload)
            }
            Err(why) => Err(Deferral::new(Scope::Workload, why.kind, why.detail, AGAIN)),
        }
    }

    fn expected_run(&self, command: &Command) -> Duration {
        self.loaded.get().config.expected_run.of(command)
    }

    fn generation(&self) -> u64 {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        if changes.has_changed().unwrap_or(false) {
            changes.mark_unchanged();
            self.generation.fetch_add(1, Ordering::Relaxed);
        }
        self.generation.load(Ordering::Relaxed)
    }
}
