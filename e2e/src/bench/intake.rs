//! `bench intake`: how soon a message becomes a Job while few come, and how fast many that wait are
//! drained, from Pub/Sub next to the spool, in one run.
//!
//! Katabatch runs as a process of its own ([`contender`](super::contender)), in a fresh namespace
//! each time. A message's time runs from before its publish is sent until a watch of this process
//! hears of its Job: longer than what a person would count, never shorter. Draining is counted from
//! the first confirmed Job to the last, as `bench create` does.

mod source;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::{WatchEvent, WatchParams};
use serde::Serialize;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::{UNLIMITED, Who, contender, machine, median, plan, requests, spawn};
use crate::format::Format;
use crate::google::Google;
use crate::google::farm::entities;
use crate::{ControlPlane, Options, farm};
use source::{Kind, Source};

/// How long the first Job may take: the process starts, and takes the lead.
const START: Duration = Duration::from_secs(60);
/// How long the last Job may take once its message is published.
const LAST: Duration = Duration::from_secs(60);

/// What to measure.
#[derive(Debug, Clone, clap::Args)]
pub struct IntakeArgs {
    /// How many messages to publish one at a time.
    #[arg(long, default_value_t = 600)]
    messages: usize,
    /// How many of them a second.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    per_second: u32,
    /// How many waiting messages to drain.
    #[arg(long, default_value_t = 3_000)]
    waiting: usize,
    /// How often to drain as many; the medians count.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// What was measured of one queue.
#[derive(Debug, Serialize)]
struct Measured {
    queue: Kind,
    /// Milliseconds from the publish to the Job: half of the messages, all but one in a hundred,
    /// and all had theirs within.
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    /// Jobs a second while the waiting messages are drained.
    drained_per_second: f64,
}

/// All of it.
#[derive(Debug, Serialize)]
struct Report {
    messages: usize,
    per_second: u32,
    waiting: usize,
    rounds: usize,
    queues: [Measured; 2],
    /// The rate at which Pub/Sub is drained as a share of the spool's.
    drain_ratio: f64,
    /// Load averages of the machine before the run.
    load: String,
    machine: String,
}

/// Runs the benchmark and prints it.
///
/// # Errors
/// When katabatch fails or makes another number of Jobs than asked.
pub async fn intake(args: &IntakeArgs) -> Result<()> {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned();
    let google = Arc::new(Google::start().await?);
    google.put(&entities(&plan(UNLIMITED))).await?;
    let plane = ControlPlane::start(Options::default()).await?;
    let mut times = BTreeMap::new();
    for kind in [Kind::Spool, Kind::PubSub] {
        times.insert(kind, latency(&plane, &google, kind, args).await?);
    }
    plane.stop();
    drop(plane);

    let plane = ControlPlane::start(Options { controllers: false, ..Options::default() }).await?;
    let mut rates: BTreeMap<Kind, Vec<f64>> = BTreeMap::new();
    for n in 1..=args.rounds {
        for kind in [Kind::Spool, Kind::PubSub] {
            let rate = drain(&plane, &google, kind, args.waiting).await?;
            eprintln!("round {n} of {}: {kind} {rate:.0} Jobs/s", args.rounds);
            rates.entry(kind).or_default().push(rate);
        }
    }
    plane.stop();

    let measured = |queue| {
        let mut sorted = times.get(&queue).cloned().unwrap_or_default();
        sorted.sort_unstable();
        Measured {
            queue,
            p50_ms: percentile(&sorted, 50),
            p99_ms: percentile(&sorted, 99),
            max_ms: percentile(&sorted, 100),
            drained_per_second: median(rates.get(&queue).cloned().unwrap_or_default()),
        }
    };
    let queues = [measured(Kind::Spool), measured(Kind::PubSub)];
    let [spool, pubsub] = &queues;
    print(
        &Report {
            messages: args.messages,
            per_second: args.per_second,
            waiting: args.waiting,
            rounds: args.rounds,
            drain_ratio: pubsub.drained_per_second / spool.drained_per_second,
            queues,
            load,
            machine: machine(),
        },
        args.output,
    )
}

/// How long each message took until its Job was there.
async fn latency(
    plane: &ControlPlane,
    google: &Arc<Google>,
    kind: Kind,
    args: &IntakeArgs,
) -> Result<Vec<Duration>> {
    let namespace = plane.namespace("intake").await?;
    let source = Source::new(plane, namespace.name(), google, kind).await?;
    let jobs = namespace.api::<Job>();
    let mut seen = std::pin::pin!(created(&jobs).await?);
    // One more, which tells that the process is ready.
    let mut katabatch =
        spawn(Who::Katabatch, &source.config(), args.messages + 1, &source.environment())?;
    source.put(vec![contender::message(args.messages)]).await?;
    timeout(START, seen.try_next()).await.context("no first Job")??;

    let publish = async {
        let mut published = BTreeMap::new();
        let mut ticks = interval(Duration::from_secs(1) / args.per_second);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut puts = tokio::task::JoinSet::new();
        for n in 0..args.messages {
            ticks.tick().await;
            let (message, source) = (contender::message(n), source.clone());
            let get = |name: &str| message.attributes.get(name).cloned().unwrap_or_default();
            let task = farm::task(&get("command"), &get("job"), &get("argument"))?;
            published.insert(task.job_name().to_string(), Instant::now());
            puts.spawn(async move { source.put(vec![message]).await });
        }
        while let Some(put) = puts.join_next().await {
            put??;
        }
        anyhow::Ok(published)
    };
    let watch = async {
        let mut there = BTreeMap::new();
        while there.len() < args.messages {
            let (name, at) = seen.try_next().await?.context("the watch has ended")?;
            there.insert(name, at);
        }
        anyhow::Ok(there)
    };
    let all = Duration::from_secs(args.messages as u64) / args.per_second + LAST;
    let both = async { tokio::try_join!(publish, watch) };
    let (published, there) =
        timeout(all, both).await.context("not every message became a Job")??;
    let ended = katabatch.wait().await?;
    ensure!(ended.success(), "katabatch failed: {ended}");
    let took = |(name, at): (&String, &Instant)| {
        let there = there.get(name).with_context(|| format!("no Job {name}"))?;
        Ok(there.saturating_duration_since(*at))
    };
    published.iter().map(took).collect()
}

/// The names of Jobs as they are created from now on, and when that was heard.
async fn created(
    jobs: &Api<Job>,
) -> Result<impl futures::Stream<Item = Result<(String, Instant)>> + use<>> {
    let events = jobs.watch_metadata(&WatchParams::default(), "0").await.context("watch Jobs")?;
    Ok(events.boxed().filter_map(|event| async move {
        match event {
            Ok(WatchEvent::Added(job)) => Some(Ok((job.metadata.name?, Instant::now()))),
            Ok(WatchEvent::Error(status)) => Some(Err(anyhow!("the watch failed: {status:?}"))),
            Ok(_) => None,
            Err(error) => Some(Err(error.into())),
        }
    }))
}

/// Drains waiting messages; Jobs a second.
async fn drain(
    plane: &ControlPlane,
    google: &Arc<Google>,
    kind: Kind,
    waiting: usize,
) -> Result<f64> {
    let namespace = plane.namespace("drain").await?;
    let source = Source::new(plane, namespace.name(), google, kind).await?;
    source.put((0..waiting).map(contender::message).collect()).await?;
    let (ran, _) =
        super::run(Who::Katabatch, &source.config(), waiting, &source.environment()).await?;
    let made = requests::jobs(&namespace).await?;
    let left = source.left().await?;
    if made != waiting || left > 0 {
        bail!("{made} Jobs were made of {waiting} messages, and {left} messages are left");
    }
    Ok(ran.jobs_per_second())
}

/// The time within which that share of the messages had their Job, in milliseconds.
fn percentile(sorted: &[Duration], share: usize) -> f64 {
    let at = (sorted.len() * share).div_ceil(100).saturating_sub(1);
    sorted.get(at).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
}

fn print(report: &Report, format: Format) -> Result<()> {
    let mut out = io::stdout().lock();
    if format == Format::Json {
        serde_json::to_writer_pretty(&mut out, report)?;
        writeln!(out)?;
        return Ok(());
    }
    writeln!(
        out,
        "{:<8} {:>8} {:>8} {:>8} {:>14}",
        "QUEUE", "P50 MS", "P99 MS", "MAX MS", "DRAINED JOBS/S"
    )?;
    for Measured { queue, p50_ms, p99_ms, max_ms, drained_per_second } in &report.queues {
        writeln!(
            out,
            "{:<8} {p50_ms:>8.1} {p99_ms:>8.1} {max_ms:>8.1} {drained_per_second:>14.0}",
            queue.to_string()
        )?;
    }
    writeln!(
        out,
        "published to created: {} messages at {}/s, controllers and KWOK at work; drained: {} \
         messages, median of {}, without; Pub/Sub is drained at {:.0} % of the spool's rate",
        report.messages,
        report.per_second,
        report.waiting,
        report.rounds,
        100.0 * report.drain_ratio
    )?;
    writeln!(out, "machine: {}; load before: {}", report.machine, report.load)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_times() {
        let times: Vec<_> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!([50, 99, 100].map(|share| percentile(&times, share)), [100.0, 198.0, 200.0]);
        assert_eq!(percentile(&times[..1], 50), 1.0);
        assert!(percentile(&[], 50).is_nan());
    }
}
