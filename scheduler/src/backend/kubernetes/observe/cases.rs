//! All Jobs on their way to their verdicts: takes the watches' news, says what must be asked for
//! next and which ends can be told. Pure.
//!
//! Jobs and pods come by two watches in any order; a case is found by its Job's uid, which a pod
//! names as its owner. A case goes when its end was told and its Job is gone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::super::api::JobFacts;
use super::super::facts::{JobStory, WorkPod};
use super::super::ledger::Moment;
use super::super::pod_history::PodHistory;
use super::case::{Asked, Case, Fate, Known};
use super::due::Due;
use crate::backend::Finished;
use crate::domain::end::{End, RetryRule};
use crate::domain::log_tail::LogTail;
use crate::domain::name::{Attempt, BackendName};
use crate::domain::task::WorkloadKey;

/// The most logs that wait to be read.
const LOGS: usize = 1_024;
/// A Job without a pod for so long may be one of which no pod can be made.
const PODLESS: Duration = Duration::from_secs(20);
/// How often such Jobs are looked for, and how often one is asked about again.
const PODLESS_EVERY: Duration = Duration::from_secs(5);
const PODLESS_AGAIN: Duration = Duration::from_secs(300);
/// However it is that an end was not told for so long: its Job may go.
const GO_ANYWAY: Duration = Duration::from_secs(60);

/// What must be asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Need {
    /// The end of a log.
    Log { uid: String, pod: String, container: String, previous: bool },
    /// The pods of a Job.
    Pods { uid: String },
    /// The events about an object.
    Events { uid: String, about: String },
}

/// An end that is told.
#[derive(Debug)]
pub struct Told {
    /// Unless it was told before.
    pub end: Option<End>,
    /// What it comes to for the task's message.
    pub finished: Finished,
}

/// All cases of one scheduler on one backend.
#[derive(Debug)]
pub struct Cases {
    backend: BackendName,
    scheduler: String,
    pub(super) cases: BTreeMap<String, Case>,
    /// Those that are over and not told.
    closing: BTreeSet<String>,
    logs: VecDeque<Need>,
    keys: BTreeSet<Arc<WorkloadKey>>,
    podless_next: Option<Instant>,
    podless_asked: BTreeMap<String, Instant>,
    due: Due,
}

impl Cases {
    pub fn new(backend: BackendName, scheduler: &str) -> Self {
        Self {
            backend,
            scheduler: scheduler.to_owned(),
            cases: BTreeMap::new(),
            closing: BTreeSet::new(),
            logs: VecDeque::new(),
            keys: BTreeSet::new(),
            podless_next: None,
            podless_asked: BTreeMap::new(),
            due: Due::default(),
        }
    }

    fn key(&mut self, key: &WorkloadKey) -> Arc<WorkloadKey> {
        if let Some(found) = self.keys.get(key) {
            return Arc::clone(found);
        }
        let key = Arc::new(key.clone());
        self.keys.insert(Arc::clone(&key));
        key
    }

    /// What is to be run again.
    pub fn due(&mut self) -> &mut Due {
        &mut self.due
    }

    /// A Job is there. `known`: its end was told before, by whomever.
    pub fn job_seen(&mut self, facts: &JobFacts, known: bool, moment: Moment, now: Instant) {
        let story = match &facts.story {
            Some(story) if facts.scheduler.as_deref() == Some(&self.scheduler) => story,
            _ => return,
        };
        let Some(key) = &story.key else { return };
        let key = self.key(key);
        let attempt = story.attempt.unwrap_or(Attempt::FIRST);
        if let Some(task) = facts.task {
            self.due.seen(task, attempt);
        }
        let case = self.cases.entry(facts.uid.clone()).or_insert_with(Case::new);
        // A failure may want another attempt still, whoever told of it, and a message its end.
        let complete = story.end.as_ref().is_some_and(|end| end.complete) && !story.followed;
        case.told |= known && complete;
        case.silent |= known;
        match &mut case.job {
            Some(job) => {
                job.moment = job.moment.max(moment);
                job.progress.started |= facts.progress.started;
                job.progress.active = facts.progress.active;
                job.story.started = job.story.started.or(story.started);
                if job.story.end.is_none() {
                    job.story.end.clone_from(&story.end);
                }
            }
            None => {
                case.job = Some(Box::new(Known {
                    name: facts.name.clone(),
                    task: facts.task,
                    attempt,
                    key,
                    moment,
                    progress: facts.progress,
                    story: JobStory { key: None, ..(**story).clone() },
                    since: now,
                }));
            }
        }
        if facts.progress.finished && case.fate == Fate::Live {
            self.over(&facts.uid, Fate::Ended(now));
        }
    }

    /// The Job of this uid was deleted.
    pub fn job_gone(&mut self, uid: &str, now: Instant) {
        self.gone(uid, Fate::Deleted(now));
    }

    /// A consistent list begun at `began` has these Jobs.
    pub fn listed(&mut self, began: Moment, uids: BTreeSet<&str>, now: Instant) {
        let absent = |(uid, case): &(&String, &Case)| {
            !uids.contains(uid.as_str()) && case.job.as_ref().is_some_and(|job| job.moment < began)
        };
        let absent: Vec<String> =
            self.cases.iter().filter(absent).map(|(uid, _)| uid.clone()).collect();
        for uid in absent {
            self.gone(&uid, Fate::Vanished(now));
        }
    }

    fn gone(&mut self, uid: &str, fate: Fate) {
        let Some(case) = self.cases.get_mut(uid) else { return };
        if let Some(job) = &case.job {
            self.due.gone(uid, job.task, job.attempt);
        }
        case.gone = true;
        if case.told {
            self.cases.remove(uid);
        } else if case.fate == Fate::Live {
            self.over(uid, fate);
        }
    }

    fn over(&mut self, uid: &str, fate: Fate) {
        if let Some(case) = self.cases.get_mut(uid) {
            case.fate = fate;
            self.podless_asked.remove(uid);
            if case.told {
                case.pods.clear();
            } else {
                self.closing.insert(uid.to_owned());
            }
        }
    }

    /// A pod of ours is there.
    pub fn pod_seen(&mut self, pod: &WorkPod) {
        let Some(owner) = &pod.job else { return };
        let case = self.cases.entry(owner.uid.clone()).or_insert_with(Case::new);
        if case.told {
            return;
        }
        // Why its log is read now: its worker has ended, or is going to for its pod's sake.
        let (ended, doomed) = match case.pods.iter_mut().find(|known| known.uid == pod.uid) {
            Some(history) => {
                let was_doomed = history.is_doomed();
                (history.see(pod), !was_doomed && history.is_doomed())
            }
            None => {
                let history = PodHistory::new(pod);
                let ended = history.ran && history.end.is_some();
                let doomed = history.is_doomed();
                // Nearly every Job has one pod, ever.
                case.pods.reserve_exact(1);
                case.pods.push(history);
                (ended, doomed)
            }
        };
        if ended || doomed {
            let runs = pod.story.container.as_ref().is_some_and(|c| c.running.is_some());
            let restarted = runs && !doomed;
            let container = pod.story.container.as_ref().map(|c| c.name.as_str().to_owned());
            self.want_log(&owner.uid, &pod.name, container.unwrap_or_default(), restarted);
        }
    }

    fn want_log(&mut self, uid: &str, pod: &str, container: String, previous: bool) {
        let Some(case) = self.cases.get_mut(uid).filter(|case| !case.silent) else { return };
        if self.logs.len() >= LOGS {
            let why = "too many logs were to be read at once";
            case.tail.get_or_insert_with(|| LogTail::unavailable(why));
            return;
        }
        case.log = Asked::Yes;
        case.reading = case.reading.saturating_add(1);
        let (uid, pod) = (uid.to_owned(), pod.to_owned());
        self.logs.push_back(Need::Log { uid, pod, container, previous });
    }

    /// A pod of ours is gone.
    pub fn pod_gone(&mut self, pod: &WorkPod) {
        let Some(owner) = &pod.job else { return };
        let Some(case) = self.cases.get_mut(&owner.uid) else { return };
        if let Some(history) = case.pods.iter_mut().find(|known| known.uid == pod.uid) {
            history.see(pod);
            history.gone();
        }
        self.drop_if_empty(&owner.uid);
    }

    /// All pods of ours.
    pub fn pods_listed(&mut self, pods: &[WorkPod]) {
        let there: BTreeSet<&str> = pods.iter().map(|pod| pod.uid.as_str()).collect();
        let mut touched = Vec::new();
        for (uid, case) in &mut self.cases {
            for history in case.pods.iter_mut().filter(|pod| !there.contains(pod.uid.as_str())) {
                history.gone();
                touched.push(uid.clone());
            }
        }
        touched.iter().for_each(|uid| self.drop_if_empty(uid));
        pods.iter().for_each(|pod| self.pod_seen(pod));
    }

    /// Pods whose Job is not known leave nothing behind.
    fn drop_if_empty(&mut self, uid: &str) {
        let empty = |case: &Case| case.job.is_none() && case.pods.iter().all(|pod| pod.deleting);
        if self.cases.get(uid).is_some_and(empty) {
            self.cases.remove(uid);
        }
    }

    /// The pods of a Job as the API server has them; `None`: it did not say.
    pub fn pods_read(&mut self, uid: &str, pods: Option<&[WorkPod]>) {
        for pod in pods.into_iter().flatten() {
            self.pod_seen(pod);
        }
        if let Some(case) = self.cases.get_mut(uid) {
            case.asked = if pods.is_some() { Asked::Done } else { Asked::Not };
        }
    }

    /// The end of a log has come, or why it can't be had. What was read before stays, then.
    pub fn log_read(&mut self, uid: &str, tail: LogTail) {
        if let Some(case) = self.cases.get_mut(uid) {
            case.reading = case.reading.saturating_sub(1);
            case.log = if case.reading > 0 { Asked::Yes } else { Asked::Done };
            if case.tail.as_ref().and_then(LogTail::text).is_none() || tail.text().is_some() {
                case.tail = Some(tail);
            }
        }
    }

    /// Events have come, or can't be had.
    pub fn events_read(&mut self, uid: &str, uncreated: Option<String>, hook: Option<String>) {
        if let Some(case) = self.cases.get_mut(uid) {
            // What a live Job's events say is asked for again at its end.
            case.events = if case.fate == Fate::Live { Asked::Not } else { Asked::Done };
            case.uncreated = uncreated.or(case.uncreated.take());
            case.hook = hook.or(case.hook.take());
        }
    }

    /// What must be asked for now, at most `most`.
    pub fn needs(&mut self, now: Instant, most: usize) -> Vec<Need> {
        let mut needs = Vec::new();
        for uid in &self.closing {
            let Some(case) = self.cases.get_mut(uid).filter(|_| needs.len() < most) else {
                continue;
            };
            if case.needs_pods(now) {
                case.asked = Asked::Yes;
                needs.push(Need::Pods { uid: uid.clone() });
                continue;
            }
            if let Some(about) = case.needs_events_of(uid) {
                case.events = Asked::Yes;
                needs.push(Need::Events { uid: uid.clone(), about });
            }
        }
        while needs.len() < most
            && let Some(need) = self.logs.pop_front()
        {
            needs.push(need);
        }
        if needs.len() < most && self.podless_next.is_none_or(|next| next <= now) {
            self.podless_next = Some(now + PODLESS_EVERY);
            needs.extend(self.podless(now));
        }
        needs
    }

    /// One Job that has had no pod for long, and was not asked about lately.
    fn podless(&mut self, now: Instant) -> Option<Need> {
        self.podless_asked.retain(|_, at| *at + PODLESS_AGAIN > now);
        let asked = &self.podless_asked;
        let is = |(uid, case): &(&String, &mut Case)| {
            let old = |job: &Known| job.since + PODLESS <= now && !job.progress.started;
            case.fate == Fate::Live
                && case.pods.is_empty()
                && case.job.as_deref().is_some_and(old)
                && !asked.contains_key(*uid)
        };
        let (uid, case) = self.cases.iter_mut().find(is)?;
        case.events = Asked::Yes;
        let uid = uid.clone();
        self.podless_asked.insert(uid.clone(), now);
        Some(Need::Events { about: uid.clone(), uid })
    }

    /// The ends that can be told now; each once. What `rule` says is to be run again is noted so.
    pub fn ends(
        &mut self,
        now: Instant,
        wall: Timestamp,
        rule: impl Fn(&End) -> RetryRule,
    ) -> Vec<Told> {
        let settled = |uid: &&String| {
            self.cases.get(*uid).is_none_or(|case| {
                case.is_settled(now)
                    && (case.events != Asked::Not || case.needs_events_of(uid).is_none())
            })
        };
        let settled: Vec<String> = self.closing.iter().filter(settled).cloned().collect();
        let mut ends = Vec::new();
        for uid in settled {
            self.closing.remove(&uid);
            let Some(case) = self.cases.get_mut(&uid) else { continue };
            if let Some(end) = case.end(&self.backend, wall) {
                let again = !case.gone && !case.is_followed();
                if again && rule(&end) == RetryRule::Retry {
                    self.due.add(&uid, &end, now);
                }
                let finished = case.finished(&end);
                ends.push(Told { end: Some(end).filter(|_| !case.silent), finished });
            }
            case.told = true;
            case.pods = Vec::new();
            case.tail = None;
            if case.gone {
                self.cases.remove(&uid);
            }
        }
        ends
    }

    /// Whether the Job of this uid may be deleted. The next attempt is made from it.
    pub fn may_go(&self, uid: &str, now: Instant) -> bool {
        let told = self.cases.get(uid).is_none_or(|case| {
            case.told || case.over_since().is_none_or(|since| since + GO_ANYWAY <= now)
        });
        told && !self.due.holds(uid)
    }
}
