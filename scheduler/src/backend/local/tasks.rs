//! The tasks of one directory: the table of what is there, and the steps that change it.
//!
//! Blocking, and without a loop of its own: [`LocalBackend`](super::LocalBackend) calls it from
//! where blocking is fine. The table only mirrors the directory; a restart reads it anew.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::process::{Child, Command};
use tokio::sync::{broadcast, watch};

use super::cancel;
use super::claim::{self, Claim};
use super::end::{LocalEnd, Summary};
use super::log_tail;
use super::record::{ACKED, Exit, Record, private_dir, private_file};
use super::settings::{LocalError, Settings};
use super::state::{self, State};
use crate::backend::EndObserver;
use crate::clock::Clock;
use crate::domain::name::{Attempt, TaskHash};
use crate::domain::outcome::{Deferral, HoldKind, Placed, Scope};
use crate::domain::room::{Occupancy, Room};

/// How long a finished task whose ack was never heard of is kept: as long as its message could
/// still come again (a signed input is dead after 24 h).
const KEEP_UNACKED: Duration = Duration::from_secs(26 * 3600);

/// How often a supervisor that ends without having begun is started again.
const STARTS: u32 = 3;

/// How many ends a slow listener may be behind before it misses some.
const ENDS_KEPT: usize = 4096;

/// How often, and how far apart, the directory's ownership is asked for: a second in all.
const OWNER_TRIES: u32 = 50;
const OWNER_WAIT: Duration = Duration::from_millis(20);

const LIMIT_RETRY: Duration = Duration::from_secs(1);
const FAILED_RETRY: Duration = Duration::from_secs(10);

pub(super) struct Tasks {
    pub settings: Settings,
    clock: Arc<dyn Clock>,
    table: Mutex<BTreeMap<TaskHash, Phase>>,
    pub room: watch::Sender<Room>,
    pub ends: broadcast::Sender<LocalEnd>,
    pub listener: OnceLock<Arc<dyn EndObserver>>,
    pub summary: Summary,
    /// Held by the process that owns the directory, for as long as it lives.
    _owner: File,
}

/// Where a task is, as far as this process knows.
enum Phase {
    /// Counts against `jobs`. `own`: its supervisor is our child, whose end we will hear of.
    Live {
        own: bool,
        /// How often this process started its supervisor.
        starts: u32,
    },
    /// Ended at this time.
    Ended { at: Timestamp, acked: bool },
}

impl Phase {
    const ADOPTED: Self = Self::Live { own: false, starts: 0 };
}

impl Tasks {
    /// Takes the directory over, with what is in it. Answers the ends found there, too.
    pub(super) fn open(
        settings: Settings,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, Vec<LocalEnd>), LocalError> {
        let settings = settings.checked()?;
        let root = &settings.dir;
        private_dir().recursive(true).create(root).map_err(LocalError::at(root))?;
        let owner = own(root)?;
        let tasks = Self {
            room: watch::Sender::new(Room::Unknown("the directory is being read".into())),
            ends: broadcast::Sender::new(ENDS_KEPT),
            listener: OnceLock::new(),
            summary: Summary::default(),
            table: Mutex::default(),
            clock,
            settings,
            _owner: owner,
        };
        let found = tasks.recover()?;
        tasks.tell_room();
        Ok((tasks, found))
    }

    fn recover(&self) -> Result<Vec<LocalEnd>, LocalError> {
        let root = &self.settings.dir;
        let mut ends = Vec::new();
        for entry in std::fs::read_dir(root).map_err(LocalError::at(root))? {
            let path = entry.map_err(LocalError::at(root))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if claim::is_discarded(&name) {
                std::fs::remove_dir_all(&path).map_err(LocalError::at(&path))?;
            } else if name.starts_with("cf-job-") {
                match self.adopt(&path) {
                    Ok(end) => ends.extend(end),
                    // One directory that makes no sense stops neither the others nor the start.
                    Err(error) => {
                        tracing::warn!(dir = %path.display(), %error, "a task's directory can't be read; left alone");
                    }
                }
            }
        }
        Ok(ends)
    }

    fn adopt(&self, dir: &Path) -> std::io::Result<Option<LocalEnd>> {
        let Some(record) = Record::read(dir)? else {
            claim::discard(&self.settings.dir, dir)?;
            return Ok(None);
        };
        let Some(hash) = record.hash().filter(|hash| self.directory(hash) == dir) else {
            tracing::warn!(dir = %dir.display(), "a task's directory has another task's name; left alone");
            return Ok(None);
        };
        let State::Ended(exit) = state::settle(dir, self.clock.wall())? else {
            self.table().insert(hash, Phase::ADOPTED);
            return Ok(None);
        };
        let acked = dir.join(ACKED).try_exists()?;
        self.table().insert(hash, Phase::Ended { at: exit.ended_at, acked });
        self.summary.count(exit.end());
        Ok(Some(self.local_end(dir, &record, hash, &exit)))
    }

    /// Claims a task and starts it. Calls must not overlap. The child is the supervisor's process.
    pub(super) fn place(&self, record: &Record) -> Result<(Placed, Option<Child>), Deferral> {
        let failed = |e: std::io::Error| {
            Deferral::new(Scope::Backend, HoldKind::BackendFailed, e, FAILED_RETRY)
        };
        let hash = record.hash().ok_or_else(|| failed(std::io::Error::other("no task hash")))?;
        if self.table().contains_key(&hash) {
            return Ok((Placed::AlreadyThere, None));
        }
        let (live, jobs) = (self.live(), self.settings.jobs);
        if live >= jobs {
            let detail = format!("{live} tasks are running here; `jobs` is {jobs}");
            return Err(Deferral::new(Scope::Backend, HoldKind::LiveLimit, detail, LIMIT_RETRY));
        }
        let dir = self.directory(&hash);
        match claim::claim(&self.settings.dir, record).map_err(failed)? {
            Claim::AlreadyThere => {
                self.table().insert(hash, Phase::ADOPTED);
                self.tell_room();
                return Ok((Placed::AlreadyThere, None));
            }
            Claim::Taken => {
                let detail = format!("{} is the directory of another task", dir.display());
                return Err(Deferral::new(Scope::Task, HoldKind::NameTaken, detail, FAILED_RETRY));
            }
            Claim::Made => {}
        }
        let child = match self.start(&dir) {
            Ok(child) => child,
            Err(e) => {
                // Nothing has run, so the claim can go; if it can't, it is started later.
                if claim::discard(&self.settings.dir, &dir).is_err() {
                    self.table().insert(hash, Phase::ADOPTED);
                }
                return Err(failed(e));
            }
        };
        self.table().insert(hash, Phase::Live { own: true, starts: 1 });
        self.tell_room();
        Ok((Placed::Created, Some(child)))
    }

    fn start(&self, dir: &Path) -> std::io::Result<Child> {
        Command::from(self.settings.supervisor.command(dir)).spawn()
    }

    /// Hears that the supervisor which was our child has ended.
    pub(super) fn disown(&self, hash: &TaskHash) {
        if let Some(Phase::Live { own, .. }) = self.table().get_mut(hash) {
            *own = false;
        }
    }

    /// Looks at every live task that is nobody's child, starts those that have not run, and removes
    /// what has been kept long enough. Answers the supervisors started.
    pub(super) fn pass(&self) -> Vec<(TaskHash, Child)> {
        let mut started = Vec::new();
        for (hash, starts) in self.adopted() {
            match self.advance(&hash, starts) {
                Ok(child) => started.extend(child.map(|child| (hash, child))),
                // The next pass tries again.
                Err(error) => tracing::warn!(task = %hash, %error, "can't see to a task"),
            }
        }
        self.remove_finished();
        started
    }

    fn advance(&self, hash: &TaskHash, starts: u32) -> std::io::Result<Option<Child>> {
        let dir = self.directory(hash);
        let now = self.clock.wall();
        let mut state = state::settle(&dir, now)?;
        if matches!(state, State::Unstarted) && starts >= STARTS {
            let why = "its supervisor ended before it could begin, each time";
            state = state::give_up(&dir, why, now)?;
        }
        match state {
            State::Running => Ok(None),
            State::Unstarted => {
                let child = self.start(&dir)?;
                self.table().insert(*hash, Phase::Live { own: true, starts: starts + 1 });
                Ok(Some(child))
            }
            State::Ended(exit) => {
                self.finish(hash, &dir, &exit)?;
                Ok(None)
            }
            State::Unclaimed => {
                tracing::warn!(task = %hash, "the directory of a task was taken away");
                self.table().remove(hash);
                self.tell_room();
                Ok(None)
            }
        }
    }

    fn finish(&self, hash: &TaskHash, dir: &Path, exit: &Exit) -> std::io::Result<()> {
        {
            // Under the table's lock, so that an ack that comes now is seen here or there.
            let mut table = self.table();
            let acked = dir.join(ACKED).try_exists()?;
            table.insert(*hash, Phase::Ended { at: exit.ended_at, acked });
        }
        self.summary.count(exit.end());
        self.tell_room();
        if let Some(record) = Record::read(dir)? {
            let end = self.local_end(dir, &record, *hash, exit);
            tracing::debug!(task = %hash, end = %end.end, "a task ended");
            self.tell(end);
        }
        Ok(())
    }

    /// Tells an end to whoever listens.
    pub(super) fn tell(&self, end: LocalEnd) {
        if let Some(listener) = self.listener.get()
            && !listener.knows(&end.hash, Attempt::FIRST)
        {
            listener.ended(end.on(&self.settings.name));
        }
        // Nobody may be listening.
        let _ = self.ends.send(end);
    }

    fn local_end(&self, dir: &Path, record: &Record, hash: TaskHash, exit: &Exit) -> LocalEnd {
        LocalEnd {
            hash,
            key: record.key(),
            end: exit.end(),
            tail: log_tail::read(dir, record),
            started_at: exit.started_at,
            ended_at: exit.ended_at,
        }
    }

    /// Asks for the end of every unfinished task; how many there are.
    pub(super) fn cancel_all(&self) -> std::io::Result<usize> {
        let live = |(hash, phase): (&TaskHash, &Phase)| {
            matches!(phase, Phase::Live { .. }).then(|| self.directory(hash))
        };
        let live: Vec<PathBuf> = self.table().iter().filter_map(live).collect();
        live.iter().try_for_each(|dir| cancel::request(dir))?;
        Ok(live.len())
    }

    /// Notes that a task's message is acked, also for the next start.
    pub(super) fn acked(&self, tasks: &[TaskHash]) {
        for hash in tasks {
            let mut table = self.table();
            let Some(phase) = table.get_mut(hash) else { continue };
            if let Phase::Ended { acked, .. } = phase {
                *acked = true;
            }
            // Without the file the directory is kept longer after a restart, no worse.
            let _ = private_file().open(self.directory(hash).join(ACKED));
        }
    }

    fn remove_finished(&self) {
        let now = self.clock.wall();
        let retain = self.settings.retain_finished;
        let due = |phase: &Phase| {
            let Phase::Ended { at, acked } = phase else { return false };
            let keep = if *acked { retain } else { KEEP_UNACKED.max(retain) };
            now.duration_since(*at) >= SignedDuration::try_from(keep).unwrap_or(SignedDuration::MAX)
        };
        let gone: Vec<TaskHash> =
            self.table().iter().filter(|(_, phase)| due(phase)).map(|(hash, _)| *hash).collect();
        for hash in gone {
            if let Err(error) = claim::discard(&self.settings.dir, &self.directory(&hash)) {
                tracing::warn!(task = %hash, %error, "can't remove a finished task's directory");
            }
            // Last, so that a late redelivery meets either the table or a free name.
            self.table().remove(&hash);
        }
    }

    fn adopted(&self) -> Vec<(TaskHash, u32)> {
        let starts = |phase: &Phase| match phase {
            Phase::Live { own: false, starts } => Some(*starts),
            _ => None,
        };
        self.table().iter().filter_map(|(hash, phase)| Some((*hash, starts(phase)?))).collect()
    }

    fn live(&self) -> usize {
        self.table().values().filter(|phase| matches!(phase, Phase::Live { .. })).count()
    }

    fn tell_room(&self) {
        let jobs = self.settings.jobs;
        self.room.send_replace(Room::Known(Occupancy {
            pending: 0,
            pending_limit: jobs,
            live: self.live(),
            live_limit: Some(jobs),
        }));
    }

    pub(super) fn directory(&self, hash: &TaskHash) -> PathBuf {
        claim::directory(&self.settings.dir, hash)
    }

    pub(super) fn has(&self, hash: &TaskHash) -> bool {
        self.table().contains_key(hash)
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<TaskHash, Phase>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes this process the directory's only owner. Waits a little for one that is ending, and for
/// a child that it was just starting: until that has become another program it holds the lock too.
fn own(root: &Path) -> Result<File, LocalError> {
    let path = root.join(".owner");
    let file = private_file().open(&path).map_err(LocalError::at(&path))?;
    for _ in 0..OWNER_TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => std::thread::sleep(OWNER_WAIT),
            Err(TryLockError::Error(e)) => return Err(LocalError::at(&path)(e)),
        }
    }
    Err(LocalError::InUse(root.to_owned()))
}
