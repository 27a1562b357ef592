//! Finished Jobs go, and not too early.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use katabatch_e2e::eventually::{Seen, throughout};
use katabatch_e2e::farm::Plan;
use katabatch_e2e::proxy::{Action, Rule};
use katabatch_e2e::site::is_finished;
use katabatch_e2e::{Case, eventually};
use rusqlite::Connection;

use crate::{SOON, site};

/// While the spool is locked by somebody else no ack can be written: the Job ends, and stays.
pub async fn a_finished_job_goes_once_acked_and_not_before(case: Case) -> Result<()> {
    let plan = Plan {
        retain_finished: Duration::from_secs(1),
        lease: Duration::from_secs(60),
        ..Plan::default()
    };
    let site = site(&case, plan).await?;
    let late = Action::DelayAnswer(Duration::from_millis(2_500));
    let on_its_way = site.proxy.push(Rule::new(late).on("create", "jobs").once());
    site.farm.fill(1).await?;
    let scheduler = site.scheduler().await?;
    eventually("the create is under way", SOON, || async {
        Ok(Seen::when(on_its_way.count() == 1, || "not yet".into()))
    })
    .await?;
    let spool = Connection::open(site.farm.dir().join("spool.sqlite"))?;
    spool.execute_batch("BEGIN IMMEDIATE").context("lock the spool")?;
    let jobs = site.until_jobs(1, SOON).await?;
    let uid = jobs[0].metadata.uid.clone();
    eventually("it ends", SOON, || async {
        let jobs = site.jobs().await?;
        Ok(Seen::when(jobs.iter().all(is_finished), || format!("{jobs:?}")))
    })
    .await?;
    throughout(Duration::from_secs(6), || async {
        let jobs = site.jobs().await?;
        let there = jobs.iter().any(|job| job.metadata.uid == uid);
        ensure!(there, "it was deleted before its message was acked");
        Ok(())
    })
    .await?;
    ensure!(scheduler.counts().acked == 0, "{:?}", scheduler.counts());

    spool.execute_batch("ROLLBACK").context("unlock the spool")?;
    site.until_acked(SOON).await?;
    site.until_jobs(0, SOON).await?;
    ensure!(site.proxy.count("delete", "jobs") == 1);
    scheduler.stop().await?;
    Ok(())
}
