//! Watches our Jobs to their end: gathers what tells how each ended, keeps the end of its log, and
//! tells one verdict of each.
//!
//! [`cases`] holds what is known and decides what is needed next; this asks for it, in bounded
//! numbers and time, and hands the ends over. Nothing here takes part in what is created: the
//! account of room has watches of its own, and a fault here costs explanations only.

mod case;
mod cases;
mod due;
mod followed;
mod logs;
mod present;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, sleep};

use self::cases::{Cases, Need, Told};
use self::logs::Patience;
use super::KubernetesBackend;
use super::api::{ClusterApi, EventFacts, JobFacts, WatchEvent};
use super::facts::WorkPod;
use super::ledger::Moment;
use super::room::Rooms;
use super::verdict::text_of;
use super::watch::{self, Sink};
use crate::backend::{EndObserver, Follower, Retries};
use crate::clock::Clock;
use crate::domain::end::{End, RetryRule};
use crate::domain::log_tail::LogTail;
use crate::domain::name::{BackendName, TaskHash};
use crate::domain::task::WorkloadKey;
use crate::domain::workload_now::{Faring, WorkloadNow};

/// How often it is looked what is needed.
const EVERY: Duration = Duration::from_millis(250);
/// How many logs and lists of events are read at once.
const AT_ONCE: usize = 8;
/// How long the reading of events may take, tries included.
const EVENTS_WAIT: Duration = Duration::from_secs(5);

/// How often it is looked whether Jobs should have ended.
const OVERDUE_EVERY: Duration = Duration::from_secs(10);

/// The observer of one backend's Jobs.
pub struct Observe {
    api: Arc<dyn ClusterApi>,
    clock: Arc<dyn Clock>,
    rooms: Arc<Rooms>,
    cases: Mutex<Cases>,
    listener: OnceLock<Arc<dyn EndObserver>>,
    follower: OnceLock<Arc<dyn Follower>>,
    retries: OnceLock<Arc<dyn Retries>>,
}

/// How long it is before the pods of a Job are asked for again.
const PODS_AGAIN: Duration = Duration::from_secs(2);

/// What was asked for has come.
enum Come {
    Pods(String, Option<Vec<WorkPod>>),
    Log(String, LogTail, bool),
    Events(String, Option<Vec<EventFacts>>),
    Deleted,
}

impl Observe {
    /// An observer of the Jobs that `scheduler` made on `backend`. It does nothing before it has
    /// a [listener](Self::tell).
    pub fn new(
        api: Arc<dyn ClusterApi>,
        clock: Arc<dyn Clock>,
        rooms: Arc<Rooms>,
        backend: BackendName,
        scheduler: &str,
    ) -> Arc<Self> {
        let cases = Mutex::new(Cases::new(backend, scheduler));
        Arc::new(Self {
            api,
            clock,
            rooms,
            cases,
            listener: OnceLock::new(),
            follower: OnceLock::new(),
            retries: OnceLock::new(),
        })
    }

    /// Who hears of ends; the first one stays.
    pub fn tell(&self, listener: Arc<dyn EndObserver>) {
        let _ = self.listener.set(listener);
    }

    /// Who hears what ends come to for messages; the first one stays.
    pub fn follow(&self, follower: Arc<dyn Follower>) {
        let _ = self.follower.set(follower);
    }

    /// Who says what is done about ends; the first one stays.
    pub fn retry_by(&self, retries: Arc<dyn Retries>) {
        let _ = self.retries.set(retries);
    }

    /// Who says what is done about ends; without one, nothing is.
    pub fn retries(&self) -> Option<&Arc<dyn Retries>> {
        self.retries.get()
    }

    fn rule(&self, end: &End) -> RetryRule {
        self.retries.get().map_or(RetryRule::Never, |retries| retries.rule(end))
    }

    /// At most `most` ended Jobs, by uid, that are to be run again now.
    pub fn take_due(&self, most: usize) -> Vec<(String, End)> {
        self.lock().due().take(self.clock.mono(), most)
    }

    /// A Job was run again, or never will be.
    pub fn run_again(&self, uid: &str) {
        self.lock().due().done(uid);
    }

    /// A Job can't be run again before `at`.
    pub fn run_again_at(&self, uid: &str, at: Instant) {
        self.lock().due().again(uid, at);
    }

    /// Whether anybody hears of ends.
    pub fn is_heard(&self) -> bool {
        self.listener.get().is_some() || self.follower.get().is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Cases> {
        self.cases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, job: &JobFacts) -> bool {
        let attempt = job.story.as_ref().and_then(|story| story.attempt);
        match (self.listener.get(), job.task, attempt) {
            (Some(listener), Some(task), Some(attempt)) => listener.knows(&task, attempt),
            _ => false,
        }
    }

    /// All Jobs, by a consistent list begun at `began`.
    pub fn jobs_listed(&self, began: Moment, jobs: &[JobFacts], moment: Moment) {
        if !self.is_heard() {
            return;
        }
        let now = self.clock.mono();
        let known: Vec<bool> =
            jobs.iter().map(|job| job.progress.finished && self.known(job)).collect();
        let mut cases = self.lock();
        for (job, known) in jobs.iter().zip(known) {
            cases.job_seen(job, known, moment, now);
        }
        cases.listed(began, jobs.iter().map(|job| job.uid.as_str()).collect(), now);
    }

    /// A Job is there: the watch says so, or the answer to its create.
    pub fn job_seen(&self, job: &JobFacts, moment: Moment) {
        if self.is_heard() {
            self.lock().job_seen(job, false, moment, self.clock.mono());
        }
    }

    /// A Job is gone, says the watch.
    pub fn job_gone(&self, job: &JobFacts, moment: Moment) {
        if self.is_heard() {
            let mut cases = self.lock();
            cases.job_seen(job, false, moment, self.clock.mono());
            cases.job_gone(&job.uid, self.clock.mono());
        }
    }

    /// Whether all was gathered that this Job's deletion would take away. Bounded in time.
    pub fn may_go(&self, uid: &str) -> bool {
        !self.is_heard() || self.lock().may_go(uid, self.clock.mono())
    }

    /// What is there now of every workload.
    pub fn now(&self) -> BTreeMap<WorkloadKey, WorkloadNow> {
        self.lock().now(self.clock.wall())
    }

    /// Gathers and tells, until it is dropped.
    pub async fn run(&self) {
        if !self.is_heard() {
            return std::future::pending().await;
        }
        let mut overdue_at = self.clock.mono();
        let mut asked: FuturesUnordered<BoxFuture<'_, Come>> = FuturesUnordered::new();
        let mut patience = Patience::default();
        loop {
            let room = AT_ONCE.saturating_sub(asked.len());
            let (needs, ends) = {
                let mut cases = self.lock();
                let now = self.clock.mono();
                let ends = cases.ends(now, self.clock.wall(), |end| self.rule(end));
                (cases.needs(now, room), ends)
            };
            ends.into_iter().for_each(|told| self.tell_of(told));
            if self.clock.mono() >= overdue_at {
                overdue_at = self.clock.mono() + OVERDUE_EVERY;
                let overdue = self.lock().overdue(self.clock.wall());
                asked.extend(overdue.into_iter().map(|(name, uid)| self.end_it(name, uid)));
            }
            for need in needs {
                asked.push(self.ask(need, patience.tries()));
            }
            tokio::select! {
                biased;
                Some(come) = asked.next(), if !asked.is_empty() => match come {
                    Come::Pods(uid, pods) => self.lock().pods_read(&uid, pods.as_deref()),
                    Come::Log(uid, tail, reached) => {
                        patience.learn(reached);
                        self.lock().log_read(&uid, tail);
                    }
                    Come::Events(uid, events) => self.events_read(&uid, events),
                    Come::Deleted => {}
                },
                () = sleep(EVERY) => {}
            }
        }
    }

    fn tell_of(&self, told: Told) {
        if let Some((end, listener)) = told.end.zip(self.listener.get()) {
            let (job, kind) = (&end.job, end.verdict.kind.label());
            tracing::debug!(job, kind, workload = %end.key, "a Job has ended");
            listener.ended(end);
        }
        if let Some(follower) = self.follower.get() {
            follower.finished(told.finished);
        }
    }

    /// Deletes a Job that did not end in its time; it is tried again as long as it is there.
    fn end_it(&self, name: String, uid: String) -> BoxFuture<'_, Come> {
        Box::pin(async move {
            tracing::warn!(job = name, "has not ended within its deadline, and is deleted");
            if let Err(error) = self.api.delete_job(&name, &uid).await {
                tracing::debug!(job = name, %error, "could not be deleted");
            }
            Come::Deleted
        })
    }

    fn ask(&self, need: Need, tries: u32) -> BoxFuture<'_, Come> {
        match need {
            Need::Log { uid, pod, container, previous } => Box::pin(async move {
                let api = self.api.as_ref();
                let (tail, reached) = logs::read(api, &pod, &container, previous, tries).await;
                Come::Log(uid, tail, reached)
            }),
            Need::Pods { uid } => Box::pin(async move {
                match self.api.list_pods_of(&uid).await {
                    Ok(pods) => Come::Pods(uid, Some(pods)),
                    Err(error) => {
                        tracing::debug!(%error, "a Job's pods could not be read");
                        sleep(PODS_AGAIN).await;
                        Come::Pods(uid, None)
                    }
                }
            }),
            Need::Events { uid, about } => Box::pin(async move {
                let read = self.api.list_events(&about);
                match tokio::time::timeout(EVENTS_WAIT, read).await {
                    Ok(Ok(events)) => Come::Events(uid, Some(events)),
                    Ok(Err(error)) => {
                        tracing::debug!(%error, "events could not be read");
                        Come::Events(uid, None)
                    }
                    Err(_) => Come::Events(uid, None),
                }
            }),
        }
    }

    fn events_read(&self, uid: &str, events: Option<Vec<EventFacts>>) {
        let said = |reasons: &[&str]| {
            let found = events.iter().flatten().rev();
            let mut found = found.filter(|event| reasons.contains(&event.said.reason.as_str()));
            found.next().map(|event| text_of(&event.said))
        };
        let uncreated = said(&["FailedCreate"]);
        let hook = said(&["FailedPostStartHook", "FailedPreStopHook"]);
        self.lock().events_read(uid, uncreated, hook);
    }
}

impl KubernetesBackend {
    /// Watches its Jobs to their end and tells `listener`; before [`run`](Self::run).
    pub fn tell_ends(&self, listener: Arc<dyn EndObserver>) {
        self.observe.tell(listener);
    }

    /// What is there now of every workload; empty unless ends are told.
    pub fn now(&self) -> BTreeMap<WorkloadKey, WorkloadNow> {
        self.observe.now()
    }

    /// How the unfinished Jobs of these tasks fare; nothing unless ends are told.
    pub fn fare(&self, tasks: &BTreeSet<TaskHash>) -> BTreeMap<TaskHash, Faring> {
        self.observe.lock().fare(tasks)
    }

    /// Watches the Jobs to their end, where anybody hears of it.
    pub(super) async fn follow_ends(&self) -> &'static str {
        if !self.observe.is_heard() {
            return std::future::pending().await;
        }
        // After what creating waits for: ten thousand pods take time and memory to list.
        self.rooms.known().await;
        let (api, seed) = (Arc::clone(&self.api), self.seed.wrapping_add(2));
        tokio::select! {
            biased;
            () = watch::follow::<WorkPod>(api, self.observe.as_ref(), seed) => "watch of work",
            () = self.observe.run() => "observer of ends",
        }
    }
}

impl Sink<WorkPod> for Observe {
    fn list_begins(&self) -> Moment {
        self.rooms.with(|ledger| ledger.moment())
    }

    fn listed(&self, _: Moment, pods: &[WorkPod]) {
        self.lock().pods_listed(pods);
    }

    fn event(&self, event: &WatchEvent<WorkPod>) {
        match event {
            WatchEvent::Applied(pod) => self.lock().pod_seen(pod),
            WatchEvent::Deleted(pod) => self.lock().pod_gone(pod),
            WatchEvent::Bookmark(_) => {}
        }
    }

    fn unknown(&self, why: String) {
        tracing::debug!(why, "how Jobs end is told later, or with less");
    }
}
