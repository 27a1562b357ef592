//! Settle: turns each task's outcome into ack, quarantine or release of its messages.
//!
//! Acks gather while the call before them is under way, so that one call carries many. What could
//! not be acked or put into quarantine is tried again while its lease lives; a lost lease means that
//! the message comes again, and then finds its Job.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::stream::StreamExt;
use tokio::time::Instant;

use super::book::{Place, Ticket};
use super::let_go::LET_GO_FOR;
use super::say::Stopped;
use super::tally::Verdict;
use super::{Ack, Event, Pipeline, PipelineError, QUEUE_RETRY};
use crate::domain::name::TaskHash;
use crate::domain::outcome::{Deferral, HoldKind, Placed, RejectKind, Rejection, Scope};
use crate::queue::{LeaseId, QueueError};

/// The most acks that one call carries.
const ACKS: usize = 1_000;
/// How long acks gather, and how many need not wait.
const ACKS_GATHER: Duration = Duration::from_millis(200);
const ACKS_ENOUGH: usize = 250;
/// The longest pause between two tries to ack.
const ACK_RETRY_MAX: Duration = Duration::from_secs(10);
/// The longest that giving messages back may take at the end.
const RELEASE_WITHIN: Duration = Duration::from_secs(5);

impl Pipeline {
    /// The task's Job is confirmed, or known to be done: all its messages are acked, but for those
    /// that wait for its end.
    pub(super) fn scheduled(&mut self, backend: usize, hash: TaskHash, placed: Placed) {
        self.book.put(hash, Place::Settling);
        let Some(entry) = self.book.get_mut(&hash) else { return };
        entry.scheduled_on = Some(backend);
        entry.done |= placed == Placed::Done;
        let done = entry.done;
        let tickets = entry.tickets.clone();
        self.note_confirmed(backend, hash, placed);
        let (wait, acked): (Vec<Ticket>, Vec<Ticket>) =
            tickets.into_iter().partition(|ticket| !done && self.completes(ticket.queue));
        if acked.is_empty() && !wait.is_empty() {
            // It was asked for before anybody waited for its end.
            return self.book.put(hash, Place::Ready);
        }
        for (at, ticket) in acked.into_iter().enumerate() {
            // One Job was made, whatever the number of its messages.
            let placed = if at == 0 { placed } else { Placed::AlreadyThere };
            self.ack_scheduled(backend, hash, ticket, placed);
        }
    }

    /// A backend has confirmed a task's Job: it is in good health.
    pub(super) fn note_confirmed(&mut self, backend: usize, hash: TaskHash, placed: Placed) {
        let Some(entry) = self.book.get(&hash) else { return };
        self.observe_confirmed(entry);
        let key = entry.task.key.clone();
        self.backends[backend].refused = None;
        self.backends[backend].stuck = None;
        if placed == Placed::Created {
            self.shown.created(backend, self.deps.clock.mono());
        }
        if !self.said.is_empty() {
            self.said.goes_on(&Stopped::Workload(key));
            let name = self.deps.backends[backend].candidate.name.clone();
            self.said.goes_on(&Stopped::Backend(name));
        }
    }

    /// Acks a message whose task's Job is confirmed.
    pub(super) fn ack_scheduled(
        &mut self,
        backend: usize,
        hash: TaskHash,
        ticket: Ticket,
        placed: Placed,
    ) {
        self.decide(Some(&hash), &ticket, Some(backend), Verdict::Scheduled(placed));
        self.queues[ticket.queue].acks.push(Ack { hash: Some(hash), ticket });
    }

    /// Starts a call of acks for each queue that has some and none under way. They gather for a
    /// moment first, while more are on their way: a durable ack costs the same for one as for many.
    pub(super) fn start_acks(&mut self, now: Instant) {
        let more_come = self.book.in_flight() > 0 && !self.stopping;
        for queue in 0..self.queues.len() {
            let state = &mut self.queues[queue];
            if state.acking || state.acks.is_empty() {
                continue;
            }
            let due = *state.acks_due.get_or_insert(now + ACKS_GATHER);
            if more_come && state.acks.len() < ACKS_ENOUGH && now < due {
                continue;
            }
            state.acks_due = None;
            state.acking = true;
            let n = state.acks.len().min(ACKS);
            let acks: Vec<Ack> = state.acks.drain(..n).collect();
            let source = Arc::clone(&self.deps.queues[queue].queue);
            let call = async move {
                let leases: Vec<LeaseId> = acks.iter().map(|a| a.ticket.lease.clone()).collect();
                let results = source.ack(&leases).await;
                Event::Acked { queue, acks, results }
            };
            self.calls.push(call.boxed());
        }
    }

    pub(super) fn acked(
        &mut self,
        queue: usize,
        acks: Vec<Ack>,
        results: &[Result<(), QueueError>],
        now: Instant,
    ) -> Result<(), PipelineError> {
        let mut known: BTreeMap<usize, Vec<TaskHash>> = BTreeMap::new();
        let mut failed = None;
        for (at, ack) in acks.into_iter().enumerate() {
            match results.get(at) {
                Some(Ok(())) => {
                    let done = ack.hash.map_or(Verdict::NotOurs, |_| Verdict::Acked);
                    self.decide(ack.hash.as_ref(), &ack.ticket, None, done);
                    if self.holds(queue) {
                        self.fuse.passed(now);
                    }
                    if let Some((backend, hash)) = self.ticket_done(&ack, true) {
                        known.entry(backend).or_default().push(hash);
                    }
                }
                Some(Err(QueueError::LeaseLost)) => {
                    self.decide(ack.hash.as_ref(), &ack.ticket, None, Verdict::AckLost);
                    self.ticket_done(&ack, false);
                }
                Some(Err(error @ QueueError::Unusable(_))) => {
                    let queue = self.deps.queues[queue].queue.name().to_string();
                    return Err(PipelineError::Queue { queue, error: error.clone() });
                }
                Some(Err(_)) | None => {
                    let said = results.get(at).and_then(|result| result.as_ref().err().cloned());
                    let none = || QueueError::Unavailable("the queue gave no answer".to_owned());
                    failed = Some(said.unwrap_or_else(none));
                    self.queues[queue].acks.push(ack);
                }
            }
        }
        for (backend, hashes) in known {
            self.deps.backends[backend].backend.acked(&hashes);
        }
        let state = &mut self.queues[queue];
        let Some(error) = failed else {
            state.acking = false;
            state.ack_retry = Duration::ZERO;
            return Ok(());
        };
        tracing::warn!(queue = %self.deps.queues[queue].queue.name(), %error, "acks failed, to be tried again");
        let pause = (state.ack_retry * 2).clamp(Duration::from_millis(100), ACK_RETRY_MAX);
        state.ack_retry = pause;
        let wait = async move {
            tokio::time::sleep(pause).await;
            Event::AcksDue { queue }
        };
        self.calls.push(wait.boxed());
        Ok(())
    }

    /// Takes an acked or lost ticket off its task. With the last one the task is done; returns where
    /// it runs when every one of its messages is known to be acked.
    fn ticket_done(&mut self, ack: &Ack, acked: bool) -> Option<(usize, TaskHash)> {
        self.deps.queues[ack.ticket.queue].leases.drop_lease(&ack.ticket.lease);
        let hash = ack.hash?;
        let entry = self.book.get_mut(&hash)?;
        let before = entry.tickets.len();
        entry.tickets.retain(|ticket| *ticket != ack.ticket);
        // The lease may have been replaced by a newer delivery's, whose own ack decides.
        entry.ack_lost |= !acked && entry.tickets.len() < before;
        if !entry.tickets.is_empty() {
            self.follow_the_rest(hash);
            return None;
        }
        let entry = self.book.remove(&hash)?;
        if entry.ack_lost {
            self.remember(hash, &entry);
            return None;
        }
        entry.scheduled_on.map(|backend| (backend, hash))
    }

    /// Rejects a task: each of its messages goes to quarantine, unless the fuse says that it is
    /// not the messages that are at fault.
    pub(super) fn reject(&mut self, hash: TaskHash, why: &Rejection, now: Instant) {
        let Some(entry) = self.book.get(&hash) else { return };
        let tickets = entry.tickets.clone();
        let counts = tickets.iter().any(|ticket| self.holds(ticket.queue));
        if counts && !self.fuse.reject(now) {
            self.say_blown();
            let detail = format!("too many rejects at once; this one would be {}", why.kind);
            let blown = Deferral::new(Scope::Task, HoldKind::FuseBlown, detail, LET_GO_FOR);
            self.hold(hash, None, Place::Until(now + LET_GO_FOR), &blown);
            return;
        }
        self.book.put(hash, Place::Settling);
        if let Some(entry) = self.book.get_mut(&hash) {
            entry.rejected = Some(why.clone());
        }
        for ticket in tickets {
            self.put_away(Some(hash), ticket, why.clone(), Duration::ZERO);
        }
    }

    /// Rejects a message that could not be read as a task.
    pub(super) fn quarantine(&mut self, ticket: Ticket, why: Rejection, now: Instant) {
        if !self.holds(ticket.queue) || self.fuse.reject(now) {
            self.put_away(None, ticket, why, Duration::ZERO);
        } else {
            self.say_blown();
            self.release(vec![ticket], LET_GO_FOR);
        }
    }

    fn say_blown(&self) {
        tracing::error!(
            "the fuse blew: more than 50 messages and 5 % were rejected within five minutes; intake \
             has stopped. hint: look at `katabatch queue quarantine list`, mend what is wrong, put \
             the messages back with `katabatch queue quarantine retry`, then restart"
        );
    }

    /// One more message of a task that is settling shares its fate; of one that runs, it is acked
    /// unless it waits for the end, too.
    pub(super) fn join_settling(&mut self, hash: TaskHash, ticket: Ticket) {
        let Some(entry) = self.book.get(&hash) else { return };
        let runs_on = entry.follows.filter(|_| entry.place == Place::Running);
        if let Some((backend, _)) = runs_on {
            if !self.completes(ticket.queue) {
                self.ack_scheduled(backend, hash, ticket, Placed::AlreadyThere);
            }
            return;
        }
        match (entry.scheduled_on, entry.rejected.clone()) {
            (Some(_), None) if !entry.done && self.completes(ticket.queue) => {}
            (Some(backend), None) => {
                self.ack_scheduled(backend, hash, ticket, Placed::AlreadyThere)
            }
            (_, Some(why)) => self.put_away(Some(hash), ticket, why, Duration::ZERO),
            (None, None) => {}
        }
    }

    pub(super) fn put_away(
        &mut self,
        hash: Option<TaskHash>,
        ticket: Ticket,
        why: Rejection,
        pause: Duration,
    ) {
        let source = Arc::clone(&self.deps.queues[ticket.queue].queue);
        let call = async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            let result = source.quarantine(&ticket.lease, &why).await;
            Event::Quarantined { hash, ticket, why, result }
        };
        self.calls.push(call.boxed());
    }

    pub(super) fn quarantined(
        &mut self,
        hash: Option<TaskHash>,
        ticket: &Ticket,
        why: &Rejection,
        result: Result<(), QueueError>,
        now: Instant,
    ) {
        match result {
            Ok(()) => {
                let rejected = Verdict::Rejected(why.kind, why.detail.clone());
                self.decide(hash.as_ref(), ticket, None, rejected);
                self.count_lost(hash, why);
            }
            Err(QueueError::LeaseLost) => {}
            Err(error) => {
                tracing::warn!(%error, "a quarantine record could not be written, to be tried again");
                if self.deps.queues[ticket.queue].leases.alive(&ticket.lease, now) && !self.stopping
                {
                    self.put_away(hash, ticket.clone(), why.clone(), QUEUE_RETRY);
                    return;
                }
            }
        }
        let done = self.ticket_done(&Ack { hash, ticket: ticket.clone() }, true);
        if let Some((backend, hash)) = done.filter(|_| why.kind == RejectKind::Cancelled) {
            self.deps.backends[backend].backend.acked(&[hash]);
        }
    }

    /// Counts the work that a dead URL costs: once a task, with its last message.
    fn count_lost(&self, hash: Option<TaskHash>, why: &Rejection) {
        let entry = hash.and_then(|hash| self.book.get(&hash));
        if let Some(entry) = entry
            && why.kind == RejectKind::DeadUrl
            && entry.tickets.len() == 1
        {
            let expected = self.deps.resolver.expected_run(&entry.task.key.command);
            self.tally.lost_to_dead_url(expected);
        }
    }

    /// Gives messages back to their queues, to come again after `after`.
    pub(super) fn release(&mut self, tickets: Vec<Ticket>, after: Duration) {
        let mut by_queue: BTreeMap<usize, Vec<Ticket>> = BTreeMap::new();
        for ticket in tickets {
            by_queue.entry(ticket.queue).or_default().push(ticket);
        }
        for (queue, tickets) in by_queue {
            let source = Arc::clone(&self.deps.queues[queue].queue);
            let call = async move {
                let leases: Vec<LeaseId> = tickets.iter().map(|t| t.lease.clone()).collect();
                // Whatever it answers: a message that was not released comes when its lease lapses.
                let _ = source.release(&leases, after).await;
                Event::Released { queue, tickets }
            };
            self.calls.push(call.boxed());
        }
    }

    pub(super) fn released(&mut self, queue: usize, tickets: &[Ticket]) {
        for ticket in tickets {
            self.deps.queues[queue].leases.drop_lease(&ticket.lease);
            self.decide(None, ticket, None, Verdict::Released);
        }
    }

    /// Ends well: takes no more, waits for what is under way, gives back the rest.
    pub(super) async fn stop(&mut self) -> Result<(), PipelineError> {
        self.stopping = true;
        let deadline = self.deps.clock.mono() + self.deps.settings.grace;
        while self.book.in_flight() > 0
            || self.book.settling() > 0
            || self.failing > 0
            || self.queues.iter().any(|queue| queue.leasing || !queue.acks.is_empty())
        {
            self.start_acks(self.deps.clock.mono());
            let event = tokio::select! {
                biased;
                Some(event) = self.calls.next() => event,
                Some(event) = self.waits.next() => event,
                () = tokio::time::sleep_until(deadline) => break,
            };
            if !matches!(event, Event::LookDue | Event::RoomChanged { .. }) {
                self.handle(event)?;
            }
        }
        self.waits.clear();
        let rest: Vec<TaskHash> = self.book.iter().map(|(hash, _)| *hash).collect();
        let tickets: Vec<Ticket> = rest
            .iter()
            .filter_map(|hash| self.book.get(hash))
            .filter(|entry| entry.scheduled_on.is_none() || entry.place == Place::Running)
            .flat_map(|entry| entry.tickets.clone())
            .collect();
        tracing::info!(released = tickets.len(), "stopping: what is undone goes back to the queue");
        self.calls.clear();
        self.release(tickets, Duration::ZERO);
        let within = self.deps.clock.mono() + RELEASE_WITHIN;
        while !self.calls.is_empty() {
            tokio::select! {
                biased;
                Some(event) = self.calls.next() => self.handle(event)?,
                () = tokio::time::sleep_until(within) => break,
            }
        }
        Ok(())
    }
}
