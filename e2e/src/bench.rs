//! The benches: `bench create` here, [`bench intake`](mod@intake) in its own file.
//!
//! `bench create` says how fast katabatch makes Jobs, as a ratio to a raw poster of the same bodies
//! over the same HTTP client, against the same control plane in the same run. Both run as processes of their own ([`contender`]), one after the other, in turn, each in a fresh
//! namespace; their CPU time is what the kernel says of them. The control plane runs without
//! controllers for the ratio, and with them and KWOK for the last line. What it does not measure is
//! how Jobs end.

pub mod contender;
mod intake;
mod requests;

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

use crate::farm::{Farm, Plan};
use crate::{ControlPlane, Options};
use contender::Ran;
pub use intake::{IntakeArgs, intake};

/// How many job types share the tasks.
const JOB_TYPES: usize = 20;
/// A pending limit above any load.
const UNLIMITED: usize = 1_000_000;

/// What to measure.
#[derive(Debug, Clone, clap::Args)]
pub struct CreateArgs {
    /// How many tasks a round.
    #[arg(long, default_value_t = 2_000)]
    tasks: usize,
    /// How many rounds of each; the medians count.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Leave the run with controllers and KWOK out.
    #[arg(long)]
    no_controllers: bool,
}

/// Who makes the Jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Poster,
    Katabatch,
}

/// One round of one contender.
#[derive(Debug, Clone, Copy)]
struct Round {
    jobs_per_second: f64,
    cpu_micros: f64,
    calls: f64,
}

/// Runs the benchmark and prints its lines.
///
/// # Errors
/// When a contender fails or makes another number of Jobs than asked.
pub async fn create(args: &CreateArgs) -> Result<()> {
    let bare = Options { controllers: false, ..Options::default() };
    let plane = ControlPlane::start(bare).await?;
    let (mut poster, mut katabatch) = (Vec::new(), Vec::new());
    for n in 1..=args.rounds {
        poster.push(round(&plane, Who::Poster, args.tasks).await?);
        katabatch.push(round(&plane, Who::Katabatch, args.tasks).await?);
        eprintln!("round {n} of {}: {:?} {:?}", args.rounds, poster.last(), katabatch.last());
    }
    let over = over_the_limit(&plane, args.tasks / 4, args.tasks).await?;
    plane.stop();
    drop(plane);

    let of = |rounds: &[Round], what: fn(&Round) -> f64| median(rounds.iter().map(what).collect());
    let rate = |rounds: &[Round]| of(rounds, |round| round.jobs_per_second);
    let cpu = |rounds: &[Round]| of(rounds, |round| round.cpu_micros);
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "katabatch makes {:.0} % of the raw poster's Jobs per second, at {:.2}x its CPU a task, with \
         {:.3} API calls a task; {over} over the limit",
        100.0 * rate(&katabatch) / rate(&poster),
        cpu(&katabatch) / cpu(&poster),
        of(&katabatch, |round| round.calls),
    )?;
    for (name, rounds) in [("raw poster", &poster), ("katabatch", &katabatch)] {
        writeln!(
            out,
            "{name}: {:.0} Jobs/s, {:.0} us of CPU a task, whole process (median of {})",
            rate(rounds),
            cpu(rounds),
            rounds.len()
        )?;
    }
    if !args.no_controllers {
        let plane = ControlPlane::start(Options::default()).await?;
        let busy = round(&plane, Who::Katabatch, args.tasks).await?;
        writeln!(
            out,
            "katabatch with controllers, scheduler and KWOK at work: {:.0} Jobs/s, {:.0} us of CPU \
             a task",
            busy.jobs_per_second, busy.cpu_micros
        )?;
        plane.stop();
    }
    writeln!(out, "machine: {}", machine())?;
    Ok(())
}

/// One round in a namespace of its own.
async fn round(plane: &ControlPlane, who: Who, tasks: usize) -> Result<Round> {
    let namespace = plane.namespace("bench").await?;
    let kubeconfig = plane.kubeconfig_for(&plane.admin_token().await?, namespace.name(), None)?;
    let farm = farm(namespace.name(), &kubeconfig, tasks, UNLIMITED).await?;
    let before = requests::count(plane).await?;
    let (ran, cpu) = run(who, &farm.config(), tasks, &[]).await?;
    let after = requests::count(plane).await?;
    let made = requests::jobs(&namespace).await?;
    if made != tasks {
        bail!("{who:?} made {made} Jobs of {tasks}");
    }
    #[expect(clippy::cast_precision_loss, reason = "counts of a benchmark")]
    let per_task = |n: f64| n / tasks as f64;
    Ok(Round {
        jobs_per_second: ran.jobs_per_second(),
        cpu_micros: per_task(cpu * 1e6),
        calls: per_task(after - before),
    })
}

/// A farm whose spool holds the tasks, over some job types, with upstream's sizes of Jobs.
async fn farm(namespace: &str, kubeconfig: &Path, tasks: usize, pending: usize) -> Result<Farm> {
    let farm = Farm::new(namespace, kubeconfig, plan(pending))?;
    farm.put((0..tasks).map(contender::message).collect()).await?;
    Ok(farm)
}

/// The plan of every bench's farm.
fn plan(pending: usize) -> Plan {
    let job_types = (0..JOB_TYPES).map(contender::job_type).collect();
    let profile = serde_json::json!({ "cpu": "2", "memory": "3.75Gi", "shm": "1.9Gi" });
    Plan { job_types, pending, profile, ..Plan::default() }
}

/// How far over a limit set below the load katabatch goes: it must make just as many as allowed.
async fn over_the_limit(plane: &ControlPlane, limit: usize, tasks: usize) -> Result<usize> {
    let namespace = plane.namespace("limit").await?;
    let kubeconfig = plane.kubeconfig_for(&plane.admin_token().await?, namespace.name(), None)?;
    let farm = farm(namespace.name(), &kubeconfig, tasks, limit).await?;
    // Without controllers no pod ever starts: what is made stays pending.
    run(Who::Katabatch, &farm.config(), limit, &[]).await?;
    let made = requests::jobs(&namespace).await?;
    if made < limit {
        bail!("only {made} Jobs were made under a limit of {limit}");
    }
    Ok(made - limit)
}

/// Runs a contender as a process; what it says of itself, and its CPU seconds.
async fn run(
    who: Who,
    config: &Path,
    tasks: usize,
    environment: &[(&str, String)],
) -> Result<(Ran, f64)> {
    let before = children_cpu()?;
    let output = spawn(who, config, tasks, environment)?.wait_with_output().await?;
    if !output.status.success() {
        bail!("{who:?} failed: {}", output.status);
    }
    let ran = serde_json::from_slice(&output.stdout).context("what the contender said")?;
    Ok((ran, children_cpu()? - before))
}

/// Starts a contender as a process, which ends with this one.
fn spawn(
    who: Who,
    config: &Path,
    tasks: usize,
    environment: &[(&str, String)],
) -> Result<tokio::process::Child> {
    let command = match who {
        Who::Poster => "bench-poster",
        Who::Katabatch => "bench-katabatch",
    };
    tokio::process::Command::new(std::env::current_exe()?)
        .args([command, "--tasks", &tasks.to_string()])
        .arg(config)
        .envs(environment.iter().map(|(name, value)| (*name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("start {command}"))
}

/// CPU seconds of the processes that were waited for. The control plane's are still running.
fn children_cpu() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    #[expect(clippy::cast_precision_loss, reason = "seconds of a benchmark")]
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The machine that a figure is of, in words.
pub(crate) fn machine() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = field.map_or("unknown processor", |(_, model)| model.trim());
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let build = if cfg!(debug_assertions) { "debug build" } else { "release build" };
    format!("{cores} x {model}, {build}; control plane and contender on the same cores")
}
