//! One leader at a time, whatever becomes of it: the old one has stopped before the new one begins.
//! Each of two processes has a proxy of its own, so that their requests can be told apart.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use katabatch_e2e::eventually::Seen;
use katabatch_e2e::farm::Plan;
use katabatch_e2e::process::{Output, Process};
use katabatch_e2e::proxy::{Action, Proxy, Request, Rule};
use katabatch_e2e::site::{ACCOUNT, Site};
use katabatch_e2e::{Case, eventually};

use crate::{SOON, site};

/// More than are made while a test looks on, but for the last one.
const TASKS: usize = 400;
/// How soon another process must have taken over from one that was killed: 15 s are promised, and
/// tests that run side by side on few cores get 5 s more.
const TAKE_OVER: Duration = Duration::from_secs(20);
/// Longer than a Lease lives.
const PAST_THE_LEASE: Duration = Duration::from_secs(11);

/// The creates of Jobs that arrived at a proxy.
fn creates(proxy: &Proxy) -> Vec<Request> {
    let all = proxy.requests().into_iter();
    all.filter(|seen| (seen.verb, seen.resource.as_str()) == ("create", "jobs")).collect()
}

async fn until_creates(proxy: &Proxy, count: usize) -> Result<()> {
    eventually(&format!("{count} creates"), SOON, || async {
        let seen = creates(proxy).len();
        Ok(Seen::when(seen >= count, || format!("{seen}")))
    })
    .await
}

/// A process that leads and one that waits, over one queue.
struct Two {
    site: Site,
    leader: Process,
    follower: Process,
    /// The follower's way to the API server; the leader's is the site's.
    beside: Proxy,
}

impl Two {
    /// The leader is at work, and the follower waits.
    async fn new(case: &Case) -> Result<Self> {
        let plan = Plan { creates_per_second: Some(15), ..Plan::default() };
        let site = site(case, plan).await?;
        let beside = Proxy::start(&case.plane).await?;
        let namespace = site.namespace.name();
        let token = case.plane.token_for(namespace, ACCOUNT).await?;
        let kubeconfig = case.plane.kubeconfig_for(&token, namespace, Some(beside.url()))?;
        let text = fs::read_to_string(site.farm.config()).context("read the configuration")?;
        let [old, new] = [&site.kubeconfig, &kubeconfig].map(|path| path.display().to_string());
        ensure!(old != new && text.contains(&old), "no {old} in the configuration");
        let config = site.farm.dir().join("beside.yaml");
        fs::write(&config, text.replace(&old, &new)).context("write the configuration")?;

        site.farm.fill(TASKS).await?;
        let leader = site.run("leader")?;
        until_creates(&site.proxy, 10).await?;
        let variables = [("KATABATCH_CONFIG", config.display().to_string())];
        let follower = Process::start_with(site.farm.dir(), "follower", &["run"], &variables)?;
        eventually("the follower looks at the Lease", SOON, || async {
            let looks = beside.count("get", "leases");
            Ok(Seen::when(looks >= 2, || format!("{looks}")))
        })
        .await?;
        ensure!(creates(&beside).is_empty(), "the follower creates while another one leads");
        Ok(Self { site, leader, follower, beside })
    }

    /// All tasks have one Job each, and the follower ends as told.
    async fn finish(site: &Site, follower: Process) -> Result<()> {
        site.until_acked(3 * SOON).await?;
        ensure!(site.jobs().await?.len() == TASKS);
        follower.terminate()?;
        let ended = follower.end(SOON).await?;
        ensure!(ended.code == Some(0), "{ended:?}");
        Ok(())
    }
}

/// It ended by itself, for want of its Lease.
fn check_lost(ended: &Output) -> Result<()> {
    ensure!(ended.code.is_some_and(|code| code != 0), "{ended:?}");
    ensure!(ended.stderr.contains("does not lead the scheduler"), "{}", ended.stderr);
    Ok(())
}

pub async fn a_killed_leader_is_followed_soon(case: Case) -> Result<()> {
    let Two { site, leader, follower, beside } = Two::new(&case).await?;
    leader.kill().await?;
    let killed = Instant::now();
    until_creates(&beside, 1).await?;
    let took = killed.elapsed();
    ensure!(took < TAKE_OVER, "it took {took:?}");
    eprintln!("the follower's first create came {:.1} s after the kill", took.as_secs_f64());
    Two::finish(&site, follower).await
}

/// The old one is stopped for longer than its Lease lives, and wakes when another one leads.
pub async fn a_leader_that_was_stopped_creates_nothing_once_woken(case: Case) -> Result<()> {
    let Two { site, leader, follower, beside } = Two::new(&case).await?;
    leader.pause().await?;
    let paused = Instant::now();
    until_creates(&beside, 5).await?;
    ensure!(paused.elapsed() < TAKE_OVER, "it took {:?}", paused.elapsed());
    // What was sent before may arrive as long as it stands still, and does.
    let before = creates(&site.proxy).len();
    leader.resume()?;
    let ended = leader.end(SOON).await?;
    check_lost(&ended)?;
    let after = creates(&site.proxy).len();
    ensure!(after == before, "it sent {} creates once woken", after - before);
    Two::finish(&site, follower).await
}

/// Woken within its Lease, it goes on, and nobody took over.
pub async fn a_leader_that_was_stopped_briefly_goes_on(case: Case) -> Result<()> {
    let Two { site, mut leader, follower, beside } = Two::new(&case).await?;
    leader.pause().await?;
    let paused = Instant::now();
    let looks = beside.count("get", "leases");
    eventually("the follower looks twice more", SOON, || async {
        Ok(Seen::when(beside.count("get", "leases") >= looks + 2, String::new))
    })
    .await?;
    leader.resume()?;
    ensure!(paused.elapsed() < PAST_THE_LEASE / 2, "the machine is too slow to tell");
    let before = creates(&site.proxy).len();
    until_creates(&site.proxy, before + 20).await?;
    leader.must_run()?;
    ensure!(creates(&beside).is_empty(), "the follower took over");
    leader.terminate()?;
    let ended = leader.end(SOON).await?;
    ensure!(ended.code == Some(0), "{ended:?}");
    Two::finish(&site, follower).await
}

/// Nothing of the old one's arrives any more. It knows only that nobody answers.
pub async fn a_leader_that_is_cut_off_stops_before_the_next_one_begins(case: Case) -> Result<()> {
    let Two { site, leader, follower, beside } = Two::new(&case).await?;
    site.proxy.push(Rule::new(Action::DropBefore));
    site.proxy.cut_watches();
    let cut = Instant::now();
    until_creates(&beside, 5).await?;
    ensure!(cut.elapsed() < TAKE_OVER, "it took {:?}", cut.elapsed());
    // The way is free again, for whatever it would send.
    site.proxy.clear();
    let ended = leader.end(SOON).await?;
    check_lost(&ended)?;
    let old = creates(&site.proxy).pop().context("the old one's last create")?.at;
    let new = creates(&beside).first().context("the new one's first create")?.at;
    ensure!(old < new, "the old one tried to create {:?} after the new one began", old - new);
    Two::finish(&site, follower).await
}
