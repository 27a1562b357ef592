//! `katabatch why JOB_TYPE`: why its tasks run or don't, in words.
//!
//! A running scheduler is asked over its HTTP endpoint; where none answers, the ledger's file tells
//! what was written last, and the command says so.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use serde::Deserialize as _;

use super::output::{Exit, Format, after_printing, yaml};
use crate::clock::{Clock, SystemClock};
use crate::domain::log_tail::LogTail;
use crate::domain::name::JobType;
use crate::service::{Lookups, load, why};
use crate::why::{About, Answer, Source};

/// How long a running scheduler may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Of how many ends the log is shown, and how many lines of it.
const LOGS: usize = 2;
const LINES: usize = 20;

/// What `katabatch why` takes.
#[derive(Debug, clap::Args)]
pub struct WhyArgs {
    /// The job type.
    job_type: String,
    /// Only this command of it, such as fuzz.
    #[arg(long)]
    command: Option<String>,
    /// How to print the answer; json and yaml have everything, whole log tails too.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// Runs the command.
pub async fn run(config: &Path, args: WhyArgs) -> anyhow::Result<Exit> {
    let loaded = load(config)?.get();
    let mut err = std::io::stderr().lock();
    let asked = match &loaded.config.http {
        Some(http) => ask(http.listen, &args).await,
        None => Err(anyhow::anyhow!("the configuration has no http.listen")),
    };
    let answer = match asked {
        Ok(answer) => answer,
        Err(why) => {
            let file = &loaded.config.ledger.path;
            // stderr may be closed; the answer still counts.
            let _ = writeln!(
                err,
                "no running scheduler answers ({why:#}); this is what {} had",
                file.display()
            );
            let clock: std::sync::Arc<dyn Clock> = std::sync::Arc::new(SystemClock);
            let lookups = Lookups::open(&loaded, &clock).await.map_err(anyhow::Error::msg)?;
            let (catalog, job_type) = (lookups.catalog(), JobType::from(args.job_type.as_str()));
            let command = args.command.as_deref();
            why::from_file(file, catalog.as_ref(), clock.as_ref(), &job_type, command).await?
        }
    };
    let mut out = std::io::stdout().lock();
    let printed = match args.output {
        Format::Table => out.write_all(text(&answer).as_bytes()),
        Format::Json => serde_json::to_writer_pretty(&mut out, &answer)
            .map_err(std::io::Error::from)
            .and_then(|()| writeln!(out)),
        Format::Yaml => yaml(&answer).and_then(|text| out.write_all(text.as_bytes())),
    };
    Ok(after_printing(printed.and_then(|()| out.flush()), Exit::Done, &mut err))
}

/// Asks a running scheduler.
async fn ask(at: SocketAddr, args: &WhyArgs) -> anyhow::Result<Answer> {
    let mut url = url::Url::parse(&format!("http://{at}/v1/why"))?;
    url.query_pairs_mut().append_pair("job_type", &args.job_type);
    if let Some(command) = &args.command {
        url.query_pairs_mut().append_pair("command", command);
    }
    let client = reqwest::Client::builder().timeout(PATIENCE).no_proxy().build()?;
    let response = client.get(url).send().await.map_err(reqwest::Error::without_url)?;
    let response = response.error_for_status().map_err(reqwest::Error::without_url)?;
    let body = response.bytes().await.map_err(reqwest::Error::without_url)?;
    let mut read = serde_json::Deserializer::from_slice(&body);
    Answer::deserialize(&mut read).context("its answer can't be read")
}

/// The answer for reading.
fn text(answer: &Answer) -> String {
    let mut lines = Vec::new();
    for sentence in &answer.sentences {
        let of = if sentence.command.is_empty() {
            String::new()
        } else {
            format!("{} ", sentence.command)
        };
        lines.push(format!("{of}{}: {}", answer.job_type, sentence.text));
        if let Some(change) = &sentence.change {
            lines.push(format!("  to change it: {change}"));
        }
    }
    if answer.source == Source::File {
        lines.push("(as of the last word written; whether a scheduler runs is not known)".into());
    }
    answer.workloads.iter().for_each(|about| lines.extend(logs(about)));
    lines.iter().map(|line| format!("{}\n", shown(line))).collect()
}

/// The ends of the last logs.
fn logs(about: &About) -> Vec<String> {
    let mut lines = Vec::new();
    for end in about.ends.iter().rev().take(LOGS) {
        let (at, kind) = (end.ended_at, end.kind);
        lines.push(format!("-- {} {}, ended at {at:.0} as {kind}:", about.command, end.job));
        match &end.tail {
            LogTail::Text(text) => {
                let all: Vec<&str> = text.lines().collect();
                let from = all.len().saturating_sub(LINES);
                lines.extend(all.iter().skip(from).map(|line| format!("   {line}")));
            }
            LogTail::Nothing => lines.push("   (it printed nothing)".to_owned()),
            LogTail::Unavailable(why) => lines.push(format!("   (no log: {why})")),
        }
    }
    lines
}

/// What a task printed must not steer the terminal.
fn shown(line: &str) -> String {
    line.chars()
        .map(|c| match c {
            '\t' => ' ',
            c if c.is_control()
                || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') =>
            {
                '\u{fffd}'
            }
            c => c,
        })
        .collect()
}
