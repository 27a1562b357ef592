//! A Google Cloud Pub/Sub subscription as a queue, by unary pulls over gRPC.
//!
//! Messages are leased from the moment they come ([`pulls`]); acks, extensions and releases go in
//! requests within the API's limits, where one bad id harms no other ([`batch`]); a lease known to
//! have lapsed is never reported as acked, although the server would confirm it ([`held`]). A
//! rejected message's record is published to a topic before its ack ([`quarantine`]). Everything is
//! in the attributes: a message's data is ignored, as ClusterFuzz does.
//!
//! Leaves out what a message means, when to extend, and which tries beyond a few spaced ones.

pub mod admin;
mod batch;
mod fault;
mod held;
mod patience;
mod pulls;
pub mod quarantine;
pub mod record;
pub mod wire;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

pub use self::fault::Fault;
use self::held::{Held, HeldLeases};

use self::pulls::{Arrived, Pulls};
use self::record::Record;
use self::wire::{Grpc, Wire};
use super::{Delivery, LeaseId, Queue, QueueError};
use crate::clock::Clock;
use crate::domain::name::QueueName;
use crate::domain::outcome::Rejection;
use crate::domain::pubsub::Names;
use crate::gcp::channel::Channel;

/// Google's endpoint.
pub const ENDPOINT: &str = "https://pubsub.googleapis.com";
/// The variable by which Google's clients find the emulator.
pub const EMULATOR: &str = "PUBSUB_EMULATOR_HOST";
/// The longest ack deadline that the API takes, in seconds.
const DEADLINE_MOST: u16 = 600;
/// Tries of an ack or a publish that fails in passing; whoever asked tries again later.
const TRIES: u32 = 3;
/// Tries of an extension: the keeper of leases spaces its own, which must not wait for these.
const EXTEND_TRIES: u32 = 1;
/// The longest that closing waits: a pull under way, and giving back what it brings.
const CLOSE_WITHIN: Duration = Duration::from_secs(8);

/// One subscription.
pub struct PubSub {
    name: QueueName,
    names: Names,
    clock: Arc<dyn Clock>,
    wire: Arc<dyn Wire>,
    pulls: Arc<Pulls>,
    held: HeldLeases,
}

impl PubSub {
    /// The subscription over `channel`. Asks the server for nothing yet.
    pub fn new(name: QueueName, names: Names, channel: &Channel, clock: Arc<dyn Clock>) -> Self {
        let wire = Arc::new(Grpc::new(channel, names.subscription.clone()));
        Self::over(wire, name, names, clock)
    }

    /// The subscription that is behind `wire`.
    pub fn over(wire: Arc<dyn Wire>, name: QueueName, names: Names, clock: Arc<dyn Clock>) -> Self {
        let pulls = Pulls::new(Arc::clone(&wire), Arc::clone(&clock));
        Self { name, names, clock, wire, pulls, held: HeldLeases::default() }
    }

    /// What came as deliveries, with leases that run from `asked_at` on or later.
    async fn hand_out(
        &self,
        arrived: Vec<Arrived>,
        asked_at: Instant,
        seconds: u16,
    ) -> Vec<Delivery> {
        let mut taken = Taken { pulls: Arc::clone(&self.pulls), arrived };
        self.refresh(&mut taken.arrived, asked_at, seconds).await;
        let now = self.clock.mono();
        let lease = Duration::from_secs(u64::from(seconds));
        let mut deliveries = Vec::with_capacity(taken.arrived.len());
        let mut kept = Vec::with_capacity(taken.arrived.len());
        for Arrived { received, leased_at, .. } in std::mem::take(&mut taken.arrived) {
            let id = LeaseId(received.ack_id.clone());
            deliveries.push(Delivery {
                lease: id.clone(),
                message_id: received.message_id.clone(),
                attributes: received.attributes.clone(),
                published_at: received.published_at.unwrap_or_else(|| self.clock.wall()),
                deliveries: received.deliveries,
            });
            let held = Held { message: received, expires: leased_at + lease, recorded: false };
            kept.push((id, held));
        }
        self.held.keep(kept, now);
        deliveries
    }

    /// Leases anew what came before `asked_at`; what that fails for is left to lapse.
    async fn refresh(&self, arrived: &mut Vec<Arrived>, asked_at: Instant, seconds: u16) {
        let waited = |a: &Arrived| a.leased_at < asked_at;
        let ids: Vec<String> =
            arrived.iter().filter(|a| waited(a)).map(|a| a.received.ack_id.clone()).collect();
        if ids.is_empty() {
            return;
        }
        let leased_at = self.clock.mono();
        let mut answers = self.pulls.lease_again(&ids, seconds).await.into_iter();
        arrived.retain_mut(|arrived| {
            if !waited(arrived) {
                return true;
            }
            arrived.leased_at = leased_at;
            answers.next().is_some_and(|answer| answer.is_ok())
        });
    }

    /// Calls for those leases that are alive; the others are lost, and so are those whose answer came
    /// only after their end.
    async fn for_alive<F, Fut>(
        &self,
        leases: &[LeaseId],
        tries: u32,
        call: F,
    ) -> Vec<Result<(), QueueError>>
    where
        F: Fn(Vec<String>) -> Fut + Sync + Send,
        Fut: Future<Output = Result<(), Fault>> + Send,
    {
        let now = self.clock.mono();
        let alive: Vec<bool> = leases.iter().map(|l| self.held.is_alive(l, now)).collect();
        let living = leases.iter().zip(&alive).filter(|(_, alive)| **alive);
        let ids: Vec<String> = living.map(|(lease, _)| lease.0.clone()).collect();
        let mut answers = batch::each(&ids, tries, call).await.into_iter();
        let now = self.clock.mono();
        // The server takes a request for a lapsed lease for good: one answered late may be that.
        let settle =
            |(lease, alive): (&LeaseId, bool)| match alive.then(|| answers.next()).flatten() {
                Some(Ok(())) if self.held.is_alive(lease, now) => Ok(()),
                Some(Err(error)) => Err(self.pulls.patience.judge(error)),
                Some(Ok(())) | None => Err(QueueError::LeaseLost),
            };
        leases.iter().zip(alive).map(settle).collect()
    }

    /// Acks, and stops keeping what is acked or lost.
    async fn acknowledge(&self, leases: &[LeaseId]) -> Vec<Result<(), QueueError>> {
        let wire = &self.wire;
        let call = |ids: Vec<String>| async move { wire.acknowledge(&ids).await };
        let answers = self.for_alive(leases, TRIES, call).await;
        for (lease, answer) in leases.iter().zip(&answers) {
            if matches!(answer, Ok(()) | Err(QueueError::LeaseLost)) {
                self.held.forget(lease);
            }
        }
        answers
    }
}

#[async_trait]
impl Queue for PubSub {
    fn name(&self) -> &QueueName {
        &self.name
    }

    async fn lease(
        &self,
        n: usize,
        lease_for: Duration,
        wait: Duration,
    ) -> Result<Vec<Delivery>, QueueError> {
        if n == 0 {
            return Ok(Vec::new());
        }
        let (asked_at, seconds) = (self.clock.mono(), seconds(lease_for));
        loop {
            let arrived = self.pulls.take(n, seconds, wait).await?;
            let none = arrived.is_empty();
            let deliveries = self.hand_out(arrived, asked_at, seconds).await;
            // What came may have lapsed meanwhile: that is no reason to say that there is nothing.
            let over = self.clock.mono() >= asked_at + wait;
            if none || over || !deliveries.is_empty() {
                return Ok(deliveries);
            }
        }
    }

    async fn extend(&self, leases: &[LeaseId], lease_for: Duration) -> Vec<Result<(), QueueError>> {
        let (asked_at, seconds) = (self.clock.mono(), seconds(lease_for));
        let wire = &self.wire;
        let call = |ids: Vec<String>| async move { wire.modify(&ids, seconds).await };
        let answers = self.for_alive(leases, EXTEND_TRIES, call).await;
        let expires = asked_at + Duration::from_secs(u64::from(seconds));
        for (lease, answer) in leases.iter().zip(&answers) {
            match answer {
                Ok(()) => self.held.extend(lease, expires),
                Err(QueueError::LeaseLost) => self.held.forget(lease),
                Err(_) => {}
            }
        }
        answers
    }

    async fn ack(&self, leases: &[LeaseId]) -> Vec<Result<(), QueueError>> {
        self.acknowledge(leases).await
    }

    async fn release(&self, leases: &[LeaseId], after: Duration) -> Vec<Result<(), QueueError>> {
        let seconds = if after.is_zero() { 0 } else { seconds(after) };
        let wire = &self.wire;
        let call = |ids: Vec<String>| async move { wire.modify(&ids, seconds).await };
        let answers = self.for_alive(leases, TRIES, call).await;
        // Whatever it answered: what is given back is not kept any more.
        leases.iter().for_each(|lease| self.held.forget(lease));
        answers
    }

    async fn quarantine(&self, lease: &LeaseId, rejection: &Rejection) -> Result<(), QueueError> {
        let now = self.clock.mono();
        let (message, recorded) = self.held.message(lease, now).ok_or(QueueError::LeaseLost)?;
        if !recorded {
            let record =
                Record::of(&message, rejection, &self.names.subscription, self.clock.wall());
            let topic = &self.names.quarantine_topic;
            batch::with_tries(TRIES, || self.wire.publish(topic, vec![record.to_message()]))
                .await?;
            self.held.recorded(lease);
        }
        let answers = self.acknowledge(std::slice::from_ref(lease)).await;
        answers.into_iter().next().unwrap_or(Err(QueueError::LeaseLost))
    }

    async fn close(&self) {
        self.pulls.stop();
        // What is not given back by then comes when its lease lapses.
        let _ = tokio::time::timeout(CLOSE_WITHIN, self.pulls.stopped()).await;
    }
}

impl Drop for PubSub {
    fn drop(&mut self) {
        self.pulls.stop();
    }
}

/// What was taken for a caller: it goes back if the caller is gone before it is handed out.
struct Taken {
    pulls: Arc<Pulls>,
    arrived: Vec<Arrived>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        if !self.arrived.is_empty() {
            let ids = self.arrived.drain(..).map(|a| a.received.ack_id).collect();
            self.pulls.give_back_soon(ids);
        }
    }
}

/// A deadline as the API takes it: whole seconds, at least one, at most 600. Cut, not rounded up:
/// what is known here is never later than the server's.
fn seconds(time: Duration) -> u16 {
    u16::try_from(time.as_secs()).unwrap_or(DEADLINE_MOST).clamp(1, DEADLINE_MOST)
}
