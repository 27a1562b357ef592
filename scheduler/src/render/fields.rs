//! Fields that were written and that the typed Job does not have, or has of another type.
//!
//! k8s-openapi drops what it does not know, so a misspelt field would pass unseen: each member of
//! what was read must be there in what the typed Job writes back.

use std::fmt;

use k8s_openapi::api::batch::v1::Job;
use serde_json::Value;

use super::expansion::shown;

/// A field that no Job has.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unknown {
    path: Vec<String>,
}

impl Unknown {
    /// The field's own name.
    pub(super) fn name(&self) -> &str {
        self.path.last().map_or("", String::as_str)
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a Job has no field `{}`", shown(&self.path))?;
        match nearest(self.name()) {
            Some(known) => write!(f, "; did you mean `{known}`?"),
            None => write!(f, "; remove it, or move it to where Kubernetes has it"),
        }
    }
}

/// The first member of `read` that `written` lacks. An explicit null is no field.
pub(super) fn unknown(read: &Value, written: &Value) -> Option<Unknown> {
    let mut path = Vec::new();
    lacks(read, written, &mut path).then_some(Unknown { path })
}

/// Leaves the path of what is lacking in `path`.
fn lacks(read: &Value, written: &Value, path: &mut Vec<String>) -> bool {
    match (read, written) {
        (Value::Object(read), Value::Object(written)) => read.iter().any(|(key, member)| {
            path.push(key.clone());
            let lacking = match written.get(key) {
                Some(kept) => lacks(member, kept, path),
                None => !member.is_null(),
            };
            if !lacking {
                path.pop();
            }
            lacking
        }),
        (Value::Array(read), Value::Array(written)) => {
            read.iter().enumerate().any(|(index, item)| {
                path.push(format!("[{index}]"));
                let lacking = written.get(index).is_none_or(|kept| lacks(item, kept, path));
                if !lacking {
                    path.pop();
                }
                lacking
            })
        }
        _ => false,
    }
}

/// The path and the value of the first field of the wrong type, as near as can be told.
///
/// serde knows no paths, but the line that it stops at; in JSON of one member a line, indented, the
/// line and the less indented ones before it are the path.
pub(super) fn mistyped(read: &Value) -> (Vec<String>, String) {
    let pretty = serde_json::to_string_pretty(read).unwrap_or_default();
    let Err(error) = serde_json::from_str::<Job>(&pretty) else { return Default::default() };
    let lines: Vec<&str> = pretty.lines().take(error.line()).collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let last = lines.last().copied().unwrap_or_default();
    let value = last.rsplit(": ").next().unwrap_or_default().trim_end_matches(',').to_owned();
    let mut path = Vec::new();
    let mut inside = usize::MAX;
    for line in lines.into_iter().rev() {
        let depth = indent(line);
        if depth >= inside {
            continue;
        }
        if let Some((key, _)) =
            line.trim_start().strip_prefix('"').and_then(|l| l.split_once("\": "))
        {
            path.push(key.to_owned());
        } else if line.trim() == "{" && depth > 0 {
            path.push("[]".to_owned());
        }
        inside = depth;
    }
    path.reverse();
    (path, value)
}

/// Field names of Jobs that people write, for suggestions only.
const KNOWN: [&str; 75] = [
    "activeDeadlineSeconds",
    "add",
    "affinity",
    "annotations",
    "apiVersion",
    "args",
    "automountServiceAccountToken",
    "backoffLimit",
    "capabilities",
    "command",
    "configMap",
    "containers",
    "dnsConfig",
    "dnsPolicy",
    "drop",
    "effect",
    "emptyDir",
    "enableServiceLinks",
    "env",
    "envFrom",
    "exec",
    "fieldPath",
    "fieldRef",
    "fsGroup",
    "hostNetwork",
    "hostUsers",
    "image",
    "imagePullPolicy",
    "imagePullSecrets",
    "initContainers",
    "key",
    "kind",
    "labels",
    "lifecycle",
    "limits",
    "livenessProbe",
    "medium",
    "metadata",
    "mountPath",
    "name",
    "namespace",
    "nodeSelector",
    "operator",
    "podFailurePolicy",
    "podReplacementPolicy",
    "postStart",
    "preStop",
    "priorityClassName",
    "privileged",
    "readOnly",
    "requests",
    "resources",
    "restartPolicy",
    "runAsGroup",
    "runAsNonRoot",
    "runAsUser",
    "runtimeClassName",
    "schedulerName",
    "seccompProfile",
    "securityContext",
    "serviceAccountName",
    "shareProcessNamespace",
    "sizeLimit",
    "spec",
    "subPath",
    "template",
    "terminationGracePeriodSeconds",
    "tolerationSeconds",
    "tolerations",
    "topologySpreadConstraints",
    "ttlSecondsAfterFinished",
    "value",
    "valueFrom",
    "volumeMounts",
    "volumes",
];

fn nearest(name: &str) -> Option<&'static str> {
    let distance = |known: &&str| edits(&name.to_lowercase(), &known.to_lowercase());
    let known = KNOWN.into_iter().filter(|known| *known != name).min_by_key(distance)?;
    (distance(&known) <= 1 + name.len() / 8).then_some(known)
}

/// Levenshtein distance.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut above_left = i;
        let mut left = i + 1;
        for (to, cell) in b.iter().zip(row.iter_mut().skip(1)) {
            let replaced = above_left + usize::from(from != *to);
            above_left = *cell;
            left = replaced.min(left + 1).min(above_left + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_of_the_wrong_type_is_named() {
        let env = serde_json::json!([{ "name": "A", "value": "x" }, { "name": "B", "value": 1 }]);
        let pod = serde_json::json!({ "containers": [{ "name": "c", "env": env }] });
        let job = serde_json::json!({ "spec": { "template": { "spec": pod } } });
        assert_eq!(shown(&mistyped(&job).0), "spec.template.spec.containers[].env[].value");
        assert_eq!(mistyped(&job).1, "1");
        let job = serde_json::json!({ "spec": { "backoffLimit": [0] } });
        assert_eq!(shown(&mistyped(&job).0), "spec.backoffLimit");
    }

    #[test]
    fn a_slip_finds_the_field_that_was_meant() {
        for (slip, meant) in [
            ("hostNetwrok", Some("hostNetwork")),
            ("runtimeclassName", Some("runtimeClassName")),
            ("volumeMount", Some("volumeMounts")),
            ("sizeLimt", Some("sizeLimit")),
            ("somethingElse", None),
        ] {
            assert_eq!(nearest(slip), meant, "{slip}");
        }
        assert_eq!(edits("kitten", "sitting"), 3);
    }
}
