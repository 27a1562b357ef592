//! The fuse: too many rejects at once mean that the farm is at fault, not the messages.
//!
//! More than 50 rejects that are more than 5 % of what was decided in five minutes blow it; then
//! intake stops and health is red until a person restarts the scheduler. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// How far back it looks.
const WINDOW: Duration = Duration::from_secs(300);
/// The most rejects that never blow it.
const REJECTS: usize = 50;
/// The share of rejects that may stand above [`REJECTS`]: one in this many.
const ONE_IN: usize = 20;

/// Counts what was decided over the last five minutes.
#[derive(Debug, Default)]
pub struct Fuse {
    /// One bucket a second: (when, decided, of these rejected).
    seconds: VecDeque<(Instant, usize, usize)>,
    blown: bool,
}

impl Fuse {
    /// Counts one message that is done: scheduled, or not ours.
    pub fn passed(&mut self, now: Instant) {
        self.count(now, 0);
    }

    /// Asks whether one more message may be rejected, and counts it if so. Once blown, never.
    pub fn reject(&mut self, now: Instant) -> bool {
        if self.blown {
            return false;
        }
        self.count(now, 1);
        let decided: usize = self.seconds.iter().map(|s| s.1).sum();
        let rejected: usize = self.seconds.iter().map(|s| s.2).sum();
        self.blown = rejected > REJECTS && rejected * ONE_IN > decided;
        !self.blown
    }

    /// Whether it has blown.
    pub fn blown(&self) -> bool {
        self.blown
    }

    fn count(&mut self, now: Instant, rejected: usize) {
        while self.seconds.front().is_some_and(|s| now.duration_since(s.0) > WINDOW) {
            self.seconds.pop_front();
        }
        match self.seconds.back_mut() {
            Some(last) if now.duration_since(last.0) < Duration::from_secs(1) => {
                last.1 += 1;
                last.2 += rejected;
            }
            _ => self.seconds.push_back((now, 1, rejected)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fifty_rejects_alone_pass_and_one_more_blows_it_for_good() {
        let (mut fuse, now) = (Fuse::default(), Instant::now());
        assert!((0..50).all(|_| fuse.reject(now)));
        assert!(!fuse.reject(now));
        assert!(fuse.blown() && !fuse.reject(now + 2 * WINDOW));
    }

    #[test]
    fn few_rejects_among_many_or_over_a_long_time_do_not_blow_it() {
        let (mut fuse, now) = (Fuse::default(), Instant::now());
        for _ in 0..10_000 {
            fuse.passed(now);
        }
        assert!((0..400).all(|_| fuse.reject(now)));

        let mut slow = Fuse::default();
        assert!((0..1_000_u32).all(|n| slow.reject(now + n * Duration::from_secs(10))));
    }
}
