//! What the dates of a signed Cloud Storage URL say about a task that would start now.
//!
//! ClusterFuzz signs a task's output URL for 24 h in the same moment as the input's, and puts it
//! inside the input object: a task that ends after the input's expiry has worked for nothing. So
//! a task must start early enough for its expected run. Pure; signing is elsewhere.

use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// How far this machine's clock and the signer's may be apart: a URL that becomes valid so soon is
/// used. An expiry is taken as it stands: a URL that is refused here in its last minutes is no loss,
/// as no task would end in them.
pub const CLOCK_SKEW: Duration = Duration::from_secs(5 * 60);

/// When a signed URL is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// The moment of signing (absent in the V2 form, which has only an expiry).
    pub from: Option<Timestamp>,
    /// From this moment on the URL is dead.
    pub until: Timestamp,
}

/// What to do with a task whose input is signed so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It can run to its end.
    Usable,
    /// Not valid yet: come back after this long.
    NotYet(Duration),
    /// The URL is dead already, since so long.
    Dead(Duration),
    /// It lives, but dies this long before the task's expected end: the output URL would be dead.
    TooShort(Duration),
}

impl Validity {
    /// Reads `X-Goog-Date` and `X-Goog-Expires` (V4; with an HMAC key `X-Amz-…`) or `Expires` (V2).
    /// `None`: the URL is not signed, or its dates make no sense, which Cloud Storage itself will
    /// judge.
    ///
    /// `parameter` gives the value of a query parameter.
    pub fn read(parameter: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let v4 = |scheme: &str| {
            let date = parameter(&format!("X-{scheme}-Date"))?;
            Some((date, parameter(&format!("X-{scheme}-Expires"))?))
        };
        match v4("Goog").or_else(|| v4("Amz")) {
            Some((date, lifetime)) => {
                let from = DateTime::strptime("%Y%m%dT%H%M%SZ", &date).ok()?;
                let from = from.to_zoned(TimeZone::UTC).ok()?.timestamp();
                let lifetime = SignedDuration::from_secs(lifetime.parse::<u32>().ok()?.into());
                Some(Self { from: Some(from), until: from.checked_add(lifetime).ok()? })
            }
            None => {
                let seconds: i64 = parameter("Expires")?.parse().ok()?;
                Some(Self { from: None, until: Timestamp::from_second(seconds).ok()? })
            }
        }
    }

    /// Judges a task that would start at `now` and run for `expected_run`.
    pub fn judge(&self, now: Timestamp, expected_run: Duration) -> Verdict {
        let left = self.until.duration_since(now);
        if left <= SignedDuration::ZERO {
            return Verdict::Dead(left.unsigned_abs());
        }
        let early = self.from.map_or(SignedDuration::ZERO, |from| from.duration_since(now));
        let too_early = early.saturating_sub(signed(CLOCK_SKEW));
        if too_early > SignedDuration::ZERO {
            return Verdict::NotYet(too_early.unsigned_abs());
        }
        let short = signed(expected_run).saturating_sub(left);
        if short > SignedDuration::ZERO {
            return Verdict::TooShort(short.unsigned_abs());
        }
        Verdict::Usable
    }
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::input_url::InputUrl;

    const SIGNED: &str = "https://storage.googleapis.com/b/o?X-Goog-Date=20260301T000000Z&X-Goog-Expires=86400&X-Goog-Signature=1";

    fn judge(url: &str, now: &str, run_minutes: u64) -> Option<Verdict> {
        let url = InputUrl::parse(url).expect("a URL");
        let now: Timestamp = now.parse().expect("a time");
        Some(url.validity()?.judge(now, Duration::from_secs(60 * run_minutes)))
    }

    #[test]
    fn a_task_must_be_able_to_end_before_its_urls_are_dead() {
        let min = |n: u64| Duration::from_secs(60 * n);
        assert_eq!(judge(SIGNED, "2026-03-02T00:05:00Z", 30), Some(Verdict::Dead(min(5))));
        assert_eq!(judge(SIGNED, "2026-03-01T23:55:00Z", 30), Some(Verdict::TooShort(min(25))));
        assert_eq!(judge(SIGNED, "2026-02-28T23:57:00Z", 30), Some(Verdict::Usable));
        assert_eq!(judge(SIGNED, "2026-02-28T23:45:00Z", 30), Some(Verdict::NotYet(min(10))));
        assert_eq!(judge(SIGNED, "2026-03-01T01:00:00Z", 360), Some(Verdict::Usable));
    }

    #[test]
    fn dates_are_read_however_their_names_are_spelt() {
        for url in [
            "https://b.storage.googleapis.com/o?x-goog-date=20260301T000000Z&x-goog-expires=60",
            "https://h/o?X%2DGoog%2DDate=20260301T000000Z&X-Goog-Expires=60",
            "https://h/o?X-Amz-Date=20260301T000000Z&X-Amz-Expires=60",
            "https://h/o?Expires=1772323260&Signature=x",
        ] {
            let url = InputUrl::parse(url).expect("a URL");
            let until = url.validity().map(|validity| validity.until.to_string());
            assert_eq!(until.as_deref(), Some("2026-03-01T00:01:00Z"), "{url}");
        }
    }

    #[test]
    fn the_skew_is_tolerated_to_the_second_and_an_expiry_is_one() {
        let seconds = Duration::from_secs;
        assert_eq!(judge(SIGNED, "2026-02-28T23:55:00Z", 30), Some(Verdict::Usable));
        assert_eq!(judge(SIGNED, "2026-02-28T23:54:59Z", 30), Some(Verdict::NotYet(seconds(1))));
        assert_eq!(judge(SIGNED, "2026-03-01T23:30:00Z", 30), Some(Verdict::Usable));
        assert_eq!(judge(SIGNED, "2026-03-01T23:30:01Z", 30), Some(Verdict::TooShort(seconds(1))));
        assert_eq!(judge(SIGNED, "2026-03-02T00:00:00Z", 30), Some(Verdict::Dead(seconds(0))));
    }

    #[test]
    fn v2_has_only_an_expiry_and_other_urls_have_none() {
        let url =
            "https://storage.googleapis.com/b/o?GoogleAccessId=x&Expires=1772323200&Signature=1";
        assert_eq!(judge(url, "2026-02-28T23:00:00Z", 30), Some(Verdict::Usable));
        assert_eq!(judge("https://storage.googleapis.com/b/o", "2026-03-01T00:00:00Z", 1), None);
        let odd =
            "https://storage.googleapis.com/b/o?X-Goog-Date=20269999T000000Z&X-Goog-Expires=9";
        assert_eq!(judge(odd, "2026-03-01T00:00:00Z", 1), None);
    }
}
