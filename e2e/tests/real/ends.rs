//! How tasks end.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};
use katabatch::domain::end::EndKind;
use katabatch_e2e::Case;
use katabatch_e2e::eventually::{Seen, eventually};
use katabatch_e2e::real::{RealNode, images};
use serde_json::json;

use crate::SOON;
use crate::world::{Ending, Work, World, is_running, waits_for};

const BACKOFF: Option<&str> = Some("BackoffLimitExceeded");
const DEADLINE: Option<&str> = Some("DeadlineExceeded");
/// Grows until it is stopped.
const HOG: &str = "awk 'BEGIN { s = \"x\"; while (1) s = s s }'";

pub async fn the_exit_code_and_the_last_words_arrive(
    case: Case,
    node: Arc<RealNode>,
) -> Result<()> {
    let script = "echo \"to the end: $HOST_UID\"; echo and beyond >&2; exit 3";
    let world = World::of_one(&case, &node, Work::script(script)).await?;
    let (ending, log) = world.last_words().await?;
    ensure!(ending == Ending { code: 3, reason: "Error".into() }, "{ending:?}");
    // Two streams have no order.
    let mut lines: Vec<_> = log.lines().collect();
    lines.sort_unstable();
    ensure!(lines == ["and beyond", "to the end: 1337"], "{log:?}");
    let (_, conditions) = world.ended().await?;
    ensure!(conditions.failed_for() == BACKOFF, "{conditions:?}");
    world.check(EndKind::TaskFailure, Some(3), &["to the end: 1337", "and beyond"]).await
}

pub async fn too_much_memory_is_told_from_a_failure(case: Case, node: Arc<RealNode>) -> Result<()> {
    let script = format!("echo filling; exec {HOG}");
    let work = Work::script(&script).profile(json!({ "memory": "32Mi" }));
    let world = World::of_one(&case, &node, work).await?;
    let (ending, log) = world.last_words().await?;
    ensure!(ending == Ending { code: 137, reason: "OOMKilled".into() }, "{ending:?}: {log}");
    ensure!(log == "filling\n", "{log:?}");
    let (_, conditions) = world.ended().await?;
    ensure!(conditions.failed_for() == BACKOFF, "{conditions:?}");
    world.check(EndKind::OutOfMemory, Some(137), &["filling"]).await
}

/// Control groups of version 1 kill a process, those of version 2 (as a kubelet sets them) all of the
/// container. In the first case the task has gone on, and its exit code counts.
pub async fn a_child_killed_for_memory_is_the_tasks_own_matter(
    case: Case,
    node: Arc<RealNode>,
) -> Result<()> {
    let script = format!("{HOG}; echo \"it ended with $?\"");
    let work = Work::script(&script).profile(json!({ "memory": "32Mi" }));
    let world = World::of_one(&case, &node, work).await?;
    let (ending, log) = world.last_words().await?;
    let (_, conditions) = world.ended().await?;
    ensure!(ending.reason == "OOMKilled", "{ending:?}");
    if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        ensure!(ending.code == 137 && conditions.failed_for() == BACKOFF, "{conditions:?}");
    } else {
        ensure!(ending.code == 0 && conditions.is_complete(), "{ending:?}, {conditions:?}");
        ensure!(log.contains("it ended with 137"), "{log:?}");
    }
    let words: &[&str] = if ending.code == 0 { &["it ended with 137"] } else { &[] };
    world.check(EndKind::OutOfMemory, Some(ending.code), words).await
}

pub async fn a_full_dev_shm_is_seen_inside(case: Case, node: Arc<RealNode>) -> Result<()> {
    let script = "dd if=/dev/zero of=/dev/shm/full bs=1M count=32 || exit 28";
    let world = World::of_one(&case, &node, Work::script(script)).await?;
    let (ending, log) = world.last_words().await?;
    ensure!(ending == Ending { code: 28, reason: "Error".into() }, "{ending:?}: {log}");
    ensure!(log.contains("No space left on device"), "{log}");
    let (_, conditions) = world.ended().await?;
    ensure!(conditions.failed_for() == BACKOFF, "{conditions:?}");
    world.check(EndKind::TaskFailure, Some(28), &["No space left on device"]).await
}

/// Its words are there while its pod is, which goes at the deadline. It takes a moment to end, as work
/// does that has something to put away: who ends at once may be gone before anybody can ask.
pub async fn a_task_over_its_deadline_is_ended(case: Case, node: Arc<RealNode>) -> Result<()> {
    let script =
        "trap 'echo told to end; sleep 2; exit 0' TERM; echo begun; while :; do usleep 50000; done";
    let work = Work::script(script).profile(json!({ "deadline": "15s" }));
    let world = World::of_one(&case, &node, work).await?;
    let pod = world.pod("runs", is_running).await?;
    eventually("its first words", SOON, || async {
        let log = world.log(&pod).await?;
        Ok(Seen::when(log == "begun\n", || log))
    })
    .await?;
    let (job, conditions) = world.ended().await?;
    ensure!(conditions.failed_for() == DEADLINE, "{conditions:?}");
    world.until_without_pod(&job).await?;
    world.check(EndKind::Deadline, None, &["begun"]).await
}

pub async fn an_absent_image_lasts_until_the_deadline(
    case: Case,
    node: Arc<RealNode>,
) -> Result<()> {
    let work = Work::script("true").image("registry.test/absent:1");
    let work = work.profile(json!({ "deadline": "20s" }));
    let world = World::of_one(&case, &node, work).await?;
    let waits = |pod: &_| matches!(waits_for(pod), Some("ErrImagePull" | "ImagePullBackOff"));
    world.pod("waits for its image", waits).await?;
    let (job, conditions) = world.ended().await?;
    ensure!(conditions.failed_for() == DEADLINE, "{conditions:?}");
    world.until_without_pod(&job).await?;
    world.check(EndKind::ImagePull, None, &[]).await
}

/// The template's hook wants a shell.
pub async fn a_hook_that_cannot_run_fails_the_task(case: Case, node: Arc<RealNode>) -> Result<()> {
    let work = Work::script("true").image(images::WITHOUT_SHELL);
    let world = World::of_one(&case, &node, work).await?;
    let (ending, log) = world.last_words().await?;
    ensure!(ending.code == 143, "{ending:?}: {log}");
    let (_, conditions) = world.ended().await?;
    ensure!(conditions.failed_for() == BACKOFF, "{conditions:?}");
    let events = case.plane.describe(case.namespace.name()).await?;
    ensure!(events.contains("FailedPostStartHook"), "{events}");
    world.check(EndKind::HookFailure, Some(143), &[]).await
}
