//! Waiting for the [window](super::window): each create holds a slot while it is under way.
//!
//! A slot that is dropped counts as abandoned. Nobody waits through a pause: whoever finds one gets
//! it as the answer, so that the caller can hold its tasks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::sleep_until;

use super::window::{End, Entry, Pause, Window};
use crate::clock::Clock;

/// The slots of one backend.
pub struct Slots {
    window: Mutex<Window>,
    changed: Notify,
    clock: Arc<dyn Clock>,
}

impl Slots {
    /// The slots of `window`.
    pub fn new(window: Window, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { window: Mutex::new(window), changed: Notify::new(), clock })
    }

    fn lock(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many creates may be under way now.
    pub fn size(&self) -> usize {
        self.lock().size()
    }

    /// Waits for a slot.
    ///
    /// # Errors
    /// The pause that forbids it.
    pub async fn take(self: &Arc<Self>) -> Result<Slot, Pause> {
        loop {
            // Listening begins before the look, so that no change between the two is missed.
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let entry = self.lock().enter(self.clock.mono());
            match entry {
                Entry::Open(epoch) => {
                    return Ok(Slot { slots: Arc::clone(self), epoch, ended: false });
                }
                Entry::Paused(pause) => return Err(pause),
                Entry::Full => changed.await,
                Entry::At(at) => sleep_until(at).await,
            }
        }
    }

    fn end(&self, epoch: u64, end: End) -> Option<Pause> {
        let now = self.clock.mono();
        let (free, all, pause) = {
            let mut window = self.lock();
            window.end(epoch, now, end);
            (window.free(), window.concerns_all(), window.paused().cloned())
        };
        if all {
            self.changed.notify_waiters();
        } else {
            (0..free).for_each(|_| self.changed.notify_one());
        }
        pause
    }
}

/// One create under way.
pub struct Slot {
    slots: Arc<Slots>,
    epoch: u64,
    ended: bool,
}

impl Slot {
    /// The create has ended so; the answer is the pause that this makes or lengthens, if any.
    pub fn end(mut self, end: End) -> Option<Pause> {
        self.ended = true;
        self.slots.end(self.epoch, end)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.ended {
            self.slots.end(self.epoch, End::Abandoned);
        }
    }
}
