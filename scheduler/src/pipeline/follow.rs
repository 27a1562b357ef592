//! Following: messages that are kept until their task's Job ends (`ack: on_completed`).
//!
//! A complete Job acks them. A failed one gives them back with the reason, and their queue decides
//! whether they come again: a backend that gets a task whose highest attempt has failed makes the
//! next one. One that somebody deleted puts them into quarantine. An end that is told while no
//! message is in hand is not needed: the next submission finds the Job as it is.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::book::{Place, Ticket};
use super::elsewhere::Then;
use super::tally::Verdict;
use super::workloads::Known;
use super::{Ack, Event, Pipeline, QUEUE_RETRY};
use crate::backend::{Finish, Finished};
use crate::domain::name::{Attempt, BackendName, TaskHash};
use crate::domain::outcome::{Placed, RejectKind, Rejection};
use crate::domain::task::Follow;
use crate::queue::QueueError;

/// How often it is looked whether the Jobs that are waited for are still there.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// How long one may be missing without a word: ends take a while to be told.
const MISSING_FOR: Duration = Duration::from_secs(150);

/// A message that is being given back for a failure.
pub(super) struct Failing {
    backend: usize,
    hash: TaskHash,
    attempt: Attempt,
    ticket: Ticket,
    why: Arc<str>,
}

impl Pipeline {
    /// Whether messages of this queue wait for their Job's end.
    pub(super) fn completes(&self, queue: usize) -> bool {
        self.deps.queues[queue].completes
    }

    /// Whether a task in hand is followed.
    pub(super) fn follow_of(&self, hash: &TaskHash) -> Follow {
        let tickets = self.book.get(hash).into_iter().flat_map(|entry| &entry.tickets);
        let follows = tickets.into_iter().any(|ticket| self.completes(ticket.queue));
        if follows { Follow::Ends } else { Follow::No }
    }

    /// Listens for the next end.
    pub(super) fn await_ends(&mut self) {
        let Some(mut ends) = self.deps.ends.take() else { return };
        let wait = async move {
            match ends.recv().await {
                Some(first) => Event::Finished { first: Box::new(first), more: ends },
                // Nobody tells any more: whoever runs the backends ends the process.
                None => std::future::pending().await,
            }
        };
        self.waits.push(wait.boxed());
    }

    pub(super) fn finished_all(
        &mut self,
        first: Finished,
        mut more: mpsc::UnboundedReceiver<Finished>,
        now: Instant,
    ) {
        self.finished(first, now);
        while let Ok(next) = more.try_recv() {
            self.finished(next, now);
        }
        self.deps.ends = Some(more);
    }

    /// The Job of a followed task is confirmed: its messages wait for its end, but for those that
    /// need not.
    pub(super) fn running(
        &mut self,
        backend: usize,
        hash: TaskHash,
        attempt: Attempt,
        placed: Placed,
        now: Instant,
    ) {
        self.book.put(hash, Place::Running);
        let Some(entry) = self.book.get_mut(&hash) else { return };
        entry.follows = Some((backend, attempt));
        entry.missing = None;
        // It holds nothing up any more.
        entry.held = None;
        let (tickets, ended) = (entry.tickets.clone(), entry.ended.take());
        self.note_confirmed(backend, hash, placed);
        for (at, ticket) in tickets.into_iter().enumerate() {
            let placed = if at == 0 { placed } else { Placed::AlreadyThere };
            if self.completes(ticket.queue) {
                self.decide(Some(&hash), &ticket, Some(backend), Verdict::Scheduled(placed));
            } else {
                self.ack_scheduled(backend, hash, ticket, placed);
            }
        }
        if let Some(ended) = ended {
            self.finished(ended, now);
        }
    }

    /// A Job has ended.
    fn finished(&mut self, finished: Finished, now: Instant) {
        let hash = finished.task;
        let Some(entry) = self.book.get_mut(&hash) else { return };
        match (&entry.place, &finished.how) {
            (Place::InFlight, _) => {
                entry.ended = Some(finished);
                return;
            }
            (Place::Running | Place::Settling, _) => {}
            // It was deleted while its message waited to be taken up again.
            (_, Finish::Cancelled(why)) => {
                let why = why.clone();
                return self.cancelled(hash, &finished.backend, why);
            }
            _ => return,
        }
        let Some((backend, attempt)) = entry.follows else { return };
        let is_it = entry.place == Place::Running
            && attempt == finished.attempt
            && self.deps.backends[backend].candidate.name == finished.backend;
        if !is_it {
            return;
        }
        self.last_progress = now;
        match finished.how {
            Finish::Completed => self.completed(backend, hash),
            Finish::Failed(why) => self.fail(backend, hash, attempt, &why),
            Finish::Cancelled(why) => self.cancelled(hash, &finished.backend, why),
        }
    }

    /// What was told of a followed task while its submission was under way, which was put off: a
    /// Job that was deleted is not made again.
    pub(super) fn was_cancelled(&mut self, hash: TaskHash) -> bool {
        let ended = self.book.get_mut(&hash).and_then(|entry| entry.ended.take());
        let Some(Finished { backend, how: Finish::Cancelled(why), .. }) = ended else {
            return false;
        };
        self.cancelled(hash, &backend, why);
        self.book.get(&hash).is_none_or(|entry| entry.place == Place::Settling)
    }

    /// Somebody deleted the Job of a followed task: what waits for it goes to quarantine. That says
    /// nothing of the messages, so that the fuse is not asked.
    fn cancelled(&mut self, hash: TaskHash, backend: &BackendName, why: String) {
        if self.follow_of(&hash) == Follow::No {
            return;
        }
        let why = Rejection::new(RejectKind::Cancelled, why);
        let names = (0..self.backends.len()).find(|at| self.name_of(*at) == backend);
        self.book.put(hash, Place::Settling);
        let Some(entry) = self.book.get_mut(&hash) else { return };
        entry.rejected = Some(why.clone());
        entry.scheduled_on = names;
        let tickets = entry.tickets.clone();
        for ticket in tickets {
            self.put_away(Some(hash), ticket, why.clone(), Duration::ZERO);
        }
    }

    fn completed(&mut self, backend: usize, hash: TaskHash) {
        self.book.put(hash, Place::Settling);
        let Some(entry) = self.book.get_mut(&hash) else { return };
        entry.done = true;
        entry.scheduled_on = Some(backend);
        let tickets = entry.tickets.clone();
        for ticket in tickets {
            // The others are acked already, or about to be.
            if self.completes(ticket.queue) {
                self.queues[ticket.queue].acks.push(Ack { hash: Some(hash), ticket });
            }
        }
    }

    /// Gives the messages of a failed task back. It leaves the book at once: a message that comes
    /// again is a new try, whatever is known of its going by then.
    fn fail(&mut self, backend: usize, hash: TaskHash, attempt: Attempt, why: &str) {
        let Some(entry) = self.book.remove(&hash) else { return };
        self.remember(hash, &entry);
        let why: Arc<str> = why.into();
        for ticket in entry.tickets {
            // The others have acks under way.
            if self.completes(ticket.queue) {
                self.failing += 1;
                let why = Arc::clone(&why);
                self.give_back(Failing { backend, hash, attempt, ticket, why }, Duration::ZERO);
            }
        }
    }

    fn give_back(&mut self, failing: Failing, pause: Duration) {
        let source = Arc::clone(&self.deps.queues[failing.ticket.queue].queue);
        let call = async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            let result = source.fail(&failing.ticket.lease, &failing.why).await;
            Event::Failed { failing, result }
        };
        self.calls.push(call.boxed());
    }

    pub(super) fn failed(
        &mut self,
        failing: Failing,
        result: Result<(), QueueError>,
        now: Instant,
    ) {
        let leases = Arc::clone(&self.deps.queues[failing.ticket.queue].leases);
        match result {
            Ok(()) => {
                let backend = &self.deps.backends[failing.backend].backend;
                backend.settled(&failing.hash, failing.attempt);
                self.decide(None, &failing.ticket, Some(failing.backend), Verdict::Failed);
            }
            // It comes again, and then its next attempt is made.
            Err(QueueError::LeaseLost) => {}
            Err(error) => {
                tracing::warn!(%error, "a failed task could not be given back, to be tried again");
                if leases.alive(&failing.ticket.lease, now) {
                    return self.give_back(failing, QUEUE_RETRY);
                }
            }
        }
        leases.drop_lease(&failing.ticket.lease);
        self.failing -= 1;
    }

    /// Some messages of a task are acked, and it is not done: the others wait for its end, which
    /// the backend is asked for unless it was.
    pub(super) fn follow_the_rest(&mut self, hash: TaskHash) {
        let Some(entry) = self.book.get(&hash) else { return };
        let rest = entry.place == Place::Settling && !entry.done && entry.rejected.is_none();
        if rest && entry.tickets.iter().all(|ticket| self.completes(ticket.queue)) {
            self.book.put(hash, Place::Ready);
        }
    }

    /// A followed task was found on a backend that it would not go to now: it goes on there.
    pub(super) fn go_on_there(
        &mut self,
        backend: usize,
        hash: TaskHash,
        then: &Then,
        now: Instant,
    ) {
        let Some(key) = self.book.get(&hash).map(|entry| entry.task.key.clone()) else { return };
        let Known::Usable(workload) = self.workloads.ask(&key, now) else {
            return self.book.put(hash, Place::Ready);
        };
        let follow = match then {
            Then::Place => Follow::Ends,
            Then::Reject(_) => Follow::LastEnd,
        };
        self.submit_as(backend, workload, &[hash], follow);
    }

    /// Looks whether the Jobs that are waited for are still there. One may go unheard, while this
    /// process does not lead in its namespace: its task is tried anew then, as after a restart.
    pub(super) fn look_after_running(&mut self, now: Instant) {
        if self.book.running() == 0 || now < self.next_running_look || self.stopping {
            return;
        }
        self.next_running_look = now + LOOK_EVERY;
        let running: Vec<(TaskHash, usize)> = self
            .book
            .iter()
            .filter(|(_, entry)| entry.place == Place::Running)
            .filter_map(|(hash, entry)| Some((*hash, entry.follows?.0)))
            .collect();
        for (hash, backend) in running {
            let lost = self.is_lost(backend);
            let Some(entry) = self.book.get_mut(&hash) else { continue };
            let there = self.deps.backends[backend].backend.knows(&entry.task) != Some(false);
            entry.missing = entry.missing.or(Some(now)).filter(|_| !there);
            let gone = entry.missing.is_some_and(|since| since + MISSING_FOR <= now);
            if gone || lost {
                let job = entry.task.job_name();
                tracing::warn!(%job, "its Job is gone without a word; it is tried anew");
                entry.follows = None;
                entry.missing = None;
                self.book.put(hash, Place::Ready);
            }
        }
    }
}
