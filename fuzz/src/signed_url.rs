//! An input URL is kept byte for byte, never shows its query or user, and its dates are judged alike
//! at every moment.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use katabatch::domain::input_url::InputUrl;
use katabatch::domain::signed_url::{Validity, Verdict};

/// Reads `data` as an input URL.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(url) = InputUrl::parse(text) else { return };
    assert_eq!(url.reveal(), text);
    hides_the_query(&url);
    if let Some(object) = url.object() {
        assert!(!object.bucket.is_empty() && !object.object.is_empty());
        the_query_names_nothing(&url, text);
    }
    if let Some(validity) = url.validity() {
        dies_once(&validity);
    }
}

fn hides_the_query(url: &InputUrl) {
    let text = url.reveal();
    for shown in [url.to_string(), format!("{url:?}"), url.redacted()] {
        if let Some((before, query)) = text.split_once('?')
            && query.len() > "REDACTED".len()
            && !before.contains(query)
        {
            assert!(!shown.contains(query), "{shown}");
        }
    }
    let again = InputUrl::parse(&url.redacted()).map(|again| again.redacted());
    if let Ok(again) = again {
        assert_eq!(again, url.redacted(), "what is redacted stays as it is");
    }
}

/// Other signatures for the same object make no other object.
fn the_query_names_nothing(url: &InputUrl, text: &str) {
    if text.starts_with("gs://") || text.contains('#') {
        return;
    }
    let plain = text.split('?').next().unwrap_or(text);
    let other = InputUrl::parse(&format!("{plain}?X-Goog-Signature=other"));
    if let Ok(other) = other {
        assert_eq!(other.object(), url.object());
    }
}

/// From usable to dead, and never back.
fn dies_once(validity: &Validity) {
    let run = Duration::from_secs(6 * 3600);
    let mut dead = false;
    for offset in [-200_000, -86_400, -21_601, -21_600, -1, 0, 1, 86_400] {
        let Ok(now) = validity.until.checked_add(SignedDuration::from_secs(offset)) else {
            continue;
        };
        let verdict = validity.judge(now, run);
        assert!(!dead || matches!(verdict, Verdict::Dead(_)), "it rose again: {verdict:?}");
        dead = matches!(verdict, Verdict::Dead(_));
        assert_eq!(dead, now >= validity.until);
    }
    for now in [Timestamp::MIN, Timestamp::MAX] {
        validity.judge(now, Duration::MAX);
    }
}
