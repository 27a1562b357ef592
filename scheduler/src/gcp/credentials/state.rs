//! When a token is asked for, when one may be used, and when there is none: pure, given the time.
//!
//! A token is asked for ahead of its end; where that fails, or gives the same one again, it is
//! asked for again at growing distances while the present one is used on, never past its end.

use std::time::Duration;

use tokio::time::Instant;

use super::source::Fetched;
use crate::gcp::tokens::{Bearer, TokenError};

/// So long before its end a token is replaced. Metadata servers hand out a new one from five
/// (serverless: four) minutes before the old one's end on, and the old one until then.
const AHEAD: Duration = Duration::from_secs(225);
/// A token with less left is not handed out: a request on its way needs some.
pub(super) const LEAST: Duration = Duration::from_secs(10);
/// The first and the longest distance between tries while a token can be used.
const CALM: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(30));
/// The same while there is none and somebody may wait.
const URGENT: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(4));
/// The same after a server refused a token.
const REFUSED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// A token that was good for so long and is then refused did not come bad.
const WAS_GOOD: Duration = Duration::from_secs(60);

/// A token that is held.
#[derive(Debug, Clone)]
struct Held {
    bearer: Bearer,
    came: Instant,
    ends: Instant,
    /// A server said 401 to it, and another was not asked for since.
    refused: bool,
}

/// What is known.
#[derive(Debug, Default)]
pub(super) struct State {
    held: Option<Held>,
    /// Why the last try failed.
    error: Option<TokenError>,
    /// So many tries have ended.
    tries: u64,
    /// So many in a row gave nothing new.
    in_vain: u32,
    /// So many tokens in a row were refused soon after they came.
    refusals: u32,
    last: Option<Instant>,
    next: Option<Instant>,
}

impl State {
    /// Somebody needs a token: from now on they are asked for. Whether that is news.
    pub(super) fn want(&mut self, now: Instant) -> bool {
        let news = self.next.is_none();
        self.next.get_or_insert(now);
        news
    }

    /// When the source is to be asked next; `None` before anybody needs a token.
    pub(super) fn due(&self) -> Option<Instant> {
        self.next
    }

    /// So many tries have ended.
    pub(super) fn tries(&self) -> u64 {
        self.tries
    }

    /// The token to use at this time, or why waiting for one is in vain; `None`: wait.
    pub(super) fn answer(&self, now: Instant) -> Option<Result<Bearer, TokenError>> {
        match (&self.held, &self.error) {
            (Some(held), _) if held.usable(now) => Some(Ok(held.bearer.clone())),
            (_, Some(error @ TokenError::Unusable(_))) => Some(Err(error.clone())),
            _ => None,
        }
    }

    /// Why there is none for one who has waited long enough.
    pub(super) fn excuse(&self) -> TokenError {
        let late = || TokenError::Later("its source does not answer".to_owned());
        self.error.clone().unwrap_or_else(late)
    }

    /// A server refused `bearer`. Whether another must be waited for: not if there is one already.
    pub(super) fn refuse(&mut self, bearer: &Bearer, now: Instant) -> bool {
        let Some(held) = self.held.as_mut().filter(|held| held.bearer == *bearer) else {
            return false;
        };
        if !held.refused {
            held.refused = true;
            if now.duration_since(held.came) > WAS_GOOD {
                self.refusals = 0;
            }
            let earliest = self.last.unwrap_or(now) + doubled(REFUSED, self.refusals);
            self.refusals += 1;
            self.next = Some(earliest.max(now));
        }
        true
    }

    /// A try that began then has ended now. `jitter`, around 1, keeps many processes apart.
    pub(super) fn tried(
        &mut self,
        began: Instant,
        now: Instant,
        result: Result<Fetched, TokenError>,
        jitter: f64,
    ) {
        self.tries += 1;
        self.last = Some(now);
        self.error = result.and_then(|fetched| self.take(began, now, fetched)).err();
        // What was refused is all there is: the server may have been wrong.
        if let Some(held) = &mut self.held {
            held.refused = false;
        }
        let ends = self.held.as_ref().filter(|held| held.usable(now)).map(|held| held.ends);
        let next = match ends {
            Some(ends) if self.error.is_none() && ends > now + AHEAD => {
                self.in_vain = 0;
                ends - AHEAD.mul_f64(jitter)
            }
            Some(ends) => (now + self.distance(CALM).mul_f64(jitter)).min(ends - LEAST),
            None => now + self.distance(URGENT).mul_f64(jitter),
        };
        self.next = Some(next.max(now + URGENT.0));
    }

    fn take(&mut self, began: Instant, now: Instant, fetched: Fetched) -> Result<(), TokenError> {
        let ends = began + fetched.lives;
        if ends <= now + LEAST {
            return Err(TokenError::Later("its source gives one that is at its end".to_owned()));
        }
        match &mut self.held {
            Some(held) if held.bearer == fetched.bearer => held.ends = ends,
            _ => {
                let bearer = fetched.bearer;
                self.held = Some(Held { bearer, came: now, ends, refused: false });
            }
        }
        Ok(())
    }

    fn distance(&mut self, (first, longest): (Duration, Duration)) -> Duration {
        let distance = doubled((first, longest), self.in_vain);
        self.in_vain = self.in_vain.saturating_add(1);
        distance
    }

    /// What the last failure means to those who use the present token on.
    pub(super) fn trouble(&self, now: Instant) -> Option<(TokenError, Duration)> {
        let held = self.held.as_ref().filter(|held| held.usable(now))?;
        Some((self.error.clone()?, held.ends.duration_since(now)))
    }
}

impl Held {
    fn usable(&self, now: Instant) -> bool {
        !self.refused && self.ends > now + LEAST
    }
}

fn doubled((first, longest): (Duration, Duration), times: u32) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(times.min(16))).min(longest)
}
