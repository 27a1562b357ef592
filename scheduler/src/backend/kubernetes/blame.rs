//! Whether what keeps a pod from starting is the pod's own: it would be kept in an empty cluster too.
//! Pure.
//!
//! What is not clearly its own counts as the cluster's, so that a full cluster is nobody's fault.

use crate::domain::quantity::Quantity;

/// What the scheduler (kube-scheduler's plugins) says of nodes that a pod can never go to as it is.
const OWN: &[&str] = &[
    "node affinity",
    "node selector",
    "NodeSelector",
    "untolerated taint",
    "pod affinity rules",
    "persistentvolumeclaim",
    "PersistentVolumeClaim",
    "volume node affinity",
];
/// What it says of nodes that have no room, or are out of order, now.
const PASSES: &[&str] = &[
    "Insufficient",
    "Too many pods",
    "unschedulable",
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "free ports",
    "anti-affinity",
];

/// Whether no node takes the pod for what it is, by the message of its condition PodScheduled.
pub fn unscheduled_by_itself(message: &str) -> bool {
    // What follows says only whether preemption would help.
    let message = message.split(" preemption:").next().unwrap_or(message);
    let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
    has(OWN) && !has(PASSES)
}

/// Whether no pod could be made of a Job as it is, by the message of its event FailedCreate. A quota
/// that is used up by others is not its own; one that it could never fit is.
pub fn uncreated_by_itself(message: &str) -> bool {
    let Some(quota) = message.split("exceeded quota:").nth(1) else { return true };
    let part = |name: &str| -> Vec<(String, u128)> {
        let rest = quota.split(&format!("{name}: ")).nth(1).unwrap_or_default();
        // `requested: a=1,b=2, used: a=3,b=4, limited: a=5,b=6`
        let pairs = rest.split(", ").next().unwrap_or_default().split(',');
        let pair = |pair: &str| {
            let (resource, amount) = pair.trim().split_once('=')?;
            Some((resource.to_owned(), Quantity::parse(amount.trim()).ok()?.milli()))
        };
        pairs.filter_map(pair).collect()
    };
    let limited = part("limited");
    let over = |(resource, asked): &(String, u128)| {
        limited.iter().any(|(of, limit)| of == resource && asked > limit)
    };
    part("requested").iter().any(over)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_or_broken_cluster_is_nobodys_fault() {
        for (message, own) in [
            ("0/5 nodes are available: 5 Insufficient cpu.", false),
            (
                "0/5 nodes are available: 5 node(s) didn't match Pod's node affinity/selector. \
                 preemption: 0/5 nodes are available: 5 Preemption is not helpful for scheduling.",
                true,
            ),
            (
                "0/5 nodes are available: 2 Insufficient memory, 3 node(s) didn't match Pod's node \
                 affinity/selector. preemption: 0/5 nodes are available: 2 No preemption victims.",
                false,
            ),
            ("0/2 nodes are available: 2 node(s) had untolerated taint {spot: true}.", true),
            (
                "0/2 nodes are available: 2 node(s) had untolerated taint \
                 {node.kubernetes.io/not-ready: }.",
                false,
            ),
            ("0/2 nodes are available: 2 node(s) were unschedulable.", false),
            ("0/2 nodes are available: 2 Too many pods.", false),
            ("persistentvolumeclaim \"corpus\" not found", true),
            ("no nodes available to schedule pods", false),
            ("", false),
        ] {
            assert_eq!(unscheduled_by_itself(message), own, "{message}");
        }
    }

    #[test]
    fn a_quota_that_others_use_up_is_not_its_own_and_one_that_it_never_fits_is() {
        for (message, own) in [
            ("pods \"j\" is forbidden: violates PodSecurity \"restricted:latest\"", true),
            (
                "pods \"j\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=9, \
                 limited: pods=9",
                false,
            ),
            (
                "pods \"j\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, \
                 limited: pods=0",
                true,
            ),
            (
                "exceeded quota: q, requested: cpu=1,memory=64Gi, used: cpu=0,memory=1Gi, limited: \
                 cpu=9,memory=32Gi",
                true,
            ),
            ("exceeded quota: q", false),
        ] {
            assert_eq!(uncreated_by_itself(message), own, "{message}");
        }
    }
}
