//! `katabatch queue quarantine`: rejected tasks, and the way back for them.

use std::collections::BTreeMap;
use std::io::Write;

use jiff::Timestamp;
use serde::Serialize;

use super::super::output::{Exit, Row, after_printing, print_error, print_rows};
use super::show::{cut, limit, seconds, shown};
use super::{ListArgs, SelectArgs, failed};
use crate::queue::spool::Spool;
use crate::queue::spool::record::{Quarantined, Selection};

#[derive(Serialize)]
struct Rejected {
    id: String,
    reason: String,
    detail: String,
    rejected_at: Timestamp,
    published_at: Timestamp,
    deliveries: u32,
    attributes: BTreeMap<String, String>,
}

impl Row for Rejected {
    const HEADINGS: &'static [&'static str] =
        &["ID", "COMMAND", "JOB", "REASON", "REJECTED", "DETAIL", "ARGUMENT"];

    fn cells(&self) -> Vec<String> {
        let attribute = |name: &str| self.attributes.get(name).cloned().unwrap_or_default();
        vec![
            self.id.clone(),
            attribute("command"),
            attribute("job"),
            self.reason.clone(),
            seconds(self.rejected_at),
            self.detail.clone(),
            attribute("argument"),
        ]
    }
}

/// Lists the selected records.
pub(super) async fn list(
    spool: &Spool,
    select: &SelectArgs,
    args: &ListArgs,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Exit {
    let selection = select.selection(spool.now());
    let everything = selection == Selection::default();
    // One more than is shown tells whether there is more.
    let mut records = match spool.quarantined(selection, limit(args).saturating_add(1)).await {
        Ok(records) => records,
        Err(error) => return failed(&error, err),
    };
    let more = records.len() > limit(args);
    records.truncate(limit(args));
    let rows: Vec<Rejected> = records.into_iter().map(|r| rejected(r, args.reveal)).collect();
    let things = if everything { "tasks in quarantine" } else { "such tasks in quarantine" };
    let printed = print_rows(args.output, &rows, things, out, err);
    if more {
        cut(rows.len(), err);
    }
    after_printing(printed, Exit::Done, err)
}

fn rejected(record: Quarantined, reveal: bool) -> Rejected {
    Rejected {
        id: record.id,
        reason: record.reason,
        detail: record.detail,
        rejected_at: record.rejected_at,
        published_at: record.published_at,
        deliveries: record.deliveries,
        attributes: shown(record.attributes, reveal),
    }
}

/// Puts the selected tasks back. All of them only if told so: what was rejected for good reason
/// would be tried again.
pub(super) async fn retry(
    spool: &Spool,
    select: &SelectArgs,
    all: bool,
    err: &mut dyn Write,
) -> Exit {
    let selection = select.selection(spool.now());
    if !all && selection == Selection::default() {
        let hint = Some("narrow it with --reason, --since or --until, or say --all");
        let told = print_error(err, &"which tasks to put back is not said", hint);
        return after_printing(told, Exit::Failed, err);
    }
    match spool.retry(selection).await {
        Ok(n) => after_printing(writeln!(err, "{n} put back"), Exit::Done, err),
        Err(error) => failed(&error, err),
    }
}
