//! The book of tasks in hand: which there are, whose messages they are, and what each waits for.
//!
//! A data structure without decisions or I/O. Every task in the book is in exactly one place:
//! ready, waiting for its workload, blocked with its workload or backend, waiting for a time, or in
//! flight. Only what is ready is looked at when there is room, so that a thousand held tasks cost
//! nothing while others run.

mod entry;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tokio::time::Instant;

pub use entry::{Entry, Place, Ticket};

use crate::domain::name::TaskHash;
use crate::domain::task::{Task, WorkloadKey};
use crate::queue::LeaseId;

/// All tasks in hand.
#[derive(Debug, Default)]
pub struct Book {
    entries: BTreeMap<TaskHash, Entry>,
    ready: VecDeque<TaskHash>,
    by_look_up: BTreeMap<WorkloadKey, VecDeque<TaskHash>>,
    by_workload: BTreeMap<WorkloadKey, VecDeque<TaskHash>>,
    by_backend: BTreeMap<usize, VecDeque<TaskHash>>,
    timed: BTreeSet<(Instant, TaskHash)>,
    in_flight: usize,
    running: usize,
    settling: usize,
}

impl Book {
    /// Takes a delivery in. A task that is here already gets the message as one more ticket, or,
    /// when the message itself is here already, its new lease: the old one has lapsed. Returns the
    /// lease that this one replaces, and whether the task is new.
    pub fn take_in(&mut self, task: Task, ticket: Ticket, now: Instant) -> (Option<LeaseId>, bool) {
        let hash = task.hash;
        if let Some(entry) = self.entries.get_mut(&hash) {
            let same =
                |t: &&mut Ticket| t.queue == ticket.queue && t.message_id == ticket.message_id;
            if let Some(old) = entry.tickets.iter_mut().find(same) {
                return (Some(std::mem::replace(&mut old.lease, ticket.lease)), false);
            }
            entry.tickets.push(ticket);
            return (None, false);
        }
        self.entries.insert(hash, Entry::new(task, ticket, now));
        self.ready.push_back(hash);
        (None, true)
    }

    /// The task of this hash.
    pub fn get(&self, hash: &TaskHash) -> Option<&Entry> {
        self.entries.get(hash)
    }

    /// The task of this hash, to note something on it; its place is moved by [`Self::put`] alone.
    pub fn get_mut(&mut self, hash: &TaskHash) -> Option<&mut Entry> {
        self.entries.get_mut(hash)
    }

    /// Moves a task to another place.
    pub fn put(&mut self, hash: TaskHash, place: Place) {
        if !self.entries.contains_key(&hash) {
            return;
        }
        self.leave(hash);
        match &place {
            Place::Ready => self.ready.push_back(hash),
            Place::LookUp(key) => self.by_look_up.entry(key.clone()).or_default().push_back(hash),
            Place::Workload(key) => {
                self.by_workload.entry(key.clone()).or_default().push_back(hash)
            }
            Place::Backend(at) => self.by_backend.entry(*at).or_default().push_back(hash),
            Place::Until(when) => {
                self.timed.insert((*when, hash));
            }
            Place::InFlight => self.in_flight += 1,
            Place::Running => self.running += 1,
            Place::Settling => self.settling += 1,
        }
        if let Some(entry) = self.entries.get_mut(&hash) {
            entry.place = place;
        }
    }

    /// Takes a task out: it is done with, or given back.
    pub fn remove(&mut self, hash: &TaskHash) -> Option<Entry> {
        self.leave(*hash);
        self.entries.remove(hash)
    }

    /// Takes the next ready task off the front. It stays in the book: put it somewhere.
    pub fn next_ready(&mut self) -> Option<TaskHash> {
        self.ready.front().copied()
    }

    /// Makes the tasks of a workload ready: it was looked up, or may be usable again.
    pub fn wake_workload(&mut self, key: &WorkloadKey) {
        for waiting in [&mut self.by_look_up, &mut self.by_workload] {
            for hash in waiting.remove(key).unwrap_or_default() {
                if let Some(entry) = self.entries.get_mut(&hash) {
                    entry.place = Place::Ready;
                    self.ready.push_back(hash);
                }
            }
        }
    }

    /// Makes up to `n` tasks that wait for a backend ready, the oldest first.
    pub fn wake_backend(&mut self, at: usize, n: usize) {
        let Some(waiting) = self.by_backend.get_mut(&at) else { return };
        let woken: Vec<TaskHash> = waiting.drain(..n.min(waiting.len())).collect();
        for hash in woken {
            self.make_ready(hash);
        }
    }

    /// Makes up to `n` of the tasks that wait for a backend ready: those that are `due`, the oldest
    /// first.
    pub fn wake_due(&mut self, at: usize, n: usize, due: impl Fn(&Entry) -> bool) {
        let Some(waiting) = self.by_backend.get_mut(&at) else { return };
        let is_due = |hash: &&TaskHash| self.entries.get(hash).is_some_and(&due);
        let woken: Vec<TaskHash> = waiting.iter().filter(is_due).take(n).copied().collect();
        if woken.is_empty() {
            return;
        }
        let gone: BTreeSet<TaskHash> = woken.iter().copied().collect();
        waiting.retain(|hash| !gone.contains(hash));
        for hash in woken {
            self.make_ready(hash);
        }
    }

    /// Makes every task ready whose time has come.
    pub fn wake_timed(&mut self, now: Instant) {
        while let Some((when, hash)) = self.timed.first().copied()
            && when <= now
        {
            self.timed.pop_first();
            self.make_ready(hash);
        }
    }

    /// The next time that a task waits for.
    pub fn next_time(&self) -> Option<Instant> {
        self.timed.first().map(|(when, _)| *when)
    }

    /// The workloads whose becoming usable tasks wait for.
    pub fn waiting_workloads(&self) -> impl Iterator<Item = &WorkloadKey> {
        self.by_workload.keys()
    }

    /// How many tasks wait for this backend.
    pub fn waiting_for(&self, backend: usize) -> usize {
        self.by_backend.get(&backend).map_or(0, VecDeque::len)
    }

    /// How many tasks are in hand.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many could go as soon as there is room.
    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    /// How many wait for a look-up only: as good as ready.
    pub fn looked_up(&self) -> usize {
        self.by_look_up.values().map(VecDeque::len).sum()
    }

    /// How many wait for an answer to their submission.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// How many wait for the end of their Job.
    pub fn running(&self) -> usize {
        self.running
    }

    /// How many wait for acks or quarantine records.
    pub fn settling(&self) -> usize {
        self.settling
    }

    /// How many wait for a workload, a backend or a time.
    pub fn held(&self) -> usize {
        let under_way = self.in_flight + self.running + self.settling;
        self.len() - self.ready() - self.looked_up() - under_way
    }

    /// The workloads, two at most, of which a task could go to this backend as soon as there is room.
    pub fn two_waiting(&self, at: usize) -> Vec<WorkloadKey> {
        let mut found: Vec<WorkloadKey> = Vec::new();
        let backend = self.by_backend.get(&at).into_iter().flatten();
        let looked_up = self.by_look_up.values().flatten();
        for hash in self.ready.iter().chain(backend).chain(looked_up) {
            let Some(entry) = self.entries.get(hash) else { continue };
            if !found.contains(&entry.task.key) {
                found.push(entry.task.key.clone());
            }
            if found.len() == 2 {
                break;
            }
        }
        found
    }

    /// Every task in hand, in the order of their hashes.
    pub fn iter(&self) -> impl Iterator<Item = (&TaskHash, &Entry)> {
        self.entries.iter()
    }

    fn make_ready(&mut self, hash: TaskHash) {
        if let Some(entry) = self.entries.get_mut(&hash) {
            entry.place = Place::Ready;
            self.ready.push_back(hash);
        }
    }

    /// Takes a task out of the index of its place.
    fn leave(&mut self, hash: TaskHash) {
        fn cut(list: Option<&mut VecDeque<TaskHash>>, hash: TaskHash) -> bool {
            let Some(list) = list else { return true };
            if list.front() == Some(&hash) {
                list.pop_front();
            } else {
                list.retain(|other| *other != hash);
            }
            list.is_empty()
        }
        match self.entries.get(&hash).map(|entry| entry.place.clone()) {
            Some(Place::Ready) => drop(cut(Some(&mut self.ready), hash)),
            Some(Place::LookUp(key)) if cut(self.by_look_up.get_mut(&key), hash) => {
                self.by_look_up.remove(&key);
            }
            Some(Place::Workload(key)) if cut(self.by_workload.get_mut(&key), hash) => {
                self.by_workload.remove(&key);
            }
            Some(Place::LookUp(_) | Place::Workload(_)) => {}
            Some(Place::Backend(at)) => drop(cut(self.by_backend.get_mut(&at), hash)),
            Some(Place::Until(when)) => drop(self.timed.remove(&(when, hash))),
            Some(Place::InFlight) => self.in_flight -= 1,
            Some(Place::Running) => self.running -= 1,
            Some(Place::Settling) => self.settling -= 1,
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::input_url::InputUrl;
    use jiff::Timestamp;
    use proptest::prelude::*;

    fn task(n: usize) -> Task {
        let key = WorkloadKey { command: "fuzz".into(), job_type: format!("j{}", n % 3).into() };
        let url = InputUrl::parse(&format!("gs://b/{n}")).expect("a URL");
        Task::new(key, url, "m", Timestamp::UNIX_EPOCH)
    }

    fn ticket(message: usize, lease: usize) -> Ticket {
        Ticket { queue: 0, lease: LeaseId(lease.to_string()), message_id: message.to_string() }
    }

    #[test]
    fn one_input_twice_is_one_task_with_two_tickets_and_a_redelivery_replaces_its_lease() {
        let (mut book, now) = (Book::default(), Instant::now());
        assert_eq!(book.take_in(task(1), ticket(7, 1), now), (None, true));
        assert_eq!(book.take_in(task(1), ticket(8, 2), now), (None, false));
        let again = book.take_in(task(1), ticket(7, 3), now);
        assert_eq!(again, (Some(LeaseId("1".into())), false));
        assert_eq!(book.get(&task(1).hash).map(|e| e.tickets.len()), Some(2));
        assert_eq!(book.len(), 1);
    }

    proptest! {
        #[test]
        fn every_task_is_in_exactly_one_place(
            moves in prop::collection::vec((0_usize..8, 0_usize..10), 1..200)
        ) {
            let (mut book, start) = (Book::default(), Instant::now());
            for (n, kind) in moves {
                let (task, hash) = (task(n), task(n).hash);
                match kind {
                    0 | 1 => drop(book.take_in(task, ticket(n, n), start)),
                    2 if n % 2 == 0 => book.put(hash, Place::LookUp(task.key)),
                    2 => book.put(hash, Place::Workload(task.key)),
                    3 => book.put(hash, Place::Backend(n % 2)),
                    4 => book.put(hash, Place::Until(start + std::time::Duration::from_secs(n as u64))),
                    5 => book.put(hash, Place::InFlight),
                    6 => book.wake_backend(n % 2, 1),
                    7 => book.wake_workload(&task.key),
                    8 => book.put(hash, Place::Running),
                    _ => drop(book.remove(&hash)),
                }
                let indexed = book.ready.len() + book.looked_up()
                    + book.by_workload.values().map(VecDeque::len).sum::<usize>()
                    + book.by_backend.values().map(VecDeque::len).sum::<usize>()
                    + book.timed.len() + book.in_flight + book.running + book.settling;
                prop_assert_eq!(indexed, book.len());
                prop_assert!(book.ready.iter().all(|h| book.entries[h].place == Place::Ready));
            }
        }
    }
}
