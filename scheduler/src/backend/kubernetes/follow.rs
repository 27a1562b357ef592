//! Tasks whose message waits for their end: a submission finds their highest attempt, and makes the
//! next one only after that has failed.

use std::sync::Arc;
use std::time::Duration;

use super::KubernetesBackend;
use super::acks::Latest;
use crate::backend::Follower;
use crate::domain::name::Attempt;
use crate::domain::outcome::{Deferral, HoldKind, Outcome, Placed, RejectKind, Rejection, Scope};
use crate::domain::task::{Follow, Task};
use crate::domain::workload::Workload;
use crate::render::CheckedJob;

/// The wait while the Jobs are not listed yet.
const SOON: Duration = Duration::from_secs(1);

impl KubernetesBackend {
    /// Tells `follower` what the ends of Jobs come to for messages; before [`run`](Self::run).
    pub fn follow_by(&self, follower: Arc<dyn Follower>) {
        self.observe.follow(follower);
    }

    pub(super) async fn submit_one(
        &self,
        workload: &Workload,
        checked: &CheckedJob,
        task: &Task,
    ) -> Outcome {
        if task.follow == Follow::No {
            return self.submit_attempt(workload, checked, task, Attempt::FIRST).await;
        }
        let latest = self.acks.lock().latest(&task.hash);
        let attempt = match (latest, task.follow) {
            (None, _) => {
                let text = "the namespace was not listed yet";
                let kind = HoldKind::RoomUnknown;
                return Outcome::Deferred(Deferral::new(Scope::Backend, kind, text, SOON));
            }
            (Some(Latest::Completed), _) => return Outcome::Scheduled(Placed::Done),
            (Some(Latest::Live(attempt)), _) => attempt,
            (Some(Latest::Failed(attempt)), Follow::LastEnd) => {
                let text = format!("attempt {attempt} at it has failed, and its URL is dead");
                return Outcome::Rejected(Rejection::new(RejectKind::DeadUrl, text));
            }
            (Some(Latest::Nothing), Follow::LastEnd) => {
                let text = "it has no Job, and its URL is dead";
                return Outcome::Rejected(Rejection::new(RejectKind::DeadUrl, text));
            }
            (Some(Latest::Nothing), _) => Attempt::FIRST,
            (Some(Latest::Failed(attempt)), _) => {
                attempt.number().checked_add(1).and_then(Attempt::new).unwrap_or(attempt)
            }
        };
        match self.submit_attempt(workload, checked, task, attempt).await {
            Outcome::Scheduled(placed) => Outcome::Running(attempt, placed),
            other => other,
        }
    }
}
