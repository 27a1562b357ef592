//! A signed URL is a credential (case 61): its signature stands in the Job's environment, where
//! the worker needs it, and nowhere else.

use std::fs;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod};
use katabatch::domain::outcome::HoldKind;
use katabatch_e2e::Case;
use katabatch_e2e::farm::{JOB_TYPE, Plan, SIGNATURE, input, message};
use katabatch_e2e::proxy::{Action, Rule};
use kube::api::ListParams;

use crate::commands::{run, write_tasks};
use crate::{SOON, site};

const TASK: [&str; 6] = ["--command", "fuzz", "--job", JOB_TYPE, "--url", "@url"];

pub async fn no_signature_shows_anywhere(case: Case) -> Result<()> {
    let site = site(&case, Plan::default()).await?;
    let farm = &site.farm;
    let mut messages: Vec<_> = (0..5).map(|n| message("fuzz", JOB_TYPE, &input(n))).collect();
    // Rejected, held, and refused by the server with the URL in its own words.
    messages.push(message("fuzz", JOB_TYPE, &input(5).replace("https://", "ftp://")));
    messages.push(message("fuzz", "nothing", &input(6)));
    farm.put(messages).await?;
    let words = format!("Job is invalid: env: Invalid value: \"{}\"", input(0));
    site.proxy.push(Rule::new(Action::answer(422, "Invalid", &words)).on("create", "jobs").once());
    fs::write(farm.dir().join("url"), input(9))?;
    write_tasks(farm)?;

    let once = ["--log", "trace", "run", "--once"];
    let mut outputs = vec![run(farm, "once", &once).await?];
    let others: [&[&str]; 9] = [
        &["queue", "list"],
        &["queue", "list", "-o", "json"],
        &["queue", "put", "-f", "tasks.jsonl"],
        &["queue", "list", "-o", "yaml"],
        &["queue", "quarantine", "list"],
        &["queue", "quarantine", "list", "-o", "json"],
        &["submit", "-f", "tasks.jsonl", "-o", "json"],
        &["check"],
        &["submit", "--url", "https://me:5ec2e7516ba7c4e@h/?sig=5ec2e7516ba7c4e"],
    ];
    for (n, arguments) in others.into_iter().enumerate() {
        outputs.push(run(farm, &format!("other-{n}"), arguments).await?);
    }
    for command in ["render", "submit"] {
        let arguments: Vec<_> = [command].into_iter().chain(TASK).collect();
        outputs.push(run(farm, command, &arguments).await?);
    }
    for output in &outputs {
        let shown = [&output.stdout, &output.stderr].map(|text| text.contains(SIGNATURE));
        ensure!(shown == [false, false], "a signature is in {output:?}");
    }
    ensure!(!outputs[0].stderr.is_empty(), "the logs say nothing");
    // The measure is good: whoever asks for it sees it.
    let revealed = run(farm, "revealed", &["queue", "list", "-n", "0", "--reveal"]).await?;
    ensure!(revealed.stdout.contains(SIGNATURE), "{revealed:?}");

    site.proxy.push(Rule::new(Action::answer(422, "Invalid", &words)).on("create", "jobs").once());
    farm.put(vec![message("corpus_pruning", JOB_TYPE, &input(1))]).await?;
    let scheduler = site.scheduler().await?;
    let detail = scheduler.until_held(HoldKind::JobRefused, SOON).await?;
    ensure!(detail.contains("uworker-input/00000"), "it isn't said what the server said: {detail}");
    farm.put(vec![message("progression", JOB_TYPE, &input(1))]).await?;
    scheduler.until("the rest is scheduled", SOON, |counts| counts.acked > 0).await?;
    let told = format!("{:?} {:?}", scheduler.decisions(), scheduler.counts());
    ensure!(!told.contains(SIGNATURE), "a signature is in {told}");
    scheduler.stop().await?;
    let all = ListParams::default();
    let mut stored = Vec::new();
    for job in site.jobs().await? {
        stored.push(serde_json::to_string(&(&job.metadata, &job.status))?);
        let template = job.spec.map(|spec| spec.template.metadata);
        stored.push(serde_json::to_string(&template)?);
    }
    ensure!(!stored.is_empty());
    for pod in site.api::<Pod>().list(&all).await? {
        stored.push(serde_json::to_string(&(&pod.metadata, &pod.status))?);
    }
    stored.push(serde_json::to_string(&site.api::<Event>().list(&all).await?.items)?);
    stored.push(serde_json::to_string(&site.api::<ConfigMap>().list(&all).await?.items)?);
    let shown = stored.iter().find(|text| text.contains(SIGNATURE));
    ensure!(shown.is_none(), "a signature is in {shown:?}");
    Ok(())
}
