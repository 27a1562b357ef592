//! `--jobs` and `cancel`, as a person says them.

use anyhow::{Result, ensure};
use katabatch::backend::Backend as _;
use katabatch::backend::local::End;
use katabatch_e2e::eventually;
use katabatch_e2e::eventually::Seen;
use serde_json::Value;

use crate::world::{Farm, Place, SOON, is_gone, until_gone};

/// Each waits for two others: fewer at once would wait for ever.
const THREE: &str = "echo $$ >> $OUT/now
    until test $(wc -l < $OUT/now) -ge 3; do sleep 0.05; done; echo done >> $OUT/done";
const LONG: &str =
    "trap '' TERM; echo $$ >> $OUT/pids; (setsid sleep 1000 &); sleep 1000; sleep 1000";

pub async fn jobs() -> Result<()> {
    let farm = Farm::new(Some(THREE))?;
    farm.put("one", 0..3).await?;
    farm.run("run", &["run", "--once", "--jobs", "3"]).await?;
    farm.place.lines("done", 3).await?;
    let ended = farm.start("bad", &["run", "--jobs", "0"])?.end(SOON).await?;
    ensure!(ended.code == Some(2) && ended.stderr.contains("from 1 to 4096"), "{ended:?}");
    Ok(())
}

pub async fn no_local() -> Result<()> {
    let farm = Farm::new(None)?;
    let ended = farm.start("run", &["run", "--once", "--jobs", "3"])?.end(SOON).await?;
    ensure!(ended.code == Some(1), "{ended:?}");
    let said = ["--jobs: no backend of the configuration is local", "hint: "];
    ensure!(said.iter().all(|text| ended.stderr.contains(text)), "{ended:?}");
    Ok(())
}

async fn cancel(farm: &Farm, name: &str, arguments: &[&str]) -> Result<Vec<Value>> {
    let fixed = ["cancel", "--why", "a bad build", "-o", "json"];
    let ended = farm.run(name, &[&fixed, arguments].concat()).await?;
    Ok(serde_json::from_str(&ended.stdout)?)
}

pub async fn cancelled() -> Result<()> {
    let farm = Farm::new(Some(LONG))?;
    farm.put("one", 0..1).await?;
    farm.run("one", &["run", "--once", "--jobs", "2"]).await?;
    let one = farm.place.lines("pids", 1).await?;
    farm.put("two", 1..3).await?;
    let scheduler = farm.start("run", &["run", "--jobs", "3"])?;
    let pids = farm.place.lines("pids", 3).await?;
    let dry = cancel(&farm, "dry", &["--job-type", "two", "--dry-run"]).await?;
    ensure!(dry.len() == 2 && dry.iter().all(|line| line["job_type"] == "two"), "{dry:?}");
    ensure!(pids.iter().all(|pid| !is_gone(pid)));
    let done = cancel(&farm, "project", &["--project", "two", "--yes"]).await?;
    ensure!(done.len() == 2 && done.iter().all(|line| line["outcome"] == "stopped"), "{done:?}");
    until_gone(&pids[1..]).await?;
    ensure!(!is_gone(&one[0]), "another job type's task was stopped");
    // Their messages are acked, and their claims stay: they are not run again.
    ensure!(cancel(&farm, "again", &["--project", "two", "--yes"]).await?.is_empty());
    let done = cancel(&farm, "all", &["--all", "--yes"]).await?;
    ensure!(done.len() == 1 && done[0]["outcome"] == "stopped", "{done:?}");
    until_gone(&one).await?;
    scheduler.terminate()?;
    let ended = scheduler.end(SOON).await?;
    ensure!(ended.code == Some(0), "{ended:?}");
    Ok(())
}

pub async fn cancelled_alone() -> Result<()> {
    let farm = Farm::new(Some(LONG))?;
    farm.put("one", 0..1).await?;
    farm.run("one", &["run", "--once", "--jobs", "2"]).await?;
    let pids = farm.place.lines("pids", 1).await?;
    let done = cancel(&farm, "all", &["--backend", "here", "--yes"]).await?;
    ensure!(done.len() == 1 && done[0]["outcome"] == "stopped", "{done:?}");
    until_gone(&pids).await
}

pub async fn cleared() -> Result<()> {
    let place = Place::new()?;
    let inside = place.inside(LONG).await?;
    ensure!(inside.backend.clear().await == Ok(0));
    for n in 0..2 {
        inside.submit(place.workload("64Mi", &[])?, n).await?;
    }
    let pids = place.lines("pids", 2).await?;
    ensure!(inside.backend.clear().await == Ok(2));
    until_gone(&pids).await?;
    eventually("nothing is left", SOON, || async {
        let left = inside.backend.clear().await;
        Ok(Seen::when(left == Ok(0), || format!("{left:?}")))
    })
    .await?;
    ensure!(inside.backend.summary() == [(End::Cancelled, 2)].into());
    Ok(())
}
