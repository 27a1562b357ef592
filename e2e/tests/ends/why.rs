//! What `katabatch why` says.

use anyhow::{Context, Result, ensure};
use katabatch::why::{Answer, Sentence};
use katabatch_e2e::eventually::Seen;
use katabatch_e2e::farm::{JOB_TYPE, Plan, message, signed};
use katabatch_e2e::process::Process;
use katabatch_e2e::scheduler::Scheduler;
use katabatch_e2e::stages::Behaviour;
use katabatch_e2e::{Case, eventually};
use serde_json::json;

use crate::{SOON, only_end, site};

/// Waits until the first sentence about a job type has this state and these words.
async fn until_said(scheduler: &Scheduler, of: &str, state: &str, text: &str) -> Result<()> {
    eventually(&format!("`{state}` is said of {of}"), SOON, || async {
        let answer = scheduler.why(of).await?;
        let is = |first: &Sentence| first.state == state && first.text.contains(text);
        let said = answer.sentences.first().is_some_and(is);
        Ok(Seen::when(said, || format!("{:?}", answer.sentences)))
    })
    .await
}

pub async fn each_state_has_its_sentence(case: Case) -> Result<()> {
    let plan = Plan { behaviour: Behaviour::ImageAbsent, pending: 1, ..Plan::default() };
    let plan = Plan { job_types: vec![JOB_TYPE.into(), "second".into(), "third".into()], ..plan };
    let site = site(&case, plan).await?;
    let scheduler = site.scheduler().await?;
    until_said(&scheduler, "no_such_job", "unknown_job_type", "no job type no_such_job").await?;
    until_said(&scheduler, "second", "unseen", "no task of second").await?;

    let dead = "https://storage.googleapis.com/in/third?X-Goog-Date=20200101T000000Z\
                &X-Goog-Expires=86400&X-Goog-Signature=x";
    site.farm.put(vec![message("fuzz", "third", dead)]).await?;
    until_said(&scheduler, "third", "dead_url", "1 message was rejected").await?;

    site.farm.fill(1).await?;
    until_said(&scheduler, JOB_TYPE, "image_pull", "1 Job can't pull the image").await?;
    // Its task waits in the queue, of which nothing is taken meanwhile.
    site.farm.put(vec![message("fuzz", "second", &signed("in/second", "x"))]).await?;
    until_said(&scheduler, "second", "pending_limit", "the pending limit is reached").await?;
    scheduler.stop().await?;
    Ok(())
}

pub async fn the_command_answers_from_the_file_when_nobody_runs(case: Case) -> Result<()> {
    let site = site(&case, Plan { profile: json!({}), ..Plan::default() }).await?;
    site.farm.fill(1).await?;
    let scheduler = site.scheduler().await?;
    only_end(&scheduler).await?;
    until_said(&scheduler, JOB_TYPE, "well", "all is well: 1 task has got a Job").await?;
    scheduler.stop().await?;
    let process = Process::start(site.farm.dir(), "why", &["why", JOB_TYPE, "-o", "json"])?;
    let ended = process.end(SOON).await?;
    ensure!(ended.code == Some(0), "{ended:?}");
    ensure!(ended.stderr.contains("no running scheduler answers"), "{ended:?}");
    let answer: Answer = serde_json::from_str(&ended.stdout).context("read the answer")?;
    ensure!(answer.sentences.first().is_some_and(|said| said.state == "well"), "{answer:?}");
    ensure!(
        answer.workloads.iter().map(|about| about.ends.len()).sum::<usize>() == 1,
        "{answer:?}"
    );
    Ok(())
}
