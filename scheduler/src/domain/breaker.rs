//! A workload's breaker, as it is shown: why its tasks are not made into Jobs for a while. Pure data.
//!
//! When one opens and closes is decided in the pipeline.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Why a breaker is open: a closed set, so that it can be a metric label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The image can't be pulled.
    ImagePull,
    /// No pod, or no container, can be made of it.
    BadConfiguration,
    /// Its pods wait too long to start, for reasons of their own.
    PendingTooLong,
    /// Its account is refused what it needs.
    IdentityDenied,
    /// One task after the other failed soon after its start.
    QuickFailures,
    /// A retry rule says `hold` of how a Job ended.
    HeldByRule,
}

impl Cause {
    /// Every cause.
    pub const ALL: &[Self] = &[
        Self::ImagePull,
        Self::BadConfiguration,
        Self::PendingTooLong,
        Self::IdentityDenied,
        Self::QuickFailures,
        Self::HeldByRule,
    ];

    /// The label in metrics and tables.
    pub fn label(self) -> &'static str {
        match self {
            Self::ImagePull => "image_pull",
            Self::BadConfiguration => "bad_configuration",
            Self::PendingTooLong => "pending_too_long",
            Self::IdentityDenied => "identity_denied",
            Self::QuickFailures => "quick_failures",
            Self::HeldByRule => "held_by_rule",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// A breaker that is open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// Why.
    pub cause: Cause,
    /// The last message, credentials taken out.
    pub detail: String,
    /// Since when.
    pub since: Timestamp,
    /// When one task is tried as a probe; `None`: one is under way.
    pub next_probe: Option<Timestamp>,
    /// How often it has opened in a row, failed probes included.
    pub times: u32,
}

impl fmt::Display for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cause, detail, since, next_probe, times: _ } = self;
        write!(f, "its breaker is open since {since:.0} ({cause}: {detail}); ")?;
        match next_probe {
            Some(at) => write!(f, "one task is tried at {at:.0}"),
            None => f.write_str("one task is being tried"),
        }
    }
}
