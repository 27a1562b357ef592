//! A queue in this process's memory: for `submit`, tests and the simulation.
//!
//! It keeps the whole contract of a queue (leases lapse, a stale lease is refused, what is released
//! comes again) but for one thing: it ends with the process, so nothing that must last goes here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Delivery, LeaseId, Queue, QueueError};
use crate::clock::Clock;
use crate::domain::name::QueueName;
use crate::domain::outcome::{RejectKind, Rejection};

#[derive(Debug, Clone)]
struct Message {
    attributes: BTreeMap<String, String>,
    published_at: Timestamp,
    deliveries: u32,
    ready_at: Instant,
    lease: Option<LeaseId>,
    failures: u32,
}

#[derive(Debug, Default)]
struct Messages {
    /// By message id. What is acked is gone.
    waiting: BTreeMap<String, Message>,
    /// The order in which messages are first delivered.
    order: Vec<String>,
    by_lease: BTreeMap<LeaseId, String>,
    quarantined: BTreeMap<String, Rejection>,
    leases: u64,
    attempts: Option<u32>,
}

/// The queue.
pub struct MemoryQueue {
    name: QueueName,
    clock: Arc<dyn Clock>,
    messages: Mutex<Messages>,
    changed: Notify,
}

impl MemoryQueue {
    /// An empty queue.
    pub fn new(name: QueueName, clock: Arc<dyn Clock>) -> Self {
        Self { name, clock, messages: Mutex::default(), changed: Notify::new() }
    }

    /// From now on a message goes to quarantine when its task has failed so often.
    pub fn allow_attempts(&self, attempts: u32) {
        self.lock().attempts = Some(attempts);
    }

    /// Adds a message. One with an id that is waiting already replaces it.
    pub fn put(&self, id: &str, attributes: BTreeMap<String, String>) {
        let message = Message {
            attributes,
            published_at: self.clock.wall(),
            deliveries: 0,
            ready_at: self.clock.mono(),
            lease: None,
            failures: 0,
        };
        let mut messages = self.lock();
        messages.waiting.insert(id.to_owned(), message);
        messages.order.push(id.to_owned());
        drop(messages);
        self.changed.notify_waiters();
    }

    /// How many messages are neither acked nor quarantined.
    pub fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Whether every message is acked or quarantined.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The quarantined messages' ids and why.
    pub fn quarantined(&self) -> BTreeMap<String, Rejection> {
        self.lock().quarantined.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Messages> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, n: usize, lease_for: Duration) -> Vec<Delivery> {
        let now = self.clock.mono();
        let mut messages = self.lock();
        let messages = &mut *messages;
        messages.order.retain(|id| messages.waiting.contains_key(id));
        let mut taken = Vec::new();
        for id in &messages.order {
            if taken.len() == n {
                break;
            }
            let Some(message) = messages.waiting.get_mut(id).filter(|m| m.ready_at <= now) else {
                continue;
            };
            if let Some(lapsed) = message.lease.take() {
                messages.by_lease.remove(&lapsed);
            }
            messages.leases += 1;
            let lease = LeaseId(format!("{id}/{}", messages.leases));
            message.lease = Some(lease.clone());
            message.deliveries += 1;
            message.ready_at = now + lease_for;
            messages.by_lease.insert(lease.clone(), id.clone());
            taken.push(Delivery {
                lease,
                message_id: id.clone(),
                attributes: message.attributes.clone(),
                published_at: message.published_at,
                deliveries: Some(message.deliveries),
            });
        }
        taken
    }

    /// Does `what` with the message of each living lease.
    fn each(
        &self,
        leases: &[LeaseId],
        mut what: impl FnMut(&mut Messages, &str, Instant),
    ) -> Vec<Result<(), QueueError>> {
        let now = self.clock.mono();
        let mut messages = self.lock();
        let one = |lease: &LeaseId| {
            let id = messages.by_lease.get(lease).cloned().ok_or(QueueError::LeaseLost)?;
            let alive = messages.waiting.get(&id).is_some_and(|m| m.ready_at > now);
            if !alive {
                return Err(QueueError::LeaseLost);
            }
            what(&mut messages, &id, now);
            Ok(())
        };
        leases.iter().map(one).collect()
    }
}

#[async_trait]
impl Queue for MemoryQueue {
    fn name(&self) -> &QueueName {
        &self.name
    }

    async fn lease(
        &self,
        n: usize,
        lease_for: Duration,
        wait: Duration,
    ) -> Result<Vec<Delivery>, QueueError> {
        let until = self.clock.mono() + wait;
        loop {
            let changed = self.changed.notified();
            let taken = self.take(n, lease_for);
            let now = self.clock.mono();
            if !taken.is_empty() || now >= until {
                return Ok(taken);
            }
            let next =
                self.lock().waiting.values().map(|m| m.ready_at).filter(|at| *at > now).min();
            let wake = next.map_or(until, |next| next.min(until));
            tokio::select! {
                biased;
                () = changed => {}
                () = tokio::time::sleep_until(wake) => {}
            }
        }
    }

    async fn extend(&self, leases: &[LeaseId], lease_for: Duration) -> Vec<Result<(), QueueError>> {
        self.each(leases, |messages, id, now| {
            if let Some(message) = messages.waiting.get_mut(id) {
                message.ready_at = now + lease_for;
            }
        })
    }

    async fn ack(&self, leases: &[LeaseId]) -> Vec<Result<(), QueueError>> {
        self.each(leases, |messages, id, _| drop(messages.waiting.remove(id)))
    }

    async fn release(&self, leases: &[LeaseId], after: Duration) -> Vec<Result<(), QueueError>> {
        let results = self.each(leases, |messages, id, now| {
            if let Some(message) = messages.waiting.get_mut(id) {
                message.ready_at = now + after;
                if let Some(lease) = message.lease.take() {
                    messages.by_lease.remove(&lease);
                }
            }
        });
        self.changed.notify_waiters();
        results
    }

    async fn fail(&self, lease: &LeaseId, why: &str) -> Result<(), QueueError> {
        let done = self.each(std::slice::from_ref(lease), |messages, id, now| {
            let Some(message) = messages.waiting.get_mut(id) else { return };
            message.failures += 1;
            message.ready_at = now;
            if let Some(lease) = message.lease.take() {
                messages.by_lease.remove(&lease);
            }
            if messages.attempts.is_some_and(|allowed| message.failures >= allowed) {
                messages.waiting.remove(id);
                let rejection = Rejection::new(RejectKind::AttemptsUsedUp, why);
                messages.quarantined.insert(id.to_owned(), rejection);
            }
        });
        self.changed.notify_waiters();
        done.into_iter().next().unwrap_or(Err(QueueError::LeaseLost))
    }

    async fn quarantine(&self, lease: &LeaseId, rejection: &Rejection) -> Result<(), QueueError> {
        let done = self.each(std::slice::from_ref(lease), |messages, id, _| {
            messages.waiting.remove(id);
            messages.quarantined.insert(id.to_owned(), rejection.clone());
        });
        done.into_iter().next().unwrap_or(Err(QueueError::LeaseLost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::PacedClock;

    const LEASE: Duration = Duration::from_secs(10);

    fn queue() -> MemoryQueue {
        let clock = Arc::new(PacedClock::starting_at(Timestamp::UNIX_EPOCH));
        let queue = MemoryQueue::new("q".into(), clock);
        queue.put("a", BTreeMap::new());
        queue
    }

    async fn lease(queue: &MemoryQueue, wait: Duration) -> Vec<LeaseId> {
        let taken = queue.lease(9, LEASE, wait).await.expect("a lease");
        taken.into_iter().map(|delivery| delivery.lease).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_lapsed_lease_is_given_to_the_next_and_its_ack_is_refused() {
        let queue = queue();
        let first = lease(&queue, Duration::ZERO).await;
        assert!(lease(&queue, LEASE / 2).await.is_empty());
        let second = lease(&queue, LEASE).await;
        assert_eq!(second.len(), 1);
        assert_eq!(queue.ack(&first).await, [Err(QueueError::LeaseLost)]);
        assert_eq!(queue.ack(&second).await, [Ok(())]);
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_extended_lease_lives_on_and_a_released_message_comes_after_its_delay() {
        let queue = queue();
        let first = lease(&queue, Duration::ZERO).await;
        assert!(lease(&queue, LEASE * 9 / 10).await.is_empty());
        assert_eq!(queue.extend(&first, LEASE).await, [Ok(())]);
        assert!(lease(&queue, LEASE * 9 / 10).await.is_empty());
        assert_eq!(queue.release(&first, LEASE).await, [Ok(())]);
        assert_eq!(queue.ack(&first).await, [Err(QueueError::LeaseLost)]);
        assert!(lease(&queue, LEASE / 2).await.is_empty());
        assert_eq!(lease(&queue, LEASE).await.len(), 1);
    }
}
