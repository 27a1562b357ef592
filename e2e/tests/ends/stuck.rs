//! A workload that can't start leaves the others alone, and goes on when it is mended.

use anyhow::{Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use katabatch_e2e::eventually::Seen;
use katabatch_e2e::farm::{JOB_TYPE, Plan, input, message};
use katabatch_e2e::stages::{BEHAVIOUR, Behaviour};
use katabatch_e2e::{Case, eventually};
use serde_json::json;

use crate::{SOON, site};

const BROKEN: usize = 30;

/// The job type of a Job, by the annotation that has its full name.
fn is_of(job: &Job, job_type: &str) -> bool {
    let annotations = job.metadata.annotations.iter().flatten();
    annotations.chain(job.metadata.labels.iter().flatten()).any(|(_, value)| value == job_type)
}

pub async fn an_absent_image_stops_its_workload_alone_until_it_is_mended(case: Case) -> Result<()> {
    let behaviour = |of: Behaviour| json!({ "labels": { (BEHAVIOUR): of.to_string() } });
    let profiles = |broken: Behaviour| {
        json!({
            "default": { "cpu": "10m", "memory": "64Mi", "shm": "16Mi" },
            "job_types": { "broken": behaviour(broken) },
        })
    };
    let sections = json!({
        "profiles": profiles(Behaviour::ImageAbsent),
        "limits": { "lease": "10s", "probe_after": "4s" },
    });
    let job_types = vec![JOB_TYPE.into(), "broken".into()];
    let site = site(&case, Plan { pending: 10, job_types, sections, ..Plan::default() }).await?;
    let messages = (0..BROKEN).map(|n| message("fuzz", "broken", &input(1_000 + n)));
    site.farm.put(messages.collect()).await?;
    site.farm.fill(20).await?;
    let scheduler = site.scheduler().await?;
    let count = async |of: &str| -> Result<usize> {
        Ok(site.jobs().await?.iter().filter(|job| is_of(job, of)).count())
    };
    eventually("the others have their Jobs, all of them", SOON, || async {
        let n = count(JOB_TYPE).await?;
        Ok(Seen::when(n == 20, || format!("{n} of 20")))
    })
    .await?;
    eventually("`why` says that the breaker is open", SOON, || async {
        let answer = scheduler.why("broken").await?;
        let first = answer.sentences.first();
        let said = first.is_some_and(|first| {
            first.state == "breaker_open"
                && first.text.contains("image_pull")
                && first.text.contains("Back-off pulling image")
                && first.change.is_some()
        });
        Ok(Seen::when(said, || format!("{:?}", answer.sentences)))
    })
    .await?;
    let stuck = count("broken").await?;
    ensure!((1..=9).contains(&stuck), "{stuck} Jobs of the broken one");
    site.farm.configure(&json!({ "profiles": profiles(Behaviour::Default) }))?;
    eventually("one that was tried has started, and all go on", SOON, || async {
        let n = count("broken").await?;
        Ok(Seen::when(n == BROKEN, || format!("{n} of {BROKEN}")))
    })
    .await?;
    let answer = scheduler.why("broken").await?;
    ensure!(answer.workloads.iter().all(|about| about.breaker.is_none()), "{answer:?}");
    scheduler.stop().await?;
    Ok(())
}
