//! What comes from outside, as the server stores it: names, labels, URLs.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use katabatch::domain::name::label_value;
use katabatch_e2e::Case;
use katabatch_e2e::farm::{JOB_TYPE, Plan, message, task};

use crate::{SOON, site};

// Cases 36, 37 and 40.
pub async fn odd_job_types_get_valid_and_distinct_labels(case: Case) -> Result<()> {
    let shared = "x".repeat(63);
    let mut job_types: Vec<String> =
        [JOB_TYPE, "no", "007", "1e3", "null", "~", "true", "a b", "naïve", "a.b-", "{{ x }}", "*"]
            .map(String::from)
            .into();
    job_types.push(format!("_{}-", "a".repeat(70)));
    job_types.extend([format!("{shared}1"), format!("{shared}2")]);
    let site = site(&case, Plan { job_types: job_types.clone(), ..Plan::default() }).await?;
    let url = "https://storage.googleapis.com/uworker-input/o";
    let commands = ["fuzz", "corpus_pruning"];
    let pairs: Vec<_> =
        job_types.iter().flat_map(|job| commands.map(|command| (command, job))).collect();
    site.farm.put(pairs.iter().map(|(command, job)| message(command, job, url)).collect()).await?;
    let scheduler = site.scheduler().await?;
    site.until_acked(SOON).await?;
    scheduler.stop().await?;

    let jobs = site.api::<Job>();
    let mut labels = BTreeSet::new();
    for (command, job_type) in &pairs {
        let name = task(command, job_type, url)?.job_name().to_string();
        let metadata = jobs.get(&name).await.with_context(|| format!("{job_type:?}"))?.metadata;
        let has = metadata.labels.unwrap_or_default();
        let label = has.get("job_name").cloned().context("job_name")?;
        ensure!(label == label_value(job_type), "{job_type:?} is labelled {label:?}");
        ensure!(has.get("task_name").map(String::as_str) == Some(*command), "{has:?}");
        let full = metadata.annotations.unwrap_or_default();
        let full = full.get("katabatch.dev/job-type").map_or(label.as_str(), String::as_str);
        ensure!(full == job_type.as_str(), "{job_type:?} is annotated {full:?}");
        labels.insert((*command, label));
    }
    ensure!(labels.len() == pairs.len(), "labels are shared: {labels:?}");
    Ok(())
}

/// What a kubelet makes of a value (Kubernetes: `third_party/forked/golang/expansion`): `$$` is a
/// dollar sign, `$(NAME)` a variable that came before, or itself if there is none.
fn expanded(value: &str, before: &[(String, String)]) -> String {
    let mut out = String::new();
    let mut rest = value;
    while let Some((text, after)) = rest.split_once('$') {
        out.push_str(text);
        if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) =
            after.strip_prefix('(').and_then(|after| after.split_once(')'))
        {
            let found = before.iter().rev().find(|(known, _)| known == name);
            out.push_str(&found.map_or(format!("$({name})"), |(_, value)| value.clone()));
            rest = after;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out + rest
}

// Cases 38 and 42.
pub async fn the_worker_gets_the_url_byte_for_byte(case: Case) -> Result<()> {
    let site = site(&case, Plan::default()).await?;
    let base = "https://storage.googleapis.com/uworker-input";
    let urls: Vec<String> = [
        "a/b%2Fc?x=1&y=%26&z",
        "home?x=$(HOST_UID)&y=$$&z=$$(UWORKER)&w=$",
        "dollars?$$$(HOST_UID)$$$$(",
        "quotes?\"'`\\\"&a=\\n",
        "templates?{{ task.url }}{% raw %}&safe",
        "yaml?: - # &anchor *alias !tag | > @",
        "lines?a\nb\r\nc\td",
        "unicode?é😀\u{85}\u{2028}\u{202e}\u{feff}",
        "controls?\u{1}\u{7f}\u{1b}[31m",
        "spaces?  x  ",
        "slots?__katabatch__&KATABATCH_TASK_URL",
    ]
    .iter()
    .map(|rest| format!("{base}/{rest}"))
    .collect();
    site.farm.put(urls.iter().map(|url| message("fuzz", JOB_TYPE, url)).collect()).await?;
    let scheduler = site.scheduler().await?;
    site.until_acked(SOON).await?;
    scheduler.stop().await?;

    for url in &urls {
        let name = task("fuzz", JOB_TYPE, url)?.job_name().to_string();
        let job = site.api::<Job>().get(&name).await.with_context(|| format!("{url:?}"))?;
        let pod = job.spec.and_then(|spec| spec.template.spec).context("it has a pod")?;
        let mut seen: Vec<(String, String)> = Vec::new();
        for variable in pod.containers.into_iter().flat_map(|c| c.env.unwrap_or_default()) {
            let value = expanded(&variable.value.unwrap_or_default(), &seen);
            seen.push((variable.name, value));
        }
        let got = seen.iter().find(|(name, _)| name == "UWORKER_INPUT_DOWNLOAD_URL");
        let got = &got.context("the variable is gone")?.1;
        ensure!(got == url, "{url:?} became {got:?}");
    }
    Ok(())
}
