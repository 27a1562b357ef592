//! Looks at the nodes: whether pods of each workload fit on any, with what a VM costs.

use super::cluster::{Classes, ask};
use super::looks::Looks;
use super::templates::Planned;
use crate::backend::kubernetes::preflight::{Preflight, Seen};
use crate::check::findings::Findings;
use crate::check::needs::Needs;
use crate::check::nodes::{is_daemon, judge, rooms};

/// Looks at all nodes and at what runs on each of them anyway.
pub async fn check(
    preflight: &Preflight,
    looks: &Looks,
    planned: &[Planned],
    classes: &Classes,
) -> Findings {
    let mut findings = Findings::about("nodes");
    if planned.is_empty() {
        return findings;
    }
    let (of_nodes, of_pods) = (preflight.clone(), preflight.clone());
    let (nodes, daemons) = tokio::join!(
        ask(looks, "nodes", async move { of_nodes.nodes().await }),
        ask(looks, "daemons", async move { of_pods.pods(is_daemon).await }),
    );
    let nodes = match nodes {
        Ok(Seen::There(nodes)) => nodes,
        Ok(Seen::Absent) => Vec::new(),
        Ok(Seen::Forbidden(said)) => {
            let hint = "run `check` as someone who may list nodes; `run` does not need it";
            findings.not_checked("room for pods", said, hint);
            return findings;
        }
        Err(error) => {
            findings.not_checked("room for pods", error, "see the cluster");
            return findings;
        }
    };
    let daemons = match daemons {
        Ok(Seen::There(pods)) => pods,
        Ok(Seen::Absent) => Vec::new(),
        Ok(Seen::Forbidden(said)) | Err(said) => {
            let hint = "the nodes below count as empty; leave room for what runs on each of them";
            findings.not_checked("daemons", said, hint);
            Vec::new()
        }
    };
    let (open, closed) = rooms(&nodes, &daemons);
    for (label, needs) in distinct(planned, classes) {
        findings.extend(judge(&label, &needs, &open, closed));
    }
    findings
}

/// What pods need, once for all workloads that need the same.
fn distinct(planned: &[Planned], classes: &Classes) -> Vec<(String, Needs)> {
    let mut all: Vec<(String, usize, Needs)> = Vec::new();
    for plan in planned {
        let pod = plan.job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        let class = pod.and_then(|pod| classes.get(pod.runtime_class_name.as_deref()?));
        let needs = Needs::of(&plan.job, class);
        match all.iter_mut().find(|(_, _, other)| *other == needs) {
            Some((_, more, _)) => *more += 1,
            None => all.push((plan.label.clone(), 0, needs)),
        }
    }
    let named = |(label, more, needs): (String, usize, Needs)| match more {
        0 => (label, needs),
        more => (format!("{label} and {more} more"), needs),
    };
    all.into_iter().map(named).collect()
}
