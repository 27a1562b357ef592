//! Letting go: when what is stopped fills up what may be held, some of it goes back to its queue.

use std::time::Duration;

use tokio::time::Instant;

use super::Pipeline;
use super::book::{Entry, Place};
use crate::domain::outcome::HoldKind;

/// How long a message is let go for when held tasks fill up what may be held.
pub(super) const LET_GO_FOR: Duration = Duration::from_secs(600);

impl Pipeline {
    /// Lets tasks go when those of what is stopped fill half of what may be held, so that a broken
    /// workload or backend with a long queue does not stop the others: of workloads the oldest, of
    /// backends the newest, so that the oldest may move to another one. Those of backends only
    /// while another one takes tasks.
    pub(super) fn let_go(&mut self, now: Instant) {
        let half = self.deps.settings.held / 2;
        if self.book.held() <= half {
            return;
        }
        let open: Vec<bool> = (0..self.backends.len())
            .map(|at| self.is_open(at, now) && self.takes(at) > 0)
            .collect();
        let others = open.contains(&true);
        let order = |entry: &Entry| match &entry.place {
            Place::Workload(_) => Some((0, entry.since.duration_since(self.started))),
            Place::Backend(at) if others && open.get(*at) == Some(&false) => {
                Some((1, now.duration_since(entry.since)))
            }
            Place::Until(_) if others => {
                let elsewhere = entry.held.as_ref().map(|held| held.0);
                (elsewhere == Some(HoldKind::ElsewhereUnknown))
                    .then(|| (1, now.duration_since(entry.since)))
            }
            _ => None,
        };
        let waiting = self.book.iter().filter_map(|(hash, entry)| Some((order(entry)?, *hash)));
        let mut stopped: Vec<_> = waiting.collect();
        if stopped.len() <= half {
            return;
        }
        stopped.sort_unstable();
        stopped.truncate((half / 4).max(1));
        tracing::warn!(
            n = stopped.len(),
            "held tasks of what is stopped are let go for 10 minutes"
        );
        let mut gone = Vec::new();
        for (_, hash) in stopped {
            if let Some(entry) = self.book.remove(&hash) {
                self.remember(hash, &entry);
                gone.extend(entry.tickets);
            }
        }
        self.release(gone, LET_GO_FOR);
    }
}
