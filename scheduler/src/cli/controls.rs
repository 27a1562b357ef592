//! `katabatch pause`, `resume`, `drain` and `controls`: what operators tell a scheduler beside its
//! flags. A running scheduler reads it every two seconds, whichever process leads.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use serde::Serialize;

use super::output::{Exit, Format, Row, after_printing, print_rows};
use super::person::person;
use super::target::{TargetArgs, WhyArgs, duration};
use crate::clock::{Clock, SystemClock};
use crate::config::Config;
use crate::controls::audit::{Entry, entries};
use crate::controls::{Controls, Pause, Target, resumed};
use crate::domain::glob::Glob;
use crate::records::Records;
use crate::service::home::open_controls;
use crate::service::{Loaded, load};

/// How long the audit log of a change that is made elsewhere may take.
const AUDIT_WITHIN: Duration = Duration::from_secs(10);

/// What `katabatch pause` takes.
#[derive(Debug, clap::Args)]
pub struct PauseArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    why: WhyArgs,
    /// For so long: 30m, 2h, 1d. Default: until resumed.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    lasting: Option<Duration>,
}

/// What `katabatch resume` takes.
#[derive(Debug, clap::Args)]
pub struct ResumeArgs {
    #[command(flatten)]
    target: TargetArgs,
}

/// What `katabatch drain` takes.
#[derive(Debug, clap::Args)]
pub struct DrainArgs {
    /// The backend.
    backend: String,
    #[command(flatten)]
    why: WhyArgs,
    /// For so long: 30m, 2h, 1d. Default: until resumed.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    lasting: Option<Duration>,
}

/// What `katabatch controls` takes.
#[derive(Debug, clap::Args)]
pub struct ControlsArgs {
    #[command(subcommand)]
    command: ControlsCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ControlsCommand {
    /// Print the pauses in force and the backends that are declared lost.
    List {
        /// How to print.
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
    /// Print the last changes of flags and controls, the oldest first.
    Audit {
        /// How to print.
        #[arg(short, long, value_enum, default_value_t)]
        output: Format,
    },
}

/// The controls of a scheduler, opened for a command.
pub(super) struct Opened {
    records: Arc<dyn Records>,
}

impl Opened {
    pub(super) async fn of(loaded: &Loaded) -> anyhow::Result<Self> {
        Ok(Self { records: open_controls(loaded).await? })
    }

    /// What is in force.
    pub(super) async fn read(&self) -> anyhow::Result<Controls> {
        let records = self.records.all().await?;
        Controls::read(&records, SystemClock.wall()).map_err(|error| anyhow!(error))
    }

    /// Makes changes, together with their audit entry.
    pub(super) async fn change(
        &self,
        mut changes: Vec<(String, Option<String>)>,
        what: String,
        detail: String,
    ) -> anyhow::Result<()> {
        let before = self.records.all().await?;
        let entry = Entry { at: SystemClock.wall(), who: person(), what, detail };
        changes.extend(entry.record(&before).map_err(|error| anyhow!(error))?);
        Ok(self.records.write(&changes).await?)
    }
}

/// Puts an entry into the audit log, in bounded time.
pub(super) async fn keep_audit(loaded: &Loaded, entry: &Entry) -> anyhow::Result<()> {
    let keep = async {
        let records = open_controls(loaded).await?;
        let before = records.all().await?;
        let changes = entry.record(&before).map_err(|error| anyhow!(error))?;
        anyhow::Ok(records.write(&changes).await?)
    };
    tokio::time::timeout(AUDIT_WITHIN, keep).await.context("it took too long")?
}

async fn put_pause(
    config: &Path,
    target: Target,
    why: &WhyArgs,
    lasting: Option<Duration>,
) -> anyhow::Result<Exit> {
    let loaded = load(config)?.get();
    let config = &loaded.config;
    if let Target::Backend(glob) = &target
        && !config.backends.iter().any(|backend| glob.matches(backend.name.as_str()))
    {
        return Err(no_such_backend(config, glob.as_str()));
    }
    let pause = Pause { target, mark: why.mark(lasting) };
    let record = pause.record().map_err(|error| anyhow!(error))?;
    let (what, detail) = (format!("pause {}", pause.target), pause.mark.to_string());
    Opened::of(&loaded).await?.change(vec![record], what, detail).await?;
    tracing::info!("{} is paused {}", pause.target, pause.mark);
    Ok(Exit::Done)
}

/// The error that names the backends that there are.
pub(super) fn no_such_backend(config: &Config, name: &str) -> anyhow::Error {
    let names: Vec<&str> = config.backends.iter().map(|backend| backend.name.as_str()).collect();
    anyhow!("no backend is called `{name}`\nhint: there are {}", names.join(", "))
}

/// Runs `pause`.
pub async fn pause(config: &Path, args: PauseArgs) -> anyhow::Result<Exit> {
    put_pause(config, args.target.target(), &args.why, args.lasting).await
}

/// Runs `drain`.
pub async fn drain(config: &Path, args: DrainArgs) -> anyhow::Result<Exit> {
    put_pause(config, Target::Backend(Glob::new(&args.backend)), &args.why, args.lasting).await
}

/// Runs `resume`.
pub async fn resume(config: &Path, args: ResumeArgs) -> anyhow::Result<Exit> {
    let loaded = load(config)?.get();
    let (target, opened) = (args.target.target(), Opened::of(&loaded).await?);
    let controls = opened.read().await?;
    let Some(pause) = controls.pauses.iter().find(|pause| pause.target == target) else {
        let there: Vec<_> = controls.pauses.iter().map(|p| p.target.to_string()).collect();
        let there = if there.is_empty() { "nothing".to_owned() } else { there.join(", ") };
        return Err(anyhow!("{target} is not paused as such\nhint: paused is {there}"));
    };
    let (what, detail) = (format!("resume {target}"), format!("was paused {}", pause.mark));
    opened.change(vec![resumed(&target)], what, detail).await?;
    tracing::info!("{target} is resumed");
    Ok(Exit::Done)
}

/// One control, as it is printed.
#[derive(Debug, Serialize)]
struct ControlRow {
    control: &'static str,
    target: String,
    who: String,
    at: String,
    until: Option<String>,
    why: String,
}

impl Row for ControlRow {
    const HEADINGS: &'static [&'static str] = &["CONTROL", "TARGET", "WHO", "AT", "UNTIL", "WHY"];

    fn cells(&self) -> Vec<String> {
        let Self { control, target, who, at, until, why } = self;
        let until = until.clone().unwrap_or_default();
        vec![(*control).to_owned(), target.clone(), who.clone(), at.clone(), until, why.clone()]
    }
}

/// One audit entry, as it is printed.
#[derive(Debug, Serialize)]
struct AuditRow(Entry);

impl Row for AuditRow {
    const HEADINGS: &'static [&'static str] = &["AT", "WHO", "WHAT", "DETAIL"];

    fn cells(&self) -> Vec<String> {
        let Entry { at, who, what, detail } = &self.0;
        vec![at.to_string(), who.clone(), what.clone(), detail.clone()]
    }
}

fn rows(controls: &Controls) -> Vec<ControlRow> {
    let row = |control, target: String, mark: &crate::controls::Mark| ControlRow {
        control,
        target,
        who: mark.who.clone(),
        at: mark.at.to_string(),
        until: mark.until.map(|until| until.to_string()),
        why: mark.why.clone(),
    };
    let pauses = controls.pauses.iter().map(|p| row("pause", p.target.to_string(), &p.mark));
    let lost = controls.lost.iter().map(|(name, mark)| {
        let control = if controls.cleared.contains_key(name) { "lost, cleared" } else { "lost" };
        row(control, format!("backend {name}"), mark)
    });
    pauses.chain(lost).collect()
}

/// Runs `controls`.
pub async fn show(config: &Path, args: ControlsArgs) -> anyhow::Result<Exit> {
    let opened = Opened::of(&load(config)?.get()).await?;
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    let printed = match args.command {
        ControlsCommand::List { output } => {
            let rows = rows(&opened.read().await?);
            print_rows(output, &rows, "controls", &mut out, &mut err)
        }
        ControlsCommand::Audit { output } => {
            let records = opened.records.all().await?;
            let rows: Vec<_> = entries(&records).into_iter().map(|(_, e)| AuditRow(e)).collect();
            print_rows(output, &rows, "changes", &mut out, &mut err)
        }
    };
    Ok(after_printing(printed, Exit::Done, &mut err))
}
