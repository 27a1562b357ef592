//! Pods on nodes: what fits, what nearly does, and which nodes count.

use serde_json::{Value, json};

use super::*;
use crate::check::findings::Verdict;
use crate::domain::quantity::Quantity;

fn of(pairs: &[(&str, &str)]) -> Amounts {
    let amount = |q: &str| Quantity::parse(q).expect("a quantity").milli();
    pairs.iter().map(|(name, quantity)| ((*name).to_owned(), amount(quantity))).collect()
}

fn node(memory: &str, more: Value) -> Node {
    let mut node = json!({
        "metadata": {"name": "n", "labels": {"kata": "true"}},
        "status": {"allocatable": {
            "cpu": "4", "memory": memory, "ephemeral-storage": "100Gi", "pods": "110",
        }},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        node[key] = value.clone();
    }
    serde_json::from_value(node).expect("a node")
}

fn needs() -> Needs {
    Needs {
        requests: of(&[("cpu", "2"), ("memory", "3.75Gi")]),
        overhead: of(&[("cpu", "250m"), ("memory", "200Mi")]),
        ..Needs::default()
    }
}

fn judged(needs: &Needs, nodes: &[Node], daemons: &[Pod]) -> (Verdict, String) {
    let (open, closed) = rooms(nodes, daemons);
    let found = judge("m", needs, &open, closed);
    let first = found.all().first().expect("a finding");
    (first.verdict, first.detail.clone())
}

#[test]
fn a_request_that_fits_only_without_its_overhead_is_unschedulable() {
    let (verdict, detail) = judged(&needs(), &[node("3.8Gi", json!({}))], &[]);
    assert_eq!(verdict, Verdict::Fail);
    assert!(detail.contains("unschedulable: cpu 2 + 0.25 overhead, memory 3.75Gi"), "{detail}");
    assert!(
        detail.contains("200Mi overhead") && detail.contains("150.4Mi short")
            || detail.contains("148.8Mi short"),
        "{detail}"
    );
    let (verdict, _) = judged(&needs(), &[node("3.96Gi", json!({}))], &[]);
    assert_eq!(verdict, Verdict::Pass);
    let plain = Needs { overhead: Amounts::new(), ..needs() };
    assert_eq!(judged(&plain, &[node("3.8Gi", json!({}))], &[]).0, Verdict::Pass);
}

#[test]
fn a_large_disk_request_is_unschedulable_on_small_disks() {
    let mut asked = needs();
    asked.requests.extend(of(&[("ephemeral-storage", "110G")]));
    let (verdict, detail) = judged(&asked, &[node("64Gi", json!({}))], &[]);
    assert!(verdict == Verdict::Fail && detail.contains("of ephemeral-storage free"), "{detail}");
}

#[test]
fn what_daemons_ask_for_is_taken_off() {
    let daemon = |kind: &str, phase: &str| -> Pod {
        serde_json::from_value(json!({
            "metadata": {"ownerReferences": [
                {"kind": kind, "name": "d", "apiVersion": "v1", "uid": "u"}
            ]},
            "spec": {"nodeName": "n", "containers": [
                {"name": "c", "resources": {"requests": {"memory": "100Mi"}}}
            ]},
            "status": {"phase": phase},
        }))
        .expect("a pod")
    };
    let tight = [node("4Gi", json!({}))];
    for (kind, phase, expect) in [
        ("DaemonSet", "Running", Verdict::Fail),
        ("Node", "Running", Verdict::Fail),
        ("DaemonSet", "Succeeded", Verdict::Pass),
        ("ReplicaSet", "Running", Verdict::Pass),
    ] {
        assert_eq!(judged(&needs(), &tight, &[daemon(kind, phase)]).0, expect, "{kind} {phase}");
    }
}

#[test]
fn labels_and_taints_say_which_nodes_count() {
    let taint = json!({"spec": {"taints": [
        {"key": "kata", "value": "only", "effect": "NoSchedule"},
        {"key": "soft", "effect": "PreferNoSchedule"},
    ]}});
    let toleration = |json: Value| Needs {
        tolerations: vec![serde_json::from_value(json).expect("a toleration")],
        ..needs()
    };
    let selects =
        |value: &str| Needs { selector: [("kata".to_owned(), value.to_owned())].into(), ..needs() };
    for (needs, more, expect) in [
        (selects("true"), json!({}), Verdict::Pass),
        (selects("false"), json!({}), Verdict::Warn),
        (needs(), taint.clone(), Verdict::Warn),
        (toleration(json!({"operator": "Exists"})), taint.clone(), Verdict::Pass),
        (toleration(json!({"key": "kata", "value": "only"})), taint.clone(), Verdict::Pass),
        (toleration(json!({"key": "kata", "value": "x"})), taint.clone(), Verdict::Warn),
        (toleration(json!({"key": "kata", "operator": "Exists"})), taint.clone(), Verdict::Pass),
        (
            toleration(json!({"key": "kata", "operator": "Exists", "effect": "NoExecute"})),
            taint,
            Verdict::Warn,
        ),
        (needs(), json!({"spec": {"unschedulable": true}}), Verdict::Warn),
    ] {
        let (verdict, detail) = judged(&needs, &[node("64Gi", more)], &[]);
        assert_eq!(verdict, expect, "{needs:?}: {detail}");
    }
    assert_eq!(judged(&needs(), &[], &[]).0, Verdict::Warn);
}
