//! `katabatch run --once` on a spool, with nothing but a Batch to run tasks on.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use katabatch_e2e::batch::Fault;
use katabatch_e2e::eventually;
use katabatch_e2e::eventually::Seen;
use katabatch_e2e::farm::{JOB_TYPE, SIGNATURE, input};
use katabatch_e2e::process::Process;

use crate::world::{SOON, World};

/// Each input is in one job, and no request id stood for two bodies.
fn judge(world: &World, tasks: usize) -> Result<()> {
    let state = world.batch.state();
    let expect: BTreeMap<String, usize> = (0..tasks).map(|n| (input(n), 1)).collect();
    let inputs = state.inputs();
    let odd: Vec<_> = inputs.iter().filter(|(_, count)| **count != 1).collect();
    ensure!(odd.is_empty(), "in more than one job: {odd:?}");
    ensure!(inputs == expect, "{} of {tasks} tasks are in a job", inputs.len());
    ensure!(state.misused.is_empty(), "request ids with two bodies: {:?}", state.misused);
    let parent = "projects/123456789012/locations/us-central1";
    ensure!(state.jobs.keys().all(|(at, _)| at == parent), "a job is elsewhere");
    Ok(())
}

/// Runs until nothing is left in the queue: what a killed process had leased comes back.
async fn drain(world: &World) -> Result<()> {
    for round in 0..12 {
        let ended = world.run(&format!("drain-{round}")).await?;
        ensure!(ended.code == Some(0), "{ended:?}");
        for text in [&ended.stdout, &ended.stderr] {
            ensure!(!text.contains(SIGNATURE), "a signature was shown: {text}");
        }
        if world.left().await? == 0 {
            return Ok(());
        }
        lapsed(world).await?;
    }
    bail!("messages are left: {:?}", world.spool.counts().await?)
}

/// Waits until no lease of a process that is gone is left.
async fn lapsed(world: &World) -> Result<()> {
    eventually("all leases have lapsed", SOON, || async {
        let counts = world.spool.counts().await?;
        Ok(Seen::when(counts.leased == 0, || format!("{counts:?}")))
    })
    .await
}

pub async fn once() -> Result<()> {
    const TASKS: usize = 1_200;
    let world = World::new(TASKS, 1).await?;
    drain(&world).await?;
    let sizes: Vec<usize> = world.batch.state().sizes();
    ensure!(sizes.iter().all(|size| *size <= 999), "{sizes:?}");
    ensure!(sizes.len() < 100, "tasks that came together are in {} jobs", sizes.len());
    eprintln!("{TASKS} tasks in {} jobs", sizes.len());
    judge(&world, TASKS)
}

async fn until_jobs(world: &World, count: usize) -> Result<()> {
    eventually(&format!("{count} tasks are in jobs"), SOON, || async {
        let made = world.batch.state().inputs().len();
        Ok(Seen::when(made >= count, || format!("{made}")))
    })
    .await
}

pub async fn killed() -> Result<()> {
    const TASKS: usize = 400;
    let world = World::new(TASKS, 20).await?;
    // Slow and lossy, so that it is killed with much under way.
    let slow = Fault::Slow(Duration::from_millis(400));
    world.batch.state().faults = vec![(3, Fault::LostRequest), (7, Fault::LostAnswer), (1, slow)];
    let mut so_far = 0;
    for round in 0..3 {
        let process = world.start(&format!("killed-{round}"))?;
        until_jobs(&world, (so_far + 10).min(TASKS)).await?;
        let killed = process.kill().await?;
        ensure!(killed.signal == Some(9), "{killed:?}");
        so_far = world.batch.state().inputs().len();
        ensure!(round > 0 || so_far < TASKS, "it was done before it was killed");
        lapsed(&world).await?;
    }
    world.batch.state().faults.clear();
    drain(&world).await?;
    judge(&world, TASKS)
}

pub async fn storms() -> Result<()> {
    const TASKS: usize = 150;
    let world = World::new(TASKS, 20).await?;
    world.batch.state().faults = vec![
        (11, Fault::Quota(1)),
        (7, Fault::LostAnswer),
        (6, Fault::FailedAfter),
        (5, Fault::EmptyAnswer),
        (4, Fault::LostRequest),
        (9, Fault::Failed),
    ];
    let process = world.start("storm")?;
    until_jobs(&world, 30).await?;
    process.kill().await?;
    lapsed(&world).await?;
    drain(&world).await?;
    let quotas = world.batch.state().count("POST", Some(429));
    ensure!(quotas > 0, "no quota was met");
    judge(&world, TASKS)
}

pub async fn cancelled() -> Result<()> {
    let world = World::new(60, 3).await?;
    drain(&world).await?;
    let all = world.batch.state().jobs.len();
    let tasks = world.batch.state().inputs().len();
    let cancel = async |name: &str, arguments: &[&str]| {
        let fixed = ["cancel", "--job-type", "*_e2e_1", "--why", "a bad image", "-o", "json"];
        let process = Process::start(world.dir.path(), name, &[&fixed, arguments].concat())?;
        let ended = process.end(SOON).await?;
        ensure!(ended.code == Some(0), "{ended:?}");
        Ok(serde_json::from_str::<Vec<serde_json::Value>>(&ended.stdout)?)
    };
    let dry = cancel("dry", &["--dry-run"]).await?;
    ensure!(world.batch.state().count("DELETE", Some(200)) == 0, "{dry:?}");
    ensure!(!dry.is_empty() && dry.len() < all, "{dry:?}");
    let listed: u64 = dry.iter().filter_map(|line| line["tasks"].as_u64()).sum();
    ensure!(listed == 20, "{dry:?}");
    ensure!(dry.iter().all(|line| line["job_type"] == format!("{JOB_TYPE}_1")), "{dry:?}");
    let done = cancel("done", &["--yes"]).await?;
    ensure!(done.iter().all(|line| line["outcome"] == "deleted"), "{done:?}");
    {
        let state = world.batch.state();
        ensure!(state.count("DELETE", Some(200)) == dry.len(), "{:?}", state.seen);
        ensure!(state.jobs.len() == all - dry.len() && state.inputs().len() == tasks - 20);
    }
    // What is over is left alone.
    world.batch.state().set_all("SUCCEEDED");
    let none = cancel("none", &["--yes"]).await?;
    ensure!(none.is_empty(), "{none:?}");
    let audit = std::fs::read_to_string(world.dir.path().join("state/controls.json"))?;
    ensure!(audit.contains("cancel job type *_e2e_1") && audit.contains("20 tasks"), "{audit}");
    Ok(())
}
