//! What the template asks for, as a process finds it.

use std::fs;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use katabatch::domain::end::EndKind;
use katabatch_e2e::Case;
use katabatch_e2e::real::RealNode;
use serde_json::json;

use crate::world::{Ending, Work, World};

const SUCCEEDED: i32 = 0;

/// ClusterFuzz's own size, which is no whole number of bytes.
pub async fn the_shell_sees_dev_shm_of_its_size(case: Case, node: Arc<RealNode>) -> Result<()> {
    const BYTES: u64 = 2_040_109_465;
    let script = "df -P -k /dev/shm | tail -n 1; grep ' /dev/shm ' /proc/mounts; \
                  ls -ld /tmp/.X11-unix";
    let profile = json!({ "memory": "3.75Gi", "shm": "1.9Gi" });
    let work = Work::script(script).profile(profile);
    let world = World::of_one(&case, &node, work).await?;
    let (ending, log) = world.last_words().await?;
    ensure!(ending == Ending { code: SUCCEEDED, reason: "Completed".into() }, "{ending:?}: {log}");
    let mut lines = log.lines();
    let mut next = || lines.next().with_context(|| format!("a line is missing: {log}"));

    let shown = next()?;
    let size = shown.split_whitespace().nth(1).and_then(|size| size.parse::<u64>().ok());
    let size = size.with_context(|| format!("no size: {shown}"))? * 1024;
    // The kernel counts in pages.
    ensure!((BYTES..BYTES + 16 * 1024).contains(&size), "{size} bytes: {shown}");
    ensure!(next()?.starts_with("tmpfs /dev/shm tmpfs rw"), "{log}");
    ensure!(next()?.starts_with("drwxrwxrwt"), "the hook's folder: {log}");
    Ok(())
}

/// All those that this process could give: a node of a farm has them all.
pub async fn a_privileged_pod_has_every_capability(case: Case, node: Arc<RealNode>) -> Result<()> {
    let here = fs::read_to_string("/proc/self/status").context("read our own status")?;
    let expected = here.lines().find(|line| line.starts_with("CapBnd:")).context("CapBnd")?;
    let expected = expected.replace("CapBnd:", "CapEff:");
    let work = Work::script("grep CapEff: /proc/1/status");
    let world = World::of_one(&case, &node, work).await?;
    let (ending, log) = world.last_words().await?;
    ensure!(ending.code == SUCCEEDED && log.trim() == expected, "{ending:?}: {log}");
    let (_, conditions) = world.ended().await?;
    ensure!(conditions.is_complete(), "{conditions:?}");
    world.check(EndKind::Succeeded, Some(SUCCEEDED), &[&expected]).await
}
