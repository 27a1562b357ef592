//! One workload's breaker: when it opens, what is tried meanwhile, when it closes. Pure.
//!
//! It goes by ends and by what is there now. After a pause that doubles with each failure one task
//! goes as a probe; what becomes of it decides. Nothing is stored: a new process learns from the
//! Jobs that are stuck and from the next ends.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::work::Fared;
use crate::domain::breaker::{Cause, Open};
use crate::domain::end::{EndKind, RetryRule};
use crate::domain::name::TaskHash;
use crate::domain::workload_now::{Faring, Stuck, WorkloadNow};

/// What fails within so long of its start had no work of its own yet.
const QUICK: Duration = Duration::from_secs(120);
/// So many tasks that failed quickly, none having done better in between, open it.
const QUICK_FAILURES: usize = 5;
/// So many stuck Jobs open it, though others run; fewer may be one bad node's.
const STUCK_BESIDE_RUNNING: usize = 3;
/// The pause grows to so many times the first one.
const LONGEST: u32 = 30;
/// Ends older than this are history.
const NEWS: SignedDuration = SignedDuration::from_mins(10);
/// A probe that nobody knows anything of for so long is given up.
const UNHEARD: Duration = Duration::from_secs(600);

/// The numbers that an operator may set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// How long a pod may wait to start, for reasons of its own.
    pub stuck_after: Duration,
    /// The pause before the first probe.
    pub probe_after: Duration,
}

/// Now, by both clocks.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// For pauses.
    pub mono: Instant,
    /// For dates.
    pub wall: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Tripped {
    cause: Cause,
    detail: String,
    since: Timestamp,
    next: Next,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Next {
    /// A probe may go from then on.
    Probe(Instant),
    /// This task is the probe; when it was last heard of.
    Verdict(TaskHash, Instant),
}

/// The breaker of one workload.
#[derive(Debug, Default)]
pub struct Breaker {
    tripped: Option<Tripped>,
    /// How often it has opened in a row, and since when that is over.
    times: u32,
    closed_at: Option<Instant>,
    /// The tasks that failed quickly, none having done better since.
    quick: BTreeSet<TaskHash>,
    /// The stuck Jobs that there were when it closed: no news.
    tolerated: BTreeMap<EndKind, usize>,
}

impl Breaker {
    /// Whether a task may go now; if not, what to say.
    pub fn refuses(&self, now: Now) -> Option<Open> {
        match self.tripped.as_ref()?.next {
            Next::Probe(at) if at <= now.mono => None,
            _ => self.open(now),
        }
    }

    /// The state to show; `None` while it is closed.
    pub fn open(&self, now: Now) -> Option<Open> {
        let Tripped { cause, detail, since, next } = self.tripped.as_ref()?;
        let next_probe = match next {
            Next::Probe(at) => {
                let wait = at.saturating_duration_since(now.mono);
                Some(now.wall.checked_add(wait).unwrap_or(Timestamp::MAX))
            }
            Next::Verdict(..) => None,
        };
        let (detail, since, times) = (detail.clone(), *since, self.times);
        Some(Open { cause: *cause, detail, since, next_probe, times })
    }

    /// Whether nothing of it need be kept.
    pub fn is_idle(&self, now: Now, patience: Patience) -> bool {
        let recent = |at: Instant| now.mono < at + patience.probe_after * LONGEST;
        self.tripped.is_none()
            && self.quick.is_empty()
            && self.tolerated.is_empty()
            && !self.closed_at.is_some_and(recent)
    }

    /// Whether it has closed again: what is still stuck is of before.
    pub fn has_mended(&self) -> bool {
        self.tripped.is_none() && self.closed_at.is_some()
    }

    /// When a probe may go, while it is open and none is under way.
    pub fn probe_at(&self) -> Option<Instant> {
        match self.tripped.as_ref()?.next {
            Next::Probe(at) => Some(at),
            Next::Verdict(..) => None,
        }
    }

    /// The task that is the probe now.
    pub fn probe(&self) -> Option<TaskHash> {
        match self.tripped.as_ref()?.next {
            Next::Probe(_) => None,
            Next::Verdict(task, _) => Some(task),
        }
    }

    /// A task is given to a backend: where the breaker is open, it is the probe.
    pub fn goes(&mut self, task: TaskHash, now: Now) {
        if let Some(tripped) = &mut self.tripped {
            tripped.next = Next::Verdict(task, now.mono);
        }
    }

    /// A task came back from its backend without a new Job: it was no probe.
    pub fn came_back(&mut self, task: TaskHash, now: Now) {
        if self.probe() == Some(task)
            && let Some(tripped) = &mut self.tripped
        {
            tripped.next = Next::Probe(now.mono);
        }
    }

    /// A Job of it has ended.
    pub fn ended(&mut self, end: &Fared, now: Now, patience: Patience) {
        if now.wall.duration_since(end.ended_at) > NEWS {
            return;
        }
        let is_probe = self.probe() == Some(end.task);
        let held = end.rule == RetryRule::Hold;
        let worked = end.ran >= QUICK && blames(end.kind) && !held;
        let did_well = end.kind == EndKind::Succeeded || worked;
        if did_well {
            self.quick.clear();
            let newer = |open: &Tripped| end.started_at.is_some_and(|at| at >= open.since);
            if is_probe || self.tripped.as_ref().is_some_and(newer) {
                self.close(now);
            }
        } else if let Some((cause, detail)) = self.fault_of(end) {
            self.trip(cause, detail, is_probe, now, patience);
        } else if is_probe && blames(end.kind) {
            let detail = said(end);
            self.trip(Cause::QuickFailures, detail, true, now, patience);
        } else if is_probe {
            // Its machine's fault, or somebody's: it says nothing.
            self.came_back(end.task, now);
        }
    }

    fn fault_of(&mut self, end: &Fared) -> Option<(Cause, String)> {
        if end.rule == RetryRule::Hold {
            let cause = match end.kind {
                EndKind::ImagePull => Cause::ImagePull,
                EndKind::BadConfiguration => Cause::BadConfiguration,
                EndKind::IdentityDenied => Cause::IdentityDenied,
                _ => Cause::HeldByRule,
            };
            return Some((cause, said(end)));
        }
        if !blames(end.kind) {
            return None;
        }
        self.quick.insert(end.task);
        let many = self.quick.len() >= QUICK_FAILURES;
        many.then(|| {
            let n = self.quick.len();
            (
                Cause::QuickFailures,
                format!(
                    "{n} tasks failed within 2 minutes of their start, the last: {}",
                    said(end)
                ),
            )
        })
    }

    /// What is there now of it, over all backends.
    pub fn looked(&mut self, there: &WorkloadNow, now: Now, patience: Patience) {
        for (kind, tolerated) in &mut self.tolerated {
            *tolerated = (*tolerated).min(there.stuck.get(kind).map_or(0, |stuck| stuck.own));
        }
        self.tolerated.retain(|_, tolerated| *tolerated > 0);
        let stuck: usize = there.stuck.values().map(|stuck| stuck.own).sum();
        if self.tripped.as_ref().is_some_and(|open| of_stuck(open.cause)) {
            // It was mended, and what was stuck has started.
            if stuck == 0 && there.running > 0 {
                self.close(now);
            }
            return;
        }
        if self.tripped.is_some() {
            return;
        }
        let news = |(kind, stuck): (&EndKind, &Stuck)| {
            let more = stuck.own.saturating_sub(self.tolerated.get(kind).copied().unwrap_or(0));
            let enough = more >= STUCK_BESIDE_RUNNING || (more > 0 && there.running == 0);
            let waited = stuck.since.map(|since| now.wall.duration_since(since));
            let long = waited.and_then(|waited| Duration::try_from(waited).ok());
            let (cause, is) = match kind {
                EndKind::ImagePull => (Cause::ImagePull, enough),
                EndKind::BadConfiguration => (Cause::BadConfiguration, enough),
                _ => (
                    Cause::PendingTooLong,
                    enough && long.is_some_and(|long| long >= patience.stuck_after),
                ),
            };
            is.then(|| (cause, stuck.detail.clone()))
        };
        let found = there.stuck.iter().find_map(news);
        if let Some((cause, detail)) = found {
            self.trip(cause, detail, false, now, patience);
        }
    }

    /// How the probe's Job fares; `None`: it is not known, or over.
    pub fn probe_fares(&mut self, fares: Option<&Faring>, now: Now, patience: Patience) {
        let Some(Tripped { cause, next: Next::Verdict(task, heard), .. }) = &mut self.tripped
        else {
            return;
        };
        let (cause, task) = (*cause, *task);
        match fares {
            Some(Faring::Runs(since)) => {
                *heard = now.mono;
                let ran = since.map(|since| now.wall.duration_since(since));
                let ran = ran.and_then(|ran| Duration::try_from(ran).ok());
                if ran.is_some_and(|ran| ran >= QUICK) {
                    self.close(now);
                }
            }
            Some(Faring::Waits) => *heard = now.mono,
            Some(Faring::Stuck(detail)) => {
                self.trip(cause, detail.clone(), true, now, patience);
            }
            None if now.mono >= *heard + UNHEARD => self.came_back(task, now),
            None => {}
        }
    }

    /// Opens, or goes on being open, for longer if a probe has failed.
    fn trip(&mut self, cause: Cause, detail: String, probe: bool, now: Now, patience: Patience) {
        let pause = |times: u32| {
            let factor = 2_u32.saturating_pow(times.saturating_sub(1)).min(LONGEST);
            Next::Probe(now.mono + patience.probe_after * factor)
        };
        match &mut self.tripped {
            Some(open) => {
                open.detail = detail;
                if probe {
                    self.times = self.times.saturating_add(1);
                    open.cause = cause;
                    open.next = pause(self.times);
                }
            }
            None => {
                let over = |at: Instant| now.mono >= at + patience.probe_after * LONGEST;
                if self.closed_at.is_none_or(over) {
                    self.times = 0;
                }
                self.times = self.times.saturating_add(1);
                let next = pause(self.times);
                self.tripped = Some(Tripped { cause, detail, since: now.wall, next });
            }
        }
        self.closed_at = None;
    }

    fn close(&mut self, now: Now) {
        self.tripped = None;
        self.closed_at = Some(now.mono);
        self.quick.clear();
        // Whatever is stuck now was there before: the next look brings it down to what is.
        let kinds = [EndKind::ImagePull, EndKind::BadConfiguration, EndKind::NeverStarted];
        self.tolerated = kinds.map(|kind| (kind, usize::MAX)).into();
    }
}

fn said(end: &Fared) -> String {
    if end.detail.is_empty() { end.kind.to_string() } else { end.detail.clone() }
}

/// Whether an end of this kind is the workload's own doing.
fn blames(kind: EndKind) -> bool {
    !kind.is_infrastructure()
        && !matches!(kind, EndKind::Succeeded | EndKind::Deleted | EndKind::Unknown)
}

/// Whether such a breaker is over as soon as what is stuck starts.
fn of_stuck(cause: Cause) -> bool {
    matches!(cause, Cause::ImagePull | Cause::BadConfiguration | Cause::PendingTooLong)
}

#[cfg(test)]
mod tests;
