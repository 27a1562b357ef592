//! What goes into a spool and what can be seen of it, as types. No SQL here.
//!
//! Attributes hold signed URLs: no `Debug` of these shows them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

/// A message to put.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct NewMessage {
    /// Its id; made by the spool if absent. A put of an id that is there already changes nothing.
    pub id: Option<String>,
    /// All that it says.
    pub attributes: BTreeMap<String, String>,
    /// How often its task may fail before it goes to quarantine; absent: as often as it likes.
    pub attempts: Option<u32>,
    /// It is not leased before this.
    pub not_before: Option<Timestamp>,
    /// How long its task may run, in whole seconds; delivered as the attribute `timeout`.
    pub timeout: Option<Duration>,
}

/// How many messages a put, or all puts so far, found new or there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PutCount {
    /// Put now, durably.
    pub put: u64,
    /// Ignored: a message of this id waits, is leased, or is in quarantine.
    pub already_there: u64,
}

impl std::ops::AddAssign for PutCount {
    fn add_assign(&mut self, other: Self) {
        self.put += other.put;
        self.already_there += other.already_there;
    }
}

/// Whether a message can be leased.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It can.
    Ready,
    /// Somebody holds a lease.
    Leased,
    /// Not before a time that is still to come.
    Delayed,
}

/// One message, as seen from outside.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its id.
    pub id: String,
    /// All that it says.
    pub attributes: BTreeMap<String, String>,
    /// When it was put.
    pub published_at: Timestamp,
    /// Whether it can be leased.
    pub state: State,
    /// Since when, or from when on, it can be leased.
    pub due_at: Timestamp,
    /// How often it was delivered.
    pub deliveries: u32,
    /// How often its task has failed.
    pub attempts: u32,
    /// How often its task may fail.
    pub attempts_allowed: Option<u32>,
    /// How long its task may run.
    pub timeout: Option<Duration>,
}

/// How many messages there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Counts {
    /// Can be leased.
    pub ready: u64,
    /// Are leased.
    pub leased: u64,
    /// Wait for a time to come.
    pub delayed: u64,
    /// Are in quarantine.
    pub quarantined: u64,
    /// When the oldest message outside quarantine was put.
    pub oldest: Option<Timestamp>,
}

/// The record of a rejected message.
#[derive(Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// The message's id.
    pub id: String,
    /// All that it says.
    pub attributes: BTreeMap<String, String>,
    /// When it was put.
    pub published_at: Timestamp,
    /// How often it was delivered.
    pub deliveries: u32,
    /// The kind of the rejection (a label of [`RejectKind`](crate::domain::outcome::RejectKind)).
    pub reason: String,
    /// What a person needs to know, credentials taken out.
    pub detail: String,
    /// When it was rejected.
    pub rejected_at: Timestamp,
}

/// Which records of the quarantine; all, unless narrowed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection {
    /// Of this kind only.
    pub reason: Option<String>,
    /// Rejected at this time or later.
    pub since: Option<Timestamp>,
    /// Rejected before this time.
    pub until: Option<Timestamp>,
}

impl fmt::Debug for NewMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewMessage").field("id", &self.id).finish_non_exhaustive()
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("id", &self.id)
            .field("state", &self.state)
            .field("deliveries", &self.deliveries)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Quarantined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quarantined")
            .field("id", &self.id)
            .field("reason", &self.reason)
            .field("detail", &self.detail)
            .finish_non_exhaustive()
    }
}

/// The time of a number in the file; numbers out of range, which we never write, are the epoch.
pub(super) fn time(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// `now` and `after`, as a number in the file; what no clock reaches is the last time there is.
pub(super) fn later(now: i64, after: Duration) -> i64 {
    let after = i64::try_from(after.as_micros()).unwrap_or(i64::MAX);
    now.saturating_add(after).min(Timestamp::MAX.as_microsecond())
}
