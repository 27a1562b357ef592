//! Logs: to stderr, for people on a terminal and as JSON lines elsewhere.
//!
//! Whatever a log line holds passes the redaction on its way out, so that a credential in an error
//! from far below is taken out too. Metrics are elsewhere.

use std::io::{self, IsTerminal, Write};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::domain::redact::redact;

/// Starts logging. `default` is the level (`info`, or a filter such as `katabatch=debug`) where the
/// environment's `KATABATCH_LOG` says none.
pub fn start(default: &str) {
    let filter = EnvFilter::try_from_env("KATABATCH_LOG")
        .unwrap_or_else(|_| EnvFilter::try_new(default).unwrap_or_default());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(Redacted);
    // A second start (in tests) keeps the first subscriber.
    let _ = if io::stderr().is_terminal() {
        builder.compact().with_target(false).try_init()
    } else {
        builder.json().flatten_event(true).try_init()
    };
}

/// Writes to stderr, without credentials.
#[derive(Debug, Clone, Copy)]
struct Redacted;

/// One event's text, written out whole at its end.
struct Event(Vec<u8>);

impl<'a> MakeWriter<'a> for Redacted {
    type Writer = Event;

    fn make_writer(&'a self) -> Event {
        Event(Vec::new())
    }
}

impl Write for Event {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let text = String::from_utf8_lossy(&self.0);
        // There is nowhere to report that stderr is gone.
        let _ = io::stderr().lock().write_all(redact(&text).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redaction_keeps_a_json_line_valid() {
        let line = r#"{"level":"WARN","url":"https://h/o?X-Goog-Signature=SECRET","n":1}"#;
        let shown = redact(line);
        assert!(!shown.contains("SECRET"));
        assert!(serde_json::from_str::<serde_json::Value>(&shown).is_ok(), "{shown}");
    }
}
