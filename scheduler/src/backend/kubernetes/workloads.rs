//! The checked Job of each workload, kept so that a template is rendered once a workload and not
//! once a task. A workload that changed (a new image, another profile) is checked anew.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::domain::outcome::HoldKind;
use crate::domain::task::WorkloadKey;
use crate::domain::workload::Workload;
use crate::render::{CheckedJob, Policy, Target, Templates};

/// The most that are kept: a checked Job is some kilobytes, and a farm has thousands of job types
/// of which few are busy at once.
const MOST: usize = 512;

/// A checked Job, or why there is none.
pub type Checked = Result<CheckedJob, (HoldKind, String)>;

struct Kept {
    workload: Arc<Workload>,
    checked: Checked,
    used: u64,
}

#[derive(Default)]
struct Cache {
    kept: BTreeMap<WorkloadKey, Kept>,
    uses: u64,
}

/// The checked Jobs of one backend.
pub struct Workloads {
    templates: Arc<Templates>,
    target: Target,
    policy: Policy,
    cache: Mutex<Cache>,
}

impl Workloads {
    /// Nothing checked yet.
    pub fn new(templates: Arc<Templates>, target: Target, policy: Policy) -> Self {
        Self { templates, target, policy, cache: Mutex::default() }
    }

    /// The workload's checked Job, made if need be.
    pub fn checked(&self, workload: &Arc<Workload>) -> Checked {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.uses += 1;
        let used = cache.uses;
        if let Some(kept) = cache.kept.get_mut(&workload.key)
            && (Arc::ptr_eq(&kept.workload, workload) || kept.workload == *workload)
        {
            kept.used = used;
            kept.workload = Arc::clone(workload);
            return kept.checked.clone();
        }
        let checked = self
            .templates
            .check(workload, &self.target, &self.policy)
            .map_err(|error| (error.kind(), error.to_string()));
        if let Ok(job) = &checked {
            for warning in job.warnings() {
                tracing::warn!(workload = %workload.key, "{warning}");
            }
        }
        let kept = Kept { workload: Arc::clone(workload), checked: checked.clone(), used };
        cache.kept.insert(workload.key.clone(), kept);
        if cache.kept.len() > MOST {
            let oldest = cache.kept.iter().min_by_key(|(_, kept)| kept.used);
            if let Some(key) = oldest.map(|(key, _)| key.clone()) {
                cache.kept.remove(&key);
            }
        }
        checked
    }
}
