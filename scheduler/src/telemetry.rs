//! Logs: to stderr, for people on a terminal and as JSON lines elsewhere.
//!
//! Whatever a log line holds passes the redaction on its way out, so that a credential in an error
//! from far below is taken out too. A plain level is about katabatch: what its libraries say below
//! `info` is the bytes that they move, and is heard of only where a filter names one of them.
//! Metrics are elsewhere.

use std::io::{self, IsTerminal, Write};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::domain::redact::redact;

/// Starts logging. `default` is the level (`info`, or a filter such as `katabatch=debug`) where the
/// environment's `KATABATCH_LOG` says none.
pub fn start(default: &str) {
    let own = std::env::var("KATABATCH_LOG").ok();
    let filter = own.and_then(|own| EnvFilter::try_new(directives(&own)).ok());
    let filter =
        filter.unwrap_or_else(|| EnvFilter::try_new(directives(default)).unwrap_or_default());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(Redacted);
    // A second start (in tests) keeps the first subscriber.
    let _ = if io::stderr().is_terminal() {
        builder.compact().with_target(false).try_init()
    } else {
        builder.json().flatten_event(true).try_init()
    };
}

/// What says nothing that we do not say better: an error for each call that only waited in vain.
const NOISE: &str = "gcloud_sdk::middleware";

/// A filter's directives, with a plain level as what is meant by it.
fn directives(filter: &str) -> String {
    let mut all = Vec::new();
    for directive in filter.split(',').map(str::trim) {
        match directive.parse::<LevelFilter>() {
            // Spelt out: an empty directive reads as a level too.
            Ok(level) if !directive.is_empty() => {
                all.push(level.min(LevelFilter::INFO).to_string());
                all.push(format!("katabatch={level}"));
            }
            _ => all.push(directive.to_owned()),
        }
    }
    // Of two directives for one target the later one counts.
    all.insert(0, format!("{NOISE}=off"));
    all.join(",")
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
    fn a_plain_level_is_about_katabatch() {
        for (filter, expect) in [
            ("trace", "info,katabatch=trace"),
            ("warn", "warn,katabatch=warn"),
            ("off", "off,katabatch=off"),
            ("katabatch=warn", "katabatch=warn"),
            ("debug,hyper=trace", "info,katabatch=debug,hyper=trace"),
            ("info, katabatch::pipeline=trace", "info,katabatch=info,katabatch::pipeline=trace"),
        ] {
            assert_eq!(directives(filter), format!("{NOISE}=off,{expect}"), "{filter}");
            assert!(EnvFilter::try_new(directives(filter)).is_ok(), "{filter}");
        }
    }

    #[test]
    fn redaction_keeps_a_json_line_valid() {
        let line = r#"{"level":"WARN","url":"https://h/o?X-Goog-Signature=SECRET","n":1}"#;
        let shown = redact(line);
        assert!(!shown.contains("SECRET"));
        assert!(serde_json::from_str::<serde_json::Value>(&shown).is_ok(), "{shown}");
    }
}
