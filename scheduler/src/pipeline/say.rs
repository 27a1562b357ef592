//! What the log says of holds: each workload or backend that stops, once, and that it goes on.
//!
//! A task's own hold is not logged: there may be thousands, and the counts tell them. A full backend
//! is no news either; that its room is not known is.

use std::collections::BTreeMap;

use crate::domain::name::BackendName;
use crate::domain::outcome::{Deferral, HoldKind};
use crate::domain::task::WorkloadKey;

/// What has stopped.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stopped {
    /// All tasks of a workload.
    Workload(WorkloadKey),
    /// A backend.
    Backend(BackendName),
}

/// What was said last of each that has stopped.
#[derive(Debug, Default)]
pub struct Said(BTreeMap<Stopped, HoldKind>);

impl Said {
    /// Says why `what` has stopped, unless that was said last.
    pub fn stopped(&mut self, what: Stopped, why: &Deferral) {
        let news = self.0.insert(what.clone(), why.kind) != Some(why.kind);
        let full = matches!(why.kind, HoldKind::PendingLimit | HoldKind::LiveLimit);
        if !news || full {
            return;
        }
        let (kind, detail) = (why.kind.label(), &why.detail);
        let name = name_of(&what);
        if why.kind.pages() {
            tracing::error!(kind, "{name} is held, and needs a person: {detail}");
        } else {
            tracing::warn!(kind, "{name} is held: {detail}");
        }
    }

    /// Whether nothing has stopped.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Says that `what` goes on, if it had stopped.
    pub fn goes_on(&mut self, what: &Stopped) {
        if let Some(kind) = self.0.remove(what)
            && !matches!(kind, HoldKind::PendingLimit | HoldKind::LiveLimit)
        {
            tracing::info!(kind = kind.label(), "{} goes on", name_of(what));
        }
    }
}

fn name_of(what: &Stopped) -> String {
    match what {
        Stopped::Workload(key) => format!("{key}"),
        Stopped::Backend(name) => format!("backend {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::outcome::Scope;

    #[test]
    fn a_stop_is_said_once_for_each_reason_until_it_goes_on() {
        let why = |kind| Deferral::new(Scope::Backend, kind, "why", std::time::Duration::ZERO);
        let (mut said, gke) = (Said::default(), Stopped::Backend("gke".into()));
        said.stopped(gke.clone(), &why(HoldKind::Forbidden));
        said.stopped(gke.clone(), &why(HoldKind::Forbidden));
        assert_eq!(said.0.get(&gke), Some(&HoldKind::Forbidden));
        said.stopped(gke.clone(), &why(HoldKind::Quota));
        assert_eq!(said.0.get(&gke), Some(&HoldKind::Quota));
        said.goes_on(&gke);
        assert!(said.0.is_empty());
    }
}
