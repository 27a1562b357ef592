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

/// A record of the quarantine, whatever the queue.
#[derive(Serialize)]
pub(super) struct Rejected {
    pub(super) id: String,
    pub(super) reason: String,
    pub(super) detail: String,
    pub(super) rejected_at: Timestamp,
    pub(super) published_at: Option<Timestamp>,
    pub(super) deliveries: Option<u32>,
    pub(super) attributes: BTreeMap<String, String>,
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
    match spool.quarantined(selection, limit(args).saturating_add(1)).await {
        Ok(records) => print(records.into_iter().map(Rejected::from), everything, args, out, err),
        Err(error) => failed(&error, err),
    }
}

/// Prints as many of `records` as are asked for.
pub(super) fn print(
    records: impl Iterator<Item = Rejected>,
    everything: bool,
    args: &ListArgs,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Exit {
    let mut records = records.fuse();
    let rows: Vec<Rejected> = records.by_ref().take(limit(args)).map(|r| r.shown(args)).collect();
    let things = if everything { "tasks in quarantine" } else { "such tasks in quarantine" };
    let printed = print_rows(args.output, &rows, things, out, err);
    if records.next().is_some() {
        cut(rows.len(), err);
    }
    after_printing(printed, Exit::Done, err)
}

impl Rejected {
    fn shown(self, args: &ListArgs) -> Self {
        Self { attributes: shown(self.attributes, args.reveal), ..self }
    }
}

impl From<Quarantined> for Rejected {
    fn from(record: Quarantined) -> Self {
        Self {
            id: record.id,
            reason: record.reason,
            detail: record.detail,
            rejected_at: record.rejected_at,
            published_at: Some(record.published_at),
            deliveries: Some(record.deliveries),
            attributes: record.attributes,
        }
    }
}

/// The selection of what to put back. All of them only if told so: what was rejected for good reason
/// would be tried again.
pub(super) fn chosen(
    select: &SelectArgs,
    all: bool,
    now: Timestamp,
    err: &mut dyn Write,
) -> Result<Selection, Exit> {
    let selection = select.selection(now);
    if all || selection != Selection::default() {
        return Ok(selection);
    }
    let hint = Some("narrow it with --reason, --since or --until, or say --all");
    let told = print_error(err, &"which tasks to put back is not said", hint);
    Err(after_printing(told, Exit::Failed, err))
}

/// Puts the selected tasks back.
pub(super) async fn retry(
    spool: &Spool,
    select: &SelectArgs,
    all: bool,
    err: &mut dyn Write,
) -> Exit {
    let selection = match chosen(select, all, spool.now(), err) {
        Ok(selection) => selection,
        Err(exit) => return exit,
    };
    match spool.retry(selection).await {
        Ok(n) => after_printing(writeln!(err, "{n} put back"), Exit::Done, err),
        Err(error) => failed(&error, err),
    }
}
