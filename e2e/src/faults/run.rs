//! One run: tasks are brought in, faults come at their time, all calms down, and what happened is
//! gathered for the judge.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use katabatch::queue::spool::record::Selection;
use serde_json::json;

use super::act::Stage;
use super::crew::Crew;
use super::history::History;
use super::judge::{Asked, Found, Left, judge};
use super::plan::{Fault, Plan};
use super::tasks::{EVICTED, FAILING, WELL, ask, task};
use crate::control_plane::ControlPlane;
use crate::farm;
use crate::site::Site;
use crate::stages::{BEHAVIOUR, Behaviour};

/// How many Jobs may wait to start at once.
pub const LIMIT: usize = 40;
/// So many messages at most wait in the queue, so that the tasks of a step come to their turn soon.
const AHEAD: usize = 400;
/// How long nothing may come of anything, faults included, before the run is given up.
const PATIENCE: Duration = Duration::from_secs(240);
/// How long the last faults may take to meet a request.
const MEETING: Duration = Duration::from_secs(60);

/// What came of a run.
pub struct Ran {
    /// What the judge found.
    pub found: Found,
    /// From the start of the first scheduler until the last message was settled.
    pub took: Duration,
    /// How long the faults that are waited for took, from the first moment to the last.
    pub down: Duration,
    /// How often a scheduler ended by itself.
    pub ended: usize,
    /// How often a fault met a request, by kind.
    pub struck: BTreeMap<&'static str, usize>,
    /// The faults that met none.
    pub missed: usize,
}

/// A site whose Jobs take a moment, and go soon after they have ended.
async fn site(plane: &ControlPlane, hint: &str) -> Result<Site> {
    let slow = Behaviour::Slow(Duration::from_millis(200)).to_string();
    let evicted = Behaviour::Evicted.to_string();
    let fails = Behaviour::Fail { code: 3, after: Duration::ZERO }.to_string();
    let plan = farm::Plan {
        job_types: WELL.into_iter().chain([FAILING, EVICTED]).map(str::to_owned).collect(),
        pending: LIMIT,
        retain_finished: Duration::from_secs(2),
        sections: json!({ "profiles": {
            "default": {
                "cpu": "10m", "memory": "64Mi", "shm": "16Mi", "labels": { (BEHAVIOUR): slow },
            },
            "job_types": {
                (FAILING): { "labels": { (BEHAVIOUR): fails } },
                (EVICTED): { "labels": { (BEHAVIOUR): evicted } },
            },
        }}),
        ..farm::Plan::default()
    };
    Site::new(plane, &plane.namespace(hint).await?, plan).await
}

/// Goes through a plan, which may be empty, in a namespace of its own.
///
/// # Errors
/// When the run can't be gone through with: nothing is judged then.
pub async fn run(plane: &ControlPlane, plan: &Plan) -> Result<Ran> {
    let site = site(plane, "faults").await?;
    let history = History::start(plane, site.namespace.name()).await?;
    let mut feed =
        Feed { site: &site, asked: Asked { limit: LIMIT, ..Asked::default() }, next: 0, odd: 0 };
    let mut stage = Stage { plane, proxy: &site.proxy, crew: Crew::new(&site), struck: Vec::new() };
    let mut down = Duration::ZERO;
    let since = Instant::now();
    for (n, step) in plan.steps.iter().enumerate() {
        feed.until_made(step.after, plan.at_first(), &mut stage, &history).await?;
        eprintln!("{:6.1} s {:6} tasks have Jobs: {}", secs(since), history.made()?, step.fault);
        let begins = Instant::now();
        if let Fault::ClockStep { by, tasks } = step.fault {
            feed.put(tasks, Some(by)).await?;
        }
        let acted = stage.act(step.fault, plan.seed.wrapping_add(n as u64)).await;
        acted.with_context(|| format!("step {n}, {}", step.fault))?;
        down += begins.elapsed();
    }
    feed.until_made(plan.at_first(), plan.at_first(), &mut stage, &history).await?;
    until_struck(&mut stage).await?;
    site.proxy.clear();
    eprintln!("{:6.1} s {:6} tasks have Jobs: no more faults", secs(since), history.made()?);
    until_settled(&site, &mut stage).await?;
    let took = since.elapsed();
    if !plan.steps.is_empty() {
        until_ended(&mut stage, &history).await?;
    }
    stage.crew.terminate_all().await?;
    let left = left(&site).await?;
    let found = judge(&feed.asked, &history.events()?, &left);
    eprintln!("{:6.1} s {:6} tasks have Jobs: all is settled", secs(since), history.made()?);
    let mut struck: BTreeMap<_, usize> = BTreeMap::new();
    for (fault, fired) in &stage.struck {
        *struck.entry(fault.kind()).or_default() += fired.count();
    }
    Ok(Ran { found, took, down, ended: stage.crew.ended, struck, missed: stage.missed() })
}

fn secs(since: Instant) -> f64 {
    since.elapsed().as_secs_f64()
}

/// Brings tasks in, no faster than they are seen to.
struct Feed<'a> {
    site: &'a Site,
    asked: Asked,
    next: usize,
    /// How many of those so far came with steps.
    odd: usize,
}

impl Feed<'_> {
    async fn put(&mut self, count: usize, by: Option<i64>) -> Result<()> {
        let numbers = self.next..self.next + count;
        self.next = numbers.end;
        self.odd += if by.is_some() { count } else { 0 };
        let messages = ask(numbers, by, &mut self.asked)?;
        self.site.farm.put(messages).await
    }

    /// Brings `all` tasks in bit by bit, besides those of the steps, and waits until so many have
    /// had Jobs.
    async fn until_made(
        &mut self,
        wanted: usize,
        all: usize,
        stage: &mut Stage<'_>,
        history: &History,
    ) -> Result<()> {
        let (mut most, mut since) = (0, Instant::now());
        loop {
            let made = history.made()?;
            if made > most {
                (most, since) = (made, Instant::now());
            }
            let ordinary = self.next - self.odd;
            let count = (made + AHEAD).saturating_sub(self.next).min(all - ordinary);
            if count > 0 {
                self.put(count, None).await?;
            }
            if made >= wanted {
                return Ok(());
            }
            if since.elapsed() > PATIENCE {
                bail!(
                    "{made} tasks have Jobs for {PATIENCE:?}: {:?}",
                    self.site.farm.counts().await
                );
            }
            stage.pass(Duration::from_millis(100)).await?;
        }
    }
}

/// Lets each fault meet a request: the last ones may be just set up, and a watch that was cut is
/// opened again a moment later. One that meets none by then is counted as missed.
async fn until_struck(stage: &mut Stage<'_>) -> Result<()> {
    let since = Instant::now();
    while stage.missed() > 0 && since.elapsed() < MEETING {
        stage.pass(Duration::from_millis(100)).await?;
    }
    Ok(())
}

/// Waits until no message waits, however long that takes while something comes of it.
async fn until_settled(site: &Site, stage: &mut Stage<'_>) -> Result<()> {
    let (mut least, mut since) = (u64::MAX, Instant::now());
    loop {
        let counts = site.farm.counts().await?;
        let left = counts.ready + counts.leased + counts.delayed;
        if left == 0 {
            return Ok(());
        }
        if left < least {
            (least, since) = (left, Instant::now());
        }
        if since.elapsed() > PATIENCE {
            // The judge says what is left.
            eprintln!("{left} messages are not settled: {counts:?}");
            return Ok(());
        }
        stage.pass(Duration::from_millis(100)).await?;
    }
}

/// Waits until no Job runs, which failures that are run again may take.
async fn until_ended(stage: &mut Stage<'_>, history: &History) -> Result<()> {
    let since = Instant::now();
    let mut quiet = Instant::now();
    while quiet.elapsed() < Duration::from_secs(3) {
        if history.unfinished()? > 0 {
            quiet = Instant::now();
        }
        if since.elapsed() > PATIENCE {
            bail!("{} Jobs don't end", history.unfinished()?);
        }
        stage.pass(Duration::from_millis(100)).await?;
    }
    Ok(())
}

/// What is in the queue and in the quarantine.
async fn left(site: &Site) -> Result<Left> {
    let spool = site.farm.spool();
    let all = 1_000_000;
    let waiting = spool.list(all).await.context("list the queue")?;
    let rejected = spool.quarantined(Selection::default(), all).await.context("list the rest")?;
    for record in &rejected {
        if record.reason != "dead_url" {
            eprintln!("a message was rejected as {}: {}", record.reason, record.detail);
        }
    }
    let hash = |attributes| anyhow::Ok(task(attributes)?.hash.to_string());
    Ok(Left {
        waiting: waiting.iter().map(|entry| hash(&entry.attributes)).collect::<Result<_>>()?,
        quarantined: rejected.iter().map(|entry| hash(&entry.attributes)).collect::<Result<_>>()?,
    })
}
