//! How long the stages of a task's way take: counts in fixed buckets. Pure.
//!
//! Only tasks that ended `Scheduled` reach the last stage, so that its count is that of the Jobs.

use std::time::Duration;

/// The upper bounds of the buckets, in seconds; the last bucket has none.
pub const BOUNDS: [f64; 13] =
    [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0];

/// From what to what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// From its message's publication to this process's lease.
    Queued,
    /// From the lease to the submission that was scheduled.
    Held,
    /// From that submission to its confirmation.
    Submitted,
}

/// One stage's times.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Histogram {
    /// How many fell into each bucket, not summed up; the last one is for all above the bounds.
    pub buckets: [u64; BOUNDS.len() + 1],
    /// The sum of all, in seconds.
    pub sum: f64,
}

impl Histogram {
    /// Counts one.
    pub fn observe(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        let at = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        if let Some(bucket) = self.buckets.get_mut(at) {
            *bucket += 1;
        }
        self.sum += seconds;
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// All stages' times.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Stages {
    queued: Histogram,
    held: Histogram,
    submitted: Histogram,
}

impl Stages {
    /// Counts one.
    pub fn observe(&mut self, stage: Stage, time: Duration) {
        match stage {
            Stage::Queued => self.queued.observe(time),
            Stage::Held => self.held.observe(time),
            Stage::Submitted => self.submitted.observe(time),
        }
    }

    /// Each stage by its label, in a task's order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Histogram)> {
        [("queued", &self.queued), ("held", &self.held), ("submitted", &self.submitted)].into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_falls_into_the_first_bucket_that_holds_it() {
        let mut stages = Stages::default();
        for millis in [10, 11, 2_000_000] {
            stages.observe(Stage::Held, Duration::from_millis(millis));
        }
        let (label, held) = stages.iter().nth(1).expect("a stage");
        assert_eq!((label, held.count(), held.sum), ("held", 3, 2_000.021));
        let full: Vec<_> = (0..held.buckets.len()).filter(|at| held.buckets[*at] > 0).collect();
        assert_eq!(full, [0, 1, BOUNDS.len()]);
    }
}
