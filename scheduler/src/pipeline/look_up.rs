//! Look-up: asks the catalog for the workloads that tasks wait for, and resolves them.
//!
//! One call at a time carries all that are wanted. What a workload is follows from the entities by
//! the resolver alone; what was answered is remembered by [`workloads`](super::workloads).

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::time::Instant;

use super::{Event, LookUp, Pipeline, said};
use crate::catalog::entity::JobEntities;
use crate::catalog::{CatalogError, Freshness};
use crate::domain::outcome::{Deferral, HoldKind, Scope};
use crate::domain::task::WorkloadKey;

/// The wait before a workload whose resolving panicked is asked for again.
const LOOK_UP_AGAIN: Duration = Duration::from_secs(60);
/// The wait after the catalog could not be read.
const CATALOG_AGAIN: Duration = Duration::from_secs(5);

impl Pipeline {
    /// Starts one look-up for all workloads that want one.
    pub(super) fn look_up(&mut self) {
        if self.looking_up || self.stopping {
            return;
        }
        let Some((keys, fresh)) = self.workloads.take_wanted() else { return };
        self.looking_up = true;
        let catalog = Arc::clone(&self.deps.catalog);
        let mut job_types: Vec<_> = keys.iter().map(|key| key.job_type.clone()).collect();
        job_types.dedup();
        let freshness = if fresh { Freshness::Fresh } else { Freshness::Cached };
        let call = async move {
            let look_up = AssertUnwindSafe(catalog.look_up(&job_types, freshness));
            let result = look_up.catch_unwind().await;
            let result: LookUp = result.unwrap_or_else(|panic| Err(CatalogError(said(panic))));
            Event::LookedUp { keys, fresh, result }
        };
        self.calls.push(call.boxed());
    }

    pub(super) fn looked_up(
        &mut self,
        keys: &[WorkloadKey],
        fresh: bool,
        result: &LookUp,
        now: Instant,
    ) {
        self.looking_up = false;
        for key in keys {
            match result {
                Ok(found) => {
                    let none = JobEntities::default();
                    let entities = found.get(&key.job_type).unwrap_or(&none);
                    self.resolve(key, entities, fresh, now);
                }
                Err(error) => {
                    let why = Deferral::new(
                        Scope::Workload,
                        HoldKind::CatalogUnread,
                        error,
                        CATALOG_AGAIN,
                    );
                    self.workloads.held(key.clone(), why, fresh, now);
                }
            }
            self.book.wake_workload(key);
        }
    }

    fn resolve(&mut self, key: &WorkloadKey, entities: &JobEntities, fresh: bool, now: Instant) {
        let flags = self.flags.as_ref().map(|(_, flags)| flags.clone()).unwrap_or_default();
        let resolver = Arc::clone(&self.deps.resolver);
        let resolved =
            std::panic::catch_unwind(AssertUnwindSafe(|| resolver.resolve(key, entities, &flags)));
        match resolved {
            Ok(Ok(workload)) => self.workloads.usable(key.clone(), Arc::new(workload), now),
            Ok(Err(why)) => self.workloads.held(key.clone(), why, fresh, now),
            Err(panic) => {
                // A workload's fault is our side's: it holds, however often it panics.
                let detail = format!("resolving it panicked: {}", said(panic));
                let why =
                    Deferral::new(Scope::Workload, HoldKind::BadJobType, detail, LOOK_UP_AGAIN);
                self.workloads.held(key.clone(), why, fresh, now);
            }
        }
    }
}
