//! One Job on its way to its verdict: what is known of it, and whether that is enough. Pure.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::super::api::Progress;
use super::super::blame;
use super::super::facts::JobStory;
use super::super::ledger::Moment;
use super::super::pod_history::PodHistory;
use super::super::verdict::{self, Besides, Stuck};
use crate::domain::end::{End, EndKind, Verdict};
use crate::domain::log_tail::LogTail;
use crate::domain::name::{Attempt, BackendName, TaskHash};
use crate::domain::task::WorkloadKey;

/// How long after a Job's end its pod's own end is waited for: another watch brings it.
const POD_WAIT: Duration = Duration::from_secs(5);
/// How long its pods are asked for, where the watch has not shown that end.
const ASK_FOR: Duration = Duration::from_secs(300);
/// How long events are waited for.
const EVENTS_WAIT: Duration = Duration::from_secs(10);
/// How long a log is waited for.
const LOG_WAIT: Duration = Duration::from_secs(25);
/// A task that ends within so long and says that it was refused a token had no work of its own yet.
const EARLY: Duration = Duration::from_secs(120);

/// Exit codes of a process that was killed, or told to end and did: SIGKILL's and SIGTERM's.
const KILLED: [i32; 2] = [137, 143];

/// What became of a Job, and when that was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is there and has not ended.
    Live,
    /// It has a final condition.
    Ended(Instant),
    /// It was deleted without one.
    Deleted(Instant),
    /// It is not there any more.
    Vanished(Instant),
}

/// Whether something was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Asked {
    /// No.
    #[default]
    Not,
    /// It is wanted, or on its way.
    Yes,
    /// It has come, or won't.
    Done,
}

/// A Job as it was last seen.
#[derive(Debug)]
pub struct Known {
    pub name: String,
    pub task: Option<TaskHash>,
    pub attempt: Attempt,
    pub key: Arc<WorkloadKey>,
    pub moment: Moment,
    pub progress: Progress,
    pub story: JobStory,
    /// Since when it is known.
    pub since: Instant,
}

/// All that is known of one Job.
#[derive(Debug)]
pub struct Case {
    pub job: Option<Box<Known>>,
    pub pods: Vec<PodHistory>,
    pub fate: Fate,
    /// Its pods, of the API server itself.
    pub asked: Asked,
    pub log: Asked,
    /// How many readings of its logs have not come back.
    pub reading: u8,
    pub tail: Option<LogTail>,
    pub events: Asked,
    pub uncreated: Option<String>,
    pub hook: Option<String>,
    /// Its end was told, or never will be.
    pub told: bool,
    /// Its end was told by an earlier process, which may not have lived to make the next attempt.
    pub silent: bool,
    /// It is not there any more.
    pub gone: bool,
    /// It did not end in its time, and is deleted for it.
    pub overdue: bool,
}

impl Case {
    pub fn new() -> Self {
        Self {
            job: None,
            pods: Vec::new(),
            fate: Fate::Live,
            asked: Asked::Not,
            log: Asked::Not,
            reading: 0,
            tail: None,
            events: Asked::Not,
            uncreated: None,
            hook: None,
            told: false,
            silent: false,
            gone: false,
            overdue: false,
        }
    }

    /// Since when it has come to its end.
    pub fn over_since(&self) -> Option<Instant> {
        match self.fate {
            Fate::Live => None,
            Fate::Ended(at) | Fate::Deleted(at) | Fate::Vanished(at) => Some(at),
        }
    }

    /// Whether a worker of it has run.
    pub fn ran(&self) -> bool {
        self.pods.iter().any(|pod| pod.ran)
    }

    /// Whether its pod's own end is known, as far as the Job's end needs it.
    fn pod_is_known(&self) -> bool {
        let end = self.job.as_ref().and_then(|job| job.story.end.as_ref());
        let late = end.is_some_and(|end| end.said.reason.as_str() == "DeadlineExceeded");
        self.pods.last().is_some_and(|pod| {
            late || pod.end.is_some() || pod.said.is_some() || pod.disruption.is_some()
        })
    }

    /// Whether a failure can't be told yet for want of its pod's own end. A watch may be behind, and
    /// what is unknown is never run again: so the API server itself is asked before that is said.
    fn lacks_pod(&self, now: Instant) -> bool {
        let Fate::Ended(over) = self.fate else { return false };
        let waited = now.saturating_duration_since(over);
        let end = self.job.as_ref().and_then(|job| job.story.end.as_ref());
        let failed = end.is_some_and(|end| !end.complete);
        let bound = if failed && self.asked != Asked::Done { ASK_FOR } else { POD_WAIT };
        !self.pod_is_known() && waited < bound
    }

    /// Whether its pods are to be asked for now.
    pub fn needs_pods(&self, now: Instant) -> bool {
        let late = self.over_since().is_some_and(|over| over + POD_WAIT <= now);
        late && self.asked == Asked::Not && self.lacks_pod(now)
    }

    /// Which object's events would tell more of its end: the Job's where no pod was made, the pod's
    /// where its container was killed and nothing says why.
    pub fn needs_events_of(&self, job_uid: &str) -> Option<String> {
        if self.events != Asked::Not || !matches!(self.fate, Fate::Ended(_)) {
            return None;
        }
        let end = self.job.as_ref()?.story.end.as_ref().filter(|end| !end.complete)?;
        match self.pods.last() {
            None if end.said.reason.as_str() == "DeadlineExceeded" => {
                self.uncreated.is_none().then(|| job_uid.to_owned())
            }
            None => None,
            Some(pod) => {
                let killed = pod.end.as_ref().is_some_and(|end| {
                    KILLED.contains(&end.exit_code) && end.reason.as_str() == "Error"
                });
                let told = pod.killed || pod.said.is_some() || pod.disruption.is_some();
                (killed && !told && pod.hook.is_none()).then(|| pod.uid.clone())
            }
        }
    }

    /// Whether enough is known, or was waited for.
    pub fn is_settled(&self, now: Instant) -> bool {
        let Some(over) = self.over_since() else { return false };
        let waited = now.saturating_duration_since(over);
        if self.lacks_pod(now) {
            return false;
        }
        (self.events != Asked::Yes || waited >= EVENTS_WAIT)
            && (self.log != Asked::Yes || waited >= LOG_WAIT)
    }

    /// Why its Job does not start, as far as that is known.
    pub fn stuck(&self) -> Option<Stuck> {
        match (self.pods.last(), &self.uncreated) {
            (Some(pod), _) => verdict::stuck(pod),
            (None, Some(why)) => {
                let detail = format!("no pod of it can be made: {why}");
                let own = blame::uncreated_by_itself(why);
                Some(Stuck { kind: EndKind::BadConfiguration, detail, own })
            }
            (None, None) => None,
        }
    }

    /// Its end. `None` for a Job that says no task of ours.
    pub fn end(&self, backend: &BackendName, wall: Timestamp) -> Option<End> {
        let job = self.job.as_ref()?;
        let pod = self.pods.last();
        let finished = pod.and_then(|pod| pod.end.as_ref()).and_then(|end| end.finished_at);
        let ended_at = finished.or(job.story.end.as_ref().and_then(|end| end.at)).unwrap_or(wall);
        // Where no pod was seen the Job's own start is the nearest that is known.
        let unseen = pod.is_none() && job.progress.started;
        let started_at = pod
            .filter(|pod| pod.ran)
            .and_then(|pod| pod.started)
            .or(unseen.then_some(job.story.started).flatten());
        let mut end = End {
            task: job.task?,
            attempt: job.attempt,
            job: job.name.clone(),
            key: (*job.key).clone(),
            backend: backend.clone(),
            verdict: self.verdict(&job.story),
            tail: self.the_tail(),
            started_at,
            ended_at,
        };
        let early = end.verdict.kind == EndKind::TaskFailure && end.run_time() < EARLY;
        if early && end.tail.text().is_some_and(verdict::is_identity_denied) {
            let detail = "its account was refused an access token; the log says more";
            end.verdict = Verdict::new(EndKind::IdentityDenied, end.verdict.exit_code, detail);
        }
        Some(end)
    }

    fn verdict(&self, story: &JobStory) -> Verdict {
        let besides = Besides { uncreated: self.uncreated.as_deref(), hook: self.hook.as_deref() };
        match self.fate {
            Fate::Deleted(_) | Fate::Vanished(_) if self.overdue => {
                let detail = "it had not ended a while after its deadline, and was deleted";
                Verdict::new(EndKind::Deadline, None, detail)
            }
            Fate::Deleted(_) => verdict::of_deleted(&self.pods, besides),
            Fate::Vanished(_) => verdict::gone_unseen(&self.pods),
            Fate::Ended(_) | Fate::Live => verdict::of_job(story, &self.pods, besides),
        }
    }

    fn the_tail(&self) -> LogTail {
        match (&self.tail, self.log) {
            (Some(tail), _) => tail.clone(),
            (None, Asked::Yes) => LogTail::unavailable("the log was not read in time"),
            (None, _) if self.ran() || self.pods.is_empty() => {
                LogTail::unavailable("pod deleted before its log was read")
            }
            (None, _) => LogTail::Nothing,
        }
    }
}
