//! A rate: so many a second, and as many at once after a quiet second. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// A bucket that fills with time.
#[derive(Debug)]
pub struct Rate {
    per_second: f64,
    left: f64,
    at: Instant,
}

impl Rate {
    /// So many a second, none used yet.
    pub fn new(per_second: u32, now: Instant) -> Self {
        let per_second = f64::from(per_second.max(1));
        Self { per_second, left: per_second, at: now }
    }

    /// Takes one.
    ///
    /// # Errors
    /// When the next one is there.
    pub fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = self.at.max(now);
        self.left = (self.left + passed * self.per_second).min(self.per_second);
        if self.left < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - self.left) / self.per_second));
        }
        self.left -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_a_seconds_worth_and_then_it_goes_evenly() {
        let now = Instant::now();
        let mut rate = Rate::new(2, now);
        assert_eq!([rate.take(now), rate.take(now)], [Ok(()), Ok(())]);
        assert_eq!(rate.take(now), Err(Duration::from_millis(500)));
        assert_eq!(rate.take(now + Duration::from_millis(500)), Ok(()));
        assert!(rate.take(now + Duration::from_millis(600)).is_err());
        let later = now + Duration::from_secs(60);
        assert!((0..2).all(|_| rate.take(later).is_ok()) && rate.take(later).is_err());
    }
}
