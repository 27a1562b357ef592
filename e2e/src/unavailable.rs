//! The one error that turns a test into "ignored, with the reason": something that
//! this machine or this cluster lacks. Everything else is a failure.

use std::fmt;

/// A thing that is missing here, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    what: String,
    hint: String,
    deliberate: bool,
}

impl Unavailable {
    /// Says what this machine lacks, and how to get it.
    pub fn new(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { what: what.into(), hint: hint.into(), deliberate: false }
    }

    /// Says what the person who started the run has ruled out, such as stopping a cluster
    /// of their own. Requiring every tier doesn't ask for these.
    pub fn deliberate(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { deliberate: true, ..Self::new(what, hint) }
    }

    /// Whether it was ruled out, rather than missing.
    pub fn is_deliberate(&self) -> bool {
        self.deliberate
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; hint: {}", self.what, self.hint)
    }
}

impl std::error::Error for Unavailable {}
