//! The commands as a person runs them: exit codes, data on stdout, the rest on stderr.

use std::fs;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use katabatch_e2e::Case;
use katabatch_e2e::eventually::{Seen, eventually};
use katabatch_e2e::farm::{Farm, JOB_TYPE, Plan, input};
use katabatch_e2e::process::{Output, Process};
use serde_json::{Value, json};

use crate::{SOON, site};

/// Runs a command in the farm's folder.
pub async fn run(farm: &Farm, name: &str, arguments: &[&str]) -> Result<Output> {
    Process::run(farm.dir(), name, arguments).await
}

/// The rows of JSON that a command has printed.
pub fn rows(output: &Output) -> Result<Vec<Value>> {
    serde_json::from_str(&output.stdout).with_context(|| format!("not JSON: {output:?}"))
}

/// A file of three tasks and a line that is none.
pub fn write_tasks(farm: &Farm) -> Result<()> {
    let line = |n: usize| json!({ "command": "fuzz", "job": JOB_TYPE, "argument": input(n) });
    let text = format!("{}\n{}\nno task\n{}\n", line(0), line(1), line(2));
    fs::write(farm.dir().join("tasks.jsonl"), text).context("write the tasks")
}

pub async fn two_schedulers_dont_share_a_namespace(case: Case) -> Result<()> {
    let site = site(&case, Plan { scheduler: "first".into(), ..Plan::default() }).await?;
    let plan = Plan { scheduler: "second".into(), ..Plan::default() };
    let other = Farm::new(site.namespace.name(), &site.kubeconfig, plan)?;

    let mut first = site.run("run")?;
    eventually("the first has the namespace", SOON, || async {
        let watches = site.proxy.count("watch", "pods");
        Ok(Seen::when(watches > 0, || "it doesn't watch yet".into()))
    })
    .await?;
    other.fill(3).await?;
    let second = run(&other, "run", &["run"]).await?;
    ensure!(second.code == Some(1), "{second:?}");
    for expected in ["belongs to the scheduler `first`", "`second`", "katabatch-owner"] {
        ensure!(second.stderr.contains(expected), "{expected:?} is not in {}", second.stderr);
    }
    ensure!(site.jobs().await?.is_empty());
    first.must_run()?;
    site.farm.fill(3).await?;
    site.until_acked(SOON).await?;
    first.terminate()?;
    let first = first.end(SOON).await?;
    ensure!(first.code == Some(0), "{first:?}");
    Ok(())
}

pub async fn submit_prints_what_became_of_each_task(case: Case) -> Result<()> {
    let site = site(&case, Plan::default()).await?;
    fs::write(site.farm.dir().join("url"), input(7))?;
    let one = ["submit", "--command", "fuzz", "--job", JOB_TYPE, "--url", "@url", "-o", "json"];
    let first = run(&site.farm, "one", &one).await?;
    ensure!(first.code == Some(0), "{first:?}");
    let name = site.farm.task(7)?.job_name().to_string();
    let row = rows(&first)?.pop().context("a row")?;
    ensure!(row["job"] == json!(name) && row["reason"] == json!("created"), "{row}");
    ensure!(site.api::<Job>().get_opt(&name).await?.is_some());
    let again = run(&site.farm, "again", &one).await?;
    let row = rows(&again)?.pop().context("a row")?;
    ensure!(row["reason"] == json!("already_there"), "{row}");

    write_tasks(&site.farm)?;
    let file = run(&site.farm, "file", &["submit", "-f", "tasks.jsonl", "-o", "json"]).await?;
    ensure!(file.code == Some(3), "a bad line among them: {file:?}");
    ensure!(file.stderr.contains("tasks.jsonl:3"), "{file:?}");
    let all = rows(&file)?;
    ensure!(all.len() == 3 && all.iter().all(|row| row["outcome"] == json!("scheduled")));
    ensure!(site.jobs().await?.len() == 4);

    let unknown = ["submit", "--command", "fuzz", "--job", "nothing", "--url", "@url"];
    let held = run(&site.farm, "unknown", &unknown).await?;
    ensure!(held.code == Some(3) && held.stdout.contains("unknown_job_type"), "{held:?}");
    let wrong = run(&site.farm, "wrong", &["submit", "--nonsense"]).await?;
    ensure!(wrong.code == Some(2) && wrong.stdout.is_empty(), "{wrong:?}");
    Ok(())
}

pub async fn render_and_queue_keep_their_streams_apart(case: Case) -> Result<()> {
    let site = site(&case, Plan::default()).await?;
    fs::write(site.farm.dir().join("url"), input(0))?;
    let render = ["render", "--command", "fuzz", "--job", JOB_TYPE, "--url", "@url"];
    let rendered = run(&site.farm, "render", &render).await?;
    ensure!(rendered.code == Some(0), "{rendered:?}");
    let job: Value = serde_saphyr::from_str(&rendered.stdout)?;
    let name = site.farm.task(0)?.job_name().to_string();
    ensure!(job["metadata"]["name"] == json!(name), "{job}");
    ensure!(job["spec"]["template"]["spec"]["runtimeClassName"] == json!("kata"), "{job}");

    write_tasks(&site.farm)?;
    let put = run(&site.farm, "put", &["queue", "put", "-f", "tasks.jsonl"]).await?;
    ensure!(put.code == Some(3) && put.stdout.is_empty(), "{put:?}");
    ensure!(site.farm.counts().await?.ready == 3);
    let list = run(&site.farm, "list", &["queue", "list", "-o", "json"]).await?;
    ensure!(list.code == Some(0) && rows(&list)?.len() == 3, "{list:?}");
    let once = run(&site.farm, "once", &["run", "--once", "-o", "json"]).await?;
    ensure!(once.code == Some(0), "{once:?}");
    let scheduled = rows(&once)?.into_iter().find(|row| row["reason"] == json!("created"));
    ensure!(scheduled.context("a row")?["count"] == json!(3), "{once:?}");
    let empty = run(&site.farm, "empty", &["queue", "list"]).await?;
    ensure!(empty.code == Some(0) && empty.stdout.is_empty(), "{empty:?}");
    Ok(())
}

pub async fn the_demo_runs_on_a_cluster(case: Case) -> Result<()> {
    let site = site(&case, Plan::default()).await?;
    let kubeconfig = site.kubeconfig.to_str().context("a path of text")?;
    let namespace = site.namespace.name();
    let cluster = ["--kubeconfig", kubeconfig, "--namespace", namespace, "-o", "json"];
    let arguments: Vec<_> = ["demo", "--tasks", "60"].into_iter().chain(cluster).collect();
    let demo = run(&site.farm, "demo", &arguments).await?;
    ensure!(demo.code == Some(0), "{demo:?}");
    let rows = rows(&demo)?;
    let created = rows.iter().find(|row| row["reason"] == json!("created")).context("a row")?;
    ensure!(created["count"].as_u64() == Some(site.jobs().await?.len() as u64), "{rows:?}");
    Ok(())
}
