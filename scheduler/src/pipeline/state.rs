//! What the pipeline knows of each queue and each backend while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Ack, Event, Pipeline};
use crate::domain::outcome::Deferral;
use crate::domain::room::Room;

/// With more room than this, changes of it need not be heard of: twice what one call leases.
const PLENTY: usize = 1_000;

/// One queue's state.
#[derive(Default)]
pub(super) struct QueueState {
    pub(super) leasing: bool,
    /// An empty answer came since the last non-empty one, and how many in a row.
    pub(super) empty_answers: u32,
    pub(super) acks: Vec<Ack>,
    /// When gathered acks are sent, however few.
    pub(super) acks_due: Option<Instant>,
    pub(super) acking: bool,
    pub(super) ack_retry: Duration,
    /// When it was last said that it is unavailable, and why; none while it is not.
    pub(super) away: Option<(Instant, String)>,
}

/// One backend's state.
pub(super) struct BackendState {
    pub(super) room: watch::Receiver<Room>,
    /// Submissions under way.
    pub(super) under_way: usize,
    /// Those among them that were not polled yet, so that the room does not count them yet.
    pub(super) unpolled: Arc<AtomicUsize>,
    /// A change of its room is waited for.
    pub(super) awaited: bool,
    /// Closed until then, after a deferral that stops the backend.
    pub(super) closed: Option<(Instant, Deferral)>,
    /// The deferral that stopped it last and when, until something is scheduled there again.
    pub(super) refused: Option<(Instant, Deferral)>,
    /// Some tasks wait for it though it has room, only for their turn behind what is under way.
    pub(super) turns: bool,
    /// Since when it takes nothing though there is something for it.
    pub(super) stuck: Option<Instant>,
    /// When it is cleared again, while it is declared lost.
    pub(super) clear_at: Option<Instant>,
}

impl BackendState {
    /// How many more tasks it can take, as far as is known here.
    pub(super) fn free(&self) -> usize {
        self.room.borrow().free().saturating_sub(self.unpolled.load(Ordering::Relaxed))
    }
}

impl Pipeline {
    /// Listens to each backend whose room is short. While there is plenty nothing is gained by
    /// hearing of every Job that takes or gives some.
    pub(super) fn await_rooms(&mut self) {
        for backend in 0..self.backends.len() {
            let state = &self.backends[backend];
            if !state.awaited && (state.free() < PLENTY || self.book.waiting_for(backend) > 0) {
                self.await_room(backend);
            }
        }
    }

    fn await_room(&mut self, backend: usize) {
        self.backends[backend].awaited = true;
        let mut room = self.backends[backend].room.clone();
        let wait = async move {
            if room.changed().await.is_err() {
                // The backend is gone: its last word stands, and whoever runs it ends the process.
                std::future::pending::<()>().await;
            }
            Event::RoomChanged { backend, room }
        };
        self.waits.push(wait.boxed());
    }
}
