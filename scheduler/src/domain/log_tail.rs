//! The last of what a task printed: bounded, whole characters, credentials taken out. Where there
//! is none, the reason stands in its place. Who reads logs is the backends' affair.

use serde::{Deserialize, Serialize};

use super::redact::redact;

/// The most that is kept of a task's output, in bytes.
pub const TAIL_BYTES: usize = 64 * 1024;

/// What is read before the tail, so that a signed URL that the cut goes through can be told and
/// left out: longer than any that Cloud Storage takes (its limit is 16 KiB of headers and URL).
const LEAD: usize = 16 * 1024;

/// The last of what a task printed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogTail {
    /// This, credentials taken out; at most [`TAIL_BYTES`].
    Text(String),
    /// It printed nothing, or never ran.
    Nothing,
    /// It can't be had, and why.
    Unavailable(String),
}

impl LogTail {
    /// There is none, for this reason, which is redacted here.
    pub fn unavailable(why: impl std::fmt::Display) -> Self {
        Self::Unavailable(redact(&why.to_string()).chars().take(300).collect())
    }

    /// The text, if there is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Nothing | Self::Unavailable(_) => None,
        }
    }
}

/// Takes a log as it comes and keeps its end.
#[derive(Debug, Default)]
pub struct TailBuffer {
    bytes: Vec<u8>,
    cut: bool,
}

impl TailBuffer {
    /// More of the log.
    pub fn push(&mut self, chunk: &[u8]) {
        self.bytes.extend_from_slice(chunk);
        // Moved seldom: each byte is copied a few times at most, however long the log.
        if self.bytes.len() > 4 * (TAIL_BYTES + LEAD) {
            self.trim();
        }
    }

    fn trim(&mut self) {
        if let Some(over) = self.bytes.len().checked_sub(TAIL_BYTES + LEAD)
            && over > 0
        {
            self.bytes.drain(..over);
            self.cut = true;
        }
    }

    /// The tail.
    pub fn finish(mut self) -> LogTail {
        self.trim();
        let known = if self.cut { after_lead(&self.bytes) } else { &self.bytes };
        let text = redact(&String::from_utf8_lossy(known)).into_owned();
        let from = text.len().saturating_sub(TAIL_BYTES);
        match text.get(text.ceil_char_boundary(from)..).unwrap_or_default() {
            "" => LogTail::Nothing,
            tail => LogTail::Text(tail.to_owned()),
        }
    }
}

/// What may be looked at of a log whose beginning is cut away: from the first break in the lead
/// on, or where it has none, after it. Before that could be the rest of a signed URL, which nothing
/// can tell as one.
fn after_lead(bytes: &[u8]) -> &[u8] {
    let lead = bytes.get(..LEAD).unwrap_or(bytes);
    let start = lead.iter().position(u8::is_ascii_whitespace).map_or(LEAD, |at| at + 1);
    let rest = bytes.get(start..).unwrap_or_default();
    // The cut may be inside of a character: its rest is at most three bytes that begin with 10.
    let inside = rest.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
    rest.get(inside..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(chunks: &[&[u8]]) -> String {
        let mut buffer = TailBuffer::default();
        for chunk in chunks {
            buffer.push(chunk);
            assert!(buffer.bytes.len() <= 4 * (TAIL_BYTES + LEAD));
        }
        buffer.finish().text().unwrap_or_default().to_owned()
    }

    #[test]
    fn a_short_log_is_kept_whole_and_an_empty_one_is_none() {
        assert_eq!(tail(&[b"one\n", b"two"]), "one\ntwo");
        assert_eq!(TailBuffer::default().finish(), LogTail::Nothing);
    }

    #[test]
    fn a_long_log_keeps_its_last_64_kib() {
        let line = format!("{}\n", "x".repeat(99));
        let mut lines = vec![line.as_bytes(); 30_000];
        lines.push(b"last");
        let kept = tail(&lines);
        assert_eq!(kept.len(), TAIL_BYTES);
        assert!(kept.ends_with("x\nlast"));
    }

    #[test]
    fn one_huge_line_is_included() {
        let huge = "b".repeat(3 * TAIL_BYTES);
        assert_eq!(tail(&[huge.as_bytes()]), "b".repeat(TAIL_BYTES));
    }

    #[test]
    fn characters_stay_whole_at_the_cut() {
        for before in 0..4 {
            let text = format!("{}{}", "a".repeat(before), "\u{1f41b}".repeat(TAIL_BYTES));
            let kept = tail(&[text.as_bytes()]);
            assert!(!kept.contains('\u{fffd}') && kept.len() > TAIL_BYTES - 4, "{before}");
        }
        assert_eq!(tail(&["a\u{e9}".as_bytes(), b"\xff"]), "a\u{e9}\u{fffd}");
    }

    #[test]
    fn no_credential_is_kept_even_where_the_cut_goes_through_its_url() {
        let url = "https://storage.googleapis.com/b/o?X-Goog-Signature=5ec2e7";
        assert_eq!(
            tail(&[b"get ", url.as_bytes(), b" now"]),
            "get https://storage.googleapis.com/b/o?REDACTED now"
        );
        // The kept bytes begin at every place of the URL in turn.
        for at in 0..url.len() {
            let after = " and on".repeat((TAIL_BYTES + LEAD - url.len() + at) / 7);
            let kept = tail(&["before ".repeat(50).as_bytes(), url.as_bytes(), after.as_bytes()]);
            assert!(!kept.contains("5ec2e7") && !kept.contains("2e7"), "{at}");
        }
    }
}
