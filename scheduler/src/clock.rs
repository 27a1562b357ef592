//! The two clocks that decisions may read: a monotonic one for waiting, a wall clock for dates.
//!
//! Everything that decides takes a [`Clock`], so that a test (tokio's paused time) or a simulation
//! replays a run from one seed. Sleeping is tokio's own, which follows the monotonic clock.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// Reads the time. Cheap: called once a task.
pub trait Clock: Send + Sync {
    /// Monotonic time, the one that `tokio::time` sleeps by.
    fn mono(&self) -> Instant;
    /// Wall-clock time, for dates that come from or go to the outside.
    fn wall(&self) -> Timestamp;
}

/// The machine's own clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn mono(&self) -> Instant {
        Instant::now()
    }

    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A wall clock that moves with tokio's clock from a fixed date: what tests and simulations use.
#[derive(Debug, Clone, Copy)]
pub struct PacedClock {
    epoch: Timestamp,
    start: Instant,
}

impl PacedClock {
    /// A clock that reads `epoch` now and moves with tokio's monotonic clock from there on.
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self { epoch, start: Instant::now() }
    }
}

impl Clock for PacedClock {
    fn mono(&self) -> Instant {
        Instant::now()
    }

    fn wall(&self) -> Timestamp {
        let elapsed: Duration = self.start.elapsed();
        self.epoch.checked_add(elapsed).unwrap_or(Timestamp::MAX)
    }
}
