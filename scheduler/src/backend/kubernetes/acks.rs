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
}

/// The Jobs of one scheduler in one namespace.
#[derive(Debug)]
pub struct Acks {
    scheduler: String,
    jobs: BTreeMap<String, Tracked>,
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
            {
                let created = job.created;
                self.let_go(created);
            }
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
        self.jobs
            .iter()
            .filter(|(_, job)| job.acked && !job.deleting)
            .filter(|(_, job)| job.ended.is_some_and(|ended| now >= ended + retain))
            .filter(|(_, job)| may_go(&job.uid))
            .take(most)
            .map(|(name, job)| (name.clone(), job.uid.clone()))
            .collect()
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
            let job = Tracked {
                uid: facts.uid.clone(),
                created: facts.created,
                moment,
                watched,
                acked,
                deleting: false,
                ended: None,
            };
            self.jobs.insert(facts.name.clone(), job);
            if !acked {
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
            }
        }
    }

    fn forget(&mut self, name: &str) {
        if let Some(job) = self.jobs.remove(name)
            && !job.acked
        {
            self.let_go(job.created);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::api::Progress;
    use super::*;
    use crate::domain::name::Subject;

    fn hash(n: u32) -> TaskHash {
        TaskHash::of(&"fuzz".into(), &"j".into(), &Subject::Message(n.to_string()))
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).expect("a date")
    }

    fn job(n: u32, created: i64, finished: bool) -> JobFacts {
        JobFacts {
            name: JobName::of(&hash(n), Attempt::FIRST).to_string(),
            uid: format!("uid-{n}"),
            resource_version: "1".into(),
            created: at(created),
            deleting: false,
            farm: true,
            task: Some(hash(n)),
            scheduler: Some("s".into()),
            progress: Progress { finished, ..Progress::default() },
            story: None,
        }
    }

    fn due(acks: &Acks, now: Instant) -> usize {
        acks.due(now, Duration::from_secs(600), 100, |_| true).len()
    }

    #[test]
    fn a_finished_job_goes_ten_minutes_after_its_end_once_its_ack_is_known() {
        let start = Instant::now();
        let mut acks = Acks::new("s");
        acks.listed(Moment(0), &[], start, Moment(1));
        acks.placed(&job(1, 0, false), start, Moment(2));
        acks.seen(&job(1, 0, true), start, Moment(3));
        let later = start + Duration::from_secs(600);
        assert_eq!(due(&acks, later), 0, "its ack is not known");
        acks.acked(&[hash(1)]);
        assert_eq!(due(&acks, later - Duration::from_secs(1)), 0);
        assert_eq!(due(&acks, later), 1);
    }

    #[test]
    fn after_a_restart_the_watermark_tells_whose_ack_is_known() {
        let start = Instant::now();
        let mut acks = Acks::new("s");
        acks.resume(Some(at(50)));
        let theirs = JobFacts { scheduler: Some("other".into()), ..job(3, 0, true) };
        let jobs = [job(1, 49, true), job(2, 50, true), theirs];
        acks.listed(Moment(0), &jobs, start, Moment(1));
        let ten = Duration::from_secs(600);
        assert!(acks.due(start + ten, ten, 100, |_| false).is_empty(), "their end is not told");
        let due = acks.due(start + ten, ten, 100, |_| true);
        assert_eq!(due.into_iter().map(|(_, uid)| uid).collect::<Vec<_>>(), ["uid-1"]);
        // Found late, below the watermark: nobody has said that it was acked.
        acks.seen(&job(4, 10, true), start, Moment(2));
        assert_eq!(self::due(&acks, start + Duration::from_secs(600)), 1);
    }

    #[test]
    fn the_watermark_stands_before_the_oldest_unacked_job_and_the_creates_under_way() {
        let now = Instant::now();
        let mut acks = Acks::new("s");
        acks.placed(&job(1, 100, false), now, Moment(1));
        assert_eq!(acks.watermark(), None, "not listed yet");
        acks.listed(Moment(0), &[job(1, 100, false)], now, Moment(2));
        acks.placed(&job(2, 130, false), now, Moment(3));
        assert_eq!(acks.watermark(), Some(at(100)));
        acks.acked(&[hash(1)]);
        let floor = acks.create_begins();
        assert_eq!(floor, at(120));
        acks.placed(&job(3, 200, false), now, Moment(4));
        acks.acked(&[hash(2), hash(3)]);
        assert_eq!(acks.watermark(), Some(at(120)));
        acks.create_ended(floor);
        assert_eq!(acks.watermark(), Some(at(190)));
        acks.stored(at(190));
        assert_eq!(acks.watermark(), None, "it would not move");
    }

    #[test]
    fn a_job_that_vanished_holds_nothing_and_one_confirmed_during_the_list_stays() {
        let now = Instant::now();
        let mut acks = Acks::new("s");
        acks.placed(&job(1, 100, false), now, Moment(1));
        acks.placed(&job(2, 150, false), now, Moment(5));
        acks.listed(Moment(3), &[], now, Moment(6));
        assert!(!acks.knows(&job(1, 0, false).name) && acks.knows(&job(2, 0, false).name));
        acks.gone(&job(2, 0, false).name, "another uid");
        assert!(acks.knows(&job(2, 0, false).name));
        acks.gone(&job(2, 0, false).name, "uid-2");
        assert_eq!(acks.watermark(), Some(at(140)));
    }
}
