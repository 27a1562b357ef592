//! `katabatch queue list`: what waits in the spool, in the order in which it will be leased.

use std::collections::BTreeMap;
use std::io::Write;

use jiff::Timestamp;
use serde::Serialize;

use super::super::output::{Exit, Row, after_printing, print_rows};
use super::{ListArgs, failed};
use crate::domain::input_url::InputUrl;
use crate::domain::redact::redact;
use crate::queue::spool::Spool;
use crate::queue::spool::record::{Entry, State};

#[derive(Serialize)]
struct Listed {
    id: String,
    state: State,
    due_at: Timestamp,
    published_at: Timestamp,
    deliveries: u32,
    attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts_allowed: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_seconds: Option<u64>,
    attributes: BTreeMap<String, String>,
}

impl Row for Listed {
    const HEADINGS: &'static [&'static str] =
        &["ID", "COMMAND", "JOB", "STATE", "DUE", "DELIVERIES", "ARGUMENT"];

    fn cells(&self) -> Vec<String> {
        let attribute = |name: &str| self.attributes.get(name).cloned().unwrap_or_default();
        let state = match self.state {
            State::Ready => "ready",
            State::Leased => "leased",
            State::Delayed => "delayed",
        };
        vec![
            self.id.clone(),
            attribute("command"),
            attribute("job"),
            state.to_owned(),
            seconds(self.due_at),
            self.deliveries.to_string(),
            attribute("argument"),
        ]
    }
}

/// Lists messages.
pub(super) async fn list(
    spool: &Spool,
    args: &ListArgs,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Exit {
    // One more than is shown tells whether there is more.
    let mut entries = match spool.list(limit(args).saturating_add(1)).await {
        Ok(entries) => entries,
        Err(error) => return failed(&error, err),
    };
    let more = entries.len() > limit(args);
    entries.truncate(limit(args));
    let rows: Vec<Listed> = entries.into_iter().map(|entry| listed(entry, args.reveal)).collect();
    let printed = print_rows(args.output, &rows, "tasks in the spool", out, err);
    if more {
        cut(rows.len(), err);
    }
    after_printing(printed, Exit::Done, err)
}

fn listed(entry: Entry, reveal: bool) -> Listed {
    Listed {
        id: entry.id,
        state: entry.state,
        due_at: entry.due_at,
        published_at: entry.published_at,
        deliveries: entry.deliveries,
        attempts: entry.attempts,
        attempts_allowed: entry.attempts_allowed,
        timeout_seconds: entry.timeout.map(|t| t.as_secs()),
        attributes: shown(entry.attributes, reveal),
    }
}

/// The most rows to ask for: `-n 0` is all.
pub(super) fn limit(args: &ListArgs) -> usize {
    if args.limit == 0 { usize::MAX } else { args.limit }
}

/// Says on stderr that there is more than was listed. That stderr is gone must not change what was
/// listed.
pub(super) fn cut(shown: usize, err: &mut dyn Write) {
    let _ = writeln!(err, "the first {shown} are shown; -n 0 shows all");
}

/// Attributes without credentials, unless they are to be revealed.
pub(super) fn shown(
    mut attributes: BTreeMap<String, String>,
    reveal: bool,
) -> BTreeMap<String, String> {
    if !reveal {
        for (name, value) in &mut attributes {
            *value = match InputUrl::parse(value) {
                Ok(url) if name == "argument" => url.redacted(),
                // An argument that is no URL may be a broken one, its signature anywhere in it.
                Err(_) if name == "argument" => {
                    let end = value.find(['?', '#', '&']).unwrap_or(value.len());
                    let kept = redact(value.get(..end).unwrap_or_default()).into_owned();
                    if end < value.len() { format!("{kept}?REDACTED") } else { kept }
                }
                _ => redact(value).into_owned(),
            };
        }
    }
    attributes
}

/// A time to the second, for tables.
pub(super) fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
