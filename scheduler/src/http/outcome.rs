//! What became of a posted task, as its sender is told.
//!
//! `deferred` says that katabatch does not hold the task: nothing is created of it after the answer,
//! unless `maybe_created` says that a create's answer was lost. Posting the task again, which is the
//! same Job whatever became of it, settles that.

use serde::Serialize;

use crate::domain::name::JobName;
use crate::domain::outcome::{HoldKind, Rejection};
use crate::queue::push::Answer;

/// One task's outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// The task's id.
    pub id: String,
    /// What became of it.
    pub outcome: Kind,
    /// Why, from a closed set; `null` when it is scheduled.
    pub reason: Option<&'static str>,
    /// Why, for people.
    pub detail: Option<String>,
    /// The Job's name, when it is scheduled.
    pub job: Option<String>,
    /// When to post it again, in seconds, when it is deferred.
    pub retry_after_seconds: Option<u64>,
    /// Deferred, and yet its Job may be there, or come about within seconds.
    pub maybe_created: bool,
}

/// What became of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Its Job is there, made now or before.
    Scheduled,
    /// Not now.
    Deferred,
    /// Never.
    Rejected,
}

/// What is known of a task at the end of its request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known {
    /// The pipeline's answer.
    Answered(Answer),
    /// It was not begun, and will not be; why.
    NotTaken(String),
    /// It was not begun for this sender, but is for another one that posted it too.
    Shared,
    /// No answer came in time.
    UnderWay,
    /// Too many others are under way; why.
    Busy(String),
}

impl Outcome {
    /// The outcome of a task that is none.
    pub fn rejected(id: String, why: Rejection) -> Self {
        Self {
            reason: Some(why.kind.label()),
            detail: Some(why.detail),
            ..Self::of(id, Kind::Rejected)
        }
    }

    /// The outcome of a task of which so much is known.
    pub fn settled(id: String, job: &JobName, known: Known) -> Self {
        let deferred = |reason, detail: String, wait, maybe_created| Self {
            reason: Some(reason),
            detail: Some(detail),
            retry_after_seconds: Some(wait),
            maybe_created,
            ..Self::of(id.clone(), Kind::Deferred)
        };
        match known {
            Known::Answered(Answer::Scheduled) => {
                Self { job: Some(job.to_string()), ..Self::of(id, Kind::Scheduled) }
            }
            Known::Answered(Answer::Rejected(why)) => Self::rejected(id, why),
            Known::Answered(Answer::Deferred(why)) => {
                // After these a create's answer may have been lost.
                let maybe = matches!(why.kind, HoldKind::BackendFailed | HoldKind::Panicked);
                let wait = why.retry_after.as_secs().max(1);
                deferred(why.kind.label(), why.detail, wait, maybe)
            }
            Known::Answered(Answer::Stopped) => {
                deferred("stopping", "this process was told to stop".to_owned(), 5, true)
            }
            Known::NotTaken(why) => deferred("not_taken", why, 30, false),
            Known::Shared => {
                let text = "another request posted this task too and waits for it";
                deferred("under_way", text.to_owned(), 5, true)
            }
            Known::UnderWay => {
                let text = "no answer came in time; post it again to hear what became of it";
                deferred("under_way", text.to_owned(), 5, true)
            }
            Known::Busy(why) => deferred("busy", why, 5, false),
        }
    }

    fn of(id: String, outcome: Kind) -> Self {
        let (reason, detail, job) = (None, None, None);
        Self { id, outcome, reason, detail, job, retry_after_seconds: None, maybe_created: false }
    }
}

/// How many of each there are: scheduled, deferred, rejected.
pub fn count(outcomes: &[Outcome]) -> (usize, usize, usize) {
    let of = |kind| outcomes.iter().filter(|outcome| outcome.outcome == kind).count();
    (of(Kind::Scheduled), of(Kind::Deferred), of(Kind::Rejected))
}
