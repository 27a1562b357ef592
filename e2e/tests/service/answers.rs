//! Answers to creates that say less than the truth, or ask to wait.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use katabatch::domain::outcome::HoldKind;
use katabatch_e2e::farm::Plan;
use katabatch_e2e::proxy::{Action, Rule};
use katabatch_e2e::{Case, eventually::throughout};

use crate::{SOON, site};

/// Ten tasks, and `action` for three of their creates: one Job each, and every message acked after
/// so many creates.
async fn each_makes_one_job(case: Case, action: Action, creates: usize) -> Result<()> {
    let site = site(&case, Plan::default()).await?;
    let fired = site.proxy.push(Rule::new(action).on("create", "jobs").skip(2).times(3));
    site.farm.fill(10).await?;
    let scheduler = site.scheduler().await?;
    site.until_acked(SOON).await?;
    let counts = scheduler.stop().await?;
    ensure!(fired.count() == 3, "the fault fired {} times", fired.count());
    ensure!(site.jobs().await?.len() == 10);
    ensure!((counts.created, counts.acked) == (10, 10), "{counts:?}");
    ensure!(site.creates().len() == creates, "{} creates", site.creates().len());
    Ok(())
}

pub async fn a_lost_answer_makes_one_job(case: Case) -> Result<()> {
    each_makes_one_job(case, Action::DropAfter, 10).await
}

pub async fn a_lost_request_is_made_again(case: Case) -> Result<()> {
    each_makes_one_job(case, Action::DropBefore, 13).await
}

pub async fn a_late_answer_counts_as_lost(case: Case) -> Result<()> {
    each_makes_one_job(case, Action::DelayAnswer(Duration::from_secs(5)), 10).await
}

// Case 74.
pub async fn an_empty_201_makes_one_job(case: Case) -> Result<()> {
    each_makes_one_job(case, Action::Empty201, 10).await
}

// Case 30.
pub async fn a_504_after_the_work_makes_one_job(case: Case) -> Result<()> {
    let message = "request did not complete within the allotted timeout";
    let action =
        Action::AnswerAfter { status: 504, reason: "Timeout".into(), message: message.into() };
    each_makes_one_job(case, action, 10).await
}

// Case 15.
pub async fn a_definite_500_is_tried_again_for_its_task_alone(case: Case) -> Result<()> {
    let action = Action::answer(500, "InternalError", "Internal error occurred: boom");
    each_makes_one_job(case, action, 13).await
}

// Case 35.
pub async fn a_401_is_tried_again_at_once(case: Case) -> Result<()> {
    each_makes_one_job(case, Action::answer(401, "Unauthorized", "Unauthorized"), 13).await
}

/// The answer is lost, and so is every look for what became of it: held, and settled later.
pub async fn a_lost_answer_that_cant_be_looked_up_makes_one_job(case: Case) -> Result<()> {
    let site = site(&case, Plan::default()).await?;
    site.proxy.push(Rule::new(Action::DropAfter).on("create", "jobs").once());
    let answer = Action::answer(503, "ServiceUnavailable", "not now");
    site.proxy.push(Rule::new(answer).on("get", "jobs"));
    site.farm.fill(1).await?;
    let scheduler = site.scheduler().await?;
    scheduler.until_held(HoldKind::BackendFailed, SOON).await?;
    ensure!(scheduler.counts().acked == 0);
    site.proxy.clear();
    site.until_acked(SOON).await?;
    let counts = scheduler.stop().await?;
    ensure!((counts.created, counts.already_there) == (0, 1), "{counts:?}");
    ensure!(site.jobs().await?.len() == 1);
    Ok(())
}

// Case 32. The wait is longer than a lease, so that leases must have been renewed meanwhile.
pub async fn a_429_stops_every_create_and_keeps_the_leases(case: Case) -> Result<()> {
    let wait = Duration::from_secs(12);
    let site = site(&case, Plan { lease: Duration::from_secs(10), ..Plan::default() }).await?;
    let action = Action::too_many_requests(Some(wait));
    let fired = site.proxy.push(Rule::new(action).on("create", "jobs").skip(10).once());
    site.farm.fill(40).await?;
    let scheduler = site.scheduler().await?;
    site.until_acked(SOON).await?;
    let counts = scheduler.stop().await?;

    ensure!(fired.count() == 1);
    ensure!(counts.leased == 40, "some were delivered again: {counts:?}");
    ensure!((counts.created, counts.ack_lost) == (40, 0), "{counts:?}");
    let creates = site.creates();
    let throttled = creates.iter().find(|seen| seen.status == Some(429)).context("no 429")?;
    // What was on its way when the answer came arrives a moment later.
    let on_its_way = throttled.at + Duration::from_secs(1);
    let during: Vec<_> = creates
        .iter()
        .filter(|seen| seen.at > on_its_way && seen.at < throttled.at + wait)
        .map(|seen| seen.at - throttled.at)
        .collect();
    ensure!(during.is_empty(), "created {during:?} after the 429");
    Ok(())
}

// Case 34.
pub async fn a_failing_webhook_is_tried_a_few_times_then_held(case: Case) -> Result<()> {
    let site = site(&case, Plan::default()).await?;
    let message = "Internal error occurred: failed calling webhook \"mjob.kueue.io\": failed to \
                   call webhook: Post \"https://kueue.svc:443/mutate?timeout=10s\": context \
                   deadline exceeded";
    let rule = Rule::new(Action::answer(500, "InternalError", message)).on("create", "jobs");
    site.proxy.push(rule);
    site.farm.fill(1).await?;
    let scheduler = site.scheduler().await?;
    let detail = scheduler.until_held(HoldKind::WebhookFailed, SOON).await?;
    ensure!(detail.contains("mjob.kueue.io"), "{detail}");
    let tries = site.creates().len();
    ensure!((2..=4).contains(&tries), "{tries} tries before it was held");
    throughout(Duration::from_secs(2), || async {
        ensure!(site.creates().len() == tries, "it is held, and tried all the same");
        Ok(())
    })
    .await?;

    site.proxy.clear();
    site.until_acked(SOON).await?;
    let jobs = site.jobs().await?;
    let name = site.farm.task(0)?.job_name().to_string();
    ensure!(jobs.len() == 1 && jobs[0].metadata.name.as_ref() == Some(&name));
    scheduler.stop().await?;
    Ok(())
}
