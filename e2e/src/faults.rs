//! The fault benchmark: thousands of tasks while everything that can break does, and a judge.
//!
//! A spool, the real control plane behind the proxy, and katabatch as processes of its own. What
//! goes wrong and when is drawn from a seed (`plan`); which request a fault meets is not, as the
//! machine is real. What happened is read from the store (`history`) and judged by a pure function
//! (`judge`). Tasks lost, doubled or over the limit end it with an error.

mod act;
mod base64;
mod crew;
mod history;
mod judge;
mod plan;
mod run;
mod tasks;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde::Serialize;

use crate::format::Format;
use crate::{ControlPlane, Options};
use judge::Found;
use plan::Plan;

/// The fewest tasks that a rate is told by.
const CALM: usize = 100;

/// What to run.
#[derive(Debug, Clone, clap::Args)]
pub struct FaultsArgs {
    /// How many tasks.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..))]
    tasks: u32,
    /// What the faults are drawn from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print what would go wrong, and do nothing.
    #[arg(long)]
    plan: bool,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// What came of a run.
#[derive(Debug, Clone, Serialize)]
struct Report {
    seed: u64,
    tasks: usize,
    faults: usize,
    /// What the judge found.
    #[serde(flatten)]
    found: Found,
    /// Until the last message was settled.
    seconds: f64,
    /// What as many tasks would take at the rate of a short run without faults, just before.
    calm_seconds: f64,
    /// The difference.
    seconds_lost: f64,
    /// How long the faults that are waited for took.
    seconds_down: f64,
    /// How often a scheduler ended by itself, having lost its Lease or its server.
    schedulers_ended: usize,
    /// How often a fault met a request, by kind.
    requests_struck: BTreeMap<&'static str, usize>,
    /// Faults of requests that met none: the run showed nothing about them.
    faults_missed: usize,
    machine: String,
}

/// Runs the benchmark and prints it.
///
/// # Errors
/// When the contract was broken, or the run could not be gone through with.
pub async fn faults(args: &FaultsArgs) -> Result<()> {
    let plan = Plan::draw(args.tasks as usize, args.seed);
    if args.plan {
        write!(io::stdout().lock(), "{plan}")?;
        return Ok(());
    }
    let report = measure(&plan).await?;
    print(&report, args.output)?;
    report.must_be_well()
}

/// The short form, for tests: the report is on stderr.
///
/// # Errors
/// As [`faults`].
pub async fn short(tasks: usize, seed: u64) -> Result<()> {
    let report = measure(&Plan::draw(tasks, seed)).await?;
    eprintln!("{}", serde_json::to_string(&report)?);
    ensure!(report.faults_missed == 0, "some faults met no request");
    report.must_be_well()
}

impl Report {
    fn must_be_well(&self) -> Result<()> {
        let Found { lost, doubled, over_the_limit, wrongly_run, unsettled, .. } = self.found;
        ensure!(
            self.found.is_well(),
            "the contract was broken: {lost} lost, {doubled} doubled, {over_the_limit} over the limit, \
             {wrongly_run} wrongly run, {unsettled} unsettled; hint: seed {} gives the same faults",
            self.seed
        );
        Ok(())
    }
}

/// Goes through a plan on a control plane of its own.
///
/// # Errors
/// When it can't be gone through with; what was broken is in the report.
async fn measure(plan: &Plan) -> Result<Report> {
    eprint!("{plan}");
    let options = Options {
        apiserver_arguments: vec![history::APISERVER_ARGUMENT.into()],
        ..Options::default()
    };
    let plane = ControlPlane::start(options).await?;
    let few = (plan.tasks / 10).max(CALM);
    eprintln!("{few} tasks without faults:");
    let calm = run::run(&plane, &Plan { tasks: few, steps: Vec::new(), ..plan.clone() }).await?;
    if !calm.found.is_well() {
        bail!("without any fault: {:?}", calm.found);
    }
    eprintln!("{} tasks with faults:", plan.tasks);
    let ran = run::run(&plane, plan).await?;
    plane.stop();
    #[expect(clippy::cast_precision_loss, reason = "counts of a benchmark")]
    let calm_seconds = calm.took.as_secs_f64() / few as f64 * plan.tasks as f64;
    let seconds = Duration::as_secs_f64;
    Ok(Report {
        seed: plan.seed,
        tasks: plan.tasks,
        faults: plan.steps.len(),
        seconds: seconds(&ran.took),
        calm_seconds,
        seconds_lost: seconds(&ran.took) - calm_seconds,
        seconds_down: seconds(&ran.down),
        schedulers_ended: ran.ended,
        requests_struck: ran.struck,
        faults_missed: ran.missed,
        found: ran.found,
        machine: crate::bench::machine(),
    })
}

fn print(report: &Report, format: Format) -> Result<()> {
    let mut out = io::stdout().lock();
    if format == Format::Json {
        serde_json::to_writer_pretty(&mut out, report)?;
        writeln!(out)?;
        return Ok(());
    }
    let found = &report.found;
    writeln!(
        out,
        "{:<6} {:>6} {:>6} {:>5} {:>7} {:>10} {:>11} {:>9} {:>16} {:>7} {:>11}",
        "SEED",
        "TASKS",
        "FAULTS",
        "LOST",
        "DOUBLED",
        "OVER LIMIT",
        "WRONGLY RUN",
        "UNSETTLED",
        "EXTRA POD STARTS",
        "SECONDS",
        "TIME LOST S"
    )?;
    writeln!(
        out,
        "{:<6} {:>6} {:>6} {:>5} {:>7} {:>10} {:>11} {:>9} {:>16} {:>7.0} {:>11.0}",
        report.seed,
        report.tasks,
        report.faults,
        found.lost,
        found.doubled,
        found.over_the_limit,
        found.wrongly_run,
        found.unsettled,
        found.extra_pod_starts,
        report.seconds,
        report.seconds_lost
    )?;
    for example in &found.examples {
        writeln!(out, "{example}")?;
    }
    writeln!(
        out,
        "{} Jobs, at most {} waiting at once; {:.0} s of the faults are outages, and a scheduler \
         ended by itself {} times; without faults as many tasks take {:.0} s",
        found.jobs,
        found.most_waiting,
        report.seconds_down,
        report.schedulers_ended,
        report.calm_seconds
    )?;
    let struck = report.requests_struck.iter().map(|(kind, n)| format!("{kind} {n}"));
    let struck = struck.collect::<Vec<_>>().join(", ");
    writeln!(out, "requests struck: {struck}; faults that met none: {}", report.faults_missed)?;
    writeln!(out, "machine: {}", report.machine)?;
    Ok(())
}
