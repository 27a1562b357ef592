//! What a pause, a resume or a cancel is about, as the command line says it; and why.

use std::io::{BufRead, IsTerminal, Write};
use std::time::Duration;

use anyhow::bail;
use jiff::Timestamp;

use super::person::person;
use crate::clock::{Clock, SystemClock};
use crate::controls::{Mark, Target};
use crate::domain::glob::Glob;
use crate::located::duration::parse_duration;

/// The longest reason that is kept.
const LONGEST_WHY: usize = 500;

/// One selector. In names `*` stands for anything.
#[derive(Debug, Clone, clap::Args)]
#[group(required = true, multiple = false)]
pub struct TargetArgs {
    /// Everything that this scheduler does.
    #[arg(long)]
    all: bool,
    /// A project, as the catalog has it.
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    /// A job type.
    #[arg(long, value_name = "NAME")]
    job_type: Option<String>,
    /// A command, such as fuzz.
    #[arg(long, value_name = "NAME")]
    command: Option<String>,
    /// A backend.
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
}

impl TargetArgs {
    /// The target; of several selectors there is one, as clap sees to.
    pub fn target(&self) -> Target {
        let glob = |name: &Option<String>| name.as_deref().map(Glob::new);
        let some = glob(&self.project)
            .map(Target::Project)
            .or_else(|| glob(&self.job_type).map(Target::JobType))
            .or_else(|| glob(&self.command).map(Target::Command))
            .or_else(|| glob(&self.backend).map(Target::Backend));
        some.unwrap_or(Target::All)
    }
}

/// Why it is done, and for how long.
#[derive(Debug, Clone, clap::Args)]
pub struct WhyArgs {
    /// Why, for whoever wonders later.
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    pub why: String,
}

fn reason(text: &str) -> Result<String, String> {
    let text = text.trim();
    match text.chars().count() {
        0 => Err("say why in a few words".into()),
        n if n > LONGEST_WHY => Err(format!("say it in at most {LONGEST_WHY} characters")),
        _ => Ok(crate::domain::redact::redact(text).into_owned()),
    }
}

impl WhyArgs {
    /// The mark of now, by the person at the keyboard.
    pub fn mark(&self, lasting: Option<Duration>) -> Mark {
        let at = SystemClock.wall();
        let until = lasting.map(|time| at.checked_add(time).unwrap_or(Timestamp::MAX));
        Mark { who: person(), why: self.why.clone(), at, until }
    }
}

/// Reads a length of time for clap.
pub fn duration(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).filter(|time| !time.is_zero());
    time.ok_or_else(|| "write a length of time such as 30m, 2h or 1d".to_owned())
}

/// Asks at the terminal whether to go on; without a terminal `--yes` must say so.
///
/// # Errors
/// The person does not want to, or nobody can be asked.
pub fn confirm(yes: bool, question: &str, err: &mut dyn Write) -> anyhow::Result<()> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        bail!("{question}\nhint: nobody can be asked here; say --yes if that is meant");
    }
    write!(err, "{question} [y/N] ")?;
    err.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    if !matches!(answer.trim(), "y" | "Y" | "yes") {
        bail!("nothing was done");
    }
    Ok(())
}
