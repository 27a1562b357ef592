//! `katabatch run`: schedules tasks from the configured queues until stopped.

use std::path::Path;

use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::output::{Exit, Format, Row, after_printing, print_rows};
use crate::config::backends::JOBS;
use crate::pipeline::Ended;
use crate::pipeline::tally::Counts;
use crate::service::{Options, Service, load};

/// What `katabatch run` takes.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// End when the queues are empty and nothing is left but what is held for long; print what
    /// became of the tasks.
    #[arg(long)]
    once: bool,
    /// How many tasks run at once on this machine, in the place of each local backend's `jobs`.
    #[arg(long, value_name = "N", value_parser = jobs)]
    jobs: Option<usize>,
    /// How to print what became of the tasks, with --once.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// One line of the summary.
#[derive(Debug, Serialize)]
pub(super) struct Count {
    what: &'static str,
    reason: String,
    count: u64,
}

impl Row for Count {
    const HEADINGS: &'static [&'static str] = &["WHAT", "REASON", "COUNT"];

    fn cells(&self) -> Vec<String> {
        vec![self.what.to_owned(), self.reason.clone(), self.count.to_string()]
    }
}

/// The counts as rows; what did not happen is left out.
pub(super) fn rows(counts: &Counts) -> Vec<Count> {
    let count = |what, reason: &str, count| Count { what, reason: reason.to_owned(), count };
    let mut rows = vec![
        count("scheduled", "created", counts.created),
        count("scheduled", "already_there", counts.already_there),
    ];
    rows.extend(counts.held.iter().map(|(kind, n)| count("held", kind.label(), *n)));
    rows.extend(counts.rejected.iter().map(|(kind, n)| count("rejected", kind.label(), *n)));
    rows.push(count("messages acked", "", counts.acked));
    rows.push(count("messages acked", "not_ours", counts.not_ours));
    rows.push(count("messages given back", "", counts.released));
    rows.push(count("messages given back", "failed", counts.failed));
    rows.push(count("acks too late", "", counts.ack_lost));
    rows.retain(|row| row.count > 0);
    rows
}

/// As in the configuration.
fn jobs(text: &str) -> Result<usize, String> {
    let jobs = text.parse().ok().filter(|jobs| JOBS.contains(jobs));
    jobs.ok_or_else(|| format!("write a whole number from {} to {}", JOBS.start(), JOBS.end()))
}

/// Runs the command.
pub async fn run(config: &Path, args: RunArgs) -> anyhow::Result<Exit> {
    let options = Options { once: args.once, jobs: args.jobs, ledger: true, ..Options::default() };
    let service = Service::build(load(config)?, options).await?;
    let (tally, stop) = (service.tally(), stop_on_signals()?);
    match stop.run_until_cancelled(service.review_rights()).await {
        Some(reviewed) => reviewed?,
        None => return Ok(Exit::Done),
    }
    let ended = service.run(stop).await?;
    let counts = tally.read();
    let exit = match ended {
        Ended::Stopped | Ended::Drained => Exit::Done,
        Ended::FuseBlown => Exit::Failed,
    };
    if !args.once {
        tracing::info!(?counts, "stopped");
        return Ok(exit);
    }
    let (mut out, mut err) = (std::io::stdout().lock(), std::io::stderr().lock());
    let printed = print_rows(args.output, &rows(&counts), "tasks", &mut out, &mut err);
    Ok(after_printing(printed, exit, &mut err))
}

/// A token that the first SIGTERM or Ctrl-C cancels; a second one forces the process to end.
pub(super) fn stop_on_signals() -> anyhow::Result<CancellationToken> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut term = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let token = CancellationToken::new();
    let stop = token.clone();
    tokio::spawn(async move {
        for forced in [false, true] {
            tokio::select! {
                biased;
                _ = term.recv() => {}
                _ = interrupt.recv() => {}
            }
            if forced {
                tracing::warn!("forced to stop: leased messages come back when their leases lapse");
                std::process::exit(130);
            }
            tracing::info!("stopping; a second signal forces it");
            stop.cancel();
        }
    });
    Ok(token)
}
