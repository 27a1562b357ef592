//! What is in force and how it comes out, for whoever shows it: shares as configured, in effect and
//! achieved, and pauses. What is in hand is [`view`](super::view)'s.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Pipeline;
use crate::controls::Controls;
use crate::domain::name::BackendName;
use crate::domain::outcome::HoldKind;
use crate::domain::room::Room;

/// Over what time achieved shares are counted, and in what steps.
pub const WINDOW: Duration = Duration::from_secs(600);
const STEP: Duration = Duration::from_secs(10);

/// One backend's part.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BackendShare {
    /// The backend.
    pub name: BackendName,
    /// What its flag or its default asks for, 0 to 1.
    pub configured: f64,
    /// What it gets of all tasks: 0 while it is off, paused or lost; what is left after the
    /// backends before it are filled, else.
    pub effective: f64,
    /// Its part of the Jobs made within [`WINDOW`]; `None` while none were made.
    pub achieved: Option<f64>,
    /// Jobs made there within [`WINDOW`].
    pub created: u64,
    /// How many tasks wait for it.
    pub waiting: usize,
    /// How many more Jobs it can be given.
    pub free: usize,
    /// Why it takes nothing now, if so.
    pub stopped: Option<String>,
}

/// What is in force and how it comes out.
#[derive(Debug, Clone, PartialEq, Serialize, Default)]
pub struct Snapshot {
    /// Whether this process leads.
    pub leads: bool,
    /// The weight epoch's number and beginning; `None` before it is on record.
    pub epoch: Option<(u64, Timestamp)>,
    /// In the order of the configuration.
    pub backends: Vec<BackendShare>,
    /// Pauses and lost backends.
    pub controls: Controls,
}

/// Counts of made Jobs over the window, and the last snapshot.
pub(super) struct Shown {
    /// A step's beginning, and what each backend made in it.
    steps: VecDeque<(Instant, Vec<u64>)>,
    backends: usize,
    sender: watch::Sender<Snapshot>,
}

impl Shown {
    pub(super) fn new(backends: usize) -> Self {
        let sender = watch::Sender::new(Snapshot::default());
        Self { steps: VecDeque::new(), backends, sender }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Snapshot> {
        self.sender.subscribe()
    }

    pub(super) fn created(&mut self, backend: usize, now: Instant) {
        if self.steps.back().is_none_or(|(began, _)| now >= *began + STEP) {
            self.steps.push_back((now, vec![0; self.backends]));
        }
        if let Some(count) = self.steps.back_mut().and_then(|(_, counts)| counts.get_mut(backend)) {
            *count += 1;
        }
    }

    fn counts(&mut self, now: Instant) -> Vec<u64> {
        while self.steps.front().is_some_and(|(began, _)| *began + WINDOW <= now) {
            self.steps.pop_front();
        }
        let mut sums = vec![0; self.backends];
        for (_, counts) in &self.steps {
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        sums
    }
}

impl Pipeline {
    /// Publishes what there is now.
    pub(super) fn publish(&mut self, now: Instant) {
        let counts = self.shown.counts(now);
        let total: u64 = counts.iter().sum();
        let mut backends = Vec::new();
        for (at, share) in self.weights.shares.iter().enumerate() {
            let created = counts.get(at).copied().unwrap_or_default();
            let stopped = self.stopped(at, now);
            let out = share.off || self.is_lost(at) || self.is_paused(at);
            // Counts of ten minutes are far below 2^53.
            #[expect(clippy::cast_precision_loss)]
            let part = |of: u64| of as f64 / total as f64;
            backends.push(BackendShare {
                name: share.name.clone(),
                configured: share.configured,
                effective: if out { 0.0 } else { share.weight },
                achieved: (total > 0).then(|| part(created)),
                created,
                waiting: self.book.waiting_for(at),
                free: self.backends[at].free(),
                stopped,
            });
        }
        self.shown.sender.send_replace(Snapshot {
            leads: self.deps.leadership.may_create(),
            epoch: self.in_force.epoch().map(|epochs| (epochs.number, epochs.since)),
            backends,
            controls: self.in_force.controls().cloned().unwrap_or_default(),
        });
    }

    fn is_paused(&self, at: usize) -> bool {
        let controls = self.in_force.controls();
        controls.is_some_and(|controls| controls.backend_paused(self.name_of(at)).is_some())
    }

    fn stopped(&self, at: usize, now: Instant) -> Option<String> {
        let controls = self.in_force.controls();
        if let Some(mark) = controls.and_then(|controls| controls.lost(self.name_of(at))) {
            return Some(format!("declared lost {mark}"));
        }
        if let Some(why) = self.shut(at, now) {
            return Some(why.detail);
        }
        match &*self.backends[at].room.borrow() {
            Room::Unknown(why) => Some(format!("{}: {why}", HoldKind::RoomUnknown)),
            Room::Known(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn achieved_shares_count_the_last_ten_minutes() {
        let (mut shown, start) = (Shown::new(2), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        (0..30).for_each(|n| shown.created(0, at(n)));
        shown.created(1, at(300));
        assert_eq!(shown.counts(at(590)), [30, 1]);
        assert_eq!(shown.counts(at(615)), [10, 1]);
        assert_eq!(shown.counts(at(899)), [0, 1]);
        assert_eq!(shown.counts(at(901)), [0, 0]);
    }
}
