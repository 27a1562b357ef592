//! What health, metrics and status say while a scheduler runs.

use anyhow::{Context, Result, ensure};
use katabatch_e2e::eventually::Seen;
use katabatch_e2e::farm::Plan;
use katabatch_e2e::http_client::Endpoint;
use katabatch_e2e::process::Process;
use katabatch_e2e::rbac::{rbac, without};
use katabatch_e2e::{Case, eventually};
use serde_json::{Value, json};

use crate::{SOON, served};

/// Waits until the health of creating has this status and says this.
pub async fn until_health(endpoint: &Endpoint, status: u16, says: &str) -> Result<()> {
    eventually(&format!("/healthz/create is {status}"), SOON, || async {
        let answer = endpoint.get("/healthz/create").await?;
        let is = answer.status == status && answer.text.contains(says);
        Ok(Seen::when(is, || format!("{answer:?}")))
    })
    .await
}

pub async fn health_is_red_without_a_right_and_green_again_with_it(case: Case) -> Result<()> {
    let (site, endpoint) = served(&case, Plan::default(), Value::Null).await?;
    let namespace = site.namespace.name();
    let scheduler = site.scheduler().await?;
    until_health(&endpoint, 200, "ok").await?;
    case.plane.apply_yaml_in(namespace, &without("create", "jobs")?).await?;
    site.farm.fill(3).await?;
    until_health(&endpoint, 503, "cannot create resource \"jobs\"").await?;
    // Alive and ready all the same: a restart would mend nothing.
    for path in ["/livez", "/readyz"] {
        let answer = endpoint.get(path).await?;
        ensure!(answer.status == 200, "{path}: {answer:?}");
    }
    let status = endpoint.json("/v1/status").await?;
    ensure!(status["can_create"] == json!(false), "{status}");
    ensure!(status["backends"][0]["state"] == json!("refused"), "{status}");
    ensure!(status["held"]["forbidden"]["tasks"] == json!(3), "{status}");

    case.plane.apply_yaml_in(namespace, &rbac()?).await?;
    until_health(&endpoint, 200, "ok").await?;
    site.until_acked(SOON).await?;
    scheduler.stop().await?;
    ensure!(endpoint.get("/livez").await.is_err(), "it serves on after its end");
    Ok(())
}

pub async fn a_scrape_tells_what_was_done(case: Case) -> Result<()> {
    let (site, endpoint) = served(&case, Plan::default(), Value::Null).await?;
    site.farm.fill(5).await?;
    let scheduler = site.scheduler().await?;
    site.until_acked(SOON).await?;
    let lines = [
        "katabatch_tasks_total{outcome=\"scheduled\",reason=\"created\"} 5",
        "katabatch_messages_total{event=\"acked\"} 5",
        "katabatch_leader 1.0",
        "katabatch_can_create 1.0",
        "katabatch_pending_jobs_limit{backend=\"cluster\"} 1000.0",
        "katabatch_api_calls_total{backend=\"cluster\",verb=\"create\",code=\"201\"}",
        "katabatch_stage_seconds_count{stage=\"submitted\"} 5",
        "katabatch_oldest_unacked_seconds{queue=\"main\"} 0.0",
        "katabatch_build_info{version=\"",
    ];
    eventually("the scrape says all", SOON, || async {
        let text = endpoint.get("/metrics").await?.text;
        let missing = lines.iter().find(|line| !text.lines().any(|l| l.starts_with(**line)));
        Ok(Seen::when(missing.is_none(), || format!("no {missing:?} in:\n{text}")))
    })
    .await?;

    let server = ["status", "--server", &endpoint.url()];
    let table = Process::run(site.farm.dir(), "table", &server).await?;
    ensure!(table.code == Some(0) && table.stdout.contains("leader, can create"), "{table:?}");
    // The configuration knows where it listens.
    let json = Process::run(site.farm.dir(), "json", &["status", "-o", "json"]).await?;
    let status: Value = serde_json::from_str(&json.stdout).context("read the status")?;
    ensure!(status["counts"]["created"] == json!(5), "{json:?}");
    let yaml = Process::run(site.farm.dir(), "yaml", &["status", "-o", "yaml"]).await?;
    ensure!(yaml.stdout.contains("scheduler: 'e2e'"), "{yaml:?}");
    scheduler.stop().await?;
    let gone = Process::run(site.farm.dir(), "gone", &["status"]).await?;
    ensure!(gone.code == Some(1) && gone.stderr.contains("hint: does `katabatch run`"), "{gone:?}");
    Ok(())
}

pub async fn a_port_that_is_taken_ends_the_start_with_its_cause(case: Case) -> Result<()> {
    let (site, endpoint) = served(&case, Plan::default(), Value::Null).await?;
    let _taken = tokio::net::TcpListener::bind(&endpoint.address).await?;
    let ended = site.run("run")?.end(SOON).await?;
    ensure!(ended.code == Some(1), "{ended:?}");
    let cause = format!("http.listen: can't listen on {}", endpoint.address);
    ensure!(ended.stderr.contains(&cause), "{ended:?}");
    // What runs for a moment beside a scheduler doesn't want its port.
    let once = Process::run(site.farm.dir(), "once", &["run", "--once"]).await?;
    ensure!(once.code == Some(0), "{once:?}");
    Ok(())
}
