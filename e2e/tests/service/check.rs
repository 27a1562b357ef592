//! `katabatch check` on a real API server, and what `run` checks at its start.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::node::v1::RuntimeClass;
use katabatch::check::runtime_class::{ATTESTATION, ATTESTED};
use katabatch_e2e::cluster_objects::FAKE;
use katabatch_e2e::eventually::{Seen, eventually};
use katabatch_e2e::farm::{Farm, Plan};
use katabatch_e2e::process::Output;
use katabatch_e2e::proxy::{Action, Rule};
use katabatch_e2e::{Case, ControlPlane};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::commands::{rows, run};
use crate::role::without;
use crate::{SOON, site};

async fn checked(farm: &Farm) -> Result<(Output, Vec<Value>)> {
    let output = run(farm, "check", &["check", "-o", "json"]).await?;
    let rows = rows(&output)?;
    Ok((output, rows))
}

fn of<'a>(rows: &'a [Value], key: &str, value: &str) -> Vec<&'a Value> {
    rows.iter().filter(|row| row[key] == json!(value)).collect()
}

pub async fn check_passes_under_the_shipped_role(case: Case) -> Result<()> {
    let site = site(&case, Plan::default()).await?;
    let (output, rows) = checked(&site.farm).await?;
    let failed = of(&rows, "verdict", "fail");
    ensure!(output.code == Some(0) && failed.is_empty(), "{failed:?} {output:?}");
    ensure!(output.stderr.contains(" pass, "), "{output:?}");
    ensure!(of(&rows, "area", "dry run").len() == 2, "{rows:?}");
    // What this account may not look at is said, with the reason.
    let nodes = of(&rows, "area", "nodes");
    ensure!(matches!(nodes[..], [row] if row["verdict"] == json!("not_checked")), "{nodes:?}");
    ensure!(nodes[0]["detail"].to_string().contains("cannot list resource"), "{nodes:?}");
    ensure!(site.jobs().await?.is_empty(), "it has made a Job");
    Ok(())
}

pub async fn check_names_a_missing_right(case: Case) -> Result<()> {
    let site = site(&case, Plan::default()).await?;
    case.plane.apply_yaml_in(site.namespace.name(), &without("delete", "jobs")?).await?;
    eventually("the right is missed", SOON, || async {
        let (output, rows) = checked(&site.farm).await?;
        let failed = of(&rows, "verdict", "fail");
        let named =
            matches!(failed[..], [row] if row["detail"].to_string().contains("delete jobs"));
        Ok(Seen::when(output.code == Some(1) && named, || format!("{failed:?}")))
    })
    .await
}

pub async fn run_refuses_to_start_without_a_right(case: Case) -> Result<()> {
    let site = site(&case, Plan::default()).await?;
    case.plane.apply_yaml_in(site.namespace.name(), &without("list", "pods")?).await?;
    eventually("the right is missed", SOON, || async {
        let (output, _) = checked(&site.farm).await?;
        Ok(Seen::when(output.code == Some(1), || format!("{output:?}")))
    })
    .await?;
    site.farm.fill(1).await?;
    let refused = run(&site.farm, "run", &["run"]).await?;
    ensure!(refused.code == Some(1), "{refused:?}");
    let said = refused.stderr.contains("may not list pods") && refused.stderr.contains("rbac.yaml");
    ensure!(said && !refused.stderr.contains("watch pods"), "{refused:?}");
    ensure!(site.farm.counts().await?.ready == 1, "it took nothing");
    Ok(())
}

/// A node of its own for one test, and a RuntimeClass that leads to it alone.
struct Small<'a> {
    plane: &'a ControlPlane,
    name: String,
}

impl<'a> Small<'a> {
    async fn new(plane: &'a ControlPlane, name: &str) -> Result<Self> {
        let size = json!({
            "cpu": "4", "memory": "3.8Gi", "ephemeral-storage": "100Gi", "pods": "10",
        });
        let node = serde_json::from_value(json!({
            "metadata": {
                "name": name,
                "labels": { "check": name },
                "annotations": { (FAKE): "fake" },
            },
            "spec": { "taints": [{ "key": "check", "value": name, "effect": "NoSchedule" }] },
            "status": { "allocatable": size, "capacity": size },
        }))?;
        let small = Self { plane, name: name.to_owned() };
        small.class(None).await?;
        let nodes: Api<Node> = Api::all(plane.admin_client());
        nodes.create(&PostParams::default(), &node).await.context("create the node")?;
        // A new node is closed by a taint until a controller has seen that it is ready.
        eventually("the node is open", SOON, || async {
            let taints = nodes.get(name).await?.spec.and_then(|spec| spec.taints);
            let taints = taints.unwrap_or_default();
            Ok(Seen::when(taints.len() == 1, || format!("{taints:?}")))
        })
        .await?;
        Ok(small)
    }

    async fn class(&self, attestation: Option<&str>) -> Result<()> {
        let mut class = json!({
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": { "name": self.name },
            "handler": "kata",
            "overhead": { "podFixed": { "memory": "200Mi", "cpu": "250m" } },
            "scheduling": {
                "nodeSelector": { "check": self.name },
                "tolerations": [{ "key": "check", "value": self.name, "effect": "NoSchedule" }],
            },
        });
        if let Some(attestation) = attestation {
            class["metadata"]["annotations"] = json!({ (ATTESTATION): attestation });
        }
        self.plane.apply_yaml(&class.to_string()).await
    }

    async fn remove(self) -> Result<()> {
        let client = self.plane.admin_client();
        let params = DeleteParams::default();
        Api::<Node>::all(client.clone()).delete(&self.name, &params).await?;
        Api::<RuntimeClass>::all(client).delete(&self.name, &params).await?;
        Ok(())
    }
}

fn farm(namespace: &str, kubeconfig: &Path, class: &str, memory: &str) -> Result<Farm> {
    let profile = json!({ "runtime_class": class, "cpu": "2", "memory": memory });
    Farm::new(namespace, kubeconfig, Plan { profile, ..Plan::default() })
}

/// Case 50.
pub async fn check_says_where_no_node_holds_a_pod_and_its_overhead(case: Case) -> Result<()> {
    case.plane.require_local("making a node")?;
    let (namespace, kubeconfig) = (case.namespace.name(), case.plane.admin_kubeconfig());
    let small = Small::new(&case.plane, namespace).await?;
    let (output, rows) = checked(&farm(namespace, &kubeconfig, namespace, "3.75Gi")?).await?;
    let nodes = of(&rows, "area", "nodes");
    let [row] = nodes[..] else { anyhow::bail!("{nodes:?}") };
    ensure!(output.code == Some(1) && row["verdict"] == json!("fail"), "{row}");
    for expected in ["unschedulable", "memory 3.75Gi + 200Mi overhead", "none of 1 nodes"] {
        ensure!(row["detail"].to_string().contains(expected), "{expected:?} is not in {row}");
    }
    let (output, rows) = checked(&farm(namespace, &kubeconfig, namespace, "3.5Gi")?).await?;
    let nodes = of(&rows, "area", "nodes");
    ensure!(output.code == Some(0), "{output:?}");
    ensure!(matches!(nodes[..], [row] if row["verdict"] == json!("pass")), "{nodes:?}");
    small.remove().await
}

/// Case 48.
pub async fn check_wants_the_host_devices_attested_away(case: Case) -> Result<()> {
    case.plane.require_local("making a RuntimeClass")?;
    let (namespace, kubeconfig) = (case.namespace.name(), case.plane.admin_kubeconfig());
    let small = Small::new(&case.plane, namespace).await?;
    let farm = farm(namespace, &kubeconfig, namespace, "3Gi")?;
    let said = async || -> Result<(Value, String)> {
        let (_, rows) = checked(&farm).await?;
        let about = rows.iter().find(|row| row["detail"].to_string().contains("attested"));
        let row = about.context("a row")?;
        Ok((row["verdict"].clone(), row["hint"].to_string()))
    };
    let (verdict, hint) = said().await?;
    ensure!(verdict == json!("warn") && hint.contains(ATTESTATION), "{verdict} {hint}");
    small.class(Some(ATTESTED)).await?;
    ensure!(said().await?.0 == json!("pass"));
    small.remove().await
}

pub async fn check_goes_on_where_a_server_is_away(case: Case) -> Result<()> {
    let site = site(&case, Plan::default()).await?;
    site.proxy.push(Rule::new(Action::DropBefore));
    let (output, rows) = checked(&site.farm).await?;
    ensure!(output.code == Some(1), "{output:?}");
    let cluster = of(&rows, "area", "cluster");
    ensure!(cluster.len() == 2 && cluster[0]["verdict"] == json!("fail"), "{cluster:?}");
    ensure!(cluster[1]["verdict"] == json!("not_checked"), "{cluster:?}");
    for (area, verdict) in [("catalog", "pass"), ("templates", "pass"), ("queue", "pass")] {
        let rows = of(&rows, "area", area);
        ensure!(rows.iter().any(|row| row["verdict"] == json!(verdict)), "{area}: {rows:?}");
    }
    Ok(())
}
