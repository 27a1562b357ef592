//! Fields that were written and that the typed Job does not have.
//!
//! k8s-openapi drops what it does not know, so a misspelt field would pass unseen: each member of
//! what was read must be there in what the typed Job writes back.

use std::fmt;

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
