//! How a task's Job ended, whatever the backend: a closed set, so that it can be a metric label.
//!
//! Leaves out what is done about it (retries, holds) and how each backend tells it.

use std::fmt;

use super::redact::redact;

/// The kinds of ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EndKind {
    /// It did its work.
    Succeeded,
    /// The work itself failed, with an exit code of its own.
    TaskFailure,
    /// Out of memory.
    OutOfMemory,
    /// Put out for using up a resource of its node.
    Evicted,
    /// Its machine was taken away for another's sake.
    Preempted,
    /// Its machine died or is not heard of any more.
    NodeLost,
    /// It never ran: no machine was to be had.
    NeverStarted,
    /// Its image could not be pulled.
    ImagePull,
    /// A hook of its container failed.
    HookFailure,
    /// What was asked for can't be made.
    BadConfiguration,
    /// Its account was refused.
    IdentityDenied,
    /// It ran for longer than it may.
    Deadline,
    /// Somebody cancelled or deleted it.
    Deleted,
    /// It is over, and nobody saw how.
    Unknown,
}

impl EndKind {
    /// Every kind.
    pub const ALL: &[Self] = &[
        Self::Succeeded,
        Self::TaskFailure,
        Self::OutOfMemory,
        Self::Evicted,
        Self::Preempted,
        Self::NodeLost,
        Self::NeverStarted,
        Self::ImagePull,
        Self::HookFailure,
        Self::BadConfiguration,
        Self::IdentityDenied,
        Self::Deadline,
        Self::Deleted,
        Self::Unknown,
    ];

    /// The label in metrics, tables and logs.
    pub fn label(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::TaskFailure => "task_failure",
            Self::OutOfMemory => "out_of_memory",
            Self::Evicted => "evicted",
            Self::Preempted => "preempted",
            Self::NodeLost => "node_lost",
            Self::NeverStarted => "never_started",
            Self::ImagePull => "image_pull",
            Self::HookFailure => "hook_failure",
            Self::BadConfiguration => "bad_configuration",
            Self::IdentityDenied => "identity_denied",
            Self::Deadline => "deadline",
            Self::Deleted => "deleted",
            Self::Unknown => "unknown",
        }
    }

    /// Whether the machines are to blame, not the work nor its configuration.
    pub fn is_infrastructure(self) -> bool {
        matches!(self, Self::Evicted | Self::Preempted | Self::NodeLost | Self::NeverStarted)
    }
}

impl fmt::Display for EndKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// How one task's Job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// The kind.
    pub kind: EndKind,
    /// The exit code of its process, where it had one.
    pub exit_code: Option<i32>,
    /// What the backend said of it, credentials taken out.
    pub detail: String,
}

impl End {
    /// An end; `detail` is redacted here.
    pub fn new(kind: EndKind, exit_code: Option<i32>, detail: &str) -> Self {
        Self { kind, exit_code, detail: redact(detail).into_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_distinct_and_only_machines_faults_are_the_infrastructures() {
        let labels: std::collections::BTreeSet<_> =
            EndKind::ALL.iter().map(|kind| kind.label()).collect();
        assert_eq!(labels.len(), EndKind::ALL.len());
        let infrastructure: Vec<_> = EndKind::ALL
            .iter()
            .filter(|kind| kind.is_infrastructure())
            .map(|k| k.label())
            .collect();
        assert_eq!(infrastructure, ["evicted", "preempted", "node_lost", "never_started"]);
    }
}
