//! Creating jobs: tasks that are in one already are told so, candidates of an open plan are asked
//! for under its id, all others get a plan of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::api::{ApiError, Fault};
use super::ledger::Standing;
use super::plan::{JobId, Mark, Plan};
use super::spec::{Form, cut};
use super::{Claim, GcpBatch, SEND_WITHIN, answer, deferral, leaving};
use crate::domain::machines::Region;
use crate::domain::outcome::{Deferral, HoldKind, Outcome, Placed, Scope};
use crate::domain::room::Room;
use crate::domain::task::Task;

/// How often a job is asked for in one go, with GETs in between.
const TRIES: u32 = 3;
/// The wait between them.
const AGAIN: Duration = Duration::from_millis(500);

type Outcomes = BTreeMap<Mark, Outcome>;

impl GcpBatch {
    pub(super) async fn place_all(&self, form: &Form<'_>, tasks: &[Task]) -> Vec<Outcome> {
        let mut outcomes = Outcomes::new();
        let mut bound: BTreeMap<JobId, Vec<&Task>> = BTreeMap::new();
        let mut free: Vec<&Task> = Vec::new();
        {
            let state = self.state();
            let mut seen = BTreeSet::new();
            for task in tasks {
                let mark = Mark::of(&task.hash);
                if !seen.insert(mark) {
                    continue;
                }
                match state.ledger.standing(mark) {
                    Standing::Placed => {
                        outcomes.insert(mark, Outcome::Scheduled(Placed::AlreadyThere));
                    }
                    Standing::Leaving(id) => {
                        outcomes.insert(mark, Outcome::Deferred(leaving(&id)));
                    }
                    Standing::Bound(id) => bound.entry(id).or_default().push(task),
                    Standing::Free => free.push(task),
                }
            }
            if let Room::Unknown(why) = self.room_now(&state) {
                // What is known to be there is there all the same.
                let why = deferral(Scope::Backend, HoldKind::RoomUnknown, why, 1);
                drop(state);
                return told(tasks, &outcomes, &Outcome::Deferred(why));
            }
        }
        for (id, tasks) in bound {
            let made = self.resume(form, &id, &tasks).await;
            put(&mut outcomes, &tasks, made);
        }
        if !free.is_empty() {
            self.place(form, &free, &mut outcomes).await;
        }
        let why = deferral(Scope::Task, HoldKind::BackendFailed, "nothing was said of it", 1);
        told(tasks, &outcomes, &Outcome::Deferred(why))
    }

    /// Goes on with an open plan, some of whose candidates are in hand.
    async fn resume(&self, form: &Form<'_>, id: &JobId, tasks: &[&Task]) -> Result<Made, Deferral> {
        let Some((claim, plan)) = self.claim(id) else {
            let why = "another call is at work on its plan";
            return Err(deferral(Scope::Task, HoldKind::BackendFailed, why, 1));
        };
        match self.api.get(&plan.parent, id).await {
            Ok(Some(job)) => return self.confirm(&claim, &plan.parent, &job, Placed::AlreadyThere),
            Ok(None) => {}
            Err(error) => return Err(self.unsettled(id, &error)),
        }
        let Some(region) = form.region_at(&plan.parent) else {
            let why =
                format!("its plan {id} is in {}, where its mapping no longer is", plan.parent);
            return Err(deferral(Scope::Task, HoldKind::BackendFailed, why, 60));
        };
        self.ask(form, region, &claim, &plan.parent, tasks).await
    }

    /// Makes jobs of tasks that no plan has.
    async fn place(&self, form: &Form<'_>, free: &[&Task], outcomes: &mut Outcomes) {
        let region = match self.regions.choose(form).await {
            Ok(region) => region,
            Err(full) => {
                let why = format!("no region takes jobs: {}", full.0);
                let why = deferral(Scope::Workload, HoldKind::RegionsFull, why, 30);
                return put(outcomes, free, Err(why));
            }
        };
        let parent = form.parent(region);
        if self.state().absent.contains(&parent) {
            let why = format!("{parent} is not there; correct its region or project");
            let why = deferral(Scope::Workload, HoldKind::BadMapping, why, 60);
            return put(outcomes, free, Err(why));
        }
        if !self.state().listed.contains(&parent) {
            self.state().ledger.add_parent(&parent);
            self.look.notify_one();
            let why = format!("the jobs in {parent} are being read");
            let why = deferral(Scope::Workload, HoldKind::RoomUnknown, why, 2);
            return put(outcomes, free, Err(why));
        }
        let mut stopped: Option<Deferral> = None;
        for tasks in cut(free) {
            let made = match &stopped {
                Some(why) => Err(why.clone()),
                None => self.make(form, region, &parent, &tasks, outcomes).await,
            };
            if let Err(why) = &made {
                stopped = Some(why.clone()).filter(|why| why.scope != Scope::Task);
            }
            put(outcomes, &tasks, made);
        }
    }

    /// One job, for as many of the tasks as there is room for.
    async fn make(
        &self,
        form: &Form<'_>,
        region: &Region,
        parent: &str,
        tasks: &[&Task],
        outcomes: &mut Outcomes,
    ) -> Result<Made, Deferral> {
        let (claim, tasks) = self.open(parent, tasks, outcomes)?;
        self.tell_room();
        self.ask(form, region, &claim, parent, &tasks).await
    }

    /// Opens a plan for those of the tasks that there is room for and that are free still.
    fn open<'t>(
        &self,
        parent: &str,
        tasks: &[&'t Task],
        outcomes: &mut Outcomes,
    ) -> Result<(Claim<'_>, Vec<&'t Task>), Deferral> {
        let id = self.new_id();
        let mut state = self.state();
        let room = self.room_now(&state);
        let is_free = |task: &Task| state.ledger.standing(Mark::of(&task.hash)) == Standing::Free;
        let (mut fitting, mut others): (Vec<&Task>, Vec<&Task>) =
            tasks.iter().copied().partition(|task| is_free(task));
        others.extend(fitting.split_off(fitting.len().min(room.free())));
        let why = full(&room);
        if fitting.is_empty() {
            return Err(why);
        }
        let members = fitting.iter().map(|task| Mark::of(&task.hash)).collect();
        let plan = Plan { parent: parent.to_owned(), members, rewritten: 0 };
        state.ledger.open(&id, plan).map_err(|many| {
            let why = format!("{} plans wait to be settled", many.0);
            deferral(Scope::Backend, HoldKind::BackendFailed, why, 2)
        })?;
        let epoch = state.ledger.epoch;
        drop(state);
        put(outcomes, &others, Err(why));
        Ok((Claim { backend: self, id, epoch }, fitting))
    }

    /// Asks for a plan's job with these tasks until it is known what came of it.
    async fn ask(
        &self,
        form: &Form<'_>,
        region: &Region,
        claim: &Claim<'_>,
        parent: &str,
        tasks: &[&Task],
    ) -> Result<Made, Deferral> {
        // In one order, so that the same tasks are the same body and the same request.
        let mut tasks = tasks.to_vec();
        tasks.sort_by_key(|task| Mark::of(&task.hash));
        let job = form.job(region, &self.settings.scheduler, &tasks);
        let request = Plan::request(&claim.id, &serde_json::to_vec(&job).unwrap_or_default());
        let mut last = None;
        for attempt in 0..TRIES {
            if attempt > 0 {
                tokio::time::sleep(AGAIN * attempt).await;
            }
            self.secure(claim).await?;
            let before = self.state().ledger.sending(&claim.id, self.clock.mono());
            let error = match self.api.create(parent, &claim.id, request, &job).await {
                Ok(made) if made.id() == claim.id.as_str() && made.members().is_some() => {
                    return self.confirm(claim, parent, &made, Placed::Created);
                }
                Ok(_) => ApiError::new(Fault::Lost, "the answer does not name the job's tasks"),
                Err(error) if error.fault.made_nothing() => {
                    self.state().ledger.refused(&claim.id, before);
                    return Err(refusal(&error));
                }
                Err(error) => error,
            };
            match self.api.get(parent, &claim.id).await {
                Ok(Some(made)) => return self.confirm(claim, parent, &made, Placed::Created),
                Ok(None) => last = Some(error),
                Err(error) => return Err(self.unsettled(&claim.id, &error)),
            }
        }
        let error = last.unwrap_or_else(|| ApiError::new(Fault::Lost, "no answer"));
        Err(self.unsettled(&claim.id, &error))
    }

    /// Sees to it that the plan is durable and that this process may write, moments ago.
    async fn secure(&self, claim: &Claim<'_>) -> Result<(), Deferral> {
        for _ in 0..TRIES {
            let (mono, wall) = (self.clock.mono(), self.clock.wall());
            self.write(Some(claim)).await?;
            let within = SEND_WITHIN / 2;
            let counted = self.clock.wall().duration_since(wall).unsigned_abs();
            // A process that was stopped, or a machine that slept, asks again.
            if !self.leadership.may_create() {
                let why = "this process does not lead";
                return Err(deferral(Scope::Backend, HoldKind::NotLeader, why, 2));
            }
            if self.clock.mono().duration_since(mono) < within && counted < within {
                return Ok(());
            }
        }
        let why = "the scheduler's records answer too slowly";
        Err(deferral(Scope::Backend, HoldKind::BackendFailed, why, 5))
    }

    pub(super) fn claim(&self, id: &JobId) -> Option<(Claim<'_>, Plan)> {
        let mut state = self.state();
        let plan = state.ledger.claim(id)?;
        let epoch = state.ledger.epoch;
        drop(state);
        Some((Claim { backend: self, id: id.clone(), epoch }, plan))
    }

    /// A plan's job is there.
    pub(super) fn confirm(
        &self,
        claim: &Claim<'_>,
        parent: &str,
        job: &answer::Job,
        placed: Placed,
    ) -> Result<Made, Deferral> {
        let members = job.members().filter(|_| job.is_of(&self.settings.scheduler));
        let Some(members) = members else {
            // Its id is taken for ever: nothing of the plan can come to be under it.
            let mut state = self.state();
            if state.ledger.epoch == claim.epoch {
                state.ledger.void(&claim.id);
            }
            let why = format!("job {} is there and not ours", claim.id);
            return Err(deferral(Scope::Task, HoldKind::NameTaken, why, 5));
        };
        let marks: Vec<Mark> = members.iter().map(Mark::of).collect();
        self.state().ledger.confirm(&claim.id, parent, job, &marks);
        tracing::debug!(job = %claim.id, parent, tasks = marks.len(), "a Batch job is there");
        Ok(Made { members: marks.into_iter().collect(), placed })
    }

    fn unsettled(&self, id: &JobId, error: &ApiError) -> Deferral {
        let why = format!("whether job {id} was made is not known: {error}");
        match error.fault {
            Fault::Throttled(_) | Fault::Unauthenticated | Fault::Forbidden => refusal(error),
            _ => deferral(Scope::Backend, HoldKind::BackendFailed, why, 5),
        }
    }
}

/// A job that is there, and its tasks.
pub(super) struct Made {
    members: BTreeSet<Mark>,
    placed: Placed,
}

/// Notes what became of these tasks; what was said of one before stands only until then.
fn put(outcomes: &mut Outcomes, tasks: &[&Task], made: Result<Made, Deferral>) {
    for task in tasks {
        let mark = Mark::of(&task.hash);
        let outcome = match &made {
            Ok(made) if made.members.contains(&mark) => Outcome::Scheduled(made.placed),
            Ok(_) if outcomes.contains_key(&mark) => continue,
            Ok(_) => {
                let why = "its plan's job was made without it; it gets another";
                Outcome::Deferred(deferral(Scope::Task, HoldKind::BackendFailed, why, 0))
            }
            Err(why) => Outcome::Deferred(why.clone()),
        };
        outcomes.insert(mark, outcome);
    }
}

fn told(tasks: &[Task], outcomes: &Outcomes, other: &Outcome) -> Vec<Outcome> {
    let one = |task: &Task| outcomes.get(&Mark::of(&task.hash)).unwrap_or(other).clone();
    tasks.iter().map(one).collect()
}

/// Why there is no room for a task.
fn full(room: &Room) -> Deferral {
    match room {
        Room::Unknown(why) => deferral(Scope::Backend, HoldKind::RoomUnknown, why, 1),
        Room::Known(o) if o.live_limit.is_some_and(|limit| o.live >= limit) => {
            let why = format!("{} tasks are unfinished", o.live);
            deferral(Scope::Backend, HoldKind::LiveLimit, why, 5)
        }
        Room::Known(o) => {
            let why = format!("{} of {} pending", o.pending, o.pending_limit);
            deferral(Scope::Backend, HoldKind::PendingLimit, why, 5)
        }
    }
}

/// What to wait for after a request that certainly made nothing.
fn refusal(error: &ApiError) -> Deferral {
    let text = error.said.to_ascii_lowercase();
    let account = text.contains("service account") || text.contains("serviceaccount");
    match error.fault {
        Fault::Unauthenticated => deferral(Scope::Backend, HoldKind::Unauthenticated, error, 30),
        Fault::Forbidden if account => {
            deferral(Scope::Workload, HoldKind::AccountRefused, error, 60)
        }
        Fault::Forbidden => deferral(Scope::Backend, HoldKind::Forbidden, error, 60),
        Fault::Throttled(after) => Deferral::new(
            Scope::Backend,
            HoldKind::Throttled,
            error,
            after.unwrap_or(Duration::from_secs(10)),
        ),
        Fault::NotFound => deferral(Scope::Workload, HoldKind::BadMapping, error, 60),
        Fault::Refused => deferral(Scope::Workload, HoldKind::JobRefused, error, 60),
        Fault::NotSent | Fault::Exists | Fault::Failed | Fault::Lost => {
            deferral(Scope::Backend, HoldKind::BackendFailed, error, 5)
        }
    }
}
