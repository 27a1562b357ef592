//! Watches that break: nothing is lost, and the pending limit holds all the while.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use katabatch_e2e::eventually::throughout;
use katabatch_e2e::farm::Plan;
use katabatch_e2e::proxy::{Action, Rule};
use katabatch_e2e::site::Site;
use katabatch_e2e::{Behaviour, Case};
use kube::Api;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use crate::{SOON, site};

/// Looks again and again at how many Jobs wait to start, which must be at most so many.
pub struct Sampler {
    looking: JoinHandle<Result<()>>,
}

impl Sampler {
    /// Starts to look.
    pub fn start(site: &Site, limit: usize) -> Self {
        let look = site.look();
        let looking = tokio::spawn(async move {
            let mut ticks = interval(Duration::from_millis(100));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let waiting = look.waiting().await?;
                ensure!(waiting <= limit, "{waiting} Jobs are pending, {limit} may be");
            }
        });
        Self { looking }
    }

    /// Stops looking.
    ///
    /// # Errors
    /// What was seen, if it was too much.
    pub async fn stop(self) -> Result<()> {
        self.looking.abort();
        match self.looking.await {
            Ok(seen) => seen,
            Err(error) if error.is_cancelled() => Ok(()),
            Err(error) => Err(error).context("the sampler panicked"),
        }
    }
}

pub async fn cut_and_expired_watches_lose_nothing_and_nothing_is_over(case: Case) -> Result<()> {
    case.plane.require_local("pods that take their time")?;
    let behaviour = Behaviour::Slow(Duration::from_millis(200));
    let site = site(&case, Plan { behaviour, pending: 20, ..Plan::default() }).await?;
    for (resource, seed) in [("pods", 1), ("jobs", 2)] {
        let expire = Rule::new(Action::Expire).on("watch", resource).skip(1);
        site.proxy.push(expire.chance(0.3, seed));
        let cut = Rule::new(Action::Cut { after_bytes: 2_000 }).on("watch", resource);
        site.proxy.push(cut.chance(0.3, seed + 2));
    }
    site.farm.fill(200).await?;
    let sampler = Sampler::start(&site, 20);
    let scheduler = site.scheduler().await?;
    tokio::select! {
        acked = site.until_acked(3 * SOON) => acked?,
        never = throughout(10 * SOON, || async {
            site.proxy.cut_watches();
            Ok(())
        }) => never?,
    }
    sampler.stop().await?;
    let counts = scheduler.stop().await?;
    ensure!(site.jobs().await?.len() == 200);
    ensure!((counts.created, counts.acked) == (200, 200), "{counts:?}");
    ensure!(site.creates().len() == 200, "{} creates", site.creates().len());
    Ok(())
}

/// The watches fall silent, so that nobody tells that pods have started: the limit stays used up
/// until somebody asks, and then all goes on.
pub async fn a_silent_watch_is_given_up_and_nothing_is_over(case: Case) -> Result<()> {
    case.plane.require_local("pods that run for ever")?;
    let behaviour = Behaviour::RunForever;
    let site = site(&case, Plan { behaviour, pending: 4, ..Plan::default() }).await?;
    // Pods have two watches: of the pending ones, and of our own.
    for (resource, watches) in [("pods", 2), ("jobs", 1)] {
        let silence = Rule::new(Action::Silence { after_bytes: 0 }).on("watch", resource);
        site.proxy.push(silence.times(watches));
    }
    site.farm.fill(12).await?;
    let scheduler = site.scheduler().await?;
    site.until_jobs(4, SOON).await?;
    let jobs: Api<Job> = site.api();
    throughout(Duration::from_secs(5), || async {
        let seen = jobs.list(&Default::default()).await?.items.len();
        ensure!(seen == 4, "{seen} Jobs, though nothing is known of their pods");
        Ok(())
    })
    .await?;
    let sampler = Sampler::start(&site, 4);
    site.until_acked(Duration::from_secs(150)).await?;
    sampler.stop().await?;
    let counts = scheduler.stop().await?;
    ensure!((counts.created, counts.leased) == (12, 12), "{counts:?}");
    Ok(())
}
