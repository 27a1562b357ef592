//! Clients of others' making against a live scheduler: schemathesis, which makes requests out of the
//! description, and the Python class for ClusterFuzz.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use katabatch_e2e::farm::{JOB_TYPE, Plan};
use katabatch_e2e::{Case, python};
use serde_json::json;

use crate::seen::until_health;
use crate::served;

/// Pinned, so that a check which a newer one adds is looked at before it fails a build.
const SCHEMATHESIS: &str = "4.32.5";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

pub async fn the_description_is_kept_by_the_implementation(case: Case) -> Result<()> {
    let schemathesis = python::tool("schemathesis", SCHEMATHESIS, "schemathesis").await?;
    let tasks = json!({ "limits": { "requests_per_second": 10_000 } });
    let (site, endpoint) = served(&case, Plan::default(), tasks).await?;
    let scheduler = site.scheduler().await?;
    until_health(&endpoint, 200, "ok").await?;
    let description = format!("{}/openapi.json", endpoint.url());
    let arguments = [
        "run",
        &description,
        "--checks",
        "all",
        // Whoever reaches the endpoint on loopback needs no token, which it takes for a fault.
        "--exclude-checks",
        "ignored_auth",
        "--phases",
        "examples,coverage,fuzzing",
        "--max-examples",
        "25",
        "--seed",
        "1",
        "--no-color",
    ];
    let ran = python::run(&schemathesis, site.farm.dir(), &arguments, &[]).await?;
    let said = String::from_utf8_lossy(&ran.stdout);
    ensure!(ran.status.success(), "{said}\n{}", String::from_utf8_lossy(&ran.stderr));
    ensure!(!scheduler.has_ended(), "it ended the scheduler");
    scheduler.stop().await?;
    Ok(())
}

pub async fn the_clusterfuzz_class_passes_its_tests_against_a_live_scheduler(
    case: Case,
) -> Result<()> {
    python::require().await?;
    let (site, endpoint) = served(&case, Plan::default(), json!({})).await?;
    let scheduler = site.scheduler().await?;
    until_health(&endpoint, 200, "ok").await?;
    let dir = repository().join("integrations/clusterfuzz");
    let environment = [
        ("KATABATCH_URL", endpoint.url()),
        ("KATABATCH_JOB_TYPE", JOB_TYPE.to_owned()),
        ("KATABATCH_PREFIX", "https://storage.googleapis.com/uworker-input".to_owned()),
        ("PYTHONDONTWRITEBYTECODE", "1".to_owned()),
    ];
    let environment = environment.each_ref().map(|(key, value)| (*key, value.as_str()));
    let ran = python::python(&dir, &["-m", "unittest", "-v"], &environment).await?;
    let said = String::from_utf8_lossy(&ran.stderr);
    ensure!(ran.status.success() && !said.contains("skipped"), "{said}");
    // Twenty and again the same; two beside the unknown one; one by its module.
    let counts = scheduler.stop().await?;
    ensure!(site.jobs().await?.len() == 21, "{counts:?}");
    Ok(())
}
