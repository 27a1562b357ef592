//! Several backends: two namespaces, each through a proxy of its own, a Batch and this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use katabatch_e2e::batch::{Batch, Fault};
use katabatch_e2e::eventually::Seen;
use katabatch_e2e::farm::{JOB_TYPE, Plan, input, message, task};
use katabatch_e2e::process::Process;
use katabatch_e2e::proxy::{Action, Rule};
use katabatch_e2e::site::Site;
use katabatch_e2e::{Case, eventually};
use serde_json::{Value, json};

use crate::{SOON, site};

const TASKS: usize = 1_000;
const JOB_TYPES: usize = 5;

fn cluster(name: &str, site: &Site, weight: f64) -> Value {
    json!({
        "name": name,
        "kubernetes": { "namespace": site.namespace.name(), "kubeconfig": site.kubeconfig },
        "weight": { "flag": name, "default": weight },
        "limits": { "pending": { "flag": null, "default": 2_000 }, "creates_per_second": 30 },
        "retain_finished": "1h",
    })
}

fn job_type(n: usize) -> String {
    format!("{JOB_TYPE}_{}", n % JOB_TYPES)
}

/// A home namespace, another one, a Batch and this machine.
struct Four {
    home: Site,
    other: Site,
    batch: Batch,
}

impl Four {
    async fn new(case: &Case) -> Result<Self> {
        let plan = || Plan { job_types: (0..JOB_TYPES).map(job_type).collect(), ..Plan::default() };
        let plane = &case.plane;
        let other = Site::new(plane, &plane.namespace("gate-other").await?, plan()).await?;
        let batch = Batch::start(&["us-central1"]).await?;
        let (home, url) = (site(case, plan()).await?, batch.url());
        home.farm.configure(&json!({
            "backends": [
                cluster("home", &home, 0.4),
                cluster("other", &other, 0.3),
                {
                    "name": "batch",
                    "gcp_batch": { "endpoint": url, "request_timeout": "1s" },
                    "weight": { "flag": "batch", "default": 0.2 },
                    "limits": { "pending": { "flag": "batch_pending", "default": 0 } },
                },
                {
                    "name": "local",
                    // Each run leaves a line beside its record.
                    "local": {
                        "command": ["sh", "-c", "echo ran >> ../runs"], "dir": "work", "jobs": 8,
                    },
                    "weight": { "flag": "local", "default": 0.1 },
                    "retain_finished": "1h",
                },
            ],
            "limits": { "lease": "10s", "spill_after": "10m", "held": 4_000 },
        }))?;
        Ok(Self { home, other, batch })
    }

    /// Sets the weights, and how many tasks may wait in Batch: none of this one's ever starts.
    fn set(&self, [home, other, batch, local]: [f64; 4], pending: f64) -> Result<()> {
        let weights = [("home", home), ("other", other), ("batch", batch), ("local", local)];
        self.home.farm.set_flags(&[&weights[..], &[("batch_pending", pending)]].concat())
    }

    async fn fill(&self) -> Result<()> {
        self.home
            .farm
            .put((0..TASKS).map(|n| message("fuzz", &job_type(n), &input(n))).collect())
            .await
    }

    /// The names of all tasks, as Jobs have them.
    fn names() -> Result<BTreeMap<String, String>> {
        let name = |n| {
            let task = task("fuzz", &job_type(n), &input(n))?;
            Ok((input(n), task.job_name().to_string()))
        };
        (0..TASKS).map(name).collect()
    }

    /// Each place that has a task, as often as it has it.
    async fn found(&self) -> Result<BTreeMap<String, Vec<&'static str>>> {
        let mut found: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (place, site) in [("home", &self.home), ("other", &self.other)] {
            for job in site.jobs().await? {
                found.entry(job.metadata.name.unwrap_or_default()).or_default().push(place);
            }
        }
        let names = Self::names()?;
        for (input, count) in self.batch.state().inputs() {
            let name = names.get(&input).context("an input of Batch's that was never put")?;
            found.entry(name.clone()).or_default().extend(vec!["batch"; count]);
        }
        // The directory of a local task is named as its Job would be.
        for entry in std::fs::read_dir(self.home.farm.dir().join("work"))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("cf-job-") {
                let runs = std::fs::read_to_string(entry.path().join("runs")).unwrap_or_default();
                found.entry(name).or_default().extend(vec!["local"; runs.lines().count()]);
            }
        }
        Ok(found)
    }

    /// How many tasks each place has, for people.
    async fn counts(&self) -> Result<String> {
        let found = self.found().await?;
        let count = |place| found.values().filter(|places| places.contains(&place)).count();
        let places = ["home", "other", "batch", "local"];
        let counts: Vec<_> = places.map(|place| format!("{place} {}", count(place))).into();
        Ok(counts.join(", "))
    }

    /// Kills katabatch in the middle of its work.
    async fn kill(&self, process: Process, since: Instant) -> Result<()> {
        process.kill().await?;
        let counts = self.home.farm.counts().await?;
        let left = counts.ready + counts.leased + counts.delayed;
        ensure!(left > 50, "it was nearly done before it was killed: {counts:?}");
        let (seconds, made) = (since.elapsed().as_secs_f64(), self.counts().await?);
        eprintln!("killed after {seconds:.1} s with {left} left: {made}");
        Ok(())
    }

    async fn judge(&self) -> Result<()> {
        let found = self.found().await?;
        let odd: Vec<_> = found.iter().filter(|(_, places)| places.len() != 1).collect();
        ensure!(odd.is_empty(), "not made once: {odd:?}");
        let expected: BTreeSet<String> = Self::names()?.into_values().collect();
        let lost: Vec<_> = expected.iter().filter(|name| !found.contains_key(*name)).collect();
        ensure!(lost.is_empty(), "lost: {lost:?}");
        ensure!(found.len() == TASKS, "{} of {TASKS} tasks were made", found.len());
        let state = self.batch.state();
        ensure!(state.misused.is_empty(), "request ids with two bodies: {:?}", state.misused);
        Ok(())
    }
}

/// Waits until a namespace has at least so many Jobs.
async fn until_more_than(site: &Site, count: usize) -> Result<()> {
    eventually(&format!("more than {count} Jobs"), 2 * SOON, || async {
        let jobs = site.jobs().await?.len();
        Ok(Seen::when(jobs > count, || format!("{jobs}")))
    })
    .await
}

/// Waits until every task that was given to this machine has run.
async fn until_local_ran(four: &Four) -> Result<()> {
    eventually("every local task has run", SOON, || async {
        let found = four.found().await?;
        let idle: Vec<_> = found.iter().filter(|(_, places)| places.is_empty()).collect();
        Ok(Seen::when(idle.is_empty(), || format!("{idle:?}")))
    })
    .await
}

/// Killed twice, with the weights changed and one namespace away for longer than its Lease lives,
/// while Batch's answers are late, lost or a quota's.
pub async fn each_task_runs_once_over_four_backends_whatever_happens(case: Case) -> Result<()> {
    case.plane.require_local("nodes that take hundreds of pods")?;
    let four = Four::new(&case).await?;
    let (home, other) = (&four.home, &four.other);
    four.batch.state().faults = vec![
        (7, Fault::Quota(1)),
        (3, Fault::LostAnswer),
        (4, Fault::LostRequest),
        (1, Fault::Slow(Duration::from_millis(800))),
    ];
    four.set([0.4, 0.3, 0.2, 0.1], 60.0)?;
    four.fill().await?;
    let since = Instant::now();
    let first = home.run("first")?;
    until_more_than(home, 60).await?;
    four.kill(first, since).await?;

    let (at_home, before) = (home.jobs().await?.len(), other.jobs().await?.len());
    let second = home.run("second")?;
    until_more_than(other, before).await?;
    until_more_than(home, at_home).await?;
    let dropped = other.proxy.push(Rule::new(Action::DropBefore));
    other.proxy.cut_watches();
    four.set([0.3, 0.4, 0.2, 0.1], 120.0)?;
    eventually("its Lease has expired", SOON, || async {
        let log = std::fs::read_to_string(home.farm.dir().join("second.stderr"))?;
        let lost = log.contains("does not lead in this namespace any more");
        Ok(Seen::when(lost, || format!("{} requests were dropped", dropped.count())))
    })
    .await?;
    four.kill(second, since).await?;

    // The next one finds it away as well.
    four.set([0.3, 0.4, 0.2, 0.1], 1_000.0)?;
    let so_far = dropped.count();
    let third = home.run("third")?;
    eventually("the third process asks for it", SOON, || async {
        Ok(Seen::when(dropped.count() > so_far, || format!("{so_far} requests")))
    })
    .await?;
    other.proxy.clear();
    home.until_acked(4 * SOON).await?;
    until_local_ran(&four).await?;
    let seconds = since.elapsed().as_secs_f64();
    third.terminate()?;
    let ended = third.end(SOON).await?;
    ensure!(ended.code == Some(0), "{ended:?}");
    four.judge().await?;
    eprintln!("{TASKS} tasks in {seconds:.1} s: {}", four.counts().await?);
    Ok(())
}

pub async fn a_pause_holds_and_a_cancel_deletes(case: Case) -> Result<()> {
    let site = site(&case, Plan::default()).await?;
    let run = async |name: &str, arguments: &[&str]| {
        let process = Process::start(site.farm.dir(), name, arguments)?;
        let ended = process.end(SOON).await?;
        ensure!(ended.code == Some(0), "{ended:?}");
        Ok(ended.stdout)
    };
    run("pause", &["pause", "--command", "fuzz", "--why", "a bad build", "--for", "1h"]).await?;
    site.farm.fill(5).await?;
    let scheduler = site.scheduler().await?;
    let why = scheduler.until_held(katabatch::domain::outcome::HoldKind::Paused, SOON).await?;
    ensure!(why.contains("a bad build") && why.contains("command fuzz"), "{why}");
    ensure!(site.creates().is_empty(), "{:?}", site.creates());
    let listed = run("list", &["controls", "list", "-o", "json"]).await?;
    ensure!(listed.contains("a bad build"), "{listed}");
    run("resume", &["resume", "--command", "fuzz"]).await?;
    site.until_jobs(5, Duration::from_secs(20)).await?;
    site.until_acked(SOON).await?;
    let dry = ["cancel", "--all", "--why", "x", "--dry-run", "-o", "json"];
    run("dry", &dry).await?;
    ensure!(site.jobs().await?.len() == 5);
    run("cancel", &["cancel", "--all", "--why", "x", "--yes"]).await?;
    let audit = run("audit", &["controls", "audit", "-o", "json"]).await?;
    for what in ["pause command fuzz", "resume command fuzz"] {
        ensure!(audit.contains(what), "{audit}");
    }
    scheduler.stop().await?;
    Ok(())
}
