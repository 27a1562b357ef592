//! Which of our Jobs may be deleted: those that ended some time ago and whose message is known to
//! be acked. Pure.
//!
//! An ack is known from this process, or, for a Job of an earlier one, from the settled watermark:
//! every Job of this scheduler created before it (by the server's clock) has had its ack
//! confirmed. The watermark stands at the oldest creation whose ack is not known, creates still
//! under way included. A Job that nobody acks is left to its own time to live.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::api::JobFacts;
use super::ledger::Moment;
use crate::domain::name::{Attempt, JobName, TaskHash};

/// How far the clocks of several API servers may be apart, and how late a create whose answer was
/// lost may land: the watermark keeps that far behind the newest creation seen.
const SKEW: SignedDuration = SignedDuration::from_secs(10);

#[derive(Debug)]
struct Tracked {
    uid: String,
    created: Timestamp,
    moment: Moment,
    /// The watch or a list has shown it.
    watched: bool,
    acked: bool,
    deleting: bool,
    ended: Option<Instant>,
    /// It has ended so: complete, or not.
    complete: Option<bool>,
    /// Its message waits for its end, and is acked or given back for this very attempt.
    followed: bool,
    task: Option<TaskHash>,
    attempt: Attempt,
}

/// The Jobs of one scheduler in one namespace.
#[derive(Debug)]
pub struct Acks {
    scheduler: String,
    jobs: BTreeMap<String, Tracked>,
    /// The names of the attempts after the first one, of the few tasks that have some.
    later: BTreeMap<TaskHash, BTreeMap<Attempt, String>>,
    /// What holds the watermark back: creations not acked, and creates under way.
    holding: BTreeMap<Timestamp, usize>,
    newest: Option<Timestamp>,
    settled: Option<Timestamp>,
    listed: bool,
}

impl Acks {
    /// Nothing known yet; `settled` is the stored watermark.
    pub fn new(scheduler: &str) -> Self {
        Self {
            scheduler: scheduler.to_owned(),
            jobs: BTreeMap::new(),
            later: BTreeMap::new(),
            holding: BTreeMap::new(),
            newest: None,
            settled: None,
            listed: false,
        }
    }

    /// Takes the stored watermark; before the first list.
    pub fn resume(&mut self, settled: Option<Timestamp>) {
        self.settled = self.settled.max(settled);
    }

    fn hold(&mut self, at: Timestamp) {
        *self.holding.entry(at).or_default() += 1;
    }

    fn let_go(&mut self, at: Timestamp) {
        if let Some(count) = self.holding.get_mut(&at) {
            *count -= 1;
            if *count == 0 {
                self.holding.remove(&at);
            }
        }
    }

    /// A create is about to begin; what it returns is for [`create_ended`](Self::create_ended).
    pub fn create_begins(&mut self) -> Timestamp {
        let floor = self
            .newest
            .and_then(|newest| newest.checked_sub(SKEW).ok())
            .unwrap_or(Timestamp::UNIX_EPOCH);
        self.hold(floor);
        floor
    }

    /// A create has ended; its Job, if confirmed, was told to [`placed`](Self::placed) before.
    pub fn create_ended(&mut self, floor: Timestamp) {
        self.let_go(floor);
    }

    /// Whether a Job of this name is known to be there, finished or not.
    pub fn knows(&self, name: &str) -> bool {
        self.jobs.contains_key(name)
    }

    /// An answer confirmed this Job, for a task whose message will now be acked.
    pub fn placed(&mut self, facts: &JobFacts, now: Instant, moment: Moment) {
        if self.is_ours(facts) {
            self.track(facts, now, moment, (false, false));
        }
    }

    fn is_ours(&self, facts: &JobFacts) -> bool {
        facts.scheduler.as_deref() == Some(&self.scheduler)
    }

    /// A Job is there, says the watch.
    pub fn seen(&mut self, facts: &JobFacts, now: Instant, moment: Moment) {
        if self.is_ours(facts) {
            self.track(facts, now, moment, (true, false));
        }
    }

    /// All Jobs, by a consistent list begun at `began`: the others are gone.
    pub fn listed(&mut self, began: Moment, jobs: &[JobFacts], now: Instant, moment: Moment) {
        let first = !std::mem::replace(&mut self.listed, true);
        let there: std::collections::BTreeSet<(&str, &str)> =
            jobs.iter().map(|job| (job.name.as_str(), job.uid.as_str())).collect();
        let gone: Vec<String> = self
            .jobs
            .iter()
            .filter(|(name, job)| {
                job.moment < began && !there.contains(&(name.as_str(), job.uid.as_str()))
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            self.forget(&name);
        }
        for job in jobs {
            if self.is_ours(job) {
                let acked = first && self.settled.is_some_and(|settled| job.created < settled);
                self.track(job, now, moment, (true, acked));
            }
        }
    }

    /// A Job is gone.
    pub fn gone(&mut self, name: &str, uid: &str) {
        if self.jobs.get(name).is_some_and(|job| job.uid == uid) {
            self.forget(name);
        }
    }

    /// A GET begun at `began` shows no Job of this name.
    pub fn absent(&mut self, name: &str, began: Moment) {
        if self.jobs.get(name).is_some_and(|job| job.moment < began) {
            self.forget(name);
        }
    }

    /// The messages of these tasks are acked.
    pub fn acked(&mut self, hashes: &[TaskHash]) {
        for hash in hashes {
            let name = JobName::of(hash, Attempt::FIRST);
            if let Some(job) = self.jobs.get_mut(name.as_str())
                && !std::mem::replace(&mut job.acked, true)
                && !job.followed
            {
                let created = job.created;
                self.let_go(created);
            }
            self.settled(hash, None);
        }
    }

    /// The watermark as it may be stored now; `None` before the first list, or when it would not
    /// move.
    pub fn watermark(&self) -> Option<Timestamp> {
        let newest = self.newest?.checked_sub(SKEW).ok()?;
        let held = self.holding.keys().next().copied().unwrap_or(newest);
        let settled = newest.min(held);
        (self.listed && self.settled.is_none_or(|stored| stored < settled)).then_some(settled)
    }

    /// The watermark is stored.
    pub fn stored(&mut self, settled: Timestamp) {
        self.settled = self.settled.max(Some(settled));
    }

    /// Up to `most` Jobs (name and uid) to delete: ended `retain` ago or longer, ack known, and
    /// nothing wanted of them any more.
    pub fn due(
        &self,
        now: Instant,
        retain: Duration,
        most: usize,
        may_go: impl Fn(&str) -> bool,
    ) -> Vec<(String, String)> {
        let may_go = |job: &Tracked| {
            let ended = job.ended.is_some_and(|ended| now >= ended + retain);
            job.acked && !job.deleting && ended && may_go(&job.uid)
        };
        self.jobs
            .iter()
            .filter(|(_, job)| self.chain(job).is_some_and(|mut chain| chain.all(&may_go)))
            .take(most)
            .map(|(name, job)| (name.clone(), job.uid.clone()))
            .collect()
    }

    /// The Jobs of a task, if this one is the lowest attempt that is left. A chain goes as a whole,
    /// the lowest attempt first and each in a look of its own: what is left at a crash must never
    /// look like a failure that was not followed by an attempt.
    fn chain<'a>(&'a self, job: &'a Tracked) -> Option<impl Iterator<Item = &'a Tracked>> {
        let later = job.task.and_then(|task| self.later.get(&task));
        let first =
            |task: &TaskHash| self.jobs.contains_key(JobName::of(task, Attempt::FIRST).as_str());
        let lowest = later.and_then(|later| later.keys().next()).copied();
        let is_lowest = job.attempt == Attempt::FIRST
            || lowest == Some(job.attempt) && !job.task.as_ref().is_some_and(first);
        let others = later.into_iter().flatten().filter_map(|(_, name)| self.jobs.get(name));
        let others = others.filter(|other| other.attempt != job.attempt);
        is_lowest.then(|| std::iter::once(job).chain(others))
    }

    fn track(
        &mut self,
        facts: &JobFacts,
        now: Instant,
        moment: Moment,
        (watched, acked): (bool, bool),
    ) {
        self.newest = self.newest.max(Some(facts.created));
        if let Some(job) = self.jobs.get(&facts.name)
            && job.uid != facts.uid
        {
            if facts.created < job.created {
                return;
            }
            self.forget(&facts.name);
        }
        if !self.jobs.contains_key(&facts.name) {
            let attempt = facts.story.as_ref().and_then(|story| story.attempt);
            let attempt = attempt.unwrap_or(Attempt::FIRST);
            // It is the first attempt that the message's ack is owed to, unless it is followed:
            // no watermark tells of those.
            let followed = facts.story.as_ref().is_some_and(|story| story.followed);
            let acked = (acked || attempt != Attempt::FIRST) && !followed;
            if let Some(task) = facts.task.filter(|_| attempt != Attempt::FIRST) {
                self.later.entry(task).or_default().insert(attempt, facts.name.clone());
            }
            let job = Tracked {
                task: facts.task,
                attempt,
                uid: facts.uid.clone(),
                created: facts.created,
                moment,
                watched,
                acked,
                deleting: false,
                ended: None,
                complete: None,
                followed,
            };
            self.jobs.insert(facts.name.clone(), job);
            if !acked && !followed {
                self.hold(facts.created);
            }
        }
        if let Some(job) = self.jobs.get_mut(&facts.name) {
            // As in the account of room: an answer may be older than it arrives.
            if watched || !job.watched {
                job.moment = moment;
            }
            job.watched |= watched;
            job.deleting |= facts.deleting;
            if facts.progress.finished && job.ended.is_none() {
                job.ended = Some(now);
                let end = facts.story.as_ref().and_then(|story| story.end.as_ref());
                job.complete = end.map(|end| end.complete);
            }
        }
    }

    fn forget(&mut self, name: &str) {
        let Some(job) = self.jobs.remove(name) else { return };
        if let Some(task) = job.task
            && let Some(later) = self.later.get_mut(&task)
        {
            later.remove(&job.attempt);
            if later.is_empty() {
                self.later.remove(&task);
            }
        }
        if !job.acked && !job.followed {
            self.let_go(job.created);
        }
    }
}

mod followed;
pub use followed::Latest;

#[cfg(test)]
mod tests;
