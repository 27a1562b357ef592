//! What the README walks through, by itself; and what it says when something is set up wrong.

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use katabatch_e2e::Case;
use katabatch_e2e::eventually::{Seen, eventually, throughout};
use katabatch_e2e::farm::{JOB_TYPE, Plan, input, task};

use crate::world::{SOON, World};

const TASKS: usize = 500;
/// Longer than two leases, and the subscription's ack deadline.
const OUTAGE: Duration = Duration::from_secs(22);

pub async fn walked(case: Case) -> Result<()> {
    // Slow enough that there is something to stop.
    let plan = Plan { creates_per_second: Some(25), ..Plan::default() };
    let world = World::new(&case, plan).await?;
    let urls: Vec<_> = (0..TASKS).map(input).collect();
    world.publish("fuzz", JOB_TYPE, &urls).await?;
    let mut katabatch = world.start("run", &["run"])?;
    world.until_jobs(TASKS / 5, SOON).await?;

    world.set_pending(0.0).await?;
    let since = Instant::now();
    let stopped_at = stands_still(&world).await?;
    let stopped_after = since.elapsed();
    ensure!(stopped_at < TASKS * 3 / 5, "{stopped_at} Jobs were made before it stopped");
    throughout(Duration::from_secs(11), || async {
        let now = world.jobs().await?.len();
        ensure!(now == stopped_at, "{now} Jobs after {stopped_at}");
        Ok(())
    })
    .await?;
    katabatch.must_run()?;

    world.set_pending(1_000.0).await?;
    let since = Instant::now();
    world.until_jobs(stopped_at + 20, SOON).await?;
    let went_on_after = since.elapsed();
    world.google.pubsub.pause().await?;
    throughout(OUTAGE, || async {
        let now = world.jobs().await?.len();
        ensure!(now <= TASKS, "{now} Jobs");
        Ok(())
    })
    .await?;
    katabatch.must_run()?;
    world.google.pubsub.resume()?;
    let since = Instant::now();
    world.until_jobs(TASKS, SOON * 2).await?;
    let recovered_after = since.elapsed();
    world.until_empty().await?;
    katabatch.terminate()?;
    let ended = katabatch.end(SOON).await?;
    ensure!(ended.code == Some(0), "{ended:?}");

    let names: Result<BTreeSet<_>> =
        urls.iter().map(|url| Ok(task("fuzz", JOB_TYPE, url)?.job_name().to_string())).collect();
    ensure!(world.jobs().await? == names?, "other Jobs than the tasks'");
    world.until_empty().await?;
    eprintln!(
        "stopped within {stopped_after:?} at {stopped_at}, went on within {went_on_after:?}, all \
         there {recovered_after:?} after an outage of {OUTAGE:?}"
    );
    Ok(())
}

/// Waits until no Job comes for three seconds; how many there are then.
async fn stands_still(world: &World) -> Result<usize> {
    let last = Mutex::new((0, Instant::now()));
    let last = &last;
    eventually("creation stops", SOON / 3, || async move {
        let now = world.jobs().await?.len();
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if now != last.0 {
            *last = (now, Instant::now());
        }
        let still = last.1.elapsed() > Duration::from_secs(3);
        Ok(if still { Seen::Done(now) } else { Seen::NotYet(format!("{now} Jobs")) })
    })
    .await
}

/// Case 69's kind: what can't work ends with its cause; what may come is waited for, and said once.
pub async fn set_up_wrong(case: Case) -> Result<()> {
    let world = World::new(&case, Plan::default()).await?;
    let config = world.dir.path().join("katabatch.yaml");
    let right = fs::read_to_string(&config)?;
    fs::write(&config, right.replace("subscription: utask_main", "subscription: utask_mian"))?;
    let run = world.run("misspelt", &["run"]).await?;
    ensure!(run.code == Some(1) && run.stdout.is_empty(), "{run:?}");
    let error = run.stderr.lines().last().unwrap_or_default();
    ensure!(error.contains("subscriptions/utask_mian") && error.contains("create it"), "{error}");
    ensure!(error.matches("create it").count() == 1, "said twice: {error}");
    let check = world.run("check", &["check"]).await?;
    ensure!(check.code == Some(1) && check.stdout.contains("utask_mian"), "{check:?}");
    fs::write(&config, &right)?;

    world.google.pubsub.kill()?;
    let mut katabatch = world.start("away", &["run"])?;
    let said = "no messages can be taken";
    eventually("it is said", SOON, || async {
        Ok(Seen::when(katabatch.messages().contains(said), || "nothing".into()))
    })
    .await?;
    throughout(Duration::from_secs(4), || async {
        let lines = katabatch.messages().matches(said).count();
        ensure!(lines <= 2, "said {lines} times");
        Ok(())
    })
    .await?;
    katabatch.must_run()?;
    katabatch.terminate()?;
    let ended = katabatch.end(SOON).await?;
    ensure!(ended.code == Some(0), "{ended:?}");
    ensure!(!ended.stderr.contains("gcloud_sdk"), "a library speaks: {}", ended.stderr);
    Ok(())
}
