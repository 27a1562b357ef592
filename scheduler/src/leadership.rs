//! Who may create: of all processes of one scheduler, one at a time, over all of its backends.
//!
//! Whoever holds the home Lease (a Lease in the home namespace), or where there is no cluster the
//! lock of this machine, leads. A backend asks right before each request that makes something.
//! What a process does that does not lead any more is not said here: it ends.

pub mod lock_file;

use jiff::Timestamp;

/// This process's part in who leads.
pub trait Leadership: Send + Sync {
    /// Whether this process may create now, on any backend. Cheap: asked right before each send.
    fn may_create(&self) -> bool;

    /// Since when, by the wall clock, no other process can have created anything, what a
    /// predecessor sent last included; `None` while this process does not lead.
    fn since(&self) -> Option<Timestamp>;
}

/// The leadership of a process that is certainly alone: in tests.
#[derive(Debug, Clone, Copy)]
pub struct Alone {
    /// What [`Leadership::since`] says.
    pub since: Timestamp,
}

impl Leadership for Alone {
    fn may_create(&self) -> bool {
        true
    }

    fn since(&self) -> Option<Timestamp> {
        Some(self.since)
    }
}
