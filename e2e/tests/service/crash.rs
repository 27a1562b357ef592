//! Processes that end, and an API server that does.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use katabatch_e2e::eventually::{Seen, throughout};
use katabatch_e2e::farm::Plan;
use katabatch_e2e::site::Site;
use katabatch_e2e::{Case, ControlPlane, Options, eventually};

use crate::{SOON, site};

/// Waits until the proxy has passed on so many Jobs that were created.
async fn until_created(site: &Site, count: usize) -> Result<()> {
    eventually(&format!("{count} Jobs are created"), 2 * SOON, || async {
        let creates = site.creates();
        let created = creates.iter().filter(|seen| seen.status == Some(201)).count();
        Ok(Seen::when(created >= count, || format!("{created}")))
    })
    .await
}

// Case 11.
pub async fn a_killed_scheduler_goes_on_and_makes_each_job_once(case: Case) -> Result<()> {
    const TASKS: usize = 1_000;
    let site = site(&case, Plan { pending: 2 * TASKS, ..Plan::default() }).await?;
    site.farm.fill(TASKS).await?;
    let since = Instant::now();
    let first = site.run("first")?;
    until_created(&site, 300).await?;
    let killed = first.kill().await?;
    ensure!(killed.signal == Some(9), "{killed:?}");
    let so_far = site.jobs().await?.len();
    ensure!(so_far < TASKS, "it was done before it was killed");
    let left = site.farm.counts().await?;
    ensure!(left.leased > 0, "it held nothing when it was killed: {left:?}");

    let second = site.run("second")?;
    site.until_acked(3 * SOON).await?;
    let took = since.elapsed();
    let jobs = site.until_jobs(TASKS, SOON).await?;
    second.terminate()?;
    let ended = second.end(SOON).await?;
    ensure!(ended.code == Some(0), "{ended:?}");
    let names: BTreeSet<_> = jobs.iter().filter_map(|job| job.metadata.name.clone()).collect();
    let expected: BTreeSet<_> =
        (0..TASKS).map(|n| Ok(site.farm.task(n)?.job_name().to_string())).collect::<Result<_>>()?;
    ensure!(names == expected, "other Jobs than those of the tasks");
    // A name may be made again only after it was deleted.
    ensure!(site.proxy.count("delete", "jobs") == 0);
    let created = site.creates().iter().filter(|seen| seen.status == Some(201)).count();
    ensure!(created <= TASKS, "{created} Jobs were created");
    eprintln!(
        "kill -9 after {so_far} of {TASKS} Jobs; all acked {:.1} s after the first start, with {} \
         creates",
        took.as_secs_f64(),
        site.creates().len()
    );
    Ok(())
}

pub async fn sigterm_leaves_nothing_leased(case: Case) -> Result<()> {
    const TASKS: usize = 200;
    let site = site(&case, Plan { creates_per_second: Some(40), ..Plan::default() }).await?;
    site.farm.fill(TASKS).await?;
    let process = site.run("run")?;
    until_created(&site, 20).await?;
    process.terminate()?;
    let ended = process.end(SOON).await?;
    ensure!(ended.code == Some(0), "{ended:?}");
    ensure!(ended.stdout.is_empty(), "on stdout: {}", ended.stdout);
    let left = site.farm.counts().await?;
    ensure!((left.leased, left.delayed, left.quarantined) == (0, 0, 0), "{left:?}");
    let jobs = site.jobs().await?.len();
    ensure!(jobs < TASKS, "it was done before it was told to stop");
    ensure!(jobs as u64 + left.ready == TASKS as u64, "{jobs} Jobs and {left:?}");
    Ok(())
}

pub async fn an_api_server_that_was_away_loses_nothing(case: Case) -> Result<()> {
    const TASKS: usize = 100;
    case.plane.require_local("stopping the API server")?;
    let plane = ControlPlane::start(Options { controllers: false, ..Options::default() }).await?;
    let namespace = plane.namespace("away").await?;
    let plan = Plan { creates_per_second: Some(20), ..Plan::default() };
    let site = Site::new(&plane, &namespace, plan).await?;
    site.farm.fill(TASKS).await?;
    let scheduler = site.scheduler().await?;
    until_created(&site, 20).await?;
    plane.stop_apiserver().await?;
    throughout(Duration::from_secs(10), || async {
        ensure!(!scheduler.has_ended(), "it has ended");
        Ok(())
    })
    .await?;
    plane.start_apiserver().await?;
    site.until_acked(2 * SOON).await?;
    let counts = scheduler.stop().await?;
    ensure!(site.jobs().await?.len() == TASKS);
    ensure!(counts.leased == TASKS as u64, "some were delivered again: {counts:?}");
    Ok(())
}
