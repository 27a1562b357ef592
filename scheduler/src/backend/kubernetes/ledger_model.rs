//! The account of room against a model of a cluster: any order of creates, answers, losses, pod
//! lives, lagging watches, gaps and lists that overlap with all of it.
//!
//! Held after every step: the account never counts less than what is truly pending or live among
//! what we were allowed to create, so that the limits hold in truth. Held at the end: when all is
//! heard and settled, the account counts exactly what is there, so that no entry leaks.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;
use tokio::time::Instant;

use super::api::{JobFacts, OwnerJob, PodFacts, Progress};
use super::ledger::{Ledger, Moment};
use crate::domain::room::{Occupancy, Room};

const PENDING_LIMIT: usize = 2;
const LIVE_LIMIT: usize = 3;
const NAMES: u8 = 4;

/// A step of the history. The numbers choose among what is there.
#[derive(Debug, Clone)]
enum Step {
    Reserve(u8),
    /// The server handles a POST: makes the Job, or finds the name taken.
    Handle(u8),
    /// A POST's answer arrives.
    Answer(u8),
    /// A POST's answer is lost, whether it was handled or not.
    Lose(u8),
    /// The server handles a POST whose answer was given up.
    HandleLate(u8),
    MakePod(u8),
    StartPod(u8),
    ReportReady(u8),
    Finish(u8),
    Delete(u8),
    HearJob,
    HearPod,
    /// A watch loses what it has not told yet: a list must follow.
    Gap,
    ListBegins,
    ListEnds,
    Settle,
    Limit(usize),
}

#[derive(Debug, Clone)]
struct Post {
    name: u8,
    handled: Option<JobFacts>,
}

#[derive(Debug, Clone)]
struct Truth {
    facts: JobFacts,
    pod: Pod,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pod {
    None,
    Pending,
    Left,
}

#[derive(Debug)]
struct Model {
    ledger: Ledger,
    now: Instant,
    uids: usize,
    jobs: BTreeMap<u8, Truth>,
    posts: Vec<Post>,
    /// Given up before the server handled them, which it may still do until they are settled.
    late: Vec<u8>,
    job_news: VecDeque<(bool, JobFacts)>,
    pod_news: VecDeque<(bool, PodFacts)>,
    listing: Option<(Moment, Vec<JobFacts>, Vec<PodFacts>)>,
    stale: bool,
    limit: usize,
}

fn pick<T>(items: &mut Vec<T>, n: u8) -> Option<T> {
    (!items.is_empty()).then(|| items.remove(usize::from(n) % items.len()))
}

fn pod_of(job: &JobFacts) -> PodFacts {
    PodFacts {
        name: format!("{}-{}", job.name, job.uid),
        resource_version: String::new(),
        farm: true,
        job: Some(OwnerJob { name: job.name.clone(), uid: job.uid.clone() }),
    }
}

impl Model {
    fn new() -> Self {
        let mut model = Self {
            ledger: Ledger::new(PENDING_LIMIT, Some(LIVE_LIMIT)),
            now: Instant::now(),
            uids: 0,
            jobs: BTreeMap::new(),
            posts: Vec::new(),
            late: Vec::new(),
            job_news: VecDeque::new(),
            pod_news: VecDeque::new(),
            listing: None,
            stale: false,
            limit: PENDING_LIMIT,
        };
        let began = model.ledger.moment();
        model.ledger.jobs_listed(began, &[]);
        model.ledger.pods_listed(began, &[]);
        model
    }

    fn change(&mut self, n: u8, change: impl FnOnce(&mut Truth) -> bool) {
        if let Some(job) = self.jobs.get_mut(&n)
            && change(job)
        {
            self.job_news.push_back((true, job.facts.clone()));
        }
    }

    fn handle(&mut self, n: u8) {
        let index = usize::from(n) % self.posts.len().max(1);
        if let Some(Post { name, handled: None }) = self.posts.get(index).cloned() {
            let handled = Some(self.create(name));
            self.posts[index] = Post { name, handled };
        }
    }

    /// The server makes a Job of this name, unless one is there.
    fn create(&mut self, name: u8) -> JobFacts {
        if let Some(found) = self.jobs.get(&name) {
            return found.facts.clone();
        }
        self.uids += 1;
        let facts = JobFacts {
            name: format!("job-{name}"),
            uid: format!("uid-{}", self.uids),
            resource_version: String::new(),
            // Coarse, as a server's: Jobs of one name can share a second.
            created: Timestamp::from_second(self.uids as i64 / 3).expect("a date"),
            deleting: false,
            farm: true,
            task: None,
            scheduler: None,
            progress: Progress::default(),
            story: None,
        };
        self.jobs.insert(name, Truth { facts: facts.clone(), pod: Pod::None });
        self.job_news.push_back((true, facts.clone()));
        facts
    }

    fn drop_pod(&mut self, job: &Truth) {
        if job.pod == Pod::Pending {
            self.pod_news.push_back((false, pod_of(&job.facts)));
        }
    }

    fn pod_left(&mut self, n: u8) {
        if let Some(job) = self.jobs.get_mut(&n)
            && job.pod == Pod::Pending
        {
            job.pod = Pod::Left;
            let pod = pod_of(&job.facts);
            self.pod_news.push_back((false, pod));
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Reserve(n) => {
                let name = n % NAMES;
                let before = self.ledger.room();
                if self.ledger.reserve(&format!("job-{name}")).is_ok() {
                    self.posts.push(Post { name, handled: None });
                    let (Room::Known(before), after) = (before, self.occupancy()) else {
                        panic!("room was given that was not known");
                    };
                    assert!(after.pending == before.pending || after.pending <= self.limit);
                    assert!(after.live == before.live || after.live <= LIVE_LIMIT);
                }
            }
            Step::Handle(n) => self.handle(n),
            Step::Answer(n) => {
                let index = usize::from(n) % self.posts.len().max(1);
                if self.posts.get(index).is_some_and(|post| post.handled.is_some())
                    && let Some(Post { handled: Some(facts), .. }) = pick(&mut self.posts, n)
                {
                    let check = self.now + Duration::from_secs(4);
                    self.ledger.confirmed(&facts, check);
                }
            }
            Step::Lose(n) => {
                if let Some(post) = pick(&mut self.posts, n) {
                    let due = self.now + Duration::from_secs(4);
                    self.ledger.lost(&format!("job-{}", post.name), due);
                    if post.handled.is_none() {
                        self.late.push(post.name);
                    }
                }
            }
            Step::HandleLate(n) => {
                if let Some(name) = pick(&mut self.late, n) {
                    self.create(name);
                }
            }
            Step::MakePod(n) => {
                if let Some(job) = self.jobs.get_mut(&(n % NAMES))
                    && job.pod == Pod::None
                    && !job.facts.progress.finished
                {
                    job.pod = Pod::Pending;
                    let pod = pod_of(&job.facts);
                    self.pod_news.push_back((true, pod));
                    self.change(n % NAMES, |job| {
                        job.facts.progress.active = true;
                        true
                    });
                }
            }
            Step::StartPod(n) => self.pod_left(n % NAMES),
            Step::ReportReady(n) => self.change(n % NAMES, |job| {
                let tell = job.pod == Pod::Left && !job.facts.progress.started;
                job.facts.progress.started |= tell;
                tell
            }),
            Step::Finish(n) => {
                self.pod_left(n % NAMES);
                self.change(n % NAMES, |job| {
                    let tell = job.pod == Pod::Left && !job.facts.progress.finished;
                    if tell {
                        let progress = &mut job.facts.progress;
                        *progress = Progress { active: false, started: true, finished: true };
                    }
                    tell
                });
            }
            Step::Delete(n) => {
                if let Some(job) = self.jobs.remove(&(n % NAMES)) {
                    self.drop_pod(&job);
                    self.job_news.push_back((false, job.facts));
                }
            }
            Step::HearJob => self.hear_job(),
            Step::HearPod => self.hear_pod(),
            Step::Gap => {
                self.ledger.jobs_unknown("gap".into());
                self.ledger.pods_unknown("gap".into());
                self.stale = true;
                self.listing = None;
            }
            Step::ListBegins => {
                if self.stale {
                    let began = self.ledger.moment();
                    // What the list holds is older than all news that come after it.
                    self.job_news.clear();
                    self.pod_news.clear();
                    let jobs = self.jobs.values().map(|job| job.facts.clone()).collect();
                    let pending = self.jobs.values().filter(|job| job.pod == Pod::Pending);
                    let pods = pending.map(|job| pod_of(&job.facts)).collect();
                    self.listing = Some((began, jobs, pods));
                }
            }
            Step::ListEnds => {
                if let Some((began, jobs, pods)) = self.listing.take() {
                    self.ledger.jobs_listed(began, &jobs);
                    self.ledger.pods_listed(began, &pods);
                    self.stale = false;
                }
            }
            Step::Settle => self.settle(),
            Step::Limit(limit) => {
                self.limit = limit;
                self.ledger.set_pending_limit(limit);
            }
        }
    }

    fn hear_job(&mut self) {
        if self.stale {
            return;
        }
        match self.job_news.pop_front() {
            Some((true, job)) => self.ledger.job_applied(&job),
            Some((false, job)) => self.ledger.job_deleted(&job),
            None => {}
        }
    }

    fn hear_pod(&mut self) {
        if self.stale {
            return;
        }
        match self.pod_news.pop_front() {
            Some((true, pod)) => self.ledger.pod_applied(&pod),
            Some((false, pod)) => self.ledger.pod_deleted(&pod),
            None => {}
        }
    }

    fn settle(&mut self) {
        // By then the server has given up what it had not handled.
        self.now += Duration::from_secs(5);
        self.late.clear();
        for name in self.ledger.due(self.now) {
            let began = self.ledger.moment();
            let number: u8 = name.trim_start_matches("job-").parse().expect("a number");
            let found = self.jobs.get(&number).map(|job| job.facts.clone());
            let check = self.now + Duration::from_secs(4);
            self.ledger.settled(&name, (began, self.now), found.as_ref(), check);
        }
    }

    /// What is truly there, and what creates under way may add.
    fn truth(&self) -> (usize, usize) {
        let unfinished = |job: &&Truth| !job.facts.progress.finished;
        let waiting = |job: &&Truth| !job.facts.progress.finished && job.pod != Pod::Left;
        (self.jobs.values().filter(waiting).count(), self.jobs.values().filter(unfinished).count())
    }

    fn occupancy(&self) -> Occupancy {
        match self.ledger.room() {
            Room::Known(occupancy) => occupancy,
            Room::Unknown(_) => panic!("all was heard"),
        }
    }

    /// All is heard, every create has ended.
    fn quiesce(&mut self) {
        while !self.posts.is_empty() {
            self.step(&Step::Lose(0));
        }
        if self.stale {
            self.step(&Step::ListBegins);
        }
        self.step(&Step::ListEnds);
        while !(self.job_news.is_empty() && self.pod_news.is_empty()) {
            self.hear_pod();
            self.hear_job();
        }
        self.settle();
        // What left Pending in a gap is told by its Job in the end.
        for n in 0..NAMES {
            self.step(&Step::ReportReady(n));
        }
        while !self.job_news.is_empty() {
            self.hear_job();
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let n = || 0..NAMES;
    let step = prop_oneof![
        4 => n().prop_map(Step::Reserve),
        3 => n().prop_map(Step::Handle),
        3 => n().prop_map(Step::Answer),
        1 => n().prop_map(Step::Lose),
        1 => n().prop_map(Step::HandleLate),
        3 => n().prop_map(Step::MakePod),
        3 => n().prop_map(Step::StartPod),
        1 => n().prop_map(Step::ReportReady),
        2 => n().prop_map(Step::Finish),
        2 => n().prop_map(Step::Delete),
        5 => Just(Step::HearJob),
        5 => Just(Step::HearPod),
        2 => Just(Step::Gap),
        4 => Just(Step::ListBegins),
        3 => Just(Step::ListEnds),
        1 => Just(Step::Settle),
        1 => (0..=PENDING_LIMIT).prop_map(Step::Limit),
    ];
    proptest::collection::vec(step, 0..150)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_limits_hold_in_truth_and_no_entry_leaks(steps in steps()) {
        let mut model = Model::new();
        for step in &steps {
            model.step(step);
            let (pending, live) = model.truth();
            prop_assert!(pending <= PENDING_LIMIT, "{pending} pending after {step:?}");
            prop_assert!(live <= LIVE_LIMIT, "{live} live after {step:?}");
        }
        model.quiesce();
        let (pending, live) = model.truth();
        let occupancy = model.occupancy();
        prop_assert_eq!((occupancy.pending, occupancy.live), (pending, live));
    }
}
