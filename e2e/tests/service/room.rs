//! Never more than allowed: the pending limit and the live cap, whatever was there before and
//! whatever can't be seen.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use katabatch_e2e::eventually::{Seen, throughout};
use katabatch_e2e::farm::Plan;
use katabatch_e2e::proxy::{Action, Rule};
use katabatch_e2e::site::Site;
use katabatch_e2e::{Behaviour, Case, eventually};
use kube::api::DeleteParams;

use crate::watches::Sampler;
use crate::{SOON, pods, site};

/// Long enough for whatever would come to have come.
const A_WHILE: Duration = Duration::from_secs(3);

fn stay_pending(pending: usize) -> Plan {
    Plan { behaviour: Behaviour::StayPending, pending, ..Plan::default() }
}

async fn jobs_stay(site: &Site, count: usize) -> Result<()> {
    jobs_stay_for(A_WHILE, site, count).await
}

async fn jobs_stay_for(time: Duration, site: &Site, count: usize) -> Result<()> {
    throughout(time, || async {
        let jobs = site.jobs().await?.len();
        ensure!(jobs == count, "{jobs} Jobs, not {count}");
        Ok(())
    })
    .await
}

async fn delete_first(site: &Site, count: usize) -> Result<()> {
    for job in site.jobs().await?.into_iter().take(count) {
        let name = job.metadata.name.unwrap_or_default();
        site.api::<Job>().delete(&name, &DeleteParams::background()).await?;
    }
    Ok(())
}

pub async fn the_pending_limit_holds_and_follows_its_flag(case: Case) -> Result<()> {
    case.plane.require_local("pods that stay pending")?;
    let site = site(&case, stay_pending(5)).await?;
    site.farm.fill(20).await?;
    let sampler = Sampler::start(&site, 5);
    let scheduler = site.scheduler().await?;
    site.until_jobs(5, SOON).await?;
    jobs_stay(&site, 5).await?;
    sampler.stop().await?;

    let sampler = Sampler::start(&site, 8);
    site.farm.set_pending(8)?;
    site.until_jobs(8, Duration::from_secs(10)).await?;
    jobs_stay(&site, 8).await?;
    sampler.stop().await?;

    // Case 16. Read by now, or room would be used as soon as there is some.
    site.farm.set_pending(0)?;
    jobs_stay_for(2 * A_WHILE, &site, 8).await?;
    delete_first(&site, 4).await?;
    jobs_stay(&site, 4).await?;
    ensure!(site.creates().len() == 8, "{} creates", site.creates().len());
    ensure!(scheduler.counts().acked == 8);

    site.farm.set_pending(6)?;
    site.until_jobs(6, Duration::from_secs(10)).await?;
    scheduler.stop().await?;
    let left = site.farm.counts().await?;
    ensure!((left.ready, left.leased, left.delayed) == (10, 0, 0), "{left:?}");
    Ok(())
}

// Case 76.
pub async fn the_live_cap_holds(case: Case) -> Result<()> {
    case.plane.require_local("pods that run for ever")?;
    let plan = Plan { behaviour: Behaviour::RunForever, live: Some(4), ..Plan::default() };
    let site = site(&case, plan).await?;
    site.farm.fill(10).await?;
    let scheduler = site.scheduler().await?;
    site.until_jobs(4, SOON).await?;
    eventually("none waits any more", SOON, || async {
        let waiting = site.waiting().await?;
        Ok(Seen::when(waiting == 0, || format!("{waiting}")))
    })
    .await?;
    jobs_stay(&site, 4).await?;
    delete_first(&site, 1).await?;
    scheduler.until("another is made", SOON, |counts| counts.created == 5).await?;
    jobs_stay(&site, 4).await?;
    scheduler.stop().await?;
    Ok(())
}

// Cases 23 and 27.
pub async fn pods_that_were_there_are_counted_over_an_expired_page(case: Case) -> Result<()> {
    case.plane.require_local("pods that stay pending")?;
    let site = site(&case, stay_pending(1_203)).await?;
    pods::make(&site.api(), 1_200, &pods::kata_labels(), 0).await?;
    let rule = Rule::new(Action::Expire).on("list", "pods").later_page(true).once();
    let expired = site.proxy.push(rule);
    site.farm.fill(10).await?;
    let scheduler = site.scheduler().await?;
    site.until_jobs(3, SOON).await?;
    jobs_stay(&site, 3).await?;
    ensure!(expired.count() == 1);
    ensure!(site.creates().len() == 3);
    scheduler.stop().await?;
    Ok(())
}

// Case 29.
pub async fn standard_pods_that_were_there_are_counted(case: Case) -> Result<()> {
    case.plane.require_local("pods that stay pending")?;
    let site = site(&case, stay_pending(12)).await?;
    pods::make(&site.api(), 10, &pods::standard_labels(), 0).await?;
    site.farm.fill(5).await?;
    let scheduler = site.scheduler().await?;
    site.until_jobs(2, SOON).await?;
    jobs_stay(&site, 2).await?;
    scheduler.stop().await?;
    Ok(())
}

// Case 24.
pub async fn nothing_is_created_while_pods_cant_be_listed(case: Case) -> Result<()> {
    let site = site(&case, Plan::default()).await?;
    let answer = Action::answer(503, "ServiceUnavailable", "the server is not ready");
    let refused = site.proxy.push(Rule::new(answer).on("list", "pods"));
    site.farm.fill(5).await?;
    let scheduler = site.scheduler().await?;
    eventually("the list was tried three times", SOON, || async {
        ensure!(site.creates().is_empty(), "it creates without knowing the room");
        Ok(Seen::when(refused.count() >= 3, || format!("{}", refused.count())))
    })
    .await?;
    ensure!(site.creates().is_empty(), "it creates without knowing the room");
    site.proxy.clear();
    site.until_acked(SOON).await?;
    ensure!(site.jobs().await?.len() == 5);
    scheduler.stop().await?;
    Ok(())
}

/// A second process of the same scheduler, as while a Deployment rolls over: it waits, and goes on
/// where the first one ends, at once if that one let go of its Lease.
pub async fn two_processes_of_one_scheduler_share_its_room(case: Case) -> Result<()> {
    case.plane.require_local("pods that stay pending")?;
    let site = site(&case, stay_pending(8)).await?;
    let first = site.run("one")?;
    let until_watching = |count| {
        let watches = || site.proxy.count("watch", "pods");
        eventually("the leader watches", SOON, move || async move {
            Ok(Seen::when(watches() >= count, || format!("{}", watches())))
        })
    };
    // Two watches of pods each.
    until_watching(2).await?;
    let second = site.run("other")?;
    eventually("both look at the Lease", SOON, || async {
        let looks = site.proxy.count("get", "leases");
        Ok(Seen::when(looks >= 3, || format!("{looks}")))
    })
    .await?;
    site.farm.fill(40).await?;
    site.until_jobs(8, SOON).await?;
    jobs_stay(&site, 8).await?;
    ensure!(site.proxy.count("watch", "pods") == 2, "the one that waits watches");

    first.terminate()?;
    let ended = first.end(SOON).await?;
    ensure!(ended.code == Some(0), "{ended:?}");
    let since = Instant::now();
    until_watching(4).await?;
    ensure!(since.elapsed() < Duration::from_secs(8), "it waited {:?}", since.elapsed());
    delete_first(&site, 3).await?;
    eventually("three more are created", SOON, || async {
        let creates = site.creates().len();
        Ok(Seen::when(creates == 11, || format!("{creates}")))
    })
    .await?;
    // A request is counted as it comes, before its Job is there.
    site.until_jobs(8, SOON).await?;
    jobs_stay(&site, 8).await?;
    second.terminate()?;
    let ended = second.end(SOON).await?;
    ensure!(ended.code == Some(0), "{ended:?}");
    Ok(())
}
