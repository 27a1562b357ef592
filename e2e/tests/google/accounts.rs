//! The tasks' own accounts: the role by which they act as their Google accounts.

use anyhow::{Context, Result, ensure};
use katabatch_e2e::Case;
use katabatch_e2e::farm::ACCOUNT;
use serde_json::json;

use crate::SOON;
use crate::world::{PROJECT, World};

async fn run_two(world: &World) -> Result<()> {
    let good = world.good_token().await?;
    world.google.give_tokens(&[(&good, 3_600)]);
    world.farm.fill(2).await?;
    let mut process = world.start("run", &["run"])?;
    world.until_acked(&mut process, SOON).await?;
    process.terminate()?;
    ensure!(process.end(SOON).await?.code == Some(0));
    Ok(())
}

pub async fn a_missing_role_is_granted_where_that_is_wanted(case: Case) -> Result<()> {
    let world = World::new(case).await?;
    world.configure(|config| config["accounts"] = json!({ "grant_workload_identity": true }))?;
    let other = json!({ "role": "roles/owner", "members": ["user:x@example.com"] });
    world.google.set_policy(ACCOUNT, json!({ "bindings": [other], "etag": "7" }));
    run_two(&world).await?;
    let policy = world.google.policy(ACCOUNT).context("a policy")?;
    let namespace = world.case.namespace.name();
    let member = format!("serviceAccount:{PROJECT}.svc.id.goog[{namespace}/untrusted-worker]");
    let added = json!({ "role": "roles/iam.workloadIdentityUser", "members": [member] });
    ensure!(policy["bindings"] == json!([other, added]), "{policy}");
    ensure!(world.google.requests(":setIamPolicy").len() == 1, "once, not for each task");
    Ok(())
}

pub async fn nothing_is_granted_by_default(case: Case) -> Result<()> {
    let world = World::new(case).await?;
    world.google.set_policy(ACCOUNT, json!({}));
    run_two(&world).await?;
    ensure!(world.google.requests("IamPolicy").is_empty());
    Ok(())
}
