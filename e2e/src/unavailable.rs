//! The one error that turns a test into "ignored, with the reason": something that
//! this machine or this cluster lacks. Everything else is a failure.

use std::fmt;

/// A thing that is missing here, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    what: String,
    hint: String,
}

impl Unavailable {
    /// Says what is missing, and how to get it.
    pub fn new(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { what: what.into(), hint: hint.into() }
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; hint: {}", self.what, self.hint)
    }
}

impl std::error::Error for Unavailable {}
