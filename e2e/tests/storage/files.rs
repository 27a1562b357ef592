//! The farm's files in a bucket.

use anyhow::{Result, ensure};
use katabatch_e2e::Case;
use katabatch_e2e::eventually::{Seen, eventually};
use katabatch_e2e::farm::{JOB_TYPE, input, message};
use serde_json::json;

use crate::world::{SOON, World, image};

const CONFIG: &str = "gs://farm/config/batch/batch.yaml";
const CATALOG: &str = "gs://farm/entities.jsonl";
const FLAGS: &str = "gs://farm/flags.yaml";

pub async fn followed(case: Case) -> Result<()> {
    let world = World::in_bucket(&case).await?;
    let (site, gcs) = (&world.site, &world.gcs);
    gcs.put(FLAGS, &pending(0)).await?;
    let mut process = world.run()?;
    site.farm.fill(2).await?;
    eventually("it has begun with the files as they were", SOON, || async {
        let watches = site.proxy.count("watch", "pods");
        Ok(Seen::when(watches > 0, || "it doesn't watch yet".into()))
    })
    .await?;

    // The farm's own files.
    let batch = gcs.text(CONFIG).await?;
    ensure!(batch.contains(&site.farm.plan().image), "{batch}");
    gcs.put(CONFIG, &batch.replace(&site.farm.plan().image, "registry.test/worker:2")).await?;
    until_said(&mut process, "the configuration was reloaded").await?;
    ensure!(site.jobs().await?.is_empty(), "Jobs were made over the limit");

    // The flags.
    gcs.put(FLAGS, &pending(1_000)).await?;
    let jobs = site.until_jobs(2, SOON).await?;
    let images: Vec<_> = jobs.iter().filter_map(image).collect();
    ensure!(images == ["registry.test/worker:2"; 2], "{images:?}");

    // The catalog.
    site.farm.put(vec![message("fuzz", "libfuzzer_asan_new", &input(3))]).await?;
    let entity = json!({ "kind": "Job", "name": "libfuzzer_asan_new", "platform": "LINUX" });
    let entities = gcs.text(CATALOG).await?;
    gcs.put(CATALOG, &format!("{entities}{entity}\n")).await?;
    until_said(&mut process, "the catalog was reloaded").await?;
    site.until_jobs(3, 2 * SOON).await?;
    site.until_acked(SOON).await?;
    let ended = world.stop(process).await?;
    ensure!(ended.code == Some(0), "{ended:?}");
    Ok(())
}

fn pending(limit: usize) -> String {
    json!({ "k8s_jobs_pending_limit": { "enabled": true, "value": limit } }).to_string()
}

pub async fn away(case: Case) -> Result<()> {
    let world = World::in_bucket(&case).await?;
    let (site, gcs) = (&world.site, &world.gcs);
    let mut process = world.run()?;
    site.farm.fill(1).await?;
    site.until_jobs(1, SOON).await?;

    gcs.kill()?;
    until_said(&mut process, "the last good one stays").await?;
    site.farm.put(vec![message("fuzz", JOB_TYPE, &input(1))]).await?;
    site.until_jobs(2, SOON).await?;
    site.until_acked(SOON).await?;
    let said = process.messages();
    ensure!(said.contains("Cloud Storage can't be reached"), "{said}");
    let times = said.matches("the configuration changed and can't be used").count();
    ensure!(times == 1, "it is said {times} times");

    gcs.start_again().await?;
    until_said(&mut process, "the configuration was reloaded").await?;
    process.must_run()?;
    let ended = world.stop(process).await?;
    ensure!(ended.code == Some(0), "{ended:?}");

    // Without any good state there is nothing to go by.
    gcs.kill()?;
    let started = world.start("again", &["run"])?.end(SOON).await?;
    ensure!(started.code == Some(1), "{started:?}");
    ensure!(started.stderr.contains("gs://farm/config/project.yaml"), "{}", started.stderr);
    Ok(())
}

pub async fn flag_is_set(case: Case) -> Result<()> {
    let world = World::in_bucket(&case).await?;
    world.gcs.put(FLAGS, "k8s_jobs_frequency: {enabled: true, value: 1} # ours\n").await?;
    let set = ["flags", "set", "k8s_jobs_frequency", "--value", "0.5"];
    let output = world.start("set", &set)?.end(SOON).await?;
    ensure!(output.code == Some(0), "{output:?}");
    let text = world.gcs.text(FLAGS).await?;
    ensure!(text == "k8s_jobs_frequency: {enabled: true, value: 0.5} # ours\n", "{text}");
    let list = world.start("list", &["flags", "list", "-o", "json"])?.end(SOON).await?;
    ensure!(list.stdout.contains("0.5"), "{list:?}");
    Ok(())
}

async fn until_said(process: &mut katabatch_e2e::process::Process, words: &str) -> Result<()> {
    process.must_run()?;
    let process = &*process;
    eventually(&format!("it says {words:?}"), SOON, || async move {
        let said = process.messages();
        let last: Vec<_> = said.lines().rev().take(3).map(str::to_owned).collect();
        Ok(Seen::when(said.contains(words), || last.join(" | ")))
    })
    .await
}
