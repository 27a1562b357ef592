//! Messages that wait for their Jobs' ends (`ack: on_completed`): the queue decides about failures,
//! and neither a kill nor a shutdown starts anything again or uses up an attempt.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use katabatch::queue::spool::record::{Entry, NewMessage, Quarantined, Selection};
use katabatch_e2e::eventually::Seen;
use katabatch_e2e::farm::{JOB_TYPE, Plan, input, message};
use katabatch_e2e::site::{Site, is_finished};
use katabatch_e2e::stages::{BEHAVIOUR, Behaviour};
use katabatch_e2e::{Case, eventually};
use kube::api::DeleteParams;
use serde_json::json;

use crate::{SOON, site};

/// One task, whose message waits for its end and may fail so often.
async fn waiting(case: &Case, behaviour: Behaviour, attempts: u32) -> Result<Site> {
    let queue = json!({
        "name": "main", "spool": { "path": "spool.sqlite" }, "ack": "on_completed",
    });
    let sections = json!({ "queues": [queue] });
    let site = site(case, Plan { behaviour, sections, ..Plan::default() }).await?;
    let task = message("fuzz", JOB_TYPE, &input(0));
    site.farm.put(vec![NewMessage { attempts: Some(attempts), ..task }]).await?;
    Ok(site)
}

async fn only_message(site: &Site) -> Result<Entry> {
    site.farm.spool().list(2).await?.pop().context("the message is gone")
}

async fn until_quarantined(site: &Site) -> Result<Quarantined> {
    eventually("the message is in quarantine", SOON, || async {
        let mut records = site.farm.spool().quarantined(Selection::default(), 2).await?;
        Ok(match records.pop() {
            Some(record) => Seen::Done(record),
            None => Seen::NotYet(format!("{:?}", site.farm.counts().await?)),
        })
    })
    .await
}

fn attempts(jobs: &[Job]) -> Vec<&str> {
    let labels = jobs.iter().filter_map(|job| job.metadata.labels.as_ref());
    let attempt = labels.filter_map(|labels| labels.get("katabatch.dev/attempt"));
    let mut attempts: Vec<&str> = attempt.map(String::as_str).collect();
    attempts.sort_unstable();
    attempts
}

pub async fn a_message_is_acked_when_its_job_is_complete_over_a_kill(case: Case) -> Result<()> {
    let site = waiting(&case, Behaviour::Slow(Duration::from_secs(20)), 1).await?;
    let first = site.run("first")?;
    let jobs = site.until_jobs(1, SOON).await?;
    let mark = jobs[0].metadata.annotations.as_ref().and_then(|all| all.get("katabatch.dev/ack"));
    ensure!(mark.map(String::as_str) == Some("on_completed"), "{mark:?}");
    ensure!(site.farm.counts().await?.leased == 1, "the message is kept");
    first.kill().await?;
    let second = site.run("second")?;
    eventually("the message is acked, and not before the end", SOON, || async {
        let left = site.farm.spool().list(2).await?.len();
        let jobs = site.jobs().await?;
        ensure!(left == 1 || jobs.iter().all(is_finished), "acked while the Job runs");
        Ok(Seen::when(left == 0, || format!("{:?}", jobs.len())))
    })
    .await?;
    site.until_acked(SOON).await?;
    ensure!(attempts(&site.jobs().await?) == ["1"] && site.creates().len() == 1);
    second.terminate()?;
    let ended = second.end(SOON).await?;
    ensure!(ended.code == Some(0), "{ended:?}");
    Ok(())
}

pub async fn a_task_that_fails_twice_is_acked_by_its_third_attempt(case: Case) -> Result<()> {
    let failing = Behaviour::Fail { code: 3, after: Duration::ZERO };
    let site = waiting(&case, failing, 9).await?;
    let scheduler = site.scheduler().await?;
    eventually("two failures", SOON, || async {
        let message = only_message(&site).await?;
        Ok(Seen::when(message.attempts >= 2, || format!("{message:?}")))
    })
    .await?;
    let profile = json!({
        "cpu": "10m", "memory": "64Mi", "shm": "16Mi",
        "labels": { (BEHAVIOUR): Behaviour::Default.to_string() },
    });
    site.farm.configure(&json!({ "profiles": { "default": profile } }))?;
    site.until_acked(SOON).await?;
    let jobs = site.jobs().await?;
    ensure!(attempts(&jobs) == ["1", "2", "3"], "{:?}", attempts(&jobs));
    let counts = scheduler.counts();
    ensure!((counts.failed, counts.acked, counts.created) == (2, 1, 3), "{counts:?}");
    scheduler.stop().await?;
    Ok(())
}

pub async fn used_up_attempts_end_in_quarantine_with_the_reason(case: Case) -> Result<()> {
    let site = waiting(&case, Behaviour::Fail { code: 3, after: Duration::ZERO }, 2).await?;
    let scheduler = site.scheduler().await?;
    let record = until_quarantined(&site).await?;
    ensure!(record.reason == "attempts_used_up", "{record:?}");
    ensure!(record.detail.starts_with("task_failure (exit code 3)"), "{record:?}");
    ensure!(attempts(&site.jobs().await?) == ["1", "2"]);
    scheduler.stop().await?;
    Ok(())
}

pub async fn a_shutdown_uses_up_no_attempt(case: Case) -> Result<()> {
    let site = waiting(&case, Behaviour::RunForever, 1).await?;
    for name in ["first", "second"] {
        let process = site.run(name)?;
        site.until_jobs(1, SOON).await?;
        eventually("the message is leased", SOON, || async {
            let counts = site.farm.counts().await?;
            Ok(Seen::when(counts.leased == 1, || format!("{counts:?}")))
        })
        .await?;
        process.terminate()?;
        let ended = process.end(SOON).await?;
        ensure!(ended.code == Some(0), "{ended:?}");
        ensure!(site.farm.counts().await?.ready == 1, "it is given back at once");
        ensure!(only_message(&site).await?.attempts == 0);
    }
    ensure!(attempts(&site.jobs().await?) == ["1"] && site.creates().len() == 1);
    Ok(())
}

pub async fn a_cancelled_task_is_in_quarantine_and_not_run_again(case: Case) -> Result<()> {
    let site = waiting(&case, Behaviour::RunForever, 3).await?;
    let scheduler = site.scheduler().await?;
    let jobs = site.until_jobs(1, SOON).await?;
    let name = jobs[0].metadata.name.clone().unwrap_or_default();
    site.api::<Job>().delete(&name, &DeleteParams::background()).await?;
    let record = until_quarantined(&site).await?;
    ensure!(record.reason == "cancelled" && record.detail.contains("somebody"), "{record:?}");
    ensure!(site.creates().len() == 1, "{} creates", site.creates().len());
    scheduler.stop().await?;
    Ok(())
}
