//! What is known of each workload: looked up, usable, or why not.
//!
//! Looking up is the catalog's, resolving is [`resolve`](super::resolve)'s; this remembers their
//! answers for a while, and knows since when fresh reads have said that a job type does not exist.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::domain::name::JobType;
use crate::domain::outcome::{Deferral, HoldKind};
use crate::domain::task::WorkloadKey;
use crate::domain::workload::Workload;

/// How long a usable workload is used before it is looked up again: as long as a change of a job
/// type may take to count.
const USABLE_FOR: Duration = Duration::from_secs(30);
/// How long fresh reads must have said that a job type does not exist before its tasks are
/// rejected. Long enough for an operator who is just adding it.
pub const UNKNOWN_FOR: Duration = Duration::from_secs(30 * 60);

/// What to do with a task of a workload.
#[derive(Debug, Clone)]
pub enum Known {
    /// Submit it as this.
    Usable(Arc<Workload>),
    /// Wait: a look-up is needed or under way.
    LookUp,
    /// Wait with the workload.
    Held(Deferral),
    /// Reject it: the job type is confirmed unknown.
    Unknown(String),
}

#[derive(Debug)]
enum State {
    /// A look-up is wanted or under way; the answer before it, if there was one.
    Asked {
        before: Option<Arc<Workload>>,
    },
    Usable {
        workload: Arc<Workload>,
        until: Instant,
    },
    Held {
        why: Deferral,
        until: Instant,
    },
}

/// A job type that does not seem to exist.
#[derive(Debug, Clone, Copy, Default)]
struct Absence {
    /// The first fresh read that said so.
    since: Option<Instant>,
    /// A fresh read said so again, long enough after the first.
    confirmed: bool,
}

/// Answers by workload.
#[derive(Debug, Default)]
pub struct Workloads {
    states: BTreeMap<WorkloadKey, State>,
    unknown: BTreeMap<JobType, Absence>,
    wanted: BTreeSet<WorkloadKey>,
}

impl Workloads {
    /// What is known of `key` now. `LookUp` puts it on the list for the next look-up.
    pub fn ask(&mut self, key: &WorkloadKey, now: Instant) -> Known {
        match self.states.get(key) {
            Some(State::Usable { workload, until }) if *until > now => {
                return Known::Usable(Arc::clone(workload));
            }
            Some(State::Held { why, until }) if *until > now => {
                if why.kind == HoldKind::UnknownJobType
                    && self.unknown.get(&key.job_type).is_some_and(|u| u.confirmed)
                {
                    return Known::Unknown(why.detail.clone());
                }
                return Known::Held(why.clone());
            }
            Some(State::Asked { .. }) => return Known::LookUp,
            _ => {}
        }
        let before = match self.states.remove(key) {
            Some(State::Usable { workload, .. }) => Some(workload),
            _ => None,
        };
        self.states.insert(key.clone(), State::Asked { before });
        self.wanted.insert(key.clone());
        Known::LookUp
    }

    /// The workloads to look up, and whether the look-up must be fresh: it must where a rejection
    /// may follow from it.
    pub fn take_wanted(&mut self) -> Option<(Vec<WorkloadKey>, bool)> {
        if self.wanted.is_empty() {
            return None;
        }
        let fresh = self.wanted.iter().any(|key| self.unknown.contains_key(&key.job_type));
        Some((std::mem::take(&mut self.wanted).into_iter().collect(), fresh))
    }

    /// Notes that a workload can be used.
    pub fn usable(&mut self, key: WorkloadKey, workload: Arc<Workload>, now: Instant) {
        self.unknown.remove(&key.job_type);
        // The same answer keeps the same Arc, by which backends know a workload again.
        let workload = match self.states.remove(&key) {
            Some(State::Asked { before: Some(old) }) if *old == *workload => old,
            _ => workload,
        };
        self.states.insert(key, State::Usable { workload, until: now + USABLE_FOR });
    }

    /// Notes that a workload can't be used, and why. `fresh` says whether the catalog was read anew.
    pub fn held(&mut self, key: WorkloadKey, why: Deferral, fresh: bool, now: Instant) {
        match why.kind {
            HoldKind::UnknownJobType => {
                let absence = self.unknown.entry(key.job_type.clone()).or_default();
                if fresh {
                    let since = *absence.since.get_or_insert(now);
                    absence.confirmed |= now.duration_since(since) >= UNKNOWN_FOR;
                }
            }
            // That the catalog could not be read confirms nothing and refutes nothing.
            HoldKind::CatalogUnread => {}
            _ => {
                self.unknown.remove(&key.job_type);
            }
        }
        let until = now + why.retry_after;
        self.states.insert(key, State::Held { why, until });
    }

    /// When a held workload may be tried again.
    pub fn held_until(&self, key: &WorkloadKey) -> Option<Instant> {
        match self.states.get(key) {
            Some(State::Held { until, .. }) => Some(*until),
            _ => None,
        }
    }

    /// Forgets all answers (a changed configuration), but not what was confirmed unknown.
    pub fn forget(&mut self) {
        self.states.retain(|_, state| matches!(state, State::Asked { .. }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::outcome::Scope;

    fn key() -> WorkloadKey {
        WorkloadKey { command: "fuzz".into(), job_type: "ghost".into() }
    }

    fn unknown() -> Deferral {
        let wait = Duration::from_secs(60);
        Deferral::new(Scope::Workload, HoldKind::UnknownJobType, "no such job type", wait)
    }

    #[test]
    fn an_unknown_job_type_is_rejected_only_once_fresh_reads_have_said_so_for_30_minutes() {
        let (mut known, start) = (Workloads::default(), Instant::now());
        let mut read = |fresh_expected, why: Deferral, at| {
            assert!(matches!(known.ask(&key(), at), Known::LookUp));
            assert_eq!(known.take_wanted().map(|wanted| wanted.1), Some(fresh_expected));
            known.held(key(), why, fresh_expected, at);
            matches!(known.ask(&key(), at), Known::Unknown(_))
        };
        let minutes = |n: u64| start + Duration::from_secs(60 * n);
        assert!(!read(false, unknown(), start), "a cached answer starts nothing");
        assert!(!read(true, unknown(), minutes(10)));
        assert!(!read(true, unknown(), minutes(39)));
        let unread = Deferral { kind: HoldKind::CatalogUnread, ..unknown() };
        assert!(!read(true, unread, minutes(41)), "a failed read confirms nothing");
        assert!(read(true, unknown(), minutes(43)));
    }
}
