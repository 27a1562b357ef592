//! Whether there is a node that a pod fits on: requests and overhead against what nodes can
//! allocate, less what runs on every node anyway.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};

use super::findings::Findings;
use super::needs::{Amounts, Needs, amounts, requests, shown};

/// A node, as far as placing a pod depends on it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Room {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// What pods may ask of it, less its daemons.
    pub free: Amounts,
}

/// The nodes that may take pods, and how many are closed. `daemons` are pods that run whatever
/// else does; what they ask for is taken off.
pub fn rooms(nodes: &[Node], daemons: &[Pod]) -> (Vec<Room>, usize) {
    let mut taken: BTreeMap<&str, Vec<Amounts>> = BTreeMap::new();
    for pod in daemons.iter().filter(|pod| is_daemon(pod)) {
        if let Some((spec, node)) =
            pod.spec.as_ref().and_then(|spec| Some((spec, spec.node_name.as_deref()?)))
        {
            let mut asked = requests(spec);
            for (resource, amount) in spec.overhead.as_ref().map(amounts).unwrap_or_default() {
                *asked.entry(resource).or_default() += amount;
            }
            taken.entry(node).or_default().push(asked);
        }
    }
    let mut open = Vec::new();
    let mut closed = 0;
    for node in nodes {
        let spec = node.spec.clone().unwrap_or_default();
        if spec.unschedulable == Some(true) {
            closed += 1;
            continue;
        }
        let name = node.metadata.name.clone().unwrap_or_default();
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let mut free = allocatable.map(amounts).unwrap_or_default();
        for asked in taken.get(name.as_str()).into_iter().flatten() {
            for (resource, amount) in asked {
                let left = free.entry(resource.clone()).or_default();
                *left = left.saturating_sub(*amount);
            }
        }
        open.push(Room {
            name,
            labels: node.metadata.labels.clone().unwrap_or_default(),
            taints: spec.taints.unwrap_or_default(),
            free,
        });
    }
    (open, closed)
}

/// Whether a pod is there on its node as long as the node is: of a DaemonSet, or the kubelet's own.
pub fn is_daemon(pod: &Pod) -> bool {
    let ended = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let owners = pod.metadata.owner_references.iter().flatten();
    !matches!(ended, Some("Succeeded" | "Failed"))
        && owners.map(|owner| owner.kind.as_str()).any(|kind| matches!(kind, "DaemonSet" | "Node"))
}

/// Judges whether pods of `subject` can be placed at all. Whether they can be placed now is not
/// asked: what runs on a node but its daemons will end.
pub fn judge(subject: &str, needs: &Needs, nodes: &[Room], closed: usize) -> Findings {
    let mut found = Findings::about("nodes");
    let (total, says) = (needs.total(), asked(needs));
    let matching: Vec<&Room> = nodes.iter().filter(|node| admits(node, needs)).collect();
    if matching.is_empty() {
        let detail = format!(
            "none of {} nodes ({closed} closed) takes such pods by labels and taints{}",
            nodes.len() + closed,
            selector(needs)
        );
        let hint = "label the nodes, or change the profile's node_selector and tolerations; right \
                    only if an autoscaler brings such nodes up";
        found.warn(subject, detail, hint);
        return found;
    }
    let fits: Vec<&&Room> = matching.iter().filter(|node| lacks(node, &total).is_none()).collect();
    if let Some(first) = fits.first() {
        let more = if needs.says_more { "; its affinity was not looked at" } else { "" };
        let detail = format!(
            "{says} fits {} of {} nodes, such as {}{more}",
            fits.len(),
            matching.len(),
            first.name
        );
        found.pass(subject, detail);
        return found;
    }
    // The node that lacks least says most.
    let nearest = matching.iter().filter_map(|node| Some((lacks(node, &total)?, *node)));
    let Some(((short, resource), node)) = nearest.min_by(|a, b| a.0.cmp(&b.0)) else {
        return found;
    };
    let have = node.free.get(&resource).copied().unwrap_or(0);
    let detail = format!(
        "unschedulable: {says} fits none of {} nodes; {} has {} of {resource} free, {} short",
        matching.len(),
        node.name,
        shown(&resource, have),
        shown(&resource, short)
    );
    let hint = "its pods stay Pending for ever: use larger nodes, or ask for less in the profile";
    found.fail(subject, detail, hint);
    found
}

/// How short the node is of the resource that it lacks most of, by part of what is asked.
fn lacks(node: &Room, total: &Amounts) -> Option<(u128, String)> {
    let pods = ("pods".to_owned(), 1_000_u128);
    let asked = total.iter().map(|(name, amount)| (name.clone(), *amount)).chain([pods]);
    asked
        .filter_map(|(resource, amount)| {
            let free = node.free.get(&resource).copied().unwrap_or(0);
            (amount > free).then(|| (amount - free, resource))
        })
        .max_by_key(|(short, resource)| {
            short.saturating_mul(1_000) / total.get(resource).copied().unwrap_or(1_000).max(1)
        })
}

fn asked(needs: &Needs) -> String {
    let parts = needs.requests.iter().chain(&needs.overhead).map(|(resource, _)| resource);
    let mut resources: Vec<&String> = parts.collect();
    resources.sort();
    resources.dedup();
    let part = |resource: &String| {
        let of = |amounts: &Amounts| amounts.get(resource).copied();
        let asked = shown(resource, of(&needs.requests).unwrap_or(0));
        match of(&needs.overhead) {
            Some(overhead) => {
                format!("{resource} {asked} + {} overhead", shown(resource, overhead))
            }
            None => format!("{resource} {asked}"),
        }
    };
    resources.into_iter().map(part).collect::<Vec<_>>().join(", ")
}

fn selector(needs: &Needs) -> String {
    let labels: Vec<String> =
        needs.selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if labels.is_empty() { String::new() } else { format!("; they want {}", labels.join(", ")) }
}

fn admits(node: &Room, needs: &Needs) -> bool {
    let labelled = needs.selector.iter().all(|(key, value)| node.labels.get(key) == Some(value));
    let borne = node
        .taints
        .iter()
        .filter(|taint| taint.effect != "PreferNoSchedule")
        .all(|taint| needs.tolerations.iter().any(|toleration| tolerates(toleration, taint)));
    labelled && borne
}

/// <https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/>.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().filter(|effect| !effect.is_empty());
    let key = toleration.key.as_deref().filter(|key| !key.is_empty());
    let exists = toleration.operator.as_deref() == Some("Exists");
    if effect.is_some_and(|effect| effect != taint.effect) {
        return false;
    }
    match key {
        None => exists,
        Some(key) if key != taint.key => false,
        Some(_) if exists => true,
        Some(_) => {
            toleration.value.as_deref().unwrap_or("") == taint.value.as_deref().unwrap_or("")
        }
    }
}

#[cfg(test)]
mod tests;
