//! Tokens that come late, are refused, or die on the way.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ServiceAccount;
use katabatch_e2e::Case;
use katabatch_e2e::eventually::{Seen, eventually};
use katabatch_e2e::site::{ACCOUNT, rbac};
use kube::api::DeleteParams;

use crate::SOON;
use crate::world::World;

/// A token that no server knows, as text that stands nowhere else.
const REFUSED: &str = "refused-token-7f3a";

pub async fn a_token_that_the_server_refuses_is_replaced_once(case: Case) -> Result<()> {
    let world = World::new(case).await?;
    let good = world.good_token().await?;
    world.google.give_tokens(&[(REFUSED, 3_600), (&good, 3_600)]);
    world.farm.fill(10).await?;
    let mut process = world.start("run", &["run"])?;
    world.until_acked(&mut process, SOON).await?;
    process.terminate()?;
    let output = process.end(SOON).await?;
    ensure!(output.code == Some(0), "{output:?}");
    ensure!(world.jobs().await? == 10);
    ensure!(world.google.token_requests() == 2, "{} tokens", world.google.token_requests());
    ensure!(!output.stderr.contains(&good) && !output.stderr.contains(REFUSED), "{output:?}");
    ensure!(!output.stderr.contains("could not be reviewed"), "{output:?}");
    Ok(())
}

pub async fn a_token_that_dies_on_the_way_is_replaced_and_nothing_is_lost(
    case: Case,
) -> Result<()> {
    let world = World::new(case).await?;
    let first = world.good_token().await?;
    world.google.give_tokens(&[(&first, 3_600)]);
    world.farm.fill(10).await?;
    let mut process = world.start("run", &["run"])?;
    world.until_acked(&mut process, SOON).await?;
    // The tokens of an account die with it; the one of the same name that comes after has others.
    let accounts = world.case.namespace.api::<ServiceAccount>();
    accounts.delete(ACCOUNT, &DeleteParams::default()).await?;
    world.case.plane.apply_yaml_in(world.case.namespace.name(), &rbac()?).await?;
    let second = world.good_token().await?;
    world.google.give_tokens(&[(&second, 3_600)]);
    // The API server remembers for ten seconds that the first one was good.
    eventually("the second token is fetched", SOON, || async {
        let asked = world.google.token_requests();
        Ok(Seen::when(asked >= 2, || format!("{asked} tokens were asked for")))
    })
    .await?;
    world.farm.put((10..20).map(message).collect()).await?;
    world.until_acked(&mut process, SOON).await?;
    process.terminate()?;
    let output = process.end(SOON).await?;
    ensure!(output.code == Some(0), "{output:?}");
    ensure!(world.jobs().await? == 20, "{} Jobs", world.jobs().await?);
    ensure!(world.google.token_requests() == 2, "{} tokens", world.google.token_requests());
    Ok(())
}

fn message(n: usize) -> katabatch::queue::spool::record::NewMessage {
    use katabatch_e2e::farm::{JOB_TYPE, input, message};
    message("fuzz", JOB_TYPE, &input(n))
}

pub async fn a_metadata_server_that_is_not_ready_is_waited_for(case: Case) -> Result<()> {
    let world = World::new(case).await?;
    let good = world.good_token().await?;
    world.google.give_tokens(&[(&good, 3_600)]);
    world.google.fail_tokens(4);
    world.farm.fill(3).await?;
    let mut process = world.start("run", &["run"])?;
    world.until_acked(&mut process, SOON).await?;
    process.terminate()?;
    ensure!(process.end(SOON).await?.code == Some(0));
    ensure!(world.google.token_requests() == 5, "{} tokens", world.google.token_requests());
    Ok(())
}
