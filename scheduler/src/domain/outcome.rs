//! What became of one delivery of a task: scheduled, deferred or rejected, and why.
//!
//! The kinds are closed sets, so that they can be metric labels; the details are free text with
//! credentials already taken out.

use std::fmt;
use std::time::Duration;

use super::name::Attempt;
use super::redact::redact;

/// What a backend, or a stage before it, made of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The task's Job is confirmed, or its output: its message may be acked.
    Scheduled(Placed),
    /// The Job of this attempt is confirmed, of a task that is followed: its end will be told, and
    /// its message is not acked before.
    Running(Attempt, Placed),
    /// Not now; the message is held and the task tried again.
    Deferred(Deferral),
    /// Never: the message itself is at fault, and goes to quarantine.
    Rejected(Rejection),
}

/// How a scheduled task's Job came to be there, or why none is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Placed {
    /// This submission made it.
    Created,
    /// It was there already, provably ours.
    AlreadyThere,
    /// The task's output is there: it has run before, and no Job is made or needed.
    Done,
}

/// How much a deferral stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// This task alone.
    Task,
    /// Every task of the same (command, job type).
    Workload,
    /// Everything on this backend.
    Backend,
}

/// Not now, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deferral {
    /// What it stops.
    pub scope: Scope,
    /// The kind, for metrics and tables.
    pub kind: HoldKind,
    /// What a person needs to know, credentials taken out.
    pub detail: String,
    /// How long to wait before the next try.
    pub retry_after: Duration,
}

impl Deferral {
    /// A deferral; `detail` is redacted here.
    pub fn new(
        scope: Scope,
        kind: HoldKind,
        detail: impl fmt::Display,
        retry_after: Duration,
    ) -> Self {
        Self { scope, kind, detail: redact(&detail.to_string()).into_owned(), retry_after }
    }
}

macro_rules! kinds {
    ($(#[$doc:meta])* $name:ident { $($(#[$kind_doc:meta])* $kind:ident = $label:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$kind_doc])* $kind,)* }

        impl $name {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// The label in metrics, tables and records.
            pub fn label(self) -> &'static str {
                match self { $(Self::$kind => $label,)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.label())
            }
        }
    };
}

kinds! {
    /// Why a task is held.
    HoldKind {
        /// The pending limit is reached.
        PendingLimit = "pending_limit",
        /// The cap on live Jobs is reached.
        LiveLimit = "live_limit",
        /// How much room there is, is not known: nothing is created.
        RoomUnknown = "room_unknown",
        /// The leader's Lease is not renewed in time: another process may create by now.
        NotLeader = "not_leader",
        /// The backend asked for a pause (429, Retry-After).
        Throttled = "throttled",
        /// The backend failed (5xx, no answer), bounded retries included.
        BackendFailed = "backend_failed",
        /// The task's Job is being deleted; its name is free when it is gone.
        BeingDeleted = "being_deleted",
        /// The task's Job name is taken by something that is not ours.
        NameTaken = "name_taken",
        /// A quota of the namespace is used up.
        Quota = "quota",
        /// We lack a permission: pages.
        Forbidden = "forbidden",
        /// The namespace is being deleted, or is not there: pages.
        NamespaceGone = "namespace_gone",
        /// Credentials were refused, a refresh included: pages.
        Unauthenticated = "unauthenticated",
        /// Cloud Storage or IAM can't be asked: for an input's signature, or whether an output is
        /// there.
        StorageUnavailable = "storage_unavailable",
        /// Cloud Storage can't serve what is configured, such as a bucket that isn't there: pages.
        StorageRefused = "storage_refused",
        /// An admission webhook could not be called.
        WebhookFailed = "webhook_failed",
        /// The API server refuses this workload's Job (invalid, or denied by admission): pages.
        JobRefused = "job_refused",
        /// The catalog does not know the job type (not yet confirmed for 30 minutes).
        UnknownJobType = "unknown_job_type",
        /// Two differing entities share the job type's name: pages.
        AmbiguousJobType = "ambiguous_job_type",
        /// The job type's entities hold a value that can't be read: pages.
        BadJobType = "bad_job_type",
        /// `batch.yaml` has no such mapping, or a broken one: pages.
        BadMapping = "bad_mapping",
        /// The template does not make a Job: pages.
        BadTemplate = "bad_template",
        /// The isolation policy refuses the workload: pages.
        PolicyRefused = "policy_refused",
        /// The service account is refused or can't be made: pages.
        AccountRefused = "account_refused",
        /// The flags were never read, or are too old: nothing is created.
        FlagsUnread = "flags_unread",
        /// The catalog can't be read.
        CatalogUnread = "catalog_unread",
        /// The weights leave this share of the tasks in the queue.
        WeightThrottle = "weight_throttle",
        /// Every region that the workload may be in is full.
        RegionsFull = "regions_full",
        /// No backend has a weight above zero.
        NoBackend = "no_backend",
        /// Somebody has paused it.
        Paused = "paused",
        /// Its workload's breaker is open: what was made of it does not start, or fails at once.
        BreakerOpen = "breaker_open",
        /// Its workload holds its share of the pending limit, and others wait.
        WorkloadShare = "workload_share",
        /// It is bound to backends of which none has a weight.
        Bound = "bound",
        /// It may have been created on another backend, which can't be asked now.
        ElsewhereUnknown = "elsewhere_unknown",
        /// The job type belongs to Swarming.
        Swarming = "swarming",
        /// The input URL is not valid yet.
        NotYetValid = "not_yet_valid",
        /// Handling the task panicked: contained, tried again a few times.
        Panicked = "panicked",
        /// Too many rejects at once: nothing more is rejected. Pages.
        FuseBlown = "fuse_blown",
    }
}

impl HoldKind {
    /// Whether a person must act before it gets better: health says so, and is red when it stops all.
    pub fn pages(self) -> bool {
        matches!(
            self,
            Self::Forbidden
                | Self::NamespaceGone
                | Self::Unauthenticated
                | Self::StorageRefused
                | Self::JobRefused
                | Self::AmbiguousJobType
                | Self::BadJobType
                | Self::BadMapping
                | Self::BadTemplate
                | Self::PolicyRefused
                | Self::AccountRefused
                | Self::BreakerOpen
                | Self::FuseBlown
        )
    }

    /// Whether it is about room, of which the backend itself says when there is some again.
    pub fn is_room(self) -> bool {
        matches!(self, Self::PendingLimit | Self::LiveLimit | Self::RoomUnknown)
    }

    /// Whether it passes by itself within moments or as other tasks end, so that waiting helps.
    pub fn passes(self) -> bool {
        self.is_room()
            || matches!(
                self,
                Self::NotLeader
                    | Self::WorkloadShare
                    | Self::RegionsFull
                    | Self::Throttled
                    | Self::BackendFailed
                    | Self::BeingDeleted
                    | Self::StorageUnavailable
                    | Self::WebhookFailed
                    | Self::CatalogUnread
                    | Self::ElsewhereUnknown
                    | Self::Panicked
            )
    }
}

kinds! {
    /// Why a message is rejected. Only what is wrong with the message itself.
    RejectKind {
        /// Attributes missing or unreadable.
        BadMessage = "bad_message",
        /// The input is no URL that a worker can take.
        BadUrl = "bad_url",
        /// The input URL is dead, or would be before the task's end.
        DeadUrl = "dead_url",
        /// A Cloud Storage notification.
        Notification = "notification",
        /// Fresh catalog reads have said for 30 minutes that there is no such job type.
        UnknownJobType = "unknown_job_type",
        /// Handling this message panicked on every one of a few deliveries.
        Panicked = "panicked",
        /// Its task has failed as often as it may (the spool's `attempts`).
        AttemptsUsedUp = "attempts_used_up",
        /// Its Job was deleted or cancelled by somebody before it had ended (`ack: on_completed`).
        Cancelled = "cancelled",
    }
}

/// Never, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The kind.
    pub kind: RejectKind,
    /// What a person needs to know, credentials taken out.
    pub detail: String,
}

impl Rejection {
    /// A rejection; `detail` is redacted here.
    pub fn new(kind: RejectKind, detail: impl fmt::Display) -> Self {
        Self { kind, detail: redact(&detail.to_string()).into_owned() }
    }
}
