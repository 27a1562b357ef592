//! What Kubernetes takes as label keys, label values and environment variable names, and which
//! labels are not a profile's to set.

use crate::domain::name::{is_dns_subdomain, is_label_value};

/// Why `key` can't be a label key, if it can't (Kubernetes, "Labels and Selectors": an optional
/// DNS subdomain and `/`, then 1 to 63 characters as in a label value).
pub fn label_key_fault(key: &str) -> Option<&'static str> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if prefix.is_some_and(|prefix| !is_dns_subdomain(prefix)) {
        return Some("has a prefix that is no DNS name");
    }
    (name.is_empty() || !is_label_value(name)).then_some(
        "is no label key: at most 63 letters, digits, `-`, `_` and `.`, alphanumeric at both ends",
    )
}

/// Whether a label is set by katabatch, by what counts ClusterFuzz's pods, or by the Job
/// controller: a profile that changed it would break counting or be refused.
pub fn is_reserved_label(key: &str) -> bool {
    let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
    matches!(prefix, "katabatch.dev" | "batch.kubernetes.io")
        || prefix.ends_with(".katabatch.dev")
        || matches!(
            key,
            "task_name"
                | "job_name"
                | "app.kubernetes.io/name"
                | "app.kubernetes.io/managed-by"
                | "job-name"
                | "controller-uid"
        )
}

/// Whether `name` can be an environment variable on every supported Kubernetes: letters, digits,
/// `_`, `-` and `.`, no digit first.
pub fn is_env_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_keys_follow_kubernetes() {
        for (key, valid) in [
            ("team", true),
            ("example.com/team", true),
            ("a_b.c", true),
            ("", false),
            ("/x", false),
            ("example.com/", false),
            ("Example.com/x", false),
            ("a/b/c", false),
            ("-a", false),
            ("a b", false),
        ] {
            assert_eq!(label_key_fault(key).is_none(), valid, "{key}");
        }
        assert!(label_key_fault(&"x".repeat(64)).is_some());
    }

    #[test]
    fn labels_that_others_rely_on_are_reserved() {
        for (key, reserved) in [
            ("katabatch.dev/task", true),
            ("x.katabatch.dev/task", true),
            ("task_name", true),
            ("job_name", true),
            ("app.kubernetes.io/name", true),
            ("batch.kubernetes.io/job-name", true),
            ("team", false),
            ("notkatabatch.dev/task", false),
        ] {
            assert_eq!(is_reserved_label(key), reserved, "{key}");
        }
    }

    #[test]
    fn environment_names_have_no_equals_sign_and_no_digit_first() {
        for (name, valid) in [
            ("A_b.c-d", true),
            ("_", true),
            ("1A", false),
            ("A=B", false),
            ("", false),
            ("A B", false),
        ] {
            assert_eq!(is_env_name(name), valid, "{name}");
        }
    }
}
