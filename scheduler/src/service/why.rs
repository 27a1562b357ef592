//! Gathers what an answer to "why does this job type not run?" is made of: from the running parts,
//! or from the ledger's file alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::work::Watching;
use super::{Backends, Lookups};
use crate::backend::EndObserver;
use crate::backend::ends::Hearers;
use crate::catalog::{Catalog, Freshness};
use crate::clock::Clock;
use crate::config::Config;
use crate::domain::name::{BackendName, JobType};
use crate::domain::outcome::HoldKind;
use crate::domain::room::{Occupancy, Room};
use crate::domain::task::WorkloadKey;
use crate::ledger::record::{EndRecord, Record};
use crate::ledger::store::{Store, StoreError};
use crate::ledger::{Ledger, Now};
use crate::pipeline::tally::{Decision, Observer};
use crate::why::{About, Answer, InCatalog, Source, Stop};

/// What the answers of a running scheduler are made of.
#[derive(Clone)]
pub struct Why {
    /// The ledger, and its file.
    pub ledger: Arc<Ledger>,
    /// Its file, which has the log tails of earlier ends.
    pub path: PathBuf,
    /// What is there now of every workload.
    pub now: Now,
    /// The breakers.
    pub work: Arc<Watching>,
    /// The backends' room.
    pub rooms: Vec<(BackendName, watch::Receiver<Room>)>,
    /// The catalog.
    pub catalog: Arc<dyn Catalog>,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

/// Two that hear of every decision.
struct Both(Arc<dyn Observer>, Arc<dyn Observer>);

impl Observer for Both {
    fn decided(&self, decision: &Decision) {
        self.0.decided(decision);
        self.1.decided(decision);
    }
}

type Known = BTreeMap<WorkloadKey, (Record, Vec<EndRecord>)>;

/// How long the ledger's last write may take.
pub(super) const LAST_WORD: Duration = Duration::from_secs(3);

impl Why {
    /// Over a ledger that has what its file has, and is told how Jobs end from now on; `others` are
    /// told too.
    pub(super) fn open(
        config: &Config,
        backends: &Backends,
        lookups: &Lookups,
        clock: &Arc<dyn Clock>,
        (work, mut others): (Arc<Watching>, Vec<Arc<dyn EndObserver>>),
    ) -> Self {
        others.push(Arc::clone(&work) as Arc<dyn EndObserver>);
        let ledger = Ledger::new(Arc::clone(clock));
        ledger.remember(&config.ledger.path);
        let hearers = Hearers::new(Arc::clone(&ledger) as Arc<dyn EndObserver>, others);
        backends.tell_ends(&(hearers as Arc<dyn EndObserver>));
        Self {
            ledger,
            path: config.ledger.path.clone(),
            now: backends.now(),
            work,
            rooms: backends.rooms(),
            catalog: lookups.catalog(),
            clock: Arc::clone(clock),
        }
    }

    /// What hears of every decision: the ledger, and `other`.
    pub(super) fn hear(&self, other: Option<Arc<dyn Observer>>) -> Arc<dyn Observer> {
        let ledger = Arc::clone(&self.ledger) as Arc<dyn Observer>;
        match other {
            Some(other) => Arc::new(Both(other, ledger)),
            None => ledger,
        }
    }

    /// Keeps the ledger's file until `stop`.
    pub(super) async fn keep(self, stop: CancellationToken) {
        self.ledger.keep(self.path, self.now, stop).await;
    }

    /// The answer for a job type, or for one command of it.
    pub async fn answer(&self, job_type: &JobType, command: Option<&str>) -> Answer {
        let (path, of) = (self.path.clone(), job_type.clone());
        let read = tokio::task::spawn_blocking(move || read(&path, &of)).await;
        let mut known = self.ledger.of(job_type);
        if let Ok(Ok(written)) = read {
            merge(&mut known, written);
        }
        let mut now = (self.now)();
        now.retain(|key, _| key.job_type == *job_type);
        for (key, (record, _)) in &mut known {
            record.now = now.remove(key).unwrap_or_default();
        }
        for (key, now) in now {
            known.insert(key, (Record { now, ..Record::default() }, Vec::new()));
        }
        let catalog = in_catalog(self.catalog.as_ref(), job_type).await;
        let at = (self.clock.wall(), Source::Scheduler);
        let mut about = about(known, command);
        for about in &mut about {
            let command = about.command.as_str().into();
            let key = WorkloadKey { command, job_type: job_type.clone() };
            about.breaker = self.work.open().get(&key).cloned();
        }
        Answer::new(job_type.as_str(), at, catalog, self.stopped(), about)
    }

    /// Why no backend can take anything, if so.
    fn stopped(&self) -> Vec<Stop> {
        let stop = |(name, room): &(BackendName, watch::Receiver<Room>)| {
            let (kind, detail) = match &*room.borrow() {
                Room::Unknown(why) => (HoldKind::RoomUnknown, why.clone()),
                Room::Known(room) if room.free() > 0 => return None,
                Room::Known(Occupancy { pending, pending_limit, .. })
                    if pending >= pending_limit =>
                {
                    let detail = format!("{pending} of {pending_limit} Jobs wait to start");
                    (HoldKind::PendingLimit, detail)
                }
                Room::Known(room) => (HoldKind::LiveLimit, format!("{} unfinished", room.live)),
            };
            let state = kind.label().to_owned();
            Some(Stop { state, detail: format!("backend {name}: {detail}") })
        };
        let all: Option<Vec<Stop>> = self.rooms.iter().map(stop).collect();
        all.unwrap_or_default()
    }
}

/// The answer by the ledger's file alone.
///
/// # Errors
/// Why the file can't be read.
pub async fn from_file(
    path: &Path,
    catalog: &dyn Catalog,
    clock: &dyn Clock,
    job_type: &JobType,
    command: Option<&str>,
) -> Result<Answer, StoreError> {
    let known = read(path, job_type)?;
    let catalog = in_catalog(catalog, job_type).await;
    let at = (clock.wall(), Source::File);
    Ok(Answer::new(job_type.as_str(), at, catalog, Vec::new(), about(known, command)))
}

fn read(path: &Path, job_type: &JobType) -> Result<Known, StoreError> {
    // To ask makes no file.
    if !path.exists() {
        return Ok(Known::new());
    }
    let rows = Store::open(path)?.read_of(job_type)?;
    Ok(rows.into_iter().map(|(key, record, ends)| (key, (record, ends))).collect())
}

/// Adds what only the file has: ends of before, and tails that memory let go.
fn merge(known: &mut Known, written: Known) {
    for (key, (record, ends)) in written {
        let (_, here) = known.entry(key).or_insert_with(|| (record, Vec::new()));
        let mut all = ends;
        for end in std::mem::take(here) {
            let same = |one: &EndRecord| (&one.task, one.attempt) == (&end.task, end.attempt);
            if !all.iter().any(same) {
                all.push(end);
            }
        }
        *here = all;
    }
}

fn about(known: Known, command: Option<&str>) -> Vec<About> {
    let asked = |key: &WorkloadKey| command.is_none_or(|command| key.command.as_str() == command);
    known
        .into_iter()
        .filter(|(key, _)| asked(key))
        .map(|(key, (record, ends))| About {
            command: key.command.to_string(),
            record,
            ends,
            breaker: None,
        })
        .collect()
}

async fn in_catalog(catalog: &dyn Catalog, job_type: &JobType) -> InCatalog {
    match catalog.look_up(std::slice::from_ref(job_type), Freshness::Cached).await {
        Ok(found) if found.get(job_type).is_some_and(|found| !found.jobs.is_empty()) => {
            InCatalog::Known
        }
        Ok(_) => InCatalog::Unknown,
        Err(error) => InCatalog::Unread(error.to_string()),
    }
}
