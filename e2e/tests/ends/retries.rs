//! Failures are run again, as Jobs that a real API server takes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use katabatch_e2e::eventually::Seen;
use katabatch_e2e::farm::{Plan, input, message};
use katabatch_e2e::site::Site;
use katabatch_e2e::stages::Behaviour;
use katabatch_e2e::{Case, eventually};

use crate::{SOON, site};

const TASKS: usize = 12;
/// Of several workloads: one with five tasks that fail at once has its breaker open.
const JOB_TYPES: [&str; 3] = ["first", "second", "third"];
const ATTEMPT: &str = "katabatch.dev/attempt";
const TASK: &str = "katabatch.dev/task";

/// Its pods fail at once; ClusterFuzz would restart their containers.
async fn failing(case: &Case, retain_finished: Duration) -> Result<Site> {
    let behaviour = Behaviour::Fail { code: 3, after: Duration::ZERO };
    let job_types = JOB_TYPES.map(String::from).to_vec();
    let site =
        site(case, Plan { behaviour, retain_finished, job_types, ..Plan::default() }).await?;
    let job_types = JOB_TYPES.iter().cycle();
    let tasks = job_types.take(TASKS).enumerate().map(|(n, of)| message("minimize", of, &input(n)));
    site.farm.put(tasks.collect()).await?;
    Ok(site)
}

fn text<'a>(map: Option<&'a BTreeMap<String, String>>, key: &str) -> &'a str {
    map.and_then(|map| map.get(key)).map_or("", String::as_str)
}

fn failed(job: &Job) -> bool {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|found| found.type_ == "Failed" && found.status == "True")
}

/// Each attempt is the same Job under another name and number.
fn check_chain(chain: &[&Job]) -> Result<()> {
    let attempts: BTreeSet<&str> =
        chain.iter().map(|job| text(job.metadata.labels.as_ref(), ATTEMPT)).collect();
    ensure!(chain.len() == 3 && attempts == ["1", "2", "3"].into(), "{attempts:?}");
    let mut inputs = BTreeSet::new();
    for job in chain {
        let template = &job.spec.as_ref().context("a spec")?.template;
        let labels = template.metadata.as_ref().and_then(|meta| meta.labels.as_ref());
        let attempt = text(job.metadata.labels.as_ref(), ATTEMPT);
        ensure!(text(labels, ATTEMPT) == attempt, "{labels:?}");
        let container = &template.spec.as_ref().context("a pod")?.containers[0];
        ensure!(Some(&container.name) == job.metadata.name.as_ref(), "{}", container.name);
        let env = container.env.iter().flatten();
        let mut url = env.filter(|variable| variable.name == "UWORKER_INPUT_DOWNLOAD_URL");
        inputs.insert(url.next().and_then(|variable| variable.value.clone()));
    }
    ensure!(inputs.len() == 1 && !inputs.contains(&None), "{} inputs", inputs.len());
    Ok(())
}

pub async fn failures_are_run_again_three_times_over_a_kill(case: Case) -> Result<()> {
    let site = failing(&case, Duration::from_secs(3_600)).await?;
    let first = site.run("first")?;
    eventually("a second attempt", SOON, || async {
        let jobs = site.jobs().await?;
        let again = jobs.iter().filter(|job| text(job.metadata.labels.as_ref(), ATTEMPT) != "1");
        Ok(Seen::when(again.count() > 0, || format!("{} Jobs", jobs.len())))
    })
    .await?;
    first.kill().await?;
    let second = site.run("second")?;
    eventually("all attempts have failed", SOON, || async {
        let jobs = site.jobs().await?;
        let done = jobs.iter().filter(|job| failed(job)).count();
        Ok(Seen::when(done >= 3 * TASKS, || format!("{done} of {} have failed", jobs.len())))
    })
    .await?;
    site.until_acked(SOON).await?;
    let jobs = site.jobs().await?;
    let mut chains: BTreeMap<&str, Vec<&Job>> = BTreeMap::new();
    for job in &jobs {
        chains.entry(text(job.metadata.annotations.as_ref(), TASK)).or_default().push(job);
    }
    ensure!(chains.len() == TASKS, "{} tasks have Jobs", chains.len());
    chains.values().try_for_each(|chain| check_chain(chain))?;
    second.terminate()?;
    let ended = second.end(SOON).await?;
    ensure!(ended.code == Some(0), "{ended:?}");
    Ok(())
}

pub async fn a_chain_of_attempts_is_deleted_as_a_whole(case: Case) -> Result<()> {
    let site = failing(&case, Duration::from_secs(5)).await?;
    let process = site.run("run")?;
    eventually("three attempts at each were made, and all are gone", SOON, || async {
        let (made, left) = (site.creates(), site.jobs().await?.len());
        ensure!(made.len() <= 3 * TASKS, "{} creates", made.len());
        let done = made.len() == 3 * TASKS && left == 0;
        Ok(Seen::when(done, || format!("{} made, {left} left", made.len())))
    })
    .await?;
    process.terminate()?;
    let ended = process.end(SOON).await?;
    ensure!(ended.code == Some(0), "{ended:?}");
    Ok(())
}
