//! Each kind of end.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod, ResourceQuota};
use katabatch::domain::end::{EndKind, Resource};
use katabatch::domain::log_tail::LogTail;
use katabatch_e2e::cluster_objects;
use katabatch_e2e::eventually::Seen;
use katabatch_e2e::farm::{JOB_TYPE, Plan};
use katabatch_e2e::stages::Behaviour;
use katabatch_e2e::{Case, eventually};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::{SOON, check, ended, only_end, site};

fn plan(behaviour: Behaviour) -> Plan {
    Plan { behaviour, ..Plan::default() }
}

fn hurried(behaviour: Behaviour) -> Plan {
    Plan { profile: json!({ "deadline": "6s" }), ..plan(behaviour) }
}

pub async fn work_that_succeeds(case: Case) -> Result<()> {
    let end = ended(&case, plan(Behaviour::Default)).await?;
    check(&end, EndKind::Succeeded, Some(0), "")?;
    ensure!(matches!(&end.tail, LogTail::Unavailable(why) if !why.is_empty()), "{end:?}");
    Ok(())
}

pub async fn work_that_fails_has_its_exit_code(case: Case) -> Result<()> {
    let fail = Behaviour::Fail { code: 3, after: Duration::from_secs(2) };
    let end = ended(&case, plan(fail)).await?;
    check(&end, EndKind::TaskFailure, Some(3), "exit code 3")?;
    ensure!(end.run_seconds >= 1.0 && end.started_at.is_some(), "{end:?}");
    Ok(())
}

pub async fn work_that_is_killed_for_memory(case: Case) -> Result<()> {
    let end = ended(&case, plan(Behaviour::Fail { code: 137, after: Duration::ZERO })).await?;
    check(&end, EndKind::OutOfMemory, Some(137), "memory")
}

pub async fn work_that_is_evicted_names_the_resource(case: Case) -> Result<()> {
    let end = ended(&case, plan(Behaviour::Evicted)).await?;
    check(&end, EndKind::Evicted, None, "low on resource: memory")?;
    ensure!(end.resource == Some(Resource::Memory), "{end:?}");
    Ok(())
}

pub async fn an_absent_image_ends_at_the_deadline_as_image_pull(case: Case) -> Result<()> {
    let end = ended(&case, hurried(Behaviour::ImageAbsent)).await?;
    check(&end, EndKind::ImagePull, None, "Back-off pulling image")?;
    ensure!(end.run_seconds == 0.0, "{end:?}");
    Ok(())
}

pub async fn a_deadline_that_passes_is_one(case: Case) -> Result<()> {
    let end = ended(&case, hurried(Behaviour::RunForever)).await?;
    check(&end, EndKind::Deadline, None, "DeadlineExceeded")
}

pub async fn a_pod_that_no_node_takes_never_started(case: Case) -> Result<()> {
    let profile = json!({ "deadline": "6s", "node_selector": { "e2e.test/kind": "nowhere" } });
    let end = ended(&case, Plan { profile, ..plan(Behaviour::Default) }).await?;
    check(&end, EndKind::NeverStarted, None, "nodes are available")
}

pub async fn a_job_that_somebody_deletes(case: Case) -> Result<()> {
    let site = site(&case, plan(Behaviour::RunForever)).await?;
    site.farm.fill(1).await?;
    let scheduler = site.scheduler().await?;
    site.until_acked(SOON).await?;
    let name = site.jobs().await?[0].metadata.name.clone().unwrap_or_default();
    site.api::<Job>().delete(&name, &DeleteParams::background()).await?;
    check(&only_end(&scheduler).await?, EndKind::Deleted, None, "somebody")?;
    scheduler.stop().await?;
    Ok(())
}

pub async fn a_job_that_no_pod_can_be_made_of_says_why(case: Case) -> Result<()> {
    let site = site(&case, hurried(Behaviour::Default)).await?;
    let quotas = site.api::<ResourceQuota>();
    let quota = json!({ "metadata": { "name": "none" }, "spec": { "hard": { "pods": "0" } } });
    quotas.create(&PostParams::default(), &serde_json::from_value(quota)?).await?;
    eventually("the quota counts", SOON, || async {
        let status = quotas.get("none").await?.status.and_then(|status| status.hard);
        Ok(Seen::when(status.is_some_and(|hard| !hard.is_empty()), || "no status".into()))
    })
    .await?;
    site.farm.fill(1).await?;
    let scheduler = site.scheduler().await?;
    check(&only_end(&scheduler).await?, EndKind::BadConfiguration, None, "exceeded quota")?;
    scheduler.stop().await?;
    Ok(())
}

/// A node of the test's own, whose pods a taint that they don't tolerate takes away.
pub async fn a_node_that_is_taken_away_loses_its_job(case: Case) -> Result<()> {
    case.plane.require_local("a node of one's own")?;
    let nodes: Api<Node> = Api::all(case.plane.admin_client());
    let name = format!("lost-{}", case.namespace.name());
    let mut node = cluster_objects::node(0, false);
    node["metadata"]["name"] = name.clone().into();
    node["metadata"]["labels"]["e2e.test/kind"] = name.clone().into();
    node["metadata"]["labels"]["kubernetes.io/hostname"] = name.clone().into();
    // Nobody else's pods may come here.
    let own = json!({ "key": "e2e.test/own", "value": "yes", "effect": "NoSchedule" });
    node["spec"] = json!({ "taints": [own] });
    nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
    let profile = json!({
        "node_selector": { "e2e.test/kind": name },
        "tolerations": [{ "key": "e2e.test/own", "operator": "Exists", "effect": "NoSchedule" }],
    });
    let site = site(&case, Plan { profile, ..plan(Behaviour::RunForever) }).await?;
    site.farm.fill(1).await?;
    let scheduler = site.scheduler().await?;
    eventually("its pod runs", SOON, || async {
        let pods = site.api::<Pod>().list(&ListParams::default()).await?.items;
        let runs = |pod: &Pod| {
            pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
        };
        Ok(Seen::when(pods.iter().any(runs), || format!("{} pods", pods.len())))
    })
    .await?;
    let lost = json!({ "key": "e2e.test/lost", "value": "yes", "effect": "NoExecute" });
    let taint = json!({ "spec": { "taints": [own, lost] } });
    nodes.patch(&name, &PatchParams::default(), &Patch::Merge(&taint)).await?;
    let end = only_end(&scheduler).await?;
    nodes.delete(&name, &DeleteParams::default()).await?;
    check(&end, EndKind::NodeLost, None, "DeletionByTaintManager")?;
    scheduler.stop().await?;
    Ok(())
}

pub async fn a_restart_tells_no_end_again(case: Case) -> Result<()> {
    let site = site(&case, plan(Behaviour::Default)).await?;
    site.farm.fill(1).await?;
    let scheduler = site.scheduler().await?;
    let end = only_end(&scheduler).await?;
    scheduler.stop().await?;
    let scheduler = site.scheduler().await?;
    let lists = site.proxy.count("list", "pods");
    eventually("everything is listed again", SOON, || async {
        let now = site.proxy.count("list", "pods");
        Ok(Seen::when(now >= lists + 2, || format!("{now}")))
    })
    .await?;
    site.farm
        .put(vec![katabatch_e2e::farm::message("fuzz", JOB_TYPE, &katabatch_e2e::farm::input(7))])
        .await?;
    let again = eventually("the next end", SOON, || async {
        let ends = scheduler.ends(JOB_TYPE)?;
        Ok(if ends.is_empty() { Seen::NotYet("none".into()) } else { Seen::Done(ends) })
    })
    .await?;
    ensure!(again.len() == 1 && again[0].task != end.task, "{again:?}");
    let lost = scheduler.lost()?;
    ensure!(lost.get(&EndKind::Succeeded).map(|lost| lost.count) == Some(2), "{lost:?}");
    scheduler.stop().await?;
    Ok(())
}
