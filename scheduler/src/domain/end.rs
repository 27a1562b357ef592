//! How a task's Job ended, whatever the backend: closed sets, so that they can be metric labels.
//!
//! What to do about each kind is [`retry`](super::retry)'s, and how the kinds are told apart is a
//! backend's.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::log_tail::LogTail;
use super::name::{Attempt, BackendName, TaskHash};
use super::redact::redact;
use super::task::WorkloadKey;

macro_rules! labelled {
    ($(#[$doc:meta])* $name:ident { $($(#[$kind_doc:meta])* $kind:ident = $label:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$kind_doc])* #[serde(rename = $label)] $kind,)* }

        impl $name {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// The label in metrics, tables and records.
            pub fn label(self) -> &'static str {
                match self { $(Self::$kind => $label,)* }
            }

            /// The kind of that label.
            pub fn parse(label: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|kind| kind.label() == label)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.label())
            }
        }
    };
}

labelled! {
    /// The kinds of ends.
    EndKind {
        /// It did its work.
        Succeeded = "succeeded",
        /// The work itself failed, with an exit code of its own.
        TaskFailure = "task_failure",
        /// Out of memory.
        OutOfMemory = "out_of_memory",
        /// Put out for using up a resource, its own or its node's.
        Evicted = "evicted",
        /// Its machine was taken away, or its room given to something else.
        Preempted = "preempted",
        /// Its machine died or is not heard of any more.
        NodeLost = "node_lost",
        /// It never ran: there was no machine for it.
        NeverStarted = "never_started",
        /// Its image could not be pulled.
        ImagePull = "image_pull",
        /// A hook of its container failed.
        HookFailure = "hook_failure",
        /// What was asked for can't be made.
        BadConfiguration = "bad_configuration",
        /// Its account was refused what it needs.
        IdentityDenied = "identity_denied",
        /// It ran for longer than it may.
        Deadline = "deadline",
        /// Somebody else deleted or cancelled it.
        Deleted = "deleted",
        /// It is over, and nobody saw how. It is neither a failure nor run again.
        Unknown = "unknown",
    }
}

labelled! {
    /// What was used up by a task that was evicted.
    Resource {
        /// Memory.
        Memory = "memory",
        /// The size of its `/dev/shm`, or of another directory in memory or on disk.
        Volume = "volume",
        /// The disk of its node, or its own share of it.
        EphemeralStorage = "ephemeral_storage",
        /// Files of the node's disk.
        Inodes = "inodes",
        /// Process numbers.
        Pids = "pids",
    }
}

labelled! {
    /// What to do about an end.
    RetryRule {
        /// Nothing: that was it.
        Never = "never",
        /// Run the task again, as its next attempt, while its URLs live.
        Retry = "retry",
        /// Hold its workload: every other task of it would end so too.
        Hold = "hold",
    }
}

impl EndKind {
    /// Whether the machines are to blame, not the work nor its configuration.
    pub fn is_infrastructure(self) -> bool {
        matches!(self, Self::Evicted | Self::Preempted | Self::NodeLost | Self::NeverStarted)
    }
}

/// How much of the log goes into the reason that a message is given, in bytes.
const REASON_TAIL: usize = 4 * 1024;

/// The verdict on one Job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The kind.
    pub kind: EndKind,
    /// The exit code of its process, where it had one.
    pub exit_code: Option<i32>,
    /// What it used up, where it was evicted and that was said.
    pub resource: Option<Resource>,
    /// What the backend said of it, credentials taken out.
    pub detail: String,
}

/// The longest detail kept, in characters.
const DETAIL_MAX: usize = 1_000;

impl Verdict {
    /// A verdict; `detail` is redacted here, and cut to a readable length.
    pub fn new(kind: EndKind, exit_code: Option<i32>, detail: impl fmt::Display) -> Self {
        let detail = redact(&detail.to_string()).chars().take(DETAIL_MAX).collect();
        Self { kind, exit_code, resource: None, detail }
    }

    /// The same, of a task that used up `resource`.
    pub fn of(self, resource: Option<Resource>) -> Self {
        Self { resource, ..self }
    }
}

/// How the Job of one task and attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// The task.
    pub task: TaskHash,
    /// Which attempt at it.
    pub attempt: Attempt,
    /// The Job, by the name that its backend has for it.
    pub job: String,
    /// Command and job type.
    pub key: WorkloadKey,
    /// Where it was.
    pub backend: BackendName,
    /// How it ended.
    pub verdict: Verdict,
    /// The last of what it printed.
    pub tail: LogTail,
    /// When its process started, where it did and that is known.
    pub started_at: Option<Timestamp>,
    /// When it ended, as far as that is known.
    pub ended_at: Timestamp,
}

impl End {
    /// For how long it ran; zero where it never did, or nobody knows.
    pub fn run_time(&self) -> Duration {
        let run = self.started_at.map(|from| self.ended_at.duration_since(from));
        run.and_then(|run| Duration::try_from(run).ok()).unwrap_or_default()
    }

    /// Why its task failed, as its message is told: the verdict as one line, then the end of what it
    /// printed.
    pub fn reason(&self) -> String {
        let Verdict { kind, exit_code, detail, .. } = &self.verdict;
        let code = exit_code.map(|code| format!("exit code {code}"));
        // The code is said once.
        let rest = code.as_deref().and_then(|code| detail.strip_prefix(code));
        let rest = rest.map_or(detail.as_str(), |rest| rest.trim_start_matches([':', ',', ' ']));
        let mut reason = kind.to_string();
        if let Some(code) = code {
            reason += &format!(" ({code})");
        }
        if !rest.is_empty() {
            reason += &format!(": {rest}");
        }
        match &self.tail {
            LogTail::Text(text) => {
                let from = text.len().saturating_sub(REASON_TAIL);
                let end = text.get(text.ceil_char_boundary(from)..).unwrap_or_default();
                reason + "\n" + end.trim_end()
            }
            LogTail::Nothing => reason,
            LogTail::Unavailable(why) => format!("{reason}\n(no log: {why})"),
        }
    }

    /// The work that was lost by it: the time it ran, unless it succeeded.
    pub fn time_lost(&self) -> Duration {
        if self.verdict.kind == EndKind::Succeeded { Duration::ZERO } else { self.run_time() }
    }
}

/// The end of the first attempt at a task of this command, for tests.
#[cfg(test)]
pub(crate) fn sample(command: &str, kind: EndKind) -> End {
    let key = WorkloadKey { command: command.into(), job_type: "j".into() };
    let subject = super::name::Subject::Message("1".into());
    End {
        task: TaskHash::of(&key.command, &key.job_type, &subject),
        attempt: Attempt::FIRST,
        job: "cf-job-1".into(),
        key,
        backend: "gke".into(),
        verdict: Verdict::new(kind, None, "why"),
        tail: LogTail::Nothing,
        started_at: None,
        ended_at: "2026-11-30T10:00:00Z".parse().expect("a date"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(kind: EndKind, started: Option<&str>) -> End {
        End { started_at: started.map(|at| at.parse().expect("a date")), ..sample("fuzz", kind) }
    }

    #[test]
    fn labels_are_distinct_and_read_back() {
        for kind in EndKind::ALL {
            assert_eq!(EndKind::parse(kind.label()), Some(*kind));
        }
        assert_eq!(EndKind::parse("odd"), None);
        let infrastructure: Vec<_> = EndKind::ALL
            .iter()
            .filter(|kind| kind.is_infrastructure())
            .map(|k| k.label())
            .collect();
        assert_eq!(infrastructure, ["evicted", "preempted", "node_lost", "never_started"]);
    }

    #[test]
    fn only_the_time_of_work_that_came_to_nothing_is_lost() {
        let hour = Duration::from_secs(3600);
        let since = Some("2026-11-30T09:00:00Z");
        assert_eq!(end(EndKind::Evicted, since).time_lost(), hour);
        assert_eq!(end(EndKind::Succeeded, since).time_lost(), Duration::ZERO);
        assert_eq!(end(EndKind::Succeeded, since).run_time(), hour);
        assert_eq!(end(EndKind::ImagePull, None).time_lost(), Duration::ZERO);
        let clocks_apart = Some("2026-11-30T10:00:01Z");
        assert_eq!(end(EndKind::TaskFailure, clocks_apart).time_lost(), Duration::ZERO);
    }

    #[test]
    fn a_reason_is_the_verdict_in_a_line_and_the_end_of_the_log() {
        let mut end = end(EndKind::TaskFailure, None);
        for (code, detail, tail, expect) in [
            (Some(3), "exit code 3", LogTail::Nothing, "task_failure (exit code 3)"),
            (
                Some(139),
                "exit code 139, signal 11",
                LogTail::Text("a\nb\n".into()),
                "task_failure (exit code 139): signal 11\na\nb",
            ),
            (None, "odd", LogTail::unavailable("gone"), "task_failure: odd\n(no log: gone)"),
        ] {
            end.verdict = Verdict::new(EndKind::TaskFailure, code, detail);
            end.tail = tail;
            assert_eq!(end.reason(), expect);
        }
        end.tail = LogTail::Text("ä".repeat(10_000));
        assert!(end.reason().len() < REASON_TAIL + 100);
    }

    #[test]
    fn a_detail_holds_no_credential_and_has_an_end() {
        let said = format!("GET https://h/o?X-Goog-Signature=abc failed{}", "!".repeat(5_000));
        let verdict = Verdict::new(EndKind::TaskFailure, Some(1), said);
        assert!(verdict.detail.starts_with("GET https://h/o?REDACTED failed!"));
        assert_eq!(verdict.detail.chars().count(), DETAIL_MAX);
    }
}
