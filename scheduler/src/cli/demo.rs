//! `katabatch demo`: the whole thing at work, with a small farm and tasks of its own.
//!
//! Without more than this program it runs the tasks as processes of this machine; with
//! `--kubeconfig` it makes Jobs on a cluster. It ends with a table of what was scheduled, held and
//! rejected, and how it ended, beside what had to come of it.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::output::{Exit, Format, Row, after_printing, print_rows};
use super::run::stop_on_signals;
use crate::backend::local::{End, LocalBackend};
use crate::clock::{Clock, SystemClock};
use crate::demo::{Expectation, Place, Plan, World, prepare};
use crate::pipeline::tally::Tally;
use crate::queue::spool::Spool;
use crate::queue::spool::record::NewMessage;
use crate::service::{Options, Service, load};

/// What `katabatch demo` takes.
#[derive(Debug, clap::Args)]
pub struct DemoArgs {
    /// How many tasks.
    #[arg(long, default_value_t = 300)]
    tasks: usize,
    /// What the tasks are made from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many tasks run at once on this machine. Default: the number of processors.
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Run on the cluster of this kubeconfig in the place of this machine.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The namespace of the Jobs, with --kubeconfig.
    #[arg(long, default_value = "katabatch", requires = "kubeconfig")]
    namespace: String,
    /// Keep the demo's farm and what its tasks wrote in this directory. Default: a temporary one.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// How to print the table.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// One line of the table.
#[derive(Debug, Serialize)]
struct Line {
    what: &'static str,
    reason: String,
    count: u64,
    expected: Option<u64>,
}

impl Row for Line {
    const HEADINGS: &'static [&'static str] = &["WHAT", "REASON", "COUNT", "EXPECTED"];

    fn cells(&self) -> Vec<String> {
        let expected = self.expected.map(|n| n.to_string()).unwrap_or_default();
        vec![self.what.to_owned(), self.reason.clone(), self.count.to_string(), expected]
    }
}

/// Runs the command: 0 when what came of the tasks is what had to.
pub async fn run(args: DemoArgs) -> anyhow::Result<Exit> {
    let temporary = match &args.dir {
        Some(_) => None,
        None => Some(TemporaryDir::make()?),
    };
    let dir = args.dir.as_ref().or(temporary.as_ref().map(|t| &t.0)).context("no directory")?;
    let world = prepare(dir, &plan(&args)?)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    put(&world, &clock).await?;
    let options = Options { once: true, see_ends: true, ..Options::default() };
    let service = Service::build(load(&world.config)?, options).await?;
    let (tally, local) = (service.tally(), service.backends().local());
    let stop = stop_on_signals()?;
    let progress = tokio::spawn(show_progress(Arc::clone(&tally), local.clone(), args.tasks));
    let ended = service.run(stop.clone()).await;
    progress.abort();
    ended?;
    let lines = table(&tally, &local, &world.expected);
    let as_expected =
        lines.iter().all(|line| line.expected.is_none_or(|expected| expected == line.count));
    let (mut out, mut err) = (std::io::stdout().lock(), std::io::stderr().lock());
    let printed = print_rows(args.output, &lines, "tasks", &mut out, &mut err);
    if args.kubeconfig.is_some() {
        writeln!(err, "hint: kubectl get jobs,pods -n {}", args.namespace)?;
    } else if args.dir.is_some() {
        writeln!(err, "hint: the farm and what its tasks wrote are in {}", dir.display())?;
    }
    if !as_expected && !stop.is_cancelled() {
        writeln!(err, "error: not what had to come of it; see the logs above")?;
    }
    let exit = if as_expected { Exit::Done } else { Exit::Failed };
    Ok(after_printing(printed, exit, &mut err))
}

fn plan(args: &DemoArgs) -> anyhow::Result<Plan> {
    let own = std::env::current_exe().context("this program's own path can't be found")?;
    let own = own.to_str().context("this program's own path is no UTF-8 text")?.to_owned();
    let processors = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let place = match &args.kubeconfig {
        Some(kubeconfig) => Place::Cluster {
            kubeconfig: Some(std::path::absolute(kubeconfig)?),
            namespace: args.namespace.clone(),
        },
        None => Place::Local {
            worker: vec![own, "demo-worker".to_owned()],
            jobs: args.jobs.unwrap_or(processors),
        },
    };
    // Another date would be another demo; a signature of today is what a cluster's tasks need.
    Ok(Plan { tasks: args.tasks, seed: args.seed, now: SystemClock.wall(), place })
}

async fn put(world: &World, clock: &Arc<dyn Clock>) -> anyhow::Result<()> {
    let spool = Spool::open(&world.spool, "main".into(), Arc::clone(clock))?;
    let lines = std::fs::read_to_string(&world.tasks).context("the demo's tasks")?;
    // Not as `queue put` does, which refuses some of the bad ones: a farm's queue holds anything.
    let message = |line| {
        let attributes = serde_json::from_str(line)?;
        let (id, attempts, not_before, timeout) = (None, None, None, None);
        Ok(NewMessage { id, attributes, attempts, not_before, timeout })
    };
    let messages: Result<Vec<_>, serde_json::Error> = lines.lines().map(message).collect();
    let count = spool.put(messages.context("the demo's tasks")?).await?;
    tracing::info!(?count, "the demo's tasks are in the queue");
    Ok(())
}

/// Shows how far it is, on a terminal.
async fn show_progress(tally: Arc<Tally>, local: Vec<Arc<LocalBackend>>, tasks: usize) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    let bar = ProgressBar::new(tasks as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    loop {
        let counts = tally.read();
        let ended: usize = local.iter().flat_map(|backend| backend.summary().into_values()).sum();
        let rejected: u64 = counts.rejected.values().sum();
        bar.set_position(counts.acked + counts.not_ours + rejected);
        bar.set_message(format!("{} created, {ended} ended, {rejected} rejected", counts.created));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn table(tally: &Tally, local: &[Arc<LocalBackend>], expected: &Expectation) -> Vec<Line> {
    let counts = tally.read();
    let line = |what, reason: &str, count, expected: Option<usize>| Line {
        what,
        reason: reason.to_owned(),
        count,
        expected: expected.map(|n| n as u64),
    };
    let mut lines = vec![
        line("scheduled", "created", counts.created, Some(expected.created)),
        line("scheduled", "same task again", counts.already_there, Some(expected.already_there)),
        line("acked", "another base OS version", counts.not_ours, Some(expected.another_version)),
    ];
    for (kind, n) in &expected.held {
        let count = counts.held.get(kind).copied().unwrap_or(0);
        lines.push(line("held", kind.label(), count, Some(*n)));
    }
    for (kind, n) in &expected.rejected {
        let count = counts.rejected.get(kind).copied().unwrap_or(0);
        lines.push(line("rejected", kind.label(), count, Some(*n)));
    }
    if local.is_empty() {
        return lines;
    }
    let (mut succeeded, mut failed, mut deadline, mut other) = (0, 0, 0, 0);
    for (end, n) in local.iter().flat_map(|backend| backend.summary()) {
        *match end {
            End::Succeeded => &mut succeeded,
            End::Failed(_) => &mut failed,
            End::DeadlineExceeded => &mut deadline,
            End::Killed(_) | End::OutOfMemory | End::Cancelled | End::NotStarted | End::Unknown => {
                &mut other
            }
        } += n as u64;
    }
    let ends = expected.ends;
    lines.push(line("ended", "succeeded", succeeded, Some(ends.succeeded)));
    lines.push(line("ended", "crashed", failed, Some(ends.crashed)));
    lines.push(line("ended", "deadline exceeded", deadline, Some(ends.deadline_exceeded)));
    lines.push(line("ended", "otherwise", other, Some(0)));
    lines
}

/// A directory that goes when the demo ends.
struct TemporaryDir(PathBuf);

impl TemporaryDir {
    fn make() -> anyhow::Result<Self> {
        let name = format!("katabatch-demo-{}", uuid::Uuid::new_v4());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir(&dir).with_context(|| dir.display().to_string())?;
        Ok(Self(dir))
    }
}

impl Drop for TemporaryDir {
    fn drop(&mut self) {
        // What can't be removed is the system's temporary files' to tidy.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
