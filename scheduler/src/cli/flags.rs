//! `katabatch flags`: the farm's feature flags, to look at and to change, wherever they are.
//!
//! Who changed what is said on stderr in one line, for whoever collects it, and kept in the audit log
//! beside the scheduler's controls.

use std::io::Write;
use std::path::Path;

use anyhow::anyhow;
use jiff::Timestamp;
use serde::Serialize;

use super::controls::keep_audit;
use super::output::{Exit, Format, Row, after_printing, print_rows};
use super::person::person;
use crate::clock::{Clock, SystemClock};
use crate::controls::audit::Entry;
use crate::flags::change::{Change, ChangeError};
use crate::flags::store::Changed;
use crate::flags::{Flag, FlagSource};
use crate::service::{load, open_flags};

/// What `katabatch flags` takes.
#[derive(Debug, clap::Args)]
pub struct FlagsArgs {
    #[command(subcommand)]
    command: FlagsCommand,
}

#[derive(Debug, clap::Subcommand)]
enum FlagsCommand {
    /// Print all flags.
    List {
        /// How to print.
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Change one flag, and print what it was and what it is.
    Set(SetArgs),
}

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
struct SetArgs {
    /// The flag.
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    name: String,
    /// Its number, such as a weight from 0 to 1.
    #[arg(long, value_name = "NUMBER", group = "what", allow_negative_numbers = true, value_parser = number)]
    value: Option<f64>,
    /// Take its number away.
    #[arg(long, group = "what", conflicts_with = "value")]
    unset: bool,
    /// Whether it counts at all. Needed to make a flag that does not exist yet.
    #[arg(long, value_name = "true|false", group = "what", action = clap::ArgAction::Set)]
    enabled: Option<bool>,
    /// Its text.
    #[arg(long, value_name = "TEXT", group = "what")]
    string: Option<String>,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

fn number(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number),
        _ => Err("write a number, such as 0.5".into()),
    }
}

/// One flag, as it is printed.
#[derive(Debug, Serialize)]
struct FlagRow {
    name: String,
    enabled: bool,
    value: Option<f64>,
    string_value: Option<String>,
    description: Option<String>,
}

impl FlagRow {
    fn of(name: &str, flag: &Flag) -> Self {
        let Flag { enabled, value, string_value, description, integer: _ } = flag.clone();
        Self { name: name.to_owned(), enabled, value, string_value, description }
    }
}

fn shown(value: Option<f64>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

impl Row for FlagRow {
    const HEADINGS: &'static [&'static str] =
        &["FLAG", "ENABLED", "VALUE", "STRING", "DESCRIPTION"];

    fn cells(&self) -> Vec<String> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        vec![
            self.name.clone(),
            self.enabled.to_string(),
            shown(self.value),
            text(&self.string_value),
            text(&self.description),
        ]
    }
}

/// A property of the flag before and after.
#[derive(Debug, PartialEq, Serialize)]
struct ChangeRow {
    flag: String,
    property: &'static str,
    before: Option<String>,
    after: Option<String>,
}

impl Row for ChangeRow {
    const HEADINGS: &'static [&'static str] = &["FLAG", "PROPERTY", "BEFORE", "AFTER"];

    fn cells(&self) -> Vec<String> {
        let cell = |text: &Option<String>| text.clone().unwrap_or_default();
        vec![self.flag.clone(), self.property.to_owned(), cell(&self.before), cell(&self.after)]
    }
}

fn change_rows(name: &str, changed: &Changed) -> Vec<ChangeRow> {
    let before = |read: fn(&Flag) -> Option<String>| changed.before.as_ref().and_then(read);
    let row = |property, read: fn(&Flag) -> Option<String>| ChangeRow {
        flag: name.to_owned(),
        property,
        before: before(read),
        after: read(&changed.after),
    };
    vec![
        row("enabled", |flag| Some(flag.enabled.to_string())),
        row("value", |flag| flag.value.map(|value| value.to_string())),
        row("string_value", |flag| flag.string_value.clone()),
    ]
}

/// Runs the command.
pub async fn run(config: &Path, args: FlagsArgs) -> anyhow::Result<Exit> {
    let loaded = load(config)?.get();
    let store = open_flags(&loaded).await.map_err(|error| anyhow!(error))?;
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    match args.command {
        FlagsCommand::List { output } => {
            let flags = store.read().await?;
            let rows: Vec<FlagRow> =
                flags.0.iter().map(|(name, flag)| FlagRow::of(name, flag)).collect();
            let printed = print_rows(output, &rows, "flags", &mut out, &mut err);
            Ok(after_printing(printed, Exit::Done, &mut err))
        }
        FlagsCommand::Set(args) => {
            let changed = store.set(&args.name, &change(&args)).await.map_err(with_hint)?;
            let (now, who) = (SystemClock.wall(), person());
            let line = audit(now, &who, &args.name, &changed);
            // stderr is gone: what was asked is done all the same.
            let _ = writeln!(err, "{line}");
            let (what, detail) = (format!("set flag {}", args.name), before_and_after(&changed));
            let entry = Entry { at: now, who, what, detail };
            if let Err(error) = keep_audit(&loaded, &entry).await {
                let _ = writeln!(err, "warning: the audit log could not be written: {error:#}");
            }
            if !changed.after.enabled && args.enabled.is_none() {
                let _ = writeln!(
                    err,
                    "warning: the flag is off, so that its values count for nothing; \
                     --enabled true turns it on"
                );
            }
            let rows = change_rows(&args.name, &changed);
            let printed = print_rows(args.output, &rows, "changes", &mut out, &mut err);
            Ok(after_printing(printed, Exit::Done, &mut err))
        }
    }
}

fn change(args: &SetArgs) -> Change {
    Change {
        enabled: args.enabled,
        value: if args.unset { Some(None) } else { args.value.map(Some) },
        string_value: args.string.clone(),
    }
}

fn with_hint(error: ChangeError) -> anyhow::Error {
    match error {
        ChangeError::Absent { .. } => {
            anyhow!("{error}\nhint: to make it, say --enabled true or --enabled false too")
        }
        other => other.into(),
    }
}

/// The line that says who changed what: quoted, so that no name or text can forge another line.
fn audit(now: Timestamp, person: &str, name: &str, changed: &Changed) -> String {
    let (place, what) = (&changed.place, before_and_after(changed));
    format!("audit: {now} {person:?} set flag {name:?} in {place:?}: {what}")
}

fn before_and_after(changed: &Changed) -> String {
    let text = |flag: &Flag| {
        format!(
            "enabled={} value={} string_value={:?}",
            flag.enabled,
            flag.value.map_or_else(|| "null".to_owned(), |value| value.to_string()),
            flag.string_value.as_deref().unwrap_or_default(),
        )
    };
    let before = changed.before.as_ref().map_or_else(|| "absent".to_owned(), text);
    format!("before ({before}), after ({})", text(&changed.after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_audit_line_says_who_changed_what_and_is_one_line_whatever_is_in_it() {
        let flag = |value, text: &str| Flag {
            enabled: true,
            value,
            string_value: Some(text.to_owned()),
            ..Flag::default()
        };
        let changed = Changed {
            before: Some(flag(Some(1.0), "a\nb")),
            after: flag(None, "audit: forged"),
            place: "Datastore of project p".into(),
        };
        let line = audit(Timestamp::UNIX_EPOCH, "ann", "w\n", &changed);
        assert_eq!(
            line,
            "audit: 1970-01-01T00:00:00Z \"ann\" set flag \"w\\n\" in \"Datastore of project p\": \
             before (enabled=true value=1 string_value=\"a\\nb\"), \
             after (enabled=true value=null string_value=\"audit: forged\")"
        );
        let fresh = audit(Timestamp::UNIX_EPOCH, "ann", "w", &Changed { before: None, ..changed });
        assert!(fresh.contains("before (absent)"), "{fresh}");
    }

    #[test]
    fn every_property_is_shown_before_and_after() {
        let after = Flag { enabled: true, value: Some(0.5), ..Flag::default() };
        let changed = Changed { before: None, after, place: String::new() };
        let rows = change_rows("w", &changed);
        let got: Vec<_> =
            rows.iter().map(|r| (r.property, r.before.as_deref(), r.after.as_deref())).collect();
        assert_eq!(
            got,
            [
                ("enabled", None, Some("true")),
                ("value", None, Some("0.5")),
                ("string_value", None, None)
            ]
        );
    }
}
