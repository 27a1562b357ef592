//! Deleting what is not over, after a person has declared this backend lost and its tasks may run
//! elsewhere. Batch takes minutes to delete a job that runs: it counts until it is gone.

use super::GcpBatch;
use super::answer::State;
use super::plan::JobId;
use super::{Deferral, HoldKind, Room, Scope, deferral};

impl GcpBatch {
    /// Asks for the deletion of every job that is not over; how many there were. None is only said
    /// when nothing is left and no request of before can still make a job.
    pub(super) async fn clear_all(&self) -> Result<usize, Deferral> {
        let later = |kind, why: String| Err(deferral(Scope::Backend, kind, why, 5));
        if !self.leadership.may_create() {
            return later(HoldKind::NotLeader, "this process does not lead".to_owned());
        }
        let idle = self.state().ledger.idle_plans();
        for id in idle {
            self.settle_idle(&id).await;
        }
        let (jobs, leaving, plans) = {
            let state = self.state();
            if let Room::Unknown(why) = self.room_now(&state) {
                return later(HoldKind::RoomUnknown, why);
            }
            let live = state.ledger.jobs().filter(|(_, known)| known.is_live());
            let (leaving, others): (Vec<_>, Vec<_>) =
                live.partition(|(_, known)| known.state == State::DeletionInProgress);
            let jobs = others.into_iter().map(|(id, known)| (id.clone(), known.parent.clone()));
            let jobs: Vec<(JobId, String)> = jobs.collect();
            (jobs, leaving.len(), state.ledger.open_plans())
        };
        for (id, parent) in &jobs {
            match self.api.delete(parent, id).await {
                // One that is not there is settled by the next look, as one that goes.
                Ok(_) => self.state().ledger.found(id, State::DeletionInProgress),
                Err(error) => {
                    let why = format!("job {id} can't be deleted: {error}");
                    return later(HoldKind::BackendFailed, why);
                }
            }
        }
        match (jobs.len(), leaving, plans) {
            (0, 0, 0) => Ok(0),
            (0, 0, plans) => {
                let why = format!("whether {plans} more jobs come to be is not known yet");
                later(HoldKind::BackendFailed, why)
            }
            (0, leaving, _) => {
                later(HoldKind::BeingDeleted, format!("{leaving} jobs are still being deleted"))
            }
            (deleted, ..) => Ok(deleted),
        }
    }
}
