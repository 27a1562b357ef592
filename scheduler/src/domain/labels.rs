//! The labels that a task's sender gave it: attributes of its message under one prefix of ours.
//!
//! They choose among backends by rules of the operator's, and stand on the task's Job. So what is no
//! label of Kubernetes', byte for byte, is none: nothing is made valid, and nothing else gets in.

use std::collections::BTreeMap;

use super::name::is_label_value;
use super::redact::redact;

/// What the whole keys of these labels begin with.
pub const PREFIX: &str = "task.katabatch.dev/";
/// The most labels of a task.
pub const MOST: usize = 16;

/// A task's labels, by their whole keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TaskLabels(BTreeMap<String, String>);

impl TaskLabels {
    /// The labels among a message's attributes. What can't be one counts as another attribute.
    pub fn of(attributes: &BTreeMap<String, String>) -> Self {
        let name = |key: &str| key.strip_prefix(PREFIX).is_some_and(is_name);
        let label = |(key, value): &(&String, &String)| name(key) && is_value(value);
        let owned = |(key, value): (&String, &String)| (key.clone(), value.clone());
        Self(attributes.iter().filter(label).take(MOST).map(owned).collect())
    }

    /// The value of the label with this whole key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// All of them: whole keys and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Whether `text` can be the name of a label (Kubernetes, "Labels and Selectors").
pub fn is_name(text: &str) -> bool {
    !text.is_empty() && is_value(text)
}

/// Whether `text` can be the value of a label, and shows no credential.
pub fn is_value(text: &str) -> bool {
    is_label_value(text) && redact(text) == text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_label_byte_for_byte_is_none() {
        let check = |key: &str, value: &str, expect: bool| {
            let attributes = [(key.to_owned(), value.to_owned())].into();
            let labels = TaskLabels::of(&attributes);
            assert_eq!(labels.get(key), expect.then_some(value), "{key}={value}");
            assert_eq!(labels.is_empty(), !expect);
        };
        check("task.katabatch.dev/team", "fuzzing", true);
        check("task.katabatch.dev/Team_1.x", "", true);
        check(&format!("task.katabatch.dev/{}", "a".repeat(63)), &"b".repeat(63), true);
        check(&format!("task.katabatch.dev/{}", "a".repeat(64)), "b", false);
        check("task.katabatch.dev/team", &"b".repeat(64), false);
        check("task.katabatch.dev/", "x", false);
        check("task.katabatch.dev/a/b", "x", false);
        check("task.katabatch.dev/-a", "x", false);
        check("task.katabatch.dev/a", "x y", false);
        check("task.katabatch.dev/a", "x\"}", false);
        check("task.katabatch.dev/a", "x-", false);
        check("team", "x", false);
        check("katabatch.dev/scheduler", "x", false);
        let many = (0..40).map(|n| (format!("{PREFIX}{n}"), String::new())).collect();
        assert_eq!(TaskLabels::of(&many).iter().count(), MOST);
    }
}
