//! Finding the cluster, and each way of not finding it: exit code, cause and hint.

use anyhow::{Result, ensure};
use katabatch_e2e::Case;
use serde_json::json;

use crate::SOON;
use crate::world::{CLUSTER, PROJECT, World, listed};

pub async fn the_cluster_of_project_yaml_is_found_and_run_on(case: Case) -> Result<()> {
    let world = World::new(case).await?;
    let good = world.good_token().await?;
    world.google.give_tokens(&[(&good, 3_600)]);
    world.farm.fill(20).await?;
    let mut process = world.start("run", &["run"])?;
    world.until_acked(&mut process, SOON).await?;
    process.terminate()?;
    let output = process.end(SOON).await?;
    ensure!(output.code == Some(0), "{output:?}");
    ensure!(world.jobs().await? == 20);
    let lists = world.google.requests("/clusters");
    let path = format!("/v1/projects/{PROJECT}/locations/-/clusters");
    ensure!(lists.len() == 1 && lists[0].path == path, "{lists:?}");
    ensure!(world.google.token_requests() == 1, "one token serves all");
    Ok(())
}

pub async fn each_way_of_not_finding_it_says_what_and_what_to_do(case: Case) -> Result<()> {
    let world = World::new(case).await?;
    let plane = world.case.plane.clone();
    let run = async |name: &str, expect: &[&str]| -> Result<()> {
        let output = world.run(name, &["run", "--once"]).await?;
        ensure!(output.code == Some(1), "{name}: {output:?}");
        for text in expect {
            ensure!(output.stderr.contains(text), "{name}: {text:?} is not in {}", output.stderr);
        }
        ensure!(output.stderr.contains("\nhint: "), "{name}: {}", output.stderr);
        Ok(())
    };
    let google = &world.google;
    let mut other = listed(&plane, "us-east1");
    other["name"] = json!("other");
    google.list_clusters(&[other.clone()], &[]);
    run("absent", &["no GKE cluster `e2e`", "other in us-east1", "cluster_name"]).await?;
    let two = ["us-west1", "europe-west4"].map(|location| listed(&plane, location));
    google.list_clusters(&two, &[]);
    run("ambiguous", &["each of europe-west4, us-west1", "location: europe-west4"]).await?;
    google.list_clusters(&[other], &["us-west1-b"]);
    run("incomplete", &["incomplete", "us-west1-b", "try again"]).await?;
    ensure!(google.requests("/clusters").len() == 2 + 3, "an incomplete list is asked for again");
    google.refuse_to_list(403, "PERMISSION_DENIED", "", "Required container.clusters.list");
    run("denied", &["may not be listed", "roles/container.developer", PROJECT]).await?;
    google.refuse_to_list(403, "PERMISSION_DENIED", "SERVICE_DISABLED", "it is off");
    run("disabled", &["not enabled", "gcloud services enable container.googleapis.com"]).await?;
    let mut broken = listed(&plane, "us-west1");
    broken["masterAuth"]["clusterCaCertificate"] = json!("%%%");
    google.list_clusters(&[broken], &[]);
    run("broken", &["clusterCaCertificate", "no base64"]).await?;
    let project = world.farm.dir().join("clusterfuzz-config/project.yaml");
    std::fs::write(project, format!("env: {{PROJECT_NAME: x}}\ncluster_name: {CLUSTER}\n"))?;
    world.configure(|config| config["backends"][0]["kubernetes"]["gke"] = json!({}))?;
    run("unset", &["K8S_PROJECT is not set", "env.K8S_PROJECT in project.yaml"]).await?;
    ensure!(world.jobs().await? == 0);
    Ok(())
}

pub async fn a_location_makes_an_ambiguous_name_clear(case: Case) -> Result<()> {
    let world = World::with(case, json!({ "gke": { "location": "us-west1" } })).await?;
    let two = ["us-west1", "europe-west4"].map(|location| listed(&world.case.plane, location));
    world.google.list_clusters(&two, &[]);
    let good = world.good_token().await?;
    world.google.give_tokens(&[(&good, 3_600)]);
    world.farm.fill(2).await?;
    let mut process = world.start("run", &["run"])?;
    world.until_acked(&mut process, SOON).await?;
    process.terminate()?;
    ensure!(process.end(SOON).await?.code == Some(0));
    ensure!(world.google.requests("/locations/us-west1/clusters").len() == 1);
    Ok(())
}

pub async fn check_says_which_cluster_and_why(case: Case) -> Result<()> {
    let world = World::new(case).await?;
    let good = world.good_token().await?;
    world.google.give_tokens(&[(&good, 3_600)]);
    let output = world.run("check", &["check"]).await?;
    let said = format!("GKE cluster {CLUSTER} in us-west1 of project {PROJECT} at https://");
    ensure!(output.stdout.contains(&said), "{output:?}");
    ensure!(output.stdout.contains("project.yaml names it"), "{output:?}");
    Ok(())
}
