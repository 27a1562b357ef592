//! Intake: how many messages to lease, and what each turns out to be.
//!
//! No more is leased than there is room for plus what may be held; it stops only when every backend
//! with a weight is full. Each message is decoded by itself.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::time::Instant;

use super::book::Ticket;
use super::stages::Stage;
use super::tally::Verdict;
use super::{Ack, Event, LEASE_WAIT, Pipeline, PipelineError, QUEUE_RETRY, STILL_AWAY, said};
use crate::domain::message::{self, BadMessage, Decoded};
use crate::domain::outcome::{RejectKind, Rejection};
use crate::queue::{Delivery, QueueError};

/// The most messages that one call asks for.
const CALL: usize = 500;
/// Below this many ready tasks more are leased, so that the window of creates never runs dry.
const READY: usize = 250;

/// How many messages to lease now.
///
/// `free` is the room of all backends with a weight, `ready` and `held` the tasks in hand that are
/// not counted in it yet, `may_hold` how many may be held.
pub(super) fn budget(free: usize, ready: usize, held: usize, may_hold: usize) -> usize {
    if ready >= READY || held >= may_hold {
        return 0;
    }
    free.saturating_sub(ready).min(CALL).min(may_hold.saturating_sub(held).max(1))
}

impl Pipeline {
    /// Starts calls for messages where there is room for them.
    pub(super) fn take_in(&mut self, now: Instant) {
        if self.fuse.blown() || !self.may_work(now) {
            return;
        }
        let (idle, unheld): (Vec<usize>, Vec<usize>) = (0..self.queues.len())
            .filter(|&at| !self.queues[at].leasing)
            .partition(|&at| self.holds(at));
        unheld.into_iter().for_each(|queue| self.lease(queue, CALL, now));
        let n = budget(
            self.free(now),
            self.book.ready() + self.book.looked_up(),
            self.book.held(),
            self.deps.settings.held,
        );
        let share = n / idle.len().max(1);
        for queue in idle {
            if share == 0 && n == 0 {
                return;
            }
            self.lease(queue, share.max(1), now);
        }
    }

    fn lease(&mut self, queue: usize, n: usize, now: Instant) {
        let binding = &self.deps.queues[queue];
        let (source, lease_for) = (Arc::clone(&binding.queue), binding.leases.lease_for());
        let wait = if self.deps.settings.once { Duration::ZERO } else { LEASE_WAIT };
        self.queues[queue].leasing = true;
        let call = async move {
            let result = source.lease(n, lease_for, wait).await;
            Event::Leased { queue, asked_at: now, result }
        };
        self.waits.push(call.boxed());
    }

    /// The room of all backends that may get tasks now.
    fn free(&self, now: Instant) -> usize {
        (0..self.backends.len())
            .filter(|&at| self.is_open(at, now))
            .map(|at| self.backends[at].free())
            .fold(0, usize::saturating_add)
    }

    pub(super) fn leased(
        &mut self,
        queue: usize,
        asked_at: Instant,
        result: Result<Vec<Delivery>, QueueError>,
    ) -> Result<(), PipelineError> {
        let deliveries = match result {
            Ok(deliveries) => deliveries,
            Err(error @ QueueError::Unusable(_)) => {
                let queue = self.deps.queues[queue].queue.name().to_string();
                return Err(PipelineError::Queue { queue, error });
            }
            Err(error) => {
                self.say_away(queue, &error);
                self.rest(queue, QUEUE_RETRY);
                return Ok(());
            }
        };
        if self.queues[queue].away.take().is_some() {
            tracing::info!(queue = %self.deps.queues[queue].queue.name(), "the queue is back");
        }
        if deliveries.is_empty() {
            let state = &mut self.queues[queue];
            state.empty_answers = state.empty_answers.saturating_add(1);
            if self.deps.settings.once {
                self.rest(queue, Duration::from_millis(100));
            } else {
                state.leasing = false;
            }
            return Ok(());
        }
        self.last_progress = self.deps.clock.mono();
        self.queues[queue].empty_answers = 0;
        self.queues[queue].leasing = false;
        self.tally.leased(deliveries.len());
        let leases = deliveries.iter().map(|delivery| delivery.lease.clone());
        self.deps.queues[queue].leases.keep(leases, asked_at);
        for delivery in deliveries {
            self.take_delivery(queue, delivery);
        }
        Ok(())
    }

    /// Says that the queue is unavailable: once, and again from time to time or for another reason.
    fn say_away(&mut self, queue: usize, error: &QueueError) {
        let (now, why) = (self.deps.clock.mono(), error.to_string());
        let name = self.deps.queues[queue].queue.name();
        let away = &mut self.queues[queue].away;
        let known = away.as_ref().is_some_and(|(said, before)| {
            *before == why && now.saturating_duration_since(*said) < STILL_AWAY
        });
        if !known {
            tracing::warn!(queue = %name, %error, "no messages can be taken; trying on");
            *away = Some((now, why));
        }
    }

    fn rest(&mut self, queue: usize, pause: Duration) {
        let wait = async move {
            tokio::time::sleep(pause).await;
            Event::QueueRested { queue }
        };
        self.waits.push(wait.boxed());
    }

    fn take_delivery(&mut self, queue: usize, delivery: Delivery) {
        let now = self.deps.clock.mono();
        let Delivery { lease, message_id, attributes, published_at, .. } = delivery;
        let version = self.deps.queues[queue].base_os_version.as_deref();
        // Reading is pure: what panics once does so each time.
        let decoded = std::panic::catch_unwind(AssertUnwindSafe(|| {
            message::decode(&attributes, &message_id, published_at, version)
        }));
        let ticket = Ticket { queue, lease, message_id };
        let decoded = match decoded {
            Ok(decoded) => decoded,
            Err(panic) => {
                let detail = format!("reading the message panicked: {}", said(panic));
                return self.quarantine(ticket, Rejection::new(RejectKind::Panicked, detail), now);
            }
        };
        match decoded {
            Ok(Decoded::Task(task)) => {
                let hash = task.hash;
                let queued = self.deps.clock.wall().duration_since(task.published_at);
                self.view.observe(Stage::Queued, queued.try_into().unwrap_or_default());
                let (replaced, new) = self.book.take_in(*task, ticket.clone(), now);
                if new {
                    self.recall(&hash);
                }
                if let Some(old) = replaced {
                    self.deps.queues[queue].leases.drop_lease(&old);
                }
                self.join_settling(hash, ticket);
                self.answer_if_waiting(hash);
            }
            Ok(Decoded::AnotherVersion(_)) => {
                self.queues[queue].acks.push(Ack { hash: None, ticket });
            }
            Err(bad) => {
                let kind = match &bad {
                    BadMessage::Url(_) => RejectKind::BadUrl,
                    BadMessage::Notification(_) => RejectKind::Notification,
                    BadMessage::Missing(_) | BadMessage::Invalid { .. } => RejectKind::BadMessage,
                };
                self.quarantine(ticket, Rejection::new(kind, format!("the message {bad}")), now);
            }
        }
    }

    /// Tells the observer, and counts.
    pub(super) fn decide(
        &self,
        hash: Option<&crate::domain::name::TaskHash>,
        ticket: &Ticket,
        backend: Option<usize>,
        verdict: Verdict,
    ) {
        self.tally.count(&verdict);
        let Some(observer) = &self.deps.observer else { return };
        let task = hash.and_then(|hash| self.book.get(hash)).map(|entry| &entry.task);
        observer.decided(&super::tally::Decision {
            message_id: ticket.message_id.clone(),
            key: task.map(|task| task.key.clone()),
            job: task.map(|task| task.job_name()),
            backend: backend.map(|at| self.deps.backends[at].candidate.name.clone()),
            verdict,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::budget;

    #[test]
    fn nothing_is_leased_just_to_be_sent_back() {
        assert_eq!(budget(0, 0, 0, 1000), 0);
        assert_eq!(budget(1, 0, 0, 1000), 1);
        assert_eq!(budget(10, 10, 0, 1000), 0);
        assert_eq!(budget(1000, 0, 1000, 1000), 0);
        assert_eq!(budget(1000, 0, 990, 1000), 10);
        assert_eq!(budget(100_000, 0, 0, 1000), 500);
        assert_eq!(budget(100_000, 250, 0, 1000), 0);
    }
}
