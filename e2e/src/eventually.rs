//! Waiting for a condition, never for a time: the condition is asked again and again
//! until it holds or the deadline has passed. What it last saw is in the error.

use std::future::Future;
use std::time::Duration;

use anyhow::{Result, anyhow};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(50);

/// What one look at the world gave.
pub enum Seen<T> {
    /// The condition holds.
    Done(T),
    /// Not yet; the text says what was seen instead.
    NotYet(String),
}

impl Seen<()> {
    /// `Done` if the condition holds, else `NotYet` with what was seen.
    pub fn when(holds: bool, otherwise: impl FnOnce() -> String) -> Self {
        if holds { Self::Done(()) } else { Self::NotYet(otherwise()) }
    }
}

/// Asks `look` every 50 ms until it answers [`Seen::Done`], for at most `within`.
///
/// # Errors
/// When the deadline passes, with `what` and the last thing seen; an error that
/// `look` returns counts as "not yet", since a control plane may be starting.
pub async fn eventually<T, F, Fut>(what: &str, within: Duration, mut look: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Seen<T>>>,
{
    let deadline = Instant::now() + within;
    let mut ticks = interval(BETWEEN_ATTEMPTS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = String::from("nothing was seen before the deadline");
    let attempts = async {
        loop {
            ticks.tick().await;
            match look().await {
                Ok(Seen::Done(value)) => return value,
                Ok(Seen::NotYet(seen)) => last = seen,
                Err(error) => last = format!("{error:#}"),
            }
        }
    };
    timeout_at(deadline, attempts)
        .await
        .map_err(|_| anyhow!("{what}: not within {within:?}; last seen: {last}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_thing_seen_is_in_the_error() {
        let error = eventually("a moon", Duration::from_millis(10), || async {
            Ok(Seen::<()>::NotYet("a cloud".into()))
        })
        .await
        .expect_err("it never holds");
        assert!(error.to_string().contains("last seen: a cloud"), "{error:#}");
    }

    #[tokio::test]
    async fn a_value_comes_back() {
        let value = eventually("seven", Duration::from_secs(1), || async { Ok(Seen::Done(7)) })
            .await
            .expect("it holds at once");
        assert_eq!(value, 7);
    }
}
