//! Redacting any text ends, is done once, and takes a signature out wherever it stands.

use katabatch::domain::redact::redact;

const SIGNATURE: &str = "5167N4TURE5167N4TURE";

/// Redacts `data`, and `data` around a signed URL.
pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let once = redact(&text).into_owned();
    assert_eq!(redact(&once), once, "redacting twice changes nothing");

    // Behind white space, so that no text before it makes it something else.
    let url = format!("https://storage.googleapis.com/b/o?x=1&X-Goog-Signature={SIGNATURE}");
    if !text.contains(SIGNATURE) {
        for around in [format!("{text} {url} {text}"), format!("{text}\n\"{url}\"{text}")] {
            let shown = redact(&around);
            assert!(!shown.contains(SIGNATURE), "{shown}");
        }
    }
}
