//! A catalog in front of another one that answers from memory for a while.
//!
//! One look-up serves all who ask for a job type at the same time. An answer is used for its
//! lifetime; that a job type does not exist, or is faulty, only for ten seconds, since somebody may
//! be mending it. While the source is down, older answers are used up to an age, and it is said.
//! A fresh look-up always asks the source. Nothing is spawned: who waits drives the look-up, and
//! when all of them have gone it ends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared, join_all};
use tokio::time::Instant;

use super::entity::JobEntities;
use super::{Catalog, CatalogError, Freshness};
use crate::clock::Clock;
use crate::domain::name::JobType;

/// How long it counts that a job type does not exist, or that its entities are faulty.
const DOUBTFUL_FOR: Duration = Duration::from_secs(10);
/// After a failed look-up older answers are given at once for so long, without asking again.
const SOURCE_RESTS: Duration = Duration::from_secs(5);
/// Who has an older answer to go by waits for a new one no longer than this.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two warnings that older answers are in use.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// How long answers are good for, and how many are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// An answer younger than this is given without asking.
    pub lifetime: Duration,
    /// An answer younger than this is given while the source can't be read.
    pub max_stale: Duration,
    /// So many job types at most; the oldest answers go first.
    pub job_types: usize,
}

type Entities = BTreeMap<JobType, JobEntities>;
type Answer = Result<Arc<Entities>, CatalogError>;
type Flight = Shared<BoxFuture<'static, Answer>>;

/// The catalog.
pub struct CachedCatalog<C> {
    source: Arc<C>,
    clock: Arc<dyn Clock>,
    bounds: Bounds,
    memory: Arc<Mutex<Memory>>,
}

#[derive(Default)]
struct Memory {
    answers: BTreeMap<JobType, Kept>,
    flights: BTreeMap<JobType, WeakShared<BoxFuture<'static, Answer>>>,
    /// When the source last failed, and why; `None` since it last answered.
    failure: Option<(Instant, CatalogError)>,
    /// When the first of the failures in a row was.
    failing_since: Option<Instant>,
    warned: Option<Instant>,
}

struct Kept {
    entities: JobEntities,
    /// When it was asked for: what changed since then is not in it.
    asked: Instant,
}

impl Kept {
    fn is_doubtful(&self) -> bool {
        self.entities.jobs.is_empty() || !self.entities.faults.is_empty()
    }

    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.asked)
    }

    fn is_good(&self, bounds: &Bounds, now: Instant) -> bool {
        let lifetime =
            if self.is_doubtful() { DOUBTFUL_FOR.min(bounds.lifetime) } else { bounds.lifetime };
        self.age(now) < lifetime
    }

    /// Whether it may be used while the source can't be read. That a job type did not exist says
    /// nothing of whether it does.
    fn is_usable(&self, bounds: &Bounds, now: Instant) -> bool {
        self.is_good(bounds, now) || !self.is_doubtful() && self.age(now) < bounds.max_stale
    }
}

impl Memory {
    /// Keeps what was answered, unless something newer is known, and forgets the oldest.
    fn keep(&mut self, found: &Entities, asked: Instant, most: usize) {
        self.failure = None;
        self.failing_since = None;
        for (name, entities) in found {
            let newer = self.answers.get(name).is_some_and(|kept| kept.asked > asked);
            if !newer {
                let kept = Kept { entities: entities.clone(), asked };
                self.answers.insert(name.clone(), kept);
            }
        }
        let over = self.answers.len().saturating_sub(most);
        if over > 0 {
            // A tenth more than needed, so that not every answer has to look for the oldest.
            let by_age =
                |(name, kept): (&JobType, &Kept)| (!kept.is_doubtful(), kept.asked, name.clone());
            let mut oldest: Vec<_> = self.answers.iter().map(by_age).collect();
            oldest.sort();
            for (.., name) in oldest.into_iter().take(over + most / 10) {
                self.answers.remove(&name);
            }
        }
    }
}

impl<C: Catalog + 'static> CachedCatalog<C> {
    /// In front of `source`.
    pub fn new(source: Arc<C>, clock: Arc<dyn Clock>, bounds: Bounds) -> Self {
        Self { source, clock, bounds, memory: Arc::default() }
    }

    /// The catalog behind it.
    pub fn source(&self) -> &Arc<C> {
        &self.source
    }

    /// For how long the source has failed each time; zero since it last answered.
    pub fn stale_for(&self) -> Duration {
        let since = self.memory().failing_since;
        since.map_or(Duration::ZERO, |at| self.clock.mono().saturating_duration_since(at))
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A look-up of `names` that any number may wait for.
    fn flight(&self, names: Vec<JobType>, freshness: Freshness) -> Flight {
        let source = Arc::clone(&self.source);
        let memory = Arc::clone(&self.memory);
        let clock = Arc::clone(&self.clock);
        let most = self.bounds.job_types;
        async move {
            let asked = clock.mono();
            let found = source.look_up(&names, freshness).await;
            let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
            match found {
                Ok(found) => {
                    memory.keep(&found, asked, most);
                    Ok(Arc::new(found))
                }
                Err(error) => {
                    memory.failure = Some((clock.mono(), error.clone()));
                    memory.failing_since.get_or_insert(clock.mono());
                    Err(error)
                }
            }
        }
        .boxed()
        .shared()
    }

    /// What is known already, and the look-ups that will say the rest: those under way, and a new
    /// one for all job types that none is under way for.
    fn plan(&self, names: &[JobType]) -> Plan {
        let now = self.clock.mono();
        let mut memory = self.memory();
        let rests = |failed: &Instant| now.saturating_duration_since(*failed) < SOURCE_RESTS;
        let failure = memory.failure.as_ref().filter(|(at, _)| rests(at)).map(|(_, e)| e.clone());
        let mut plan =
            Plan { known: Entities::new(), flights: Vec::new(), failure, older_will_do: true };
        let mut wanted = BTreeSet::new();
        for name in names {
            let kept = memory.answers.get(name);
            plan.older_will_do &= kept.is_some_and(|kept| kept.is_usable(&self.bounds, now));
            match kept {
                Some(kept) if kept.is_good(&self.bounds, now) => {
                    plan.known.insert(name.clone(), kept.entities.clone());
                    continue;
                }
                // The source rests: `complete` takes the older answer.
                Some(kept) if plan.failure.is_some() && kept.is_usable(&self.bounds, now) => {
                    continue;
                }
                _ => {}
            }
            // One that is over keeps nobody waiting; its answer was too old by now.
            let under_way = memory.flights.get(name).and_then(WeakShared::upgrade);
            match under_way.filter(|flight| flight.peek().is_none()) {
                Some(flight) if plan.flights.iter().any(|other| other.ptr_eq(&flight)) => {}
                Some(flight) => plan.flights.push(flight),
                None => {
                    wanted.insert(name.clone());
                }
            }
        }
        if !wanted.is_empty() {
            let flight = self.flight(wanted.iter().cloned().collect(), Freshness::Cached);
            memory.flights.retain(|_, flight| flight.upgrade().is_some());
            if let Some(weak) = flight.downgrade() {
                memory.flights.extend(wanted.into_iter().map(|name| (name, weak.clone())));
            }
            plan.flights.push(flight);
        }
        plan
    }

    /// The answers of look-ups under way. One that takes long counts as failed where older answers
    /// will do, and ends unless somebody else waits for it.
    async fn arrivals(&self, flights: Vec<Flight>, older_will_do: bool) -> Vec<Answer> {
        let answers = join_all(flights);
        if !older_will_do {
            return answers.await;
        }
        match tokio::time::timeout(PATIENCE, answers).await {
            Ok(answers) => answers,
            Err(_) => {
                let late = format!("no answer within {} s", PATIENCE.as_secs());
                let error = CatalogError(late);
                let now = self.clock.mono();
                let mut memory = self.memory();
                memory.failure = Some((now, error.clone()));
                memory.failing_since.get_or_insert(now);
                vec![Err(error)]
            }
        }
    }

    /// Fills in what the source did not say from older answers. A job type without one gets the
    /// failure as its fault, which holds its tasks and no others.
    fn complete(
        &self,
        names: &[JobType],
        mut known: Entities,
        error: &CatalogError,
    ) -> Result<Entities, CatalogError> {
        let now = self.clock.mono();
        let mut memory = self.memory();
        let (mut missing, mut stale) = (Vec::new(), BTreeMap::new());
        for name in names.iter().filter(|name| !known.contains_key(*name)) {
            match memory.answers.get(name).filter(|kept| kept.is_usable(&self.bounds, now)) {
                Some(kept) => {
                    stale.insert(name.clone(), (kept.age(now), kept.entities.clone()));
                }
                None => missing.push(name.clone()),
            }
        }
        let oldest = stale.values().map(|(age, _)| *age).max();
        let due =
            memory.warned.is_none_or(|warned| now.saturating_duration_since(warned) >= WARN_EVERY);
        if let (Some(oldest), true) = (oldest, due) {
            memory.warned = Some(now);
            tracing::warn!(
                "{error}; answers up to {} s old are used, for {} s at the most",
                oldest.as_secs(),
                self.bounds.max_stale.as_secs()
            );
        }
        known.extend(stale.into_iter().map(|(name, (_, entities))| (name, entities)));
        if known.is_empty() && !missing.is_empty() {
            return Err(error.clone());
        }
        let fault = |name| {
            let entities =
                JobEntities { faults: vec![error.to_string()], ..JobEntities::default() };
            (name, entities)
        };
        known.extend(missing.into_iter().map(fault));
        Ok(known)
    }
}

/// How a look-up is to be answered.
struct Plan {
    known: Entities,
    flights: Vec<Flight>,
    /// Why the source isn't asked for what older answers will do for.
    failure: Option<CatalogError>,
    /// All that was asked for has an older answer that may be used.
    older_will_do: bool,
}

#[async_trait]
impl<C: Catalog + 'static> Catalog for CachedCatalog<C> {
    async fn look_up(
        &self,
        job_types: &[JobType],
        freshness: Freshness,
    ) -> Result<BTreeMap<JobType, JobEntities>, CatalogError> {
        if freshness == Freshness::Fresh {
            let found = self.flight(job_types.to_vec(), freshness).await?;
            return Ok(Arc::unwrap_or_clone(found));
        }
        let Plan { mut known, flights, mut failure, older_will_do } = self.plan(job_types);
        for answer in self.arrivals(flights, older_will_do).await {
            match answer {
                Ok(found) => {
                    let wanted = job_types.iter();
                    known.extend(
                        wanted.filter_map(|name| Some((name.clone(), found.get(name)?.clone()))),
                    );
                }
                Err(error) => failure = Some(error),
            }
        }
        // A source that leaves a job type out has not said that there is none.
        let unsaid = || CatalogError("the source did not answer for it".into());
        self.complete(job_types, known, &failure.unwrap_or_else(unsaid))
    }
}

#[cfg(test)]
mod tests;
