//! Several backends: two namespaces, each through a proxy of its own, and this machine.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use katabatch_e2e::eventually::Seen;
use katabatch_e2e::farm::Plan;
use katabatch_e2e::process::Process;
use katabatch_e2e::proxy::{Action, Rule};
use katabatch_e2e::site::Site;
use katabatch_e2e::{Case, eventually};
use serde_json::{Value, json};

use crate::{SOON, site};

fn cluster(name: &str, site: &Site, weight: f64) -> Value {
    json!({
        "name": name,
        "kubernetes": { "namespace": site.namespace.name(), "kubeconfig": site.kubeconfig },
        "weight": { "flag": name, "default": weight },
        "limits": { "pending": { "flag": null, "default": 2_000 }, "creates_per_second": 40 },
        "retain_finished": "1h",
    })
}

fn weigh(site: &Site, weights: [f64; 3]) -> Result<()> {
    let [home, other, local] = weights;
    site.farm.set_flags(&[("home", home), ("other", other), ("local", local)])
}

/// The names of the Jobs of a namespace.
async fn names(site: &Site) -> Result<Vec<String>> {
    let jobs = site.jobs().await?;
    Ok(jobs.into_iter().filter_map(|job: Job| job.metadata.name).collect())
}

/// Waits until a namespace has at least so many Jobs.
async fn until_more_than(site: &Site, count: usize) -> Result<()> {
    eventually(&format!("more than {count} Jobs"), 2 * SOON, || async {
        let jobs = site.jobs().await?.len();
        Ok(Seen::when(jobs > count, || format!("{jobs}")))
    })
    .await
}

/// Killed once, with the weights changed and one namespace away for longer than its Lease lives.
pub async fn each_task_runs_once_over_three_backends_whatever_happens(case: Case) -> Result<()> {
    const TASKS: usize = 600;
    case.plane.require_local("nodes that take hundreds of pods")?;
    let plane = &case.plane;
    let away = Site::new(plane, &plane.namespace("gate-other").await?, Plan::default()).await?;
    let site = site(&case, Plan::default()).await?;
    site.farm.configure(&json!({
        "backends": [
            cluster("home", &site, 0.5),
            cluster("other", &away, 0.3),
            {
                "name": "local",
                "local": { "command": ["true"], "dir": "work", "jobs": 8 },
                "weight": { "flag": "local", "default": 0.2 },
                "retain_finished": "1h",
            },
        ],
        "limits": { "lease": "10s", "spill_after": "10m" },
    }))?;
    weigh(&site, [0.5, 0.3, 0.2])?;
    site.farm.fill(TASKS).await?;
    let since = Instant::now();
    let first = site.run("first")?;
    until_more_than(&site, 80).await?;
    first.kill().await?;

    let before = away.jobs().await?.len();
    let second = site.run("second")?;
    until_more_than(&away, before).await?;
    until_more_than(&site, 120).await?;
    let dropped = away.proxy.push(Rule::new(Action::DropBefore));
    away.proxy.cut_watches();
    weigh(&site, [0.3, 0.5, 0.2])?;
    eventually("its Lease has expired", SOON, || async {
        let log = std::fs::read_to_string(site.farm.dir().join("second.stderr"))?;
        let lost = log.contains("does not lead in this namespace any more");
        Ok(Seen::when(lost, || format!("{} requests were dropped", dropped.count())))
    })
    .await?;
    away.proxy.clear();
    site.until_acked(4 * SOON).await?;
    second.terminate()?;
    let ended = second.end(SOON).await?;
    ensure!(ended.code == Some(0), "{ended:?}");

    let mut seen: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (place, jobs) in [("home", names(&site).await?), ("other", names(&away).await?)] {
        jobs.into_iter().for_each(|name| seen.entry(name).or_default().push(place));
    }
    // The directory of a local task is named as its Job would be.
    for entry in std::fs::read_dir(site.farm.dir().join("work"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with("cf-job-") {
            seen.entry(name).or_default().push("local");
        }
    }
    let twice: Vec<_> = seen.iter().filter(|(_, places)| places.len() != 1).collect();
    ensure!(twice.is_empty(), "made twice: {twice:?}");
    ensure!(seen.len() == TASKS, "{} of {TASKS} tasks were made", seen.len());
    let count = |place| seen.values().filter(|places| places.contains(&place)).count();
    eprintln!(
        "{TASKS} tasks in {:.1} s: home {}, other {}, local {}",
        since.elapsed().as_secs_f64(),
        count("home"),
        count("other"),
        count("local")
    );
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
