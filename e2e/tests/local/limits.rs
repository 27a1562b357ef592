//! What a task can't get away from: its limit of memory, its deadline, the end of its supervisor.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use katabatch::backend::local::{Cgroups, End};
use katabatch_e2e::eventually;
use katabatch_e2e::eventually::Seen;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::world::{Place, SOON, is_gone, until_gone};

/// The task's cgroup, from what `/proc/self/cgroup` said in it.
fn group(lines: &[String]) -> Result<PathBuf> {
    let line = lines.iter().find(|line| line.contains("/katabatch-")).context("no cgroup")?;
    let at = line.find("katabatch-").context("no cgroup")?;
    let below = line.get(at..).context("no cgroup")?;
    let place = Cgroups::find().map_err(|missing| anyhow::anyhow!("{missing}"))?;
    Ok(place.place().join(below))
}

/// The task's cgroup and the backend's are gone.
async fn until_removed(group: &std::path::Path) -> Result<()> {
    let above = group.parent().context("a folder")?;
    eventually("the cgroups are removed", SOON, || async {
        let gone = !group.exists() && !above.exists();
        Ok(Seen::when(gone, || format!("{} is there", group.display())))
    })
    .await
}

pub async fn memory() -> Result<()> {
    let place = Place::new()?;
    // `tail` keeps a line that never ends.
    let script = "cat /proc/self/cgroup > $OUT/cgroup.$HOW; echo $$ > $OUT/pid.$HOW
        case $HOW in
        eats) exec tail /dev/zero;;
        within) head -c 20000000 /dev/zero | tail -c 10000000 > $OUT/some
            until test -e $OUT/go; do sleep 0.05; done;;
        esac";
    let mut inside = place.inside(script).await?;
    inside.submit(place.workload("64Mi", &[("HOW", "within")])?, 0).await?;
    let neighbour = place.lines("pid.within", 1).await?;
    let its_group = group(&place.lines("cgroup.within", 1).await?)?;
    inside.submit(place.workload("64Mi", &[("HOW", "eats")])?, 1).await?;
    let end = inside.end().await?;
    ensure!(end.end == End::OutOfMemory, "{end:?}");
    ensure!(end.tail.contains("limit of memory, 67108864 bytes"), "{end:?}");
    let group = group(&place.lines("cgroup.eats", 1).await?)?;
    ensure!(!group.exists() && its_group.exists() && !is_gone(&neighbour[0]));
    fs::write(place.path("go"), "")?;
    let end = inside.end().await?;
    ensure!(end.end == End::Succeeded && end.tail.is_empty(), "{end:?}");
    until_removed(&its_group).await
}

/// Neither its process group nor its environment says whose it is.
const ESCAPED: &str = "cat /proc/self/cgroup > $OUT/cgroup
    OUT=$OUT setsid sh -c 'exec env -i sh -c \"trap : TERM; echo \\$\\$ >> $OUT/pids; sleep 1000\"' &
    echo $$ >> $OUT/pids; trap '' TERM; while :; do sleep 0.1; done";

pub async fn escaped() -> Result<()> {
    let place = Place::new()?;
    let mut inside = place.inside(ESCAPED).await?;
    let mut workload = place.workload("64Mi", &[])?;
    workload.profile.deadline = Some(Duration::from_secs(2));
    inside.submit(workload, 0).await?;
    let pids = place.lines("pids", 2).await?;
    let end = inside.end().await?;
    ensure!(end.end == End::DeadlineExceeded, "{end:?}");
    until_gone(&pids).await?;
    until_removed(&group(&place.lines("cgroup", 1).await?)?).await
}

pub async fn left_behind() -> Result<()> {
    let place = Place::new()?;
    let inside = place.inside(ESCAPED).await?;
    inside.submit(place.workload("64Mi", &[])?, 0).await?;
    let pids = place.lines("pids", 2).await?;
    let group = group(&place.lines("cgroup", 1).await?)?;
    drop(inside);
    // As when the machine's memory ran out, and the kernel chose those.
    let claims = fs::read_dir(place.path("work"))?.filter_map(Result::ok);
    let mut started = claims.map(|claim| claim.path().join("started.json")).filter(|p| p.exists());
    let text = fs::read_to_string(started.next().context("a started task")?)?;
    let supervisor = serde_json::from_str::<Value>(&text)?["supervisor"].as_i64();
    kill(Pid::from_raw(i32::try_from(supervisor.context("its pid")?)?), Signal::SIGKILL)?;
    ensure!(group.exists() && !is_gone(&pids[0]) && !is_gone(&pids[1]));
    let inside = place.inside("true").await?;
    until_gone(&pids).await?;
    until_removed(&group).await?;
    ensure!(inside.backend.summary() == [(End::Unknown, 1)].into());
    Ok(())
}
