//! Processes that end, and an API server that does.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::batch::v1::Job;
use katabatch_e2e::binaries::Program;
use katabatch_e2e::eventually::{Seen, throughout};
use katabatch_e2e::farm::Plan;
use katabatch_e2e::proxy::{Action, Rule};
use katabatch_e2e::site::Site;
use katabatch_e2e::{Case, ControlPlane, Options, eventually};
use kube::api::{WatchEvent, WatchParams};

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
    case.plane.require_local("nodes that take a thousand pods")?;
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

/// Every request is lost: what is under way can't be settled, and is given back all the same.
pub async fn sigterm_while_no_server_answers_leaves_nothing_leased(case: Case) -> Result<()> {
    let site = site(&case, Plan { creates_per_second: Some(40), ..Plan::default() }).await?;
    site.farm.fill(100).await?;
    let process = site.run("run")?;
    until_created(&site, 10).await?;
    site.proxy.push(Rule::new(Action::DropBefore));
    site.proxy.cut_watches();
    process.terminate()?;
    let ended = process.end(SOON).await?;
    ensure!(ended.code == Some(0), "{ended:?}");
    let left = site.farm.counts().await?;
    ensure!((left.leased, left.delayed, left.quarantined) == (0, 0, 0), "{left:?}");
    ensure!(site.jobs().await?.len() as u64 + left.ready >= 100, "{left:?}");
    Ok(())
}

pub async fn a_server_that_is_away_at_the_start_is_waited_for(case: Case) -> Result<()> {
    let site = site(&case, Plan::default()).await?;
    let dropped = site.proxy.push(Rule::new(Action::DropBefore));
    site.farm.fill(5).await?;
    let scheduler = site.scheduler().await?;
    eventually("it has tried twice", SOON, || async {
        ensure!(!scheduler.has_ended(), "it has ended");
        Ok(Seen::when(dropped.count() >= 2, || format!("{}", dropped.count())))
    })
    .await?;
    site.proxy.clear();
    site.until_acked(SOON).await?;
    scheduler.stop().await?;
    ensure!(site.jobs().await?.len() == 5);
    Ok(())
}

/// First it is stopped, for longer than the leader's Lease lives: who can't renew it ends, gives
/// back what it had, and the next process goes on. Then it hangs, for less.
pub async fn an_api_server_that_was_away_loses_nothing(case: Case) -> Result<()> {
    const TASKS: usize = 150;
    case.plane.require_local("stopping the API server")?;
    let plane = ControlPlane::start(Options { controllers: false, ..Options::default() }).await?;
    let namespace = plane.namespace("away").await?;
    let plan = Plan { creates_per_second: Some(20), ..Plan::default() };
    let site = Site::new(&plane, &namespace, plan).await?;
    site.farm.fill(TASKS).await?;
    let first = site.scheduler().await?;
    until_created(&site, 20).await?;
    plane.stop_apiserver().await?;
    eventually("it has ended", SOON, || async {
        Ok(Seen::when(first.has_ended(), || "it runs".into()))
    })
    .await?;
    let Err(error) = first.stop().await else { bail!("it ended as if nothing were wrong") };
    ensure!(error.to_string().contains("was not renewed for 10 s"), "{error}");
    let left = site.farm.counts().await?;
    ensure!((left.leased, left.quarantined) == (0, 0), "{left:?}");

    let second = site.scheduler().await?;
    plane.start_apiserver().await?;
    until_created(&site, 60).await?;
    plane.pause(Program::ApiServer).await?;
    throughout(Duration::from_secs(4), || async {
        ensure!(!second.has_ended(), "it has ended");
        Ok(())
    })
    .await?;
    plane.resume(Program::ApiServer)?;
    site.until_acked(2 * SOON).await?;
    second.stop().await?;
    ensure!(site.jobs().await?.len() == TASKS);
    Ok(())
}

/// Killed thrice, while finished Jobs are deleted at once: a Job that goes before its
/// message is acked would be made a second time.
pub async fn a_killed_scheduler_that_tidies_up_makes_no_job_twice(case: Case) -> Result<()> {
    const TASKS: usize = 150;
    let plan = Plan {
        retain_finished: Duration::from_millis(1),
        creates_per_second: Some(40),
        ..Plan::default()
    };
    let site = site(&case, plan).await?;
    let seen: Arc<Mutex<BTreeSet<(String, String)>>> = Arc::default();
    let (jobs, into) = (site.api::<Job>(), seen.clone());
    let watching = tokio::spawn(async move {
        let params = WatchParams::default().timeout(290);
        let mut events = jobs.watch(&params, "0").await?.boxed();
        while let Some(event) = events.try_next().await? {
            if let WatchEvent::Added(job) = event {
                let names = (job.metadata.name, job.metadata.uid);
                let names = (names.0.unwrap_or_default(), names.1.unwrap_or_default());
                into.lock().unwrap_or_else(PoisonError::into_inner).insert(names);
            }
        }
        anyhow::Ok(())
    });
    site.farm.fill(TASKS).await?;
    for (n, created) in [30, 70, 110].into_iter().enumerate() {
        let process = site.run(&format!("killed-{n}"))?;
        until_created(&site, created).await?;
        process.kill().await?;
    }
    let last = site.run("last")?;
    site.until_acked(2 * SOON).await?;
    eventually("some were deleted", SOON, || async {
        let deleted = site.proxy.count("delete", "jobs");
        Ok(Seen::when(deleted > 0, || "none".into()))
    })
    .await?;
    last.terminate()?;
    let ended = last.end(SOON).await?;
    ensure!(ended.code == Some(0), "{ended:?}");
    eventually("every Job was seen", SOON, || async {
        ensure!(!watching.is_finished(), "the watch has ended");
        let made = seen.lock().unwrap_or_else(PoisonError::into_inner).len();
        Ok(Seen::when(made >= TASKS, || format!("{made}")))
    })
    .await?;
    watching.abort();
    let made = seen.lock().unwrap_or_else(PoisonError::into_inner);
    let names: BTreeSet<_> = made.iter().map(|(name, _)| name).collect();
    ensure!((made.len(), names.len()) == (TASKS, TASKS), "{} of {TASKS} names", names.len());
    Ok(())
}
