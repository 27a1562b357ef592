//! Inputs that are paths.

use anyhow::{Result, ensure};
use katabatch_e2e::Case;
use katabatch_e2e::eventually::{Seen, eventually};
use katabatch_e2e::farm::{JOB_TYPE, message, task};
use katabatch_e2e::gcs::ACCOUNT;
use serde_json::json;

use crate::world::{SOON, World, variable};

/// With what a name may have that a URL may not.
const INPUT: &str = "gs://inputs/dir/input 1?#%2F+ä";

pub async fn signed(case: Case) -> Result<()> {
    let world = World::new(&case, json!({})).await?;
    let site = &world.site;
    world.gcs.put(INPUT, "the input's bytes").await?;
    let process = world.run()?;
    site.farm.put(vec![message("fuzz", JOB_TYPE, INPUT)]).await?;
    let jobs = site.until_jobs(1, SOON).await?;
    site.until_acked(SOON).await?;
    let ended = world.stop(process).await?;

    let url = variable(&jobs[0], "UWORKER_INPUT_DOWNLOAD_URL")?;
    let expected = format!("http://{}/inputs/dir/input%201%3F%23%252F%2B%C3%A4?", world.gcs.host());
    ensure!(url.starts_with(&expected), "{url}");
    let parameter = |name: &str| {
        let pairs = url.split(['?', '&']).filter_map(|pair| pair.split_once('='));
        pairs.filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).next()
    };
    ensure!(parameter("X-Goog-Algorithm").as_deref() == Some("GOOG4-RSA-SHA256"), "{url}");
    // Six hours that the Job may take, five to wait, a quarter for clocks.
    ensure!(parameter("X-Goog-Expires").as_deref() == Some("40500"), "{url}");
    ensure!(parameter("X-Goog-SignedHeaders").as_deref() == Some("host"), "{url}");
    let credential = parameter("X-Goog-Credential").unwrap_or_default();
    ensure!(credential.starts_with(&ACCOUNT.replace('@', "%40")), "{credential}");
    let signature = parameter("X-Goog-Signature").unwrap_or_default();
    ensure!(signature.len() == 512, "{signature}");
    let bytes = reqwest::Client::builder().no_proxy().build()?.get(&url).send().await?;
    ensure!(bytes.text().await? == "the input's bytes");

    // The task is that of the object.
    let name = task("fuzz", JOB_TYPE, INPUT)?.job_name();
    ensure!(jobs[0].metadata.name.as_deref() == Some(name.as_str()), "{:?}", jobs[0].metadata);
    let metadata = serde_json::to_string(&jobs[0].metadata)?;
    for (place, text) in [("log", &ended.stderr), ("data", &ended.stdout), ("Job", &metadata)] {
        ensure!(!text.contains(&signature), "the signature is in the {place}: {text}");
    }
    Ok(())
}

pub async fn no_credentials(case: Case) -> Result<()> {
    let mut world = World::new(&case, json!({})).await?;
    let mut none = world.environment[1].1.clone();
    none.push_str(".none");
    world.environment[1].1 = none.clone();
    let process = world.run()?;
    world.site.farm.put(vec![message("fuzz", JOB_TYPE, INPUT)]).await?;
    world.site.farm.fill(1).await?;
    // What is signed already goes on.
    world.site.until_jobs(1, SOON).await?;
    let look = &process;
    eventually("the other is held", SOON, || async move {
        let said = look.messages();
        Ok(Seen::when(said.contains("inputs can't be signed"), || "nothing is said".into()))
    })
    .await?;
    eventually("it alone is left", SOON, || async {
        let counts = world.site.farm.counts().await?;
        let left = (counts.ready, counts.leased, counts.quarantined);
        Ok(Seen::when(left == (0, 1, 0), || format!("{counts:?}")))
    })
    .await?;
    std::fs::write(none, katabatch_e2e::gcs::key_file()?)?;
    world.site.until_jobs(2, 3 * SOON).await?;
    world.site.until_acked(SOON).await?;
    let ended = world.stop(process).await?;
    ensure!(ended.stderr.contains("inputs are signed again"), "{}", ended.stderr);
    let said = ended.stderr.matches("inputs can't be signed").count();
    ensure!(said == 1, "it is said {said} times");
    Ok(())
}
