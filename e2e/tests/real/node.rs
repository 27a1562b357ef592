//! A machine that dies.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use katabatch::domain::end::EndKind;
use katabatch::domain::log_tail::LogTail;
use katabatch_e2e::Case;
use katabatch_e2e::eventually::{Seen, eventually};
use katabatch_e2e::real::RealNode;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;

use crate::SOON;
use crate::world::{Work, World, is_running};

/// On a node of the test's own. Its pod is put out as soon as nobody has heard of the node for a while,
/// and is gone once the node is deleted, as a cloud does with a machine that it took away.
pub async fn a_killed_kubelet_loses_the_node_and_its_pods(
    case: Case,
    _: Arc<RealNode>,
) -> Result<()> {
    let node = Arc::new(RealNode::start(&case.plane).await?);
    let soon = |key: &str| json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1 });
    let tolerations = ["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"].map(soon);
    let work = Work::script("echo begun; exec sleep 3600");
    let work = work.profile(json!({ "tolerations": tolerations }));
    let world = World::of_one(&case, &node, work).await?;
    world.pod("runs", is_running).await?;

    node.kill_kubelet()?;
    let nodes: Api<Node> = Api::all(case.plane.admin_client());
    eventually("the node is unknown and unreachable", SOON, || async {
        let seen = nodes.get(node.name()).await?;
        let status = seen.status.unwrap_or_default();
        let ready = status.conditions.unwrap_or_default();
        let ready = ready.into_iter().find(|condition| condition.type_ == "Ready");
        let taints = seen.spec.and_then(|spec| spec.taints).unwrap_or_default();
        let unreachable = taints.iter().any(|taint| taint.key == "node.kubernetes.io/unreachable");
        let unknown = ready.as_ref().is_some_and(|ready| ready.status == "Unknown");
        Ok(Seen::when(unknown && unreachable, || format!("{ready:?} {taints:?}")))
    })
    .await?;
    world.pod("is put out", |pod| disruption(pod) == Some("DeletionByTaintManager")).await?;

    nodes.delete(node.name(), &DeleteParams::default()).await.context("delete the node")?;
    let (_, conditions) = world.ended_within(2 * SOON).await?;
    ensure!(conditions.failed_for() == Some("BackoffLimitExceeded"), "{conditions:?}");
    // Nobody can read what it has said.
    let end = world.verdict().await?;
    ensure!(end.kind == EndKind::NodeLost, "{end:?}");
    ensure!(matches!(end.tail, LogTail::Unavailable(_)), "{end:?}");
    Ok(())
}

/// Why the pod was put out.
fn disruption(pod: &Pod) -> Option<&str> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let target = conditions.iter().find(|condition| condition.type_ == "DisruptionTarget")?;
    target.reason.as_deref()
}
