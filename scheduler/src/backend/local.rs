//! The backend `local`: a task is a child process of this machine, for newcomers and tests.
//!
//! It keeps the same promises as a cluster (exactly one run a task, never more at once than
//! allowed, ends seen) with nothing installed, but for one: **it isolates nothing**. A command runs
//! with this user's rights. A task is claimed by a directory of its Job's name, run under a
//! supervisor that outlives the scheduler ([`supervise`]), and found again after a restart by its
//! directory's [`state`]. Linux only in two things: a task's stray processes are found through
//! `/proc`, and its first process is waited for with `waitid`. Where the kernel permits it, a task
//! also has a [`cgroup`] of its own: then its memory is limited, and no process of it gets away.

mod cancel;
mod cgroup;
mod claim;
mod end;
mod environment;
mod log_tail;
mod record;
mod settings;
mod state;
mod strays;
mod supervise;
mod tasks;

#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::process::Child;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

pub use cancel::{Unfinished, unfinished};
pub use cgroup::{Cgroups, NoCgroups, Version};
pub use end::{End, LocalEnd};
pub use log_tail::TAIL_BYTES;
pub use settings::{GRACE, LocalError, RETAIN_FINISHED, Settings};
pub use supervise::{Supervisor, supervise};

use crate::backend::{Backend, EndObserver};
use crate::clock::Clock;
use crate::domain::name::{BackendName, TaskHash};
use crate::domain::outcome::{Deferral, HoldKind, Outcome, Scope};
use crate::domain::room::Room;
use crate::domain::task::Task;
use crate::domain::workload::Workload;
use record::{Memory, Record};
use tasks::Tasks;

/// How often adopted tasks are looked at, whose end no signal tells; and how often a supervisor
/// looks for a request to stop.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How long a workload waits whose settings no process can have.
const REFUSED_RETRY: Duration = Duration::from_secs(60);

/// Tasks as child processes of this machine.
pub struct LocalBackend {
    tasks: Arc<Tasks>,
    clock: Arc<dyn Clock>,
    /// One claim at a time: what else is found half made was left by a crash.
    claiming: Arc<tokio::sync::Mutex<()>>,
    started: mpsc::UnboundedSender<(TaskHash, Child)>,
    /// What `run` takes when it begins.
    inbox: Mutex<Option<Inbox>>,
}

struct Inbox {
    started: mpsc::UnboundedReceiver<(TaskHash, Child)>,
    ends_found: Vec<LocalEnd>,
}

impl LocalBackend {
    /// Takes the directory over: tasks that are running there are adopted, and count against
    /// `jobs`; what a crash left half claimed is removed. Blocks for a short time.
    ///
    /// # Errors
    /// [`LocalError`]: a wrong setting, a directory that can't be used or is in use.
    pub fn open(settings: Settings, clock: Arc<dyn Clock>) -> Result<Arc<Self>, LocalError> {
        let (tasks, ends_found) = Tasks::open(settings, clock.clone())?;
        let (started, receiver) = mpsc::unbounded_channel();
        Ok(Arc::new(Self {
            tasks: Arc::new(tasks),
            clock,
            claiming: Arc::default(),
            started,
            inbox: Mutex::new(Some(Inbox { started: receiver, ends_found })),
        }))
    }

    /// Sees tasks to their end, until `shutdown`. Tasks go on running then; the next start adopts
    /// them. Runs once: a second call returns at once.
    pub async fn run(&self, shutdown: CancellationToken) {
        let inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Inbox { mut started, ends_found }) = inbox else { return };
        for end in ends_found {
            self.tasks.tell(end);
        }
        let mut children = FuturesUnordered::new();
        let mut look = tokio::time::interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                Some((hash, child)) = started.recv() => {
                    children.push(end_of(hash, child));
                    continue;
                }
                Some(hash) = children.next() => self.tasks.disown(&hash),
                _ = look.tick() => {}
            }
            let tasks = self.tasks.clone();
            // A panic there is this pass's alone; the next one looks again.
            let begun = tokio::task::spawn_blocking(move || tasks.pass()).await.unwrap_or_default();
            for (hash, child) in begun {
                children.push(end_of(hash, child));
            }
        }
    }

    /// Hears of every end from now on, and of those that were found at the start when `run` has
    /// not begun yet: an end may so be told twice over a restart. Who is thousands behind misses
    /// some, and is told so.
    pub fn ends(&self) -> broadcast::Receiver<LocalEnd> {
        self.tasks.ends.subscribe()
    }

    /// Who hears of ends too, each once unless it is known; before [`run`](Self::run), and the first
    /// one stays.
    pub fn tell_ends(&self, listener: Arc<dyn EndObserver>) {
        let _ = self.tasks.listener.set(listener);
    }

    /// How many tasks ended how: since the start, and those found then.
    pub fn summary(&self) -> BTreeMap<End, usize> {
        self.tasks.summary.read()
    }

    fn record(&self, workload: &Workload, task: &Task) -> Result<Record, Deferral> {
        let settings = &self.tasks.settings;
        let dir = self.tasks.directory(&task.hash);
        let job = dir.file_name().unwrap_or_default().to_string_lossy();
        let env = environment::of(workload, task, &dir.to_string_lossy())
            .map_err(|e| Deferral::new(Scope::Workload, HoldKind::JobRefused, e, REFUSED_RETRY))?;
        Ok(Record {
            version: record::VERSION,
            task: task.hash.to_string(),
            command: task.key.command.as_str().to_owned(),
            job_type: task.key.job_type.as_str().to_owned(),
            input: task.input.reveal().to_owned(),
            claimed_at: self.clock.wall(),
            argv: settings.command.clone(),
            env,
            deadline_ms: millis(workload.deadline()),
            grace_ms: millis(settings.grace),
            memory: settings.cgroups.as_ref().and_then(|cgroups| {
                let bytes = workload.profile.memory.milli() / 1_000;
                let bytes = u64::try_from(bytes).ok().filter(|bytes| *bytes > 0)?;
                Some(Memory { bytes, group: cgroups.group(&settings.dir, &job) })
            }),
        })
    }

    async fn place(&self, workload: &Workload, task: &Task) -> Outcome {
        let record = match self.record(workload, task) {
            Ok(record) => record,
            Err(deferral) => return Outcome::Deferred(deferral),
        };
        let (tasks, started) = (self.tasks.clone(), self.started.clone());
        let claiming = self.claiming.clone().lock_owned().await;
        let hash = task.hash;
        // Runs to its end even if this future is dropped: no claim is left half made.
        let placed = tokio::task::spawn_blocking(move || {
            let _claiming = claiming;
            let (placed, child) = tasks.place(&record)?;
            if let Some(child) = child {
                // After `run` has ended nobody waits for it; the next start adopts it.
                let _ = started.send((hash, child));
            }
            Ok(placed)
        });
        match placed.await {
            Ok(Ok(placed)) => Outcome::Scheduled(placed),
            Ok(Err(deferral)) => Outcome::Deferred(deferral),
            Err(e) => {
                Outcome::Deferred(Deferral::new(Scope::Task, HoldKind::Panicked, e, REFUSED_RETRY))
            }
        }
    }
}

#[async_trait]
impl Backend for LocalBackend {
    fn name(&self) -> &BackendName {
        &self.tasks.settings.name
    }

    fn room(&self) -> watch::Receiver<Room> {
        self.tasks.room.subscribe()
    }

    async fn submit(&self, workload: &Arc<Workload>, tasks: &[Task]) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(tasks.len());
        for task in tasks {
            outcomes.push(self.place(workload, task).await);
        }
        outcomes
    }

    async fn has(&self, task: &Task) -> Result<bool, Deferral> {
        // A claim is known from the moment of its making, or from the start.
        Ok(self.tasks.has(&task.hash))
    }

    fn knows(&self, task: &Task) -> Option<bool> {
        Some(self.tasks.has(&task.hash))
    }

    /// A task that is asked to end counts until it has.
    async fn clear(&self) -> Result<usize, Deferral> {
        let (tasks, claiming) = (self.tasks.clone(), self.claiming.clone().lock_owned().await);
        let cleared = tokio::task::spawn_blocking(move || {
            let _claiming = claiming;
            tasks.cancel_all()
        });
        let failed = |why: String| {
            Deferral::new(Scope::Backend, HoldKind::BackendFailed, why, REFUSED_RETRY)
        };
        match cleared.await {
            Ok(cleared) => cleared.map_err(|e| failed(e.to_string())),
            Err(e) => Err(failed(e.to_string())),
        }
    }

    fn acked(&self, tasks: &[TaskHash]) {
        self.tasks.acked(tasks);
    }
}

/// Waits for a supervisor's end. What became of its task is in the directory.
async fn end_of(hash: TaskHash, mut child: Child) -> TaskHash {
    // An error says that it can't be waited for, which looking at the directory makes up for.
    let _ = child.wait().await;
    hash
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
