//! A queue of what is posted to this process: whoever posts a task waits for its outcome.
//!
//! Nothing lasts here. An ack, a deferral or a quarantine answers all who posted the task, and it is
//! gone: what was not scheduled is the sender's to keep. A lease never lapses by itself, since its
//! holder is this process. A task that is posted again while it is under way is not delivered again:
//! both senders get the one answer.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::sync::{Notify, oneshot};

use super::{Delivery, LeaseId, Queue, QueueError};
use crate::clock::Clock;
use crate::domain::name::{QueueName, TaskHash};
use crate::domain::outcome::{Deferral, Rejection};

/// The most tasks that are under way at once: with the longest URLs about 1.3 GB, with usual ones
/// ten megabytes.
const MOST: usize = 10_000;

/// What became of a posted task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Its Job is confirmed.
    Scheduled,
    /// Not now.
    Deferred(Deferral),
    /// Never.
    Rejected(Rejection),
    /// This process stops. A create that was under way may still have come about.
    Stopped,
}

/// A task as it is posted.
#[derive(Clone, PartialEq, Eq)]
pub struct Posted {
    /// Its identity.
    pub hash: TaskHash,
    /// The id that its sender gave it.
    pub message_id: String,
    /// All that the message says.
    pub attributes: BTreeMap<String, String>,
}

/// What became of a wish to take a posted task back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdrawn {
    /// Nothing comes of it.
    Gone,
    /// Another sender waits for the same task, which stays for its sake.
    Shared,
    /// It is leased or answered already.
    TooLate,
}

/// Too many tasks are under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{MOST} posted tasks are under way; post again when some have ended")]
pub struct Full;

struct Waiting {
    posted: Posted,
    published_at: Timestamp,
    lease: Option<LeaseId>,
    senders: Vec<oneshot::Sender<Answer>>,
}

#[derive(Default)]
struct State {
    tasks: BTreeMap<TaskHash, Waiting>,
    /// Those that are not leased, in the order in which they came.
    order: VecDeque<TaskHash>,
    by_lease: BTreeMap<LeaseId, TaskHash>,
    leases: u64,
}

/// The queue.
pub struct PushQueue {
    name: QueueName,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    changed: Notify,
}

impl PushQueue {
    /// An empty one.
    pub fn new(name: QueueName, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { name, clock, state: Mutex::default(), changed: Notify::new() })
    }

    /// Puts a task in; the answer comes when it is settled.
    ///
    /// # Errors
    /// [`Full`]: it was not put in.
    pub fn push(&self, posted: Posted) -> Result<oneshot::Receiver<Answer>, Full> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.lock();
        if let Some(waiting) = state.tasks.get_mut(&posted.hash) {
            waiting.senders.push(sender);
            return Ok(receiver);
        }
        if state.tasks.len() >= MOST {
            return Err(Full);
        }
        let (hash, published_at) = (posted.hash, self.clock.wall());
        let waiting = Waiting { posted, published_at, lease: None, senders: vec![sender] };
        state.tasks.insert(hash, waiting);
        state.order.push_back(hash);
        drop(state);
        self.changed.notify_one();
        Ok(receiver)
    }

    /// Takes a task back whose sender will wait no longer, if it is not leased. The receiver stays
    /// open where that comes too late.
    pub fn withdraw(&self, hash: &TaskHash, receiver: &mut oneshot::Receiver<Answer>) -> Withdrawn {
        let mut state = self.lock();
        match state.tasks.get(hash) {
            Some(waiting) if waiting.lease.is_none() => {
                receiver.close();
                if !waiting.senders.iter().all(oneshot::Sender::is_closed) {
                    return Withdrawn::Shared;
                }
                state.tasks.remove(hash);
                state.order.retain(|other| other != hash);
                Withdrawn::Gone
            }
            _ => Withdrawn::TooLate,
        }
    }

    /// How many are under way.
    pub fn len(&self) -> usize {
        self.lock().tasks.len()
    }

    /// Whether none is under way.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole after every statement, so a panic elsewhere leaves it usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, n: usize) -> Vec<Delivery> {
        let mut state = self.lock();
        let state = &mut *state;
        let taken = state.order.len().min(n);
        let mut deliveries = Vec::with_capacity(taken);
        for hash in state.order.drain(..taken) {
            let Some(waiting) = state.tasks.get_mut(&hash) else { continue };
            state.leases += 1;
            let lease = LeaseId(state.leases.to_string());
            waiting.lease = Some(lease.clone());
            state.by_lease.insert(lease.clone(), hash);
            deliveries.push(Delivery {
                lease,
                message_id: waiting.posted.message_id.clone(),
                attributes: waiting.posted.attributes.clone(),
                published_at: waiting.published_at,
                deliveries: Some(1),
            });
        }
        deliveries
    }

    /// Answers those who wait for the tasks of these leases.
    fn answer(&self, leases: &[LeaseId], answer: &Answer) -> Vec<Result<(), QueueError>> {
        let mut state = self.lock();
        let one = |lease: &LeaseId| {
            let hash = state.by_lease.remove(lease).ok_or(QueueError::LeaseLost)?;
            let waiting = state.tasks.remove(&hash).ok_or(QueueError::LeaseLost)?;
            for sender in waiting.senders {
                // Who has gone away finds its Job when it posts the task again.
                let _ = sender.send(answer.clone());
            }
            Ok(())
        };
        leases.iter().map(one).collect()
    }
}

#[async_trait]
impl Queue for PushQueue {
    fn name(&self) -> &QueueName {
        &self.name
    }

    async fn lease(
        &self,
        n: usize,
        _lease_for: Duration,
        wait: Duration,
    ) -> Result<Vec<Delivery>, QueueError> {
        let until = self.clock.mono() + wait;
        loop {
            let taken = self.take(n);
            if !taken.is_empty() || self.clock.mono() >= until {
                return Ok(taken);
            }
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }

    async fn extend(&self, leases: &[LeaseId], _: Duration) -> Vec<Result<(), QueueError>> {
        let state = self.lock();
        let known = |lease| state.by_lease.contains_key(lease);
        leases.iter().map(|l| if known(l) { Ok(()) } else { Err(QueueError::LeaseLost) }).collect()
    }

    async fn ack(&self, leases: &[LeaseId]) -> Vec<Result<(), QueueError>> {
        self.answer(leases, &Answer::Scheduled)
    }

    async fn release(&self, leases: &[LeaseId], _: Duration) -> Vec<Result<(), QueueError>> {
        self.answer(leases, &Answer::Stopped)
    }

    async fn defer(&self, leases: &[LeaseId], why: &Deferral) -> Vec<Result<(), QueueError>> {
        self.answer(leases, &Answer::Deferred(why.clone()))
    }

    async fn quarantine(&self, lease: &LeaseId, why: &Rejection) -> Result<(), QueueError> {
        let answered = self.answer(std::slice::from_ref(lease), &Answer::Rejected(why.clone()));
        answered.into_iter().next().unwrap_or(Err(QueueError::LeaseLost))
    }

    /// Nothing is leased any more: who still waits is told so.
    async fn close(&self) {
        let mut state = self.lock();
        state.order.clear();
        state.by_lease.clear();
        for waiting in std::mem::take(&mut state.tasks).into_values() {
            for sender in waiting.senders {
                let _ = sender.send(Answer::Stopped);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::PacedClock;
    use crate::domain::input_url::InputUrl;
    use crate::domain::task::{Task, WorkloadKey};

    fn posted(n: usize) -> Posted {
        let key = WorkloadKey { command: "fuzz".into(), job_type: "j".into() };
        let url = InputUrl::parse(&format!("gs://b/{n}")).expect("a URL");
        let hash = Task::new(key, url, "m", Timestamp::UNIX_EPOCH).hash;
        Posted { hash, message_id: n.to_string(), attributes: BTreeMap::new() }
    }

    fn queue() -> Arc<PushQueue> {
        let clock = PacedClock::starting_at(Timestamp::UNIX_EPOCH);
        PushQueue::new("push".into(), Arc::new(clock))
    }

    async fn lease(queue: &PushQueue) -> Vec<LeaseId> {
        let wait = Duration::from_secs(1);
        let taken = queue.lease(9, wait, wait).await.expect("a lease");
        taken.into_iter().map(|delivery| delivery.lease).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn each_sender_gets_its_tasks_answer_and_the_task_is_gone() {
        let queue = queue();
        let (one, two) = (queue.push(posted(1)).expect("room"), queue.push(posted(2)));
        let again = queue.push(posted(1)).expect("room");
        let leases = lease(&queue).await;
        assert_eq!(leases.len(), 2, "the one posted twice is delivered once");
        assert_eq!(queue.ack(&leases[..1]).await, [Ok(())]);
        assert_eq!((one.await, again.await), (Ok(Answer::Scheduled), Ok(Answer::Scheduled)));
        assert_eq!(queue.ack(&leases[..1]).await, [Err(QueueError::LeaseLost)]);
        assert_eq!(queue.release(&leases[1..], Duration::ZERO).await, [Ok(())]);
        assert_eq!(two.expect("room").await, Ok(Answer::Stopped));
        assert!(queue.is_empty() && lease(&queue).await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_is_not_leased_can_be_withdrawn() {
        let queue = queue();
        let push = |n| queue.push(posted(n)).expect("room");
        assert_eq!(queue.withdraw(&posted(1).hash, &mut push(1)), Withdrawn::Gone);
        assert!(lease(&queue).await.is_empty(), "nothing comes of it");
        let (mut one, mut other) = (push(2), push(2));
        assert_eq!(queue.withdraw(&posted(2).hash, &mut one), Withdrawn::Shared);
        let leases = lease(&queue).await;
        assert_eq!(queue.withdraw(&posted(2).hash, &mut other), Withdrawn::TooLate);
        queue.ack(&leases).await;
        assert_eq!(other.await, Ok(Answer::Scheduled));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_kept_for_as_long_as_its_task_is_under_way() {
        let queue = queue();
        let answer = queue.push(posted(1)).expect("room");
        let leases = lease(&queue).await;
        assert_eq!(queue.extend(&leases, Duration::ZERO).await, [Ok(())]);
        queue.close().await;
        assert_eq!(answer.await, Ok(Answer::Stopped));
        assert_eq!(queue.extend(&leases, Duration::ZERO).await, [Err(QueueError::LeaseLost)]);
    }
}
