//! What the process occupies while it watches a full namespace.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ServiceAccount;
use katabatch_e2e::eventually::Seen;
use katabatch_e2e::farm::Plan;
use katabatch_e2e::site::Site;
use katabatch_e2e::{Case, ControlPlane, Options, eventually};
use kube::api::PostParams;
use serde_json::json;

use crate::{SOON, pods};

const PODS: usize = 10_000;
/// In KiB: 60 MB for the whole process.
const MOST: u64 = 60_000_000 / 1024;
/// In KiB: what a release build's code leaves of that for data. A debug build, whose code is larger,
/// is measured by it alone.
const MOST_DATA: u64 = (60_000_000 - 22_000_000) / 1024;

/// On an API server alone, where pods cost no one but the store.
pub async fn ten_thousand_pending_pods_fit_in_little_memory(case: Case) -> Result<()> {
    case.plane.require_local("ten thousand pods")?;
    let plane = ControlPlane::start(Options { controllers: false, ..Options::default() }).await?;
    let namespace = plane.namespace("memory").await?;
    let site = Site::new(&plane, &namespace, Plan { pending: PODS + 5, ..Plan::default() }).await?;
    // Nobody else makes it here.
    let account = serde_json::from_value(json!({ "metadata": { "name": "default" } }))?;
    site.api::<ServiceAccount>().create(&PostParams::default(), &account).await?;
    let since = Instant::now();
    pods::make(&site.api(), PODS, &pods::our_labels(), 1_500).await?;
    let made = since.elapsed();

    site.farm.fill(10).await?;
    let mut process = site.run("run")?;
    // Five Jobs more are pending, and no sixth: so all pods are counted.
    site.until_jobs(5, SOON).await?;
    eventually("both are watched", SOON, || async {
        let watches = site.proxy.count("watch", "pods").min(site.proxy.count("watch", "jobs"));
        Ok(Seen::when(watches > 0, || format!("{:?}", site.proxy.counters())))
    })
    .await?;
    process.must_run()?;
    let memory = process.memory()?;
    eprintln!(
        "{PODS} pending pods (made in {:.1} s): VmRSS {} MiB, of it data {} MiB; VmHWM {} MiB",
        made.as_secs_f64(),
        memory.resident / 1024,
        memory.anonymous / 1024,
        memory.peak / 1024
    );
    process.terminate()?;
    let ended = process.end(Duration::from_secs(30)).await?;
    ensure!(ended.code == Some(0), "{ended:?}");
    ensure!(site.jobs().await?.len() == 5);
    ensure!(memory.anonymous < MOST_DATA, "{memory:?}, {MOST_DATA} KiB of data may be");
    // A debug build's code alone may take what is left.
    ensure!(cfg!(debug_assertions) || memory.resident < MOST, "{memory:?}, {MOST} KiB may be");
    Ok(())
}
