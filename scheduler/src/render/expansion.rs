//! Where Kubernetes expands `$(NAME)`, and how a value gets through it unchanged.
//!
//! The kubelet expands references in a container's command, args, environment values, probe
//! commands and `subPathExpr` (Kubernetes, "Define Dependent Environment Variables"): `$$` becomes
//! `$`, `$(NAME)` of a variable that is set becomes its value. Lifecycle hooks, labels, annotations
//! and images are taken as they are, so nothing may be doubled there.

use std::borrow::Cow;

/// A step of a path into a Job: a field's name, or an index in brackets.
pub(super) type Path = [String];

/// Whether Kubernetes expands `$` in the string at `path`.
pub(super) fn expands(path: &Path) -> bool {
    let steps: Vec<&str> = path.iter().map(String::as_str).collect();
    let ["spec", "template", "spec", kind, _, field @ ..] = steps.as_slice() else { return false };
    matches!(*kind, "containers" | "initContainers" | "ephemeralContainers")
        && matches!(
            field,
            ["command" | "args", _]
                | ["env", _, "value"]
                | ["volumeMounts", _, "subPathExpr"]
                | ["livenessProbe" | "readinessProbe" | "startupProbe", "exec", "command", _]
        )
}

/// `text` so that it comes out of Kubernetes' expansion as it is: each `$` doubled.
pub(super) fn literal(text: &str) -> Cow<'_, str> {
    if text.contains('$') { Cow::Owned(text.replace('$', "$$")) } else { Cow::Borrowed(text) }
}

/// `spec.containers[0].env` for steps `spec`, `containers`, `[0]`, `env`.
pub(super) fn shown(path: &Path) -> String {
    let mut out = String::new();
    for step in path {
        if !out.is_empty() && !step.starts_with('[') {
            out.push('.');
        }
        out.push_str(step);
    }
    out
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// The kubelet's expansion, as Kubernetes documents it.
    pub(in crate::render) fn kubelet(text: &str, defined: &BTreeMap<String, String>) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            out.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                out.push('$');
                rest = after;
            } else if let Some((name, after)) =
                rest.strip_prefix('(').and_then(|inner| inner.split_once(')'))
            {
                match defined.get(name) {
                    Some(value) => out.push_str(value),
                    None => out.push_str(&format!("$({name})")),
                }
                rest = after;
            } else {
                out.push('$');
            }
        }
        out + rest
    }

    fn path(text: &str) -> Vec<String> {
        text.split('.').map(str::to_owned).collect()
    }

    #[test]
    fn only_what_the_kubelet_expands_is_doubled() {
        let pod = "spec.template.spec.containers.[0]";
        for (field, expect) in [
            ("env.[3].value", true),
            ("args.[0]", true),
            ("command.[0]", true),
            ("livenessProbe.exec.command.[1]", true),
            ("volumeMounts.[0].subPathExpr", true),
            ("env.[3].name", false),
            ("image", false),
            ("lifecycle.postStart.exec.command.[2]", false),
        ] {
            assert_eq!(expands(&path(&format!("{pod}.{field}"))), expect, "{field}");
        }
        assert!(!expands(&path("metadata.annotations.x")));
    }

    #[test]
    fn a_doubled_value_comes_out_as_it_was() {
        let defined = BTreeMap::from([("HOST_UID".to_owned(), "1337".to_owned())]);
        for text in ["$(HOST_UID)", "$$", "$", "a$$(HOST_UID)$(X)$(", "$$$(HOST_UID)", "plain"] {
            assert_eq!(kubelet(&literal(text), &defined), text);
        }
        assert_eq!(kubelet("$(HOST_UID) $(X)", &defined), "1337 $(X)");
    }

    #[test]
    fn a_path_reads_as_people_write_it() {
        assert_eq!(shown(&path("spec.containers.[0].env")), "spec.containers[0].env");
    }
}
