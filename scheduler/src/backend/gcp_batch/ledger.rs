//! What is known: open plans, jobs and their tasks, what is taken, and which records must change.
//!
//! Pure bookkeeping; the rule behind it is [`plan`](super::plan)'s. It is read anew from the records
//! and the jobs at every start, so that it may vanish at any time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::answer::{Job, State};
use super::plan::{JobId, Keys, Mark, Plan};
use crate::domain::room::Occupancy;

/// How long after it was last asked for a job that is not there can still come to be.
pub const LATE: Duration = Duration::from_secs(600);
/// How long after a job's creation its tasks' messages may still be delivered again: signed inputs
/// are dead by then.
pub const REDELIVERED_WITHIN: SignedDuration = SignedDuration::from_hours(26);
/// The most bytes of this backend's records. All records of a scheduler share the 1 MiB of a
/// ConfigMap.
const BUDGET: usize = 400 * 1024;

/// An open plan.
#[derive(Debug)]
struct Open {
    plan: Plan,
    /// A call is at work on it.
    busy: bool,
    /// When a request for its job was last sent that may still make it.
    maybe_sent: Option<Instant>,
}

/// A job that is there, or was.
#[derive(Debug, Clone)]
pub struct Known {
    /// Its parent.
    pub parent: String,
    /// When it was created.
    pub created: Timestamp,
    /// Its state, as last seen.
    pub state: State,
    /// How many tasks it has.
    pub tasks: usize,
    /// How many of them are over.
    pub done: usize,
    /// Its end was told, or is not to be.
    pub told: bool,
    members: Vec<Mark>,
}

impl Known {
    /// Whether it is not over yet.
    pub fn is_live(&self) -> bool {
        !self.state.is_over()
    }
}

/// Why there can be no plan now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyPlans(pub usize);

/// What is known of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// A job has it.
    Placed,
    /// The job that has it is being deleted.
    Leaving(JobId),
    /// It is a candidate of an open plan.
    Bound(JobId),
    /// No job of ours has it, nor ever will by a request made before.
    Free,
}

/// The ledger.
#[derive(Debug)]
pub struct Ledger {
    keys: Keys,
    /// Changes whenever the records are read anew.
    pub epoch: u64,
    plans: BTreeMap<JobId, Open>,
    bound: BTreeMap<Mark, JobId>,
    jobs: BTreeMap<JobId, Known>,
    /// Those of them that are not over: a day's jobs are many more.
    live: BTreeSet<JobId>,
    index: BTreeMap<Mark, JobId>,
    /// The records that are there, or will be with the next write, and their sizes.
    recorded: BTreeMap<JobId, usize>,
    dirty: BTreeMap<String, Option<String>>,
    parents: BTreeSet<String>,
}

impl Ledger {
    /// An empty one.
    pub fn new(keys: Keys) -> Self {
        Self {
            keys,
            epoch: 0,
            plans: BTreeMap::new(),
            bound: BTreeMap::new(),
            jobs: BTreeMap::new(),
            live: BTreeSet::new(),
            index: BTreeMap::new(),
            recorded: BTreeMap::new(),
            dirty: BTreeMap::new(),
            parents: BTreeSet::new(),
        }
    }

    /// Takes the records as they are: every plan in them is open, and may have been asked for until
    /// now. What is known of jobs stays.
    ///
    /// # Errors
    /// The key of a record that is none of ours to read: nothing can be created beside it.
    pub fn load(&mut self, records: &BTreeMap<String, String>, now: Instant) -> Result<(), String> {
        let mut plans = BTreeMap::new();
        for (key, text) in records {
            let Some(id) = self.keys.id(key) else { continue };
            let plan = Plan::decode(text).ok_or_else(|| key.clone())?;
            plans.insert(id, (plan, text.len()));
        }
        let key = self.keys.parents();
        let recorded: BTreeSet<String> = match records.get(&key) {
            Some(text) => serde_json::from_str(text).map_err(|_| key)?,
            None => BTreeSet::new(),
        };
        self.epoch += 1;
        self.plans.clear();
        self.bound.clear();
        self.recorded.clear();
        self.dirty.clear();
        self.parents.extend(recorded.iter().cloned());
        if self.parents != recorded {
            self.parents_changed();
        }
        for (id, (plan, bytes)) in plans {
            self.parents.insert(plan.parent.clone());
            self.bound.extend(plan.members.iter().map(|mark| (*mark, id.clone())));
            self.recorded.insert(id.clone(), bytes);
            self.plans.insert(id, Open { plan, busy: false, maybe_sent: Some(now) });
        }
        Ok(())
    }

    /// Where jobs may be.
    pub fn parents(&self) -> &BTreeSet<String> {
        &self.parents
    }

    /// Adds a parent; its record comes with the next write, before any plan in it.
    pub fn add_parent(&mut self, parent: &str) {
        if self.parents.insert(parent.to_owned()) {
            self.parents_changed();
        }
    }

    fn parents_changed(&mut self) {
        let all = serde_json::to_string(&self.parents).unwrap_or_default();
        self.dirty.insert(self.keys.parents(), Some(all));
    }

    /// What is known of a task.
    pub fn standing(&self, mark: Mark) -> Standing {
        if let Some(id) = self.index.get(&mark) {
            return match self.jobs.get(id).map(|known| known.state) {
                Some(State::DeletionInProgress) => Standing::Leaving(id.clone()),
                _ => Standing::Placed,
            };
        }
        self.bound.get(&mark).map_or(Standing::Free, |id| Standing::Bound(id.clone()))
    }

    /// Opens a plan for free tasks, busy with the caller's work.
    ///
    /// # Errors
    /// When the records are full of plans that are not settled.
    pub fn open(&mut self, id: &JobId, plan: Plan) -> Result<(), TooManyPlans> {
        let text = plan.encode();
        let used: usize = self.recorded.values().sum();
        if used + text.len() > BUDGET {
            return Err(TooManyPlans(self.recorded.len()));
        }
        self.bound.extend(plan.members.iter().map(|mark| (*mark, id.clone())));
        self.recorded.insert(id.clone(), text.len());
        self.dirty.insert(self.keys.plan(id), Some(text));
        self.plans.insert(id.clone(), Open { plan, busy: true, maybe_sent: None });
        Ok(())
    }

    /// Takes an open plan to work on; `None`: it is not open, or somebody else works on it.
    pub fn claim(&mut self, id: &JobId) -> Option<Plan> {
        let open = self.plans.get_mut(id).filter(|open| !open.busy)?;
        open.busy = true;
        Some(open.plan.clone())
    }

    /// Ends the work on a plan. One that was never asked for is dropped.
    pub fn leave(&mut self, id: &JobId) {
        let Some(open) = self.plans.get_mut(id) else { return };
        open.busy = false;
        if open.maybe_sent.is_none() {
            self.void(id);
        }
    }

    /// Notes that a request is about to be sent; what stood before.
    pub fn sending(&mut self, id: &JobId, now: Instant) -> Option<Instant> {
        self.plans.get_mut(id).and_then(|open| open.maybe_sent.replace(now))
    }

    /// Notes that the request just sent has made nothing and never will.
    pub fn refused(&mut self, id: &JobId, before: Option<Instant>) {
        if let Some(open) = self.plans.get_mut(id) {
            open.maybe_sent = before;
        }
    }

    /// Drops a plan whose job certainly can't come to be: its candidates are free.
    pub fn void(&mut self, id: &JobId) {
        self.unbind(id);
        self.forget_record(id);
    }

    fn unbind(&mut self, id: &JobId) {
        let Some(open) = self.plans.remove(id) else { return };
        for mark in &open.plan.members {
            if self.bound.get(mark) == Some(id) {
                self.bound.remove(mark);
            }
        }
    }

    fn forget_record(&mut self, id: &JobId) {
        if self.recorded.remove(id).is_some() {
            self.dirty.insert(self.keys.plan(id), None);
        }
    }

    /// A job is there with these tasks. Candidates of its plan that it lacks are free.
    pub fn confirm(&mut self, id: &JobId, parent: &str, job: &Job, members: &[Mark]) {
        let named: BTreeSet<Mark> = members.iter().copied().collect();
        if self.plans.get(id).is_some_and(|open| open.plan.members != named) {
            let plan = Plan { parent: parent.to_owned(), members: named, rewritten: 0 };
            let text = plan.encode();
            self.recorded.insert(id.clone(), text.len());
            self.dirty.insert(self.keys.plan(id), Some(text));
        }
        self.unbind(id);
        self.index.extend(members.iter().map(|mark| (*mark, id.clone())));
        let known = Known {
            parent: parent.to_owned(),
            created: job.create_time.unwrap_or(Timestamp::MAX),
            state: job.status.state,
            tasks: members.len(),
            done: job.done(),
            // What was over before we looked is an earlier process's to tell.
            told: job.status.state.is_over(),
            members: members.to_vec(),
        };
        if !self.jobs.contains_key(id) {
            self.jobs.insert(id.clone(), known);
            self.count(id);
        }
    }

    /// Keeps the set of live jobs.
    fn count(&mut self, id: &JobId) {
        match self.jobs.get(id).is_some_and(Known::is_live) {
            true => self.live.insert(id.clone()),
            false => self.live.remove(id),
        };
    }

    /// A list shows a job: its record has done its service, and its state is news.
    ///
    /// Answers whether it is known: else its tasks must be read.
    pub fn listed(&mut self, id: &JobId, job: &Job) -> bool {
        let Some(known) = self.jobs.get_mut(id) else { return false };
        known.state = job.status.state;
        known.done = job.done();
        if let Some(created) = job.create_time {
            known.created = created;
        }
        self.count(id);
        if !self.plans.contains_key(id) {
            self.forget_record(id);
        }
        true
    }

    /// Sets a job's state, as it was found without a list.
    pub fn found(&mut self, id: &JobId, state: State) {
        if let Some(known) = self.jobs.get_mut(id) {
            known.state = state;
        }
        self.count(id);
    }

    /// A job is not there any more. The tasks of one that was being deleted are free; those of one
    /// that merely can't be found are not, since that may be an answer from before its creation.
    pub fn gone(&mut self, id: &JobId) {
        let Some(known) = self.jobs.get_mut(id) else { return };
        if std::mem::replace(&mut known.state, State::Cancelled) == State::DeletionInProgress {
            for mark in std::mem::take(&mut known.members) {
                if self.index.get(&mark) == Some(id) {
                    self.index.remove(&mark);
                }
            }
        }
        self.count(id);
    }

    /// How many plans are open.
    pub fn open_plans(&self) -> usize {
        self.plans.len()
    }

    /// The end of a job was told.
    pub fn told(&mut self, id: &JobId) {
        if let Some(known) = self.jobs.get_mut(id) {
            known.told = true;
        }
    }

    /// All known jobs.
    pub fn jobs(&self) -> impl Iterator<Item = (&JobId, &Known)> {
        self.jobs.iter()
    }

    /// The open plans that nobody works on.
    pub fn idle_plans(&self) -> Vec<JobId> {
        self.plans.iter().filter(|(_, open)| !open.busy).map(|(id, _)| id.clone()).collect()
    }

    /// Whether a plan's job, which is not there, can't come to be any more.
    pub fn is_past(&self, id: &JobId, now: Instant) -> bool {
        let sent = self.plans.get(id).and_then(|open| open.maybe_sent);
        sent.is_none_or(|sent| now.duration_since(sent) > LATE)
    }

    /// Forgets jobs that are over and whose tasks can't come again.
    pub fn expire(&mut self, now: Timestamp) {
        let due = |known: &Known| {
            !known.is_live() && known.told && now.duration_since(known.created) > REDELIVERED_WITHIN
        };
        let gone: Vec<JobId> =
            self.jobs.iter().filter(|(_, known)| due(known)).map(|(id, _)| id.clone()).collect();
        for id in gone {
            let Some(known) = self.jobs.remove(&id) else { continue };
            for mark in known.members {
                if self.index.get(&mark) == Some(&id) {
                    self.index.remove(&mark);
                }
            }
        }
    }

    /// What is taken: tasks of jobs that are not over, and all candidates of open plans.
    pub fn occupancy(&self, pending_limit: usize, live_limit: Option<usize>) -> Occupancy {
        let planned: usize = self.plans.values().map(|open| open.plan.members.len()).sum();
        let live = self.live.iter().filter_map(|id| self.jobs.get(id));
        let (mut pending, mut unfinished) = (planned, planned);
        for known in live {
            let left = known.tasks.saturating_sub(known.done);
            unfinished += left;
            pending += if known.state.waits() { left } else { 0 };
        }
        Occupancy { pending, pending_limit, live: unfinished, live_limit }
    }

    /// Whether there are records to be removed.
    pub fn has_settled(&self) -> bool {
        self.dirty.values().any(Option::is_none)
    }

    /// The records that must change.
    pub fn changes(&self) -> Vec<(String, Option<String>)> {
        self.dirty.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Has a plan's record written once more, with something new in it.
    pub fn rewrite(&mut self, id: &JobId) {
        if let Some(open) = self.plans.get_mut(id) {
            open.plan.rewritten = open.plan.rewritten.wrapping_add(1);
            self.dirty.insert(self.keys.plan(id), Some(open.plan.encode()));
        }
    }

    /// These changes are durable.
    pub fn wrote(&mut self, changes: &[(String, Option<String>)]) {
        for (key, value) in changes {
            if self.dirty.get(key) == Some(value) {
                self.dirty.remove(key);
            }
        }
    }
}
