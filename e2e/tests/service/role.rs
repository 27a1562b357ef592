//! The Role that we ship is enough, and no more: a full run asks for every right in it, and for
//! no other.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ResourceQuota;
use katabatch::backend::kubernetes::preflight::PERMISSIONS;
use katabatch_e2e::eventually::Seen;
use katabatch_e2e::farm::{JOB_TYPE, Plan, input, message};
use katabatch_e2e::proxy::{Action, Rule};
pub use katabatch_e2e::rbac::without;
use katabatch_e2e::rbac::{documents, texts};
use katabatch_e2e::{Case, eventually};
use kube::api::PostParams;
use serde_json::json;

use crate::{SOON, site};

/// Every (verb, resource) that the Role grants.
fn granted() -> Result<BTreeSet<(String, String)>> {
    let mut rights = BTreeSet::new();
    for document in documents()? {
        for rule in document["rules"].as_array().into_iter().flatten() {
            for resource in texts(&rule["resources"]) {
                let verbs = texts(&rule["verbs"]);
                rights.extend(verbs.map(|verb| (verb.to_owned(), resource.to_owned())));
            }
        }
    }
    Ok(rights)
}

pub async fn the_role_is_what_a_full_run_uses(case: Case) -> Result<()> {
    let plan = Plan { retain_finished: Duration::from_secs(1), ..Plan::default() };
    let site = site(&case, plan).await?;
    site.proxy.push(Rule::new(Action::DropAfter).on("create", "jobs").once());
    // Twice, since what the first run writes down the second one changes.
    for _ in 0..2 {
        site.farm.fill(5).await?;
        let scheduler = site.scheduler().await?;
        site.until_acked(SOON).await?;
        site.until_jobs(0, SOON).await?;
        scheduler.stop().await?;
    }
    // A Job that no pod can be made of is asked about.
    let quota = json!({ "metadata": { "name": "none" }, "spec": { "hard": { "pods": "0" } } });
    let quota = serde_json::from_value(quota)?;
    site.api::<ResourceQuota>().create(&PostParams::default(), &quota).await?;
    site.farm.put(vec![message("fuzz", JOB_TYPE, &input(77))]).await?;
    let scheduler = site.scheduler().await?;
    eventually("its events are read", SOON, || async {
        let reads = site.proxy.count("list", "events");
        Ok(Seen::when(reads > 0, || format!("{:?}", site.proxy.counters())))
    })
    .await?;
    scheduler.stop().await?;
    eventually("what was stored is changed", SOON, || async {
        let updates = site.proxy.count("update", "configmaps");
        Ok(Seen::when(updates > 0, || format!("{:?}", site.proxy.counters())))
    })
    .await?;

    let requests = site.proxy.requests();
    let used: BTreeSet<_> =
        requests.iter().map(|seen| (seen.verb.to_owned(), seen.resource.clone())).collect();
    let granted = granted()?;
    ensure!(used == granted, "used and granted differ: {used:?}, {granted:?}");
    let checked: BTreeSet<_> = PERMISSIONS
        .iter()
        .map(|(verb, _, resource)| ((*verb).to_owned(), (*resource).to_owned()))
        .collect();
    ensure!(checked == granted, "`check` asks for other rights than the Role grants");
    let elsewhere = requests.iter().find(|seen| seen.namespace != site.namespace.name());
    ensure!(elsewhere.is_none(), "{elsewhere:?}");
    let refused = requests.iter().find(|seen| seen.status == Some(403));
    ensure!(refused.is_none(), "{refused:?}");
    Ok(())
}
