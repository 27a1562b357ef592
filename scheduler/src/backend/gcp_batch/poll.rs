//! Reading what is there: the records and all jobs of the last days at the start, then what changed;
//! settling plans that nobody works on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use jiff::{SignedDuration, Timestamp};
use tokio_util::sync::CancellationToken;

use super::GcpBatch;
use super::answer::Job;
use super::api::{ApiError, Fault};
use super::ledger::REDELIVERED_WITHIN;
use super::plan::{JobId, Mark};
use crate::domain::outcome::Placed;

/// How far back jobs may be unfinished: Batch lets none run longer than 14 days.
const FARTHEST: SignedDuration = SignedDuration::from_hours(15 * 24);
/// How far back each look goes at least, whatever is known.
const OVERLAP: SignedDuration = SignedDuration::from_mins(15);
/// The pause before the next look while the records are not read. They are the scheduler's own, so
/// that Batch is not asked more often for it.
const UNREADY: Duration = Duration::from_secs(1);
/// Reads under way at once.
const SIDE_BY_SIDE: usize = 8;
/// The most pages of one list: more is no list of a farm's jobs.
pub(super) const PAGES: usize = 10_000;

/// Whether a list is the latest first, as asked: only then may it be left before its end.
#[derive(Default)]
struct Order {
    last: Option<Timestamp>,
    broken: bool,
}

impl Order {
    /// Whether all that follows this job is older than `cutoff`.
    fn is_past(&mut self, job: &Job, cutoff: Timestamp) -> bool {
        let Some(created) = job.create_time else { return false };
        self.broken |= self.last.is_some_and(|last| created > last);
        self.last = Some(created);
        !self.broken && created < cutoff
    }
}

impl GcpBatch {
    /// Looks at the jobs until `stop`.
    pub async fn run(&self, stop: CancellationToken) {
        let mut said: Option<String> = None;
        loop {
            // Only the leader may read the records; one that comes to lead begins at once.
            if !self.leadership.may_create() {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(UNREADY.min(self.settings.poll)) => continue,
                }
            }
            let looked = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                looked = self.look_once() => looked,
            };
            let fault = looked.err();
            if fault != said {
                match &fault {
                    Some(why) => tracing::warn!(backend = %self.settings.name, "{why}"),
                    None => tracing::info!(backend = %self.settings.name, "Batch's jobs are known"),
                }
                said = fault;
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.look.notified() => {}
                () = tokio::time::sleep(self.pause()) => {}
            }
        }
    }

    /// The time until the next look.
    fn pause(&self) -> Duration {
        let poll = self.settings.poll;
        if self.state().loaded { poll } else { UNREADY.min(poll) }
    }

    /// One look at everything.
    ///
    /// # Errors
    /// What could not be read. Where nothing was known before, nothing is created now.
    pub(super) async fn look_once(&self) -> Result<(), String> {
        let looked = self.read_all().await;
        if let Err(why) = &looked {
            let mut state = self.state();
            if state.ready.is_err() {
                state.ready = Err(why.clone());
            }
        }
        self.tell_room();
        looked
    }

    async fn read_all(&self) -> Result<(), String> {
        let began = self.clock.mono();
        if !self.state().loaded {
            self.load().await?;
        }
        let idle = self.state().ledger.idle_plans();
        stream::iter(idle)
            .for_each_concurrent(SIDE_BY_SIDE, |id| async move { self.settle_idle(&id).await })
            .await;
        let parents: Vec<String> = self.state().ledger.parents().iter().cloned().collect();
        for parent in parents {
            let read = self.read_parent(&parent).await;
            let mut state = self.state();
            match read {
                Ok(()) => {
                    state.absent.remove(&parent);
                    state.listed.insert(parent);
                }
                // A place that is not there has no jobs: its own mappings' fault alone.
                Err(error) if error.fault == Fault::NotFound => {
                    state.listed.remove(&parent);
                    state.absent.insert(parent);
                }
                Err(error) => return Err(format!("{parent} can't be read: {error}")),
            }
        }
        {
            let mut state = self.state();
            state.looked_at = Some(began);
            if state.loaded {
                state.ready = Ok(());
            }
            state.ledger.expire(self.clock.wall());
        }
        self.tell_what_is_over().await;
        // What fails here is written with the next plan.
        if self.state().ledger.has_settled()
            && let Err(why) = self.write(None).await
        {
            tracing::debug!(why = why.detail, "records of settled plans stay for now");
        }
        Ok(())
    }

    async fn load(&self) -> Result<(), String> {
        // Under the lock of writes, so that none falls between the reading and the taking over.
        let mut written = self.writing.lock().await;
        let records = self.records.all().await.map_err(|error| error.to_string())?;
        *written = None;
        let mut state = self.state();
        let now = self.clock.mono();
        let parents = self.settings.parents.clone();
        state.ledger.load(&records, now).map_err(|key| {
            format!("the record `{key}` can't be read; remove it once its job is known to be none")
        })?;
        parents.iter().for_each(|parent| state.ledger.add_parent(parent));
        state.loaded = true;
        Ok(())
    }

    /// Settles a plan that nobody works on, as far as reading can.
    pub(super) async fn settle_idle(&self, id: &JobId) {
        let Some((claim, plan)) = self.claim(id) else { return };
        let past = self.state().ledger.is_past(id, self.clock.mono());
        match self.api.get(&plan.parent, id).await {
            Ok(Some(job)) => {
                // One that is not ours is told where somebody waits for it.
                let _ = self.confirm(&claim, &plan.parent, &job, Placed::AlreadyThere);
            }
            Ok(None) if past => {
                let mut state = self.state();
                if state.ledger.epoch == claim.epoch {
                    tracing::info!(job = %id, "a plan whose job never came to be is dropped");
                    state.ledger.void(id);
                }
            }
            Ok(None) => {}
            Err(error) => tracing::debug!(job = %id, %error, "a plan can't be settled yet"),
        }
    }

    async fn read_parent(&self, parent: &str) -> Result<(), ApiError> {
        let (cutoff, live) = self.horizon(parent);
        let mut page: Option<String> = None;
        let (mut seen, mut order) = (BTreeSet::new(), Order::default());
        for _ in 0..PAGES {
            let jobs = self.api.list(parent, page.as_deref()).await?;
            if let Some(place) = jobs.unreachable.first() {
                let why = format!("the list is not whole: {place} can't be reached");
                return Err(ApiError::new(Fault::Failed, why));
            }
            let past = jobs.jobs.iter().fold(false, |_, job| order.is_past(job, cutoff));
            let done = past || jobs.next_page_token.is_empty();
            self.take(parent, jobs.jobs, &mut seen).await?;
            if done {
                break;
            }
            page = Some(jobs.next_page_token);
        }
        // Known, unfinished, and in no list that should show them.
        let missing = live.into_iter().filter(|id| !seen.contains(id));
        for id in missing.collect::<Vec<_>>() {
            match self.api.get(parent, &id).await? {
                Some(job) => self.state().ledger.found(&id, job.status.state),
                None => self.state().ledger.gone(&id),
            }
        }
        Ok(())
    }

    /// How far back the list of a parent must go, and which jobs it must show.
    fn horizon(&self, parent: &str) -> (Timestamp, BTreeSet<JobId>) {
        let now = self.clock.wall();
        let before = |by| now.checked_sub(by).unwrap_or(Timestamp::MIN);
        let state = self.state();
        let live = state.ledger.jobs().filter(|(_, job)| job.parent == parent && job.is_live());
        let live: BTreeMap<JobId, Timestamp> =
            live.map(|(id, job)| (id.clone(), job.created)).collect();
        if !state.listed.contains(parent) {
            return (before(FARTHEST), live.into_keys().collect());
        }
        let oldest = live.values().min().copied().unwrap_or(now);
        (oldest.min(before(OVERLAP)), live.into_keys().collect())
    }

    /// Takes a page of jobs in; those that were not known are read whole, for their tasks.
    async fn take(
        &self,
        parent: &str,
        jobs: Vec<Job>,
        seen: &mut BTreeSet<JobId>,
    ) -> Result<(), ApiError> {
        let now = self.clock.wall();
        let old = |job: &Job| {
            let created = job.create_time.unwrap_or(Timestamp::MAX);
            job.status.state.is_over() && now.duration_since(created) > REDELIVERED_WITHIN
        };
        let mut unknown = Vec::new();
        for job in jobs.into_iter().filter(|job| job.is_of(&self.settings.scheduler)) {
            let Some(id) = JobId::parse(job.id()) else { continue };
            seen.insert(id.clone());
            if !self.state().ledger.listed(&id, &job) && !old(&job) {
                unknown.push(id);
            }
        }
        let mut reads = stream::iter(unknown)
            .map(|id| async move { (self.api.get(parent, &id).await, id) })
            .buffer_unordered(SIDE_BY_SIDE);
        while let Some((read, id)) = reads.next().await {
            // Deleted since it was listed: it is no more.
            let Some(job) = read? else { continue };
            let Some(members) = job.members() else {
                tracing::warn!(job = %id, parent, "a job has our label and does not name its tasks");
                continue;
            };
            let marks: Vec<Mark> = members.iter().map(Mark::of).collect();
            let mut state = self.state();
            state.ledger.confirm(&id, parent, &job, &marks);
            state.ledger.listed(&id, &job);
        }
        Ok(())
    }
}
