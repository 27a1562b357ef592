//! Outputs that are there, and a bucket that can't be looked into.

use anyhow::{Result, ensure};
use katabatch_e2e::Case;
use katabatch_e2e::eventually::{Seen, eventually};
use katabatch_e2e::farm::{JOB_TYPE, message, signed};
use serde_json::{Value, json};

use crate::world::{SOON, World};

fn looked_for() -> Value {
    json!({ "outputs": { "bucket": "gs://outputs" } })
}

pub async fn done(case: Case) -> Result<()> {
    let world = World::new(&case, looked_for()).await?;
    world.gcs.put("gs://outputs/dir/1", "done").await?;
    world.gcs.put("gs://outputs/2", "done").await?;
    let process = world.run()?;
    let urls = [signed("inputs/dir%2F1", "1"), "gs://inputs/2".into(), signed("inputs/3", "1")];
    world.site.farm.put(urls.map(|url| message("fuzz", JOB_TYPE, &url)).into()).await?;
    world.site.until_acked(SOON).await?;
    let jobs = world.site.jobs().await?;
    ensure!(jobs.len() == 1, "{} Jobs", jobs.len());
    ensure!(world.site.creates().len() == 1, "more was created");
    let ended = world.stop(process).await?;
    ensure!(ended.code == Some(0), "{ended:?}");
    Ok(())
}

pub async fn away(case: Case) -> Result<()> {
    let world = World::new(&case, looked_for()).await?;
    world.gcs.kill()?;
    let process = world.run()?;
    let tasks = (0..20).map(|n| message("fuzz", JOB_TYPE, &signed(&format!("inputs/{n}"), "1")));
    world.site.farm.put(tasks.collect()).await?;
    let look = &process;
    eventually("it says why nothing is created", SOON, || async move {
        let said = look.messages();
        Ok(Seen::when(said.contains("whether its output is there can't be told"), || said))
    })
    .await?;
    ensure!(world.site.creates().is_empty(), "something was created");
    let counts = world.site.farm.counts().await?;
    let held = counts.ready + counts.leased + counts.delayed;
    ensure!(held == 20, "{counts:?}");
    world.gcs.start_again().await?;
    world.site.until_jobs(20, SOON).await?;
    world.site.until_acked(SOON).await?;
    world.stop(process).await?;
    Ok(())
}
