//! The leases that were handed out, and until when each is known to hold.
//!
//! Pub/Sub confirms an ack that came too late (but for exactly-once subscriptions), although the
//! message comes again. So each lease's end is kept here, counted from before the request that set
//! it: the server's own end is never earlier.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::wire::Received;
use crate::queue::LeaseId;

/// One lease.
pub(super) struct Held {
    /// What was delivered: a quarantine record is made from it.
    pub message: Received,
    /// When it lapses unless it is extended.
    pub expires: Instant,
    /// Whether its quarantine record is durable, with only the ack missing.
    pub recorded: bool,
}

/// All leases of a queue that were handed out.
#[derive(Default)]
pub(super) struct HeldLeases(Mutex<BTreeMap<LeaseId, Held>>);

impl HeldLeases {
    /// Keeps leases, and forgets those that lapsed: nobody can use them any more.
    pub fn keep(&self, leases: impl IntoIterator<Item = (LeaseId, Held)>, now: Instant) {
        let mut held = self.lock();
        held.retain(|_, lease| lease.expires > now);
        held.extend(leases);
    }

    /// Whether the lease is ours and has not lapsed.
    pub fn is_alive(&self, lease: &LeaseId, now: Instant) -> bool {
        self.lock().get(lease).is_some_and(|held| held.expires > now)
    }

    /// Moves the lease's end.
    pub fn extend(&self, lease: &LeaseId, expires: Instant) {
        if let Some(held) = self.lock().get_mut(lease) {
            held.expires = expires;
        }
    }

    /// The lease's message and whether it is recorded, if the lease is alive.
    pub fn message(&self, lease: &LeaseId, now: Instant) -> Option<(Received, bool)> {
        let held = self.lock();
        let held = held.get(lease).filter(|held| held.expires > now)?;
        Some((held.message.clone(), held.recorded))
    }

    /// Notes that the message's quarantine record is durable.
    pub fn recorded(&self, lease: &LeaseId) {
        if let Some(held) = self.lock().get_mut(lease) {
            held.recorded = true;
        }
    }

    /// Stops keeping the lease.
    pub fn forget(&self, lease: &LeaseId) {
        self.lock().remove(lease);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<LeaseId, Held>> {
        // The map is whole after every statement, so a panic elsewhere leaves it usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
