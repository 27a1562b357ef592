//! The backend `gcp_batch`: tasks as tasks of GCP Batch jobs, one VM each.
//!
//! A job holds up to 999 tasks, and which ones is decided by who comes together: names alone can't
//! keep a task from running twice, as they do on Kubernetes. So a job's id and its tasks are written
//! down before it is asked for ([`plan`] has the rule), and each job names its tasks itself, so that
//! a task that comes again is found for as long as it can come. Nothing is created before the
//! records and all jobs of a day and more were read, nor while they can't be.
//!
//! [`spec`] makes the body of a job, [`region`] chooses where it goes, [`submit`] creates, [`poll`]
//! reads what became of it, [`end`] says what that means, [`client`] speaks HTTP.
//!
//! Jobs that are over are never deleted here: Batch does that 60 days after their end. [`clear`]
//! deletes the others, where a person has declared all of this lost.

pub mod answer;
pub mod api;
mod clear;
pub mod client;
mod end;
mod ends;
mod ledger;
pub mod plan;
mod poll;
mod region;
pub mod spec;
mod submit;

#[cfg(test)]
mod fake;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::{Backend, EndObserver};
use crate::clock::Clock;
use crate::domain::name::{BackendName, TaskHash};
use crate::domain::outcome::{Deferral, HoldKind, Outcome, Scope};
use crate::domain::room::Room;
use crate::domain::task::Task;
use crate::domain::workload::Workload;
use crate::leadership::Leadership;
use crate::records::{RecordError, Records};
use api::Api;
use ledger::{Ledger, Standing};
use plan::{JobId, Keys, Mark};
use region::Regions;
use spec::{Form, MOST_TASKS};

/// A list of jobs this old says nothing of the room any more.
const STALE: Duration = Duration::from_secs(90);
/// A request for a job is only sent this soon after a durable write: a process that was stopped for
/// longer must first find out that it may still write.
const SEND_WITHIN: Duration = Duration::from_secs(20);

/// The settings of one backend.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The configured name.
    pub name: BackendName,
    /// The scheduler's id, a label of its jobs.
    pub scheduler: String,
    /// The project, where it is not the farm's.
    pub project: Option<String>,
    /// Where jobs may be: each is listed before anything is created.
    pub parents: BTreeSet<String>,
    /// The most tasks in jobs that wait to start, until flags say otherwise.
    pub pending_limit_default: usize,
    /// The most tasks that are not over; `None` is unlimited.
    pub live_limit: Option<usize>,
    /// How often jobs are listed.
    pub poll: Duration,
    /// Where chance begins.
    pub seed: u64,
}

/// Tasks as tasks of GCP Batch jobs.
pub struct GcpBatch {
    settings: Settings,
    api: Arc<dyn Api>,
    records: Arc<dyn Records>,
    clock: Arc<dyn Clock>,
    leadership: Arc<dyn Leadership>,
    state: Mutex<State>,
    /// One write at a time; when the last good one began.
    writing: tokio::sync::Mutex<Option<Instant>>,
    regions: Regions,
    ids: Mutex<ChaCha8Rng>,
    room: watch::Sender<Room>,
    pending_limit: AtomicUsize,
    /// Somebody needs a look at the jobs before the next is due.
    look: Notify,
    listener: OnceLock<Arc<dyn EndObserver>>,
}

struct State {
    ledger: Ledger,
    /// Why nothing may be created; `Ok`: records and jobs were read.
    ready: Result<(), String>,
    /// The records are read.
    loaded: bool,
    /// When the last whole look at the jobs began.
    looked_at: Option<Instant>,
    /// The parents whose jobs of the last days were read.
    listed: BTreeSet<String>,
    /// The parents of which Batch says that they are not there: they have no jobs.
    absent: BTreeSet<String>,
}

/// The right to work on a plan; given up when dropped, a crash included.
struct Claim<'a> {
    backend: &'a GcpBatch,
    id: JobId,
    epoch: u64,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut state = self.backend.state();
        if state.ledger.epoch == self.epoch {
            state.ledger.leave(&self.id);
        }
    }
}

impl GcpBatch {
    /// A backend that knows nothing yet: `run` reads what is there.
    pub fn new(
        api: Arc<dyn Api>,
        records: Arc<dyn Records>,
        clock: Arc<dyn Clock>,
        leadership: Arc<dyn Leadership>,
        settings: Settings,
    ) -> Arc<Self> {
        let mut ledger = Ledger::new(Keys::of(&settings.name));
        settings.parents.iter().for_each(|parent| ledger.add_parent(parent));
        let why = "the plans and jobs are being read".to_owned();
        let state = State {
            ledger,
            ready: Err(why.clone()),
            loaded: false,
            looked_at: None,
            listed: BTreeSet::new(),
            absent: BTreeSet::new(),
        };
        let regions = Regions::new(Arc::clone(&api), Arc::clone(&clock), settings.seed);
        Arc::new(Self {
            regions,
            // Another stream than the regions' own.
            ids: Mutex::new(ChaCha8Rng::seed_from_u64(settings.seed.wrapping_add(1))),
            room: watch::Sender::new(Room::Unknown(why)),
            pending_limit: AtomicUsize::new(settings.pending_limit_default),
            look: Notify::new(),
            listener: OnceLock::new(),
            writing: tokio::sync::Mutex::new(None),
            state: Mutex::new(state),
            settings,
            api,
            records,
            clock,
            leadership,
        })
    }

    /// Who hears of ends; the first one stays.
    pub fn tell_ends(&self, listener: Arc<dyn EndObserver>) {
        let _ = self.listener.set(listener);
    }

    /// Sets the pending limit, as flags say it.
    pub fn set_pending_limit(&self, limit: usize) {
        if self.pending_limit.swap(limit, Ordering::Relaxed) != limit {
            self.tell_room();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn room_now(&self, state: &State) -> Room {
        if let Err(why) = &state.ready {
            return Room::Unknown(why.clone());
        }
        let age = state.looked_at.map(|at| self.clock.mono().duration_since(at));
        match age {
            Some(age) if age <= STALE => {
                let limit = self.pending_limit.load(Ordering::Relaxed);
                Room::Known(state.ledger.occupancy(limit, self.settings.live_limit))
            }
            _ => Room::Unknown(format!("Batch's jobs were not read for {} s", STALE.as_secs())),
        }
    }

    fn tell_room(&self) {
        let room = self.room_now(&self.state());
        self.room.send_if_modified(|known| {
            let new = *known != room;
            *known = room;
            new
        });
    }

    /// Nothing is created until records and jobs were read anew.
    fn unload(&self, why: String) {
        let mut state = self.state();
        state.loaded = false;
        state.ready = Err(why);
    }

    fn new_id(&self) -> JobId {
        let mut bytes = [0; 16];
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).fill_bytes(&mut bytes);
        JobId::random(bytes)
    }

    /// Writes what must be written; `again`: this plan's record at least, so that whoever may not
    /// write finds out.
    async fn write(&self, again: Option<&Claim<'_>>) -> Result<(), Deferral> {
        let mut written = self.writing.lock().await;
        let now = self.clock.mono();
        let changes = {
            let mut state = self.state();
            if let Some(claim) = again {
                if state.ledger.epoch != claim.epoch || !state.loaded {
                    let why = "the records were read anew meanwhile";
                    return Err(deferral(Scope::Task, HoldKind::NotLeader, why, 1));
                }
                let recent = written.is_some_and(|at| now.duration_since(at) < SEND_WITHIN / 2);
                if state.ledger.changes().is_empty() && !recent {
                    state.ledger.rewrite(&claim.id);
                }
            }
            state.ledger.changes()
        };
        if changes.is_empty() {
            return Ok(());
        }
        match self.records.write(&changes).await {
            Ok(()) => {
                *written = Some(now);
                self.state().ledger.wrote(&changes);
                Ok(())
            }
            Err(error @ RecordError::Overtaken(_)) => {
                *written = None;
                self.unload(error.to_string());
                Err(deferral(Scope::Backend, HoldKind::NotLeader, error, 2))
            }
            Err(error @ RecordError::Unavailable(_)) => {
                Err(deferral(Scope::Backend, HoldKind::BackendFailed, error, 5))
            }
            Err(error @ RecordError::Refused(_)) => {
                Err(deferral(Scope::Backend, HoldKind::Forbidden, error, 30))
            }
        }
    }
}

/// A deferral for so many seconds.
fn deferral(
    scope: Scope,
    kind: HoldKind,
    detail: impl std::fmt::Display,
    seconds: u64,
) -> Deferral {
    Deferral::new(scope, kind, detail, Duration::from_secs(seconds))
}

/// Why a task waits for its job to be gone.
fn leaving(id: &JobId) -> Deferral {
    deferral(Scope::Task, HoldKind::BeingDeleted, format!("job {id} is being deleted"), 30)
}

#[async_trait]
impl Backend for GcpBatch {
    fn name(&self) -> &BackendName {
        &self.settings.name
    }

    fn room(&self) -> watch::Receiver<Room> {
        self.room.subscribe()
    }

    fn batch(&self) -> usize {
        MOST_TASKS
    }

    async fn submit(&self, workload: &Arc<Workload>, tasks: &[Task]) -> Vec<Outcome> {
        let all = |why: Deferral| vec![Outcome::Deferred(why); tasks.len()];
        let outcomes = match Form::of(workload, self.settings.project.as_deref()) {
            Ok(form) => self.place_all(&form, tasks).await,
            Err(why) => all(deferral(Scope::Workload, HoldKind::BadMapping, why, 60)),
        };
        self.tell_room();
        outcomes
    }

    async fn has(&self, task: &Task) -> Result<bool, Deferral> {
        let mark = Mark::of(&task.hash);
        let standing = {
            let state = self.state();
            let standing = state.ledger.standing(mark);
            if let (Room::Unknown(why), Standing::Free) = (self.room_now(&state), &standing) {
                return Err(deferral(Scope::Task, HoldKind::RoomUnknown, why, 5));
            }
            standing
        };
        match standing {
            Standing::Placed => Ok(true),
            Standing::Leaving(id) => Err(leaving(&id)),
            Standing::Free => Ok(false),
            Standing::Bound(id) => {
                self.settle_idle(&id).await;
                match self.state().ledger.standing(mark) {
                    Standing::Placed => Ok(true),
                    Standing::Leaving(id) => Err(leaving(&id)),
                    Standing::Free => Ok(false),
                    Standing::Bound(id) => {
                        let why = format!("whether job {id} will come to be is not known yet");
                        Err(deferral(Scope::Task, HoldKind::BackendFailed, why, 30))
                    }
                }
            }
        }
    }

    fn knows(&self, task: &Task) -> Option<bool> {
        let state = self.state();
        match state.ledger.standing(Mark::of(&task.hash)) {
            Standing::Placed => Some(true),
            Standing::Free => matches!(self.room_now(&state), Room::Known(_)).then_some(false),
            Standing::Leaving(_) | Standing::Bound(_) => None,
        }
    }

    fn binds(&self, task: &Task) -> bool {
        matches!(self.state().ledger.standing(Mark::of(&task.hash)), Standing::Bound(_))
    }

    async fn clear(&self) -> Result<usize, Deferral> {
        self.clear_all().await
    }

    fn acked(&self, _: &[TaskHash]) {
        // Jobs stay until Batch deletes them, long after their messages can come again.
    }
}
