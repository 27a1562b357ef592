//! What the ends of Jobs come to for messages that wait for them, and which of their Jobs have not
//! ended in their time. Pure.

use std::time::Duration;

use jiff::Timestamp;

use super::case::{Case, Fate};
use super::cases::Cases;
use crate::backend::{Finish, Finished};
use crate::domain::end::{End, EndKind};

/// How long after its deadline a Job may take to end: its pod gets a grace period to stop, and the
/// controller some time to say so.
const MARGIN: Duration = Duration::from_secs(60);

impl Case {
    /// Whether a message waits for its end, by its own word.
    pub fn is_followed(&self) -> bool {
        self.job.as_ref().is_some_and(|job| job.story.followed)
    }

    /// What its end comes to for its task's message. What went before it was seen to end counts by
    /// what its pod was seen to do.
    pub fn finished(&self, end: &End) -> Finished {
        let story = self.job.as_ref().and_then(|job| job.story.end.as_ref());
        let how = match (self.fate, end.verdict.kind) {
            (Fate::Ended(_), _) if story.is_some_and(|end| end.complete) => Finish::Completed,
            (Fate::Ended(_) | Fate::Live, _) => Finish::Failed(end.reason()),
            (Fate::Deleted(_) | Fate::Vanished(_), EndKind::Succeeded) => Finish::Completed,
            (_, EndKind::Deleted | EndKind::Unknown) => Finish::Cancelled(end.reason()),
            (Fate::Deleted(_) | Fate::Vanished(_), _) => Finish::Failed(end.reason()),
        };
        let End { task, attempt, backend, .. } = end;
        Finished { task: *task, attempt: *attempt, backend: backend.clone(), how }
    }

    fn is_overdue(&self, wall: Timestamp) -> bool {
        let Some(job) = self.job.as_ref().filter(|_| self.fate == Fate::Live) else { return false };
        let times = job.story.started.zip(job.story.deadline);
        job.story.followed
            && times.is_some_and(|(started, deadline)| {
                started.checked_add(deadline + MARGIN).is_ok_and(|over| over <= wall)
            })
    }
}

impl Cases {
    /// The followed Jobs, by name and uid, that have not ended though their deadline is over: they
    /// are to be deleted. Each until it is gone.
    pub fn overdue(&mut self, wall: Timestamp) -> Vec<(String, String)> {
        let mut overdue = Vec::new();
        for (uid, case) in &mut self.cases {
            if !case.is_overdue(wall) {
                continue;
            }
            case.overdue = true;
            overdue.extend(case.job.as_ref().map(|job| (job.name.clone(), uid.clone())));
        }
        overdue
    }
}
