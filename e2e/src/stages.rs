//! What becomes of the pods that no kubelet runs: KWOK stages, chosen pod by pod by
//! the label (or annotation) `e2e.katabatch.dev/behaviour`, so that one control plane
//! serves tests that want different things.
//!
//! Unlike a kubelet, KWOK never restarts a container in place: a pod that fails is
//! Failed, whatever its `restartPolicy` says.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

/// The label of a pod template, or its annotation, that chooses the behaviour. The Job
/// controller copies only the template's labels to pods, not the Job's.
pub const BEHAVIOUR: &str = "e2e.katabatch.dev/behaviour";

/// How a pod behaves. `to_string` gives the label's value.
///
/// Any value that is none of these is left to stages of the caller's own
/// (`Options::stages`): the standard ones then only end deleted pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Behaviour {
    /// A Job's pod runs and completes at once; any other pod runs on. Pods without
    /// the label do this.
    #[default]
    Default,
    /// Scheduled, but its containers are never started.
    StayPending,
    /// Pending with its containers in `ImagePullBackOff`.
    ImageAbsent,
    /// Runs until it is deleted.
    RunForever,
    /// Completes after this time.
    Slow(Duration),
    /// Ends with an exit code (137: `OOMKilled`) after a time.
    Fail {
        /// The code.
        code: u8,
        /// How long it runs first.
        after: Duration,
    },
    /// Starts, and is evicted by its node.
    Evicted,
}

impl fmt::Display for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::StayPending => f.write_str("stay-pending"),
            Self::ImageAbsent => f.write_str("image-absent"),
            Self::RunForever => f.write_str("run-forever"),
            Self::Slow(time) => write!(f, "slow-{}ms", time.as_millis()),
            Self::Fail { code, after } if after.is_zero() => write!(f, "fail-{code}"),
            Self::Fail { code, after } => write!(f, "fail-{code}-after-{}ms", after.as_millis()),
            Self::Evicted => f.write_str("evicted"),
        }
    }
}

/// KWOK's configuration: the standard stages, then `more` (YAML documents).
pub fn configuration(more: &[String]) -> String {
    let standard = standard().into_iter().map(|stage| format!("{stage:#}\n"));
    let documents: Vec<_> = standard.chain(more.iter().cloned()).collect();
    documents.join("\n---\n")
}

/// The behaviour in jq's words.
fn behaviour() -> String {
    format!(
        r#"(.metadata.labels["{BEHAVIOUR}"] // .metadata.annotations["{BEHAVIOUR}"] // "default")"#
    )
}

fn standard() -> Vec<Value> {
    let alive = || is_absent(".metadata.deletionTimestamp");
    let started = || is_in(".status.phase", &["Running"]);
    let matches = |regex: &str| is_in(&format!("{} | test({regex:?})", behaviour()), &["true"]);

    vec![
        stage(
            "start",
            vec![
                alive(),
                is_absent(".status.podIP"),
                matches("^(default$|run-forever$|evicted$|slow-|fail-)"),
            ],
            None,
            START,
        ),
        stage(
            "image-absent",
            vec![alive(), is_absent(".status.containerStatuses"), matches("^image-absent$")],
            None,
            IMAGE_ABSENT,
        ),
        stage(
            "complete",
            vec![
                alive(),
                started(),
                matches("^default$"),
                is_in(".metadata.ownerReferences.[].kind", &["Job"]),
            ],
            None,
            &end("Succeeded", "0", "Completed"),
        ),
        stage(
            "complete-slowly",
            vec![alive(), started(), matches("^slow-")],
            Some(format!(r#"{} | ltrimstr("slow-")"#, behaviour())),
            &end("Succeeded", "0", "Completed"),
        ),
        stage(
            "fail",
            vec![alive(), started(), matches("^fail-[0-9]+")],
            Some(format!(r#"{} | capture("-after-(?<time>.+)$").time // "0s""#, behaviour())),
            &end(
                "Failed",
                r#"{{ regexReplaceAll "^fail-([0-9]+).*$" $behaviour "${1}" }}"#,
                r#"{{ if hasPrefix "fail-137" $behaviour }}OOMKilled{{ else }}Error{{ end }}"#,
            ),
        ),
        stage(
            "evict",
            vec![alive(), started(), matches("^evicted$")],
            None,
            &format!(
                "{}reason: Evicted\nmessage: \"The node was low on resource: memory.\"\n",
                end("Failed", "137", "Error")
            ),
        ),
        // A kubelet first ends what runs, then lets the object go. The Job controller's
        // finalizer stays its own.
        stage(
            "end-deleted",
            vec![
                is_present(".metadata.deletionTimestamp"),
                is_in(".status.phase", &["Pending", "Running"]),
            ],
            None,
            &end("Failed", "137", "Error"),
        ),
        {
            let mut stage = stage(
                "remove-deleted",
                vec![
                    is_present(".metadata.deletionTimestamp"),
                    is_in(".status.phase", &["Succeeded", "Failed"]),
                ],
                None,
                "",
            );
            stage["spec"]["next"] = json!({ "delete": true });
            stage
        },
    ]
}

fn is_in(key: &str, values: &[&str]) -> Value {
    json!({ "key": key, "operator": "In", "values": values })
}

fn is_absent(key: &str) -> Value {
    json!({ "key": key, "operator": "DoesNotExist" })
}

fn is_present(key: &str) -> Value {
    json!({ "key": key, "operator": "Exists" })
}

fn stage(name: &str, when: Vec<Value>, delay: Option<String>, status: &str) -> Value {
    let mut stage = json!({
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": { "name": format!("katabatch-{name}") },
        "spec": {
            "resourceRef": { "apiGroup": "v1", "kind": "Pod" },
            "selector": { "matchExpressions": when },
            "next": { "statusTemplate": status },
        },
    });
    if let Some(expression) = delay {
        stage["spec"]["delay"] = json!({ "durationFrom": { "expressionFrom": expression } });
    }
    stage
}

const START: &str = r#"{{ $now := Now }}
conditions:
- {type: Initialized, status: "True", lastTransitionTime: {{ $now | Quote }}}
- {type: Ready, status: "True", lastTransitionTime: {{ $now | Quote }}}
- {type: ContainersReady, status: "True", lastTransitionTime: {{ $now | Quote }}}
containerStatuses:
{{ range .spec.containers }}
- image: {{ .image | Quote }}
  name: {{ .name | Quote }}
  ready: true
  started: true
  restartCount: 0
  state: {running: {startedAt: {{ $now | Quote }}}}
{{ end }}
hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
podIP: {{ PodIPWith .spec.nodeName (or .spec.hostNetwork false) (or .metadata.uid "") (or .metadata.name "") (or .metadata.namespace "") | Quote }}
phase: Running
startTime: {{ $now | Quote }}
"#;

const IMAGE_ABSENT: &str = r#"{{ $now := Now }}
conditions:
- {type: Initialized, status: "True", lastTransitionTime: {{ $now | Quote }}}
- {type: Ready, status: "False", reason: ContainersNotReady, lastTransitionTime: {{ $now | Quote }}}
- {type: ContainersReady, status: "False", reason: ContainersNotReady, lastTransitionTime: {{ $now | Quote }}}
containerStatuses:
{{ range .spec.containers }}
- image: {{ .image | Quote }}
  name: {{ .name | Quote }}
  ready: false
  started: false
  restartCount: 0
  state: {waiting: {reason: ImagePullBackOff, message: {{ printf "Back-off pulling image %q" .image | Quote }}}}
{{ end }}
hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
phase: Pending
startTime: {{ $now | Quote }}
"#;

/// The status of a pod whose containers have all ended.
fn end(phase: &str, code: &str, reason: &str) -> String {
    format!(
        r#"{{{{ $now := Now }}}}
{{{{ $start := or .status.startTime $now }}}}
{{{{ $labels := or .metadata.labels dict }}}}
{{{{ $annotations := or .metadata.annotations dict }}}}
{{{{ $behaviour := toString (or (index $labels "{BEHAVIOUR}") (index $annotations "{BEHAVIOUR}") "default") }}}}
conditions:
- {{type: Ready, status: "False", reason: PodCompleted, lastTransitionTime: {{{{ $now | Quote }}}}}}
- {{type: ContainersReady, status: "False", reason: PodCompleted, lastTransitionTime: {{{{ $now | Quote }}}}}}
containerStatuses:
{{{{ range .spec.containers }}}}
- image: {{{{ .image | Quote }}}}
  name: {{{{ .name | Quote }}}}
  ready: false
  started: false
  restartCount: 0
  state: {{terminated: {{exitCode: {code}, reason: {reason}, startedAt: {{{{ $start | Quote }}}}, finishedAt: {{{{ $now | Quote }}}}}}}}
{{{{ end }}}}
phase: {phase}
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_behaviour_is_a_valid_label_value() {
        let all = [
            (Behaviour::Default, "default"),
            (Behaviour::StayPending, "stay-pending"),
            (Behaviour::Slow(Duration::from_secs(10)), "slow-10000ms"),
            (Behaviour::Fail { code: 3, after: Duration::ZERO }, "fail-3"),
            (Behaviour::Fail { code: 137, after: Duration::from_secs(1) }, "fail-137-after-1000ms"),
        ];
        for (behaviour, value) in all {
            assert_eq!(behaviour.to_string(), value);
        }
    }

    #[test]
    fn the_callers_stages_follow_ours() {
        let text = configuration(&["kind: Stage\n".into()]);
        assert_eq!(text.matches("\n---\n").count(), standard().len());
        assert!(text.ends_with("kind: Stage\n"));
    }
}
