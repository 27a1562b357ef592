//! A namespace beside the home one: its Lease may be lost and won again while the process lives.
//!
//! A cluster that is away for longer than its Lease lives must not end a scheduler that has others.
//! So each term in such a namespace is served by a backend of its own, which signs as nobody did
//! before: it takes the Lease, waits for what was sent last and lists, exactly as a new process
//! would. Losing the home Lease ends the process; that is [`leader`](super::leader)'s to say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::api::ClusterApi;
use super::{Fatal, Grants, KubernetesBackend, Settings};
use crate::backend::{Backend, EndObserver, Follower, Retries};
use crate::clock::Clock;
use crate::domain::name::{Attempt, BackendName, TaskHash};
use crate::domain::outcome::{Deferral, Outcome};
use crate::domain::room::Room;
use crate::domain::task::{Task, WorkloadKey};
use crate::domain::workload::Workload;
use crate::domain::workload_now::{Faring, WorkloadNow};
use crate::records::Records;

/// The pause before the next term.
const PAUSE: Duration = Duration::from_secs(1);

/// One namespace of one cluster, over all terms of this process in it.
pub struct Successive {
    name: BackendName,
    api: Arc<dyn ClusterApi>,
    clock: Arc<dyn Clock>,
    settings: Settings,
    current: Mutex<Arc<KubernetesBackend>>,
    grants: OnceLock<Arc<dyn Grants>>,
    listener: OnceLock<Arc<dyn EndObserver>>,
    retries: OnceLock<Arc<dyn Retries>>,
    follower: OnceLock<Arc<dyn Follower>>,
    pending_limit: Mutex<usize>,
    room: watch::Sender<Room>,
}

impl Successive {
    /// A backend as [`KubernetesBackend::new`] makes it. Without [`Settings::home`] it is the home
    /// namespace's itself, which has one term.
    pub fn new(api: Arc<dyn ClusterApi>, clock: Arc<dyn Clock>, settings: Settings) -> Arc<Self> {
        let first = KubernetesBackend::new(Arc::clone(&api), Arc::clone(&clock), settings.clone());
        let room = watch::Sender::new(first.room().borrow().clone());
        Arc::new(Self {
            name: settings.name.clone(),
            api,
            clock,
            pending_limit: Mutex::new(settings.pending_limit_default),
            settings,
            current: Mutex::new(first),
            grants: OnceLock::new(),
            listener: OnceLock::new(),
            retries: OnceLock::new(),
            follower: OnceLock::new(),
            room,
        })
    }

    /// The backend of this term.
    pub fn current(&self) -> Arc<KubernetesBackend> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the pending limit, as the flag says it, for this term and those that follow.
    pub fn set_pending_limit(&self, limit: usize) {
        *self.pending_limit.lock().unwrap_or_else(PoisonError::into_inner) = limit;
        self.current().set_pending_limit(limit);
    }

    /// As [`KubernetesBackend::grant_by`], for this term and those that follow; before
    /// [`run`](Self::run).
    pub fn grant_by(&self, grants: Arc<dyn Grants>) {
        self.current().grant_by(Arc::clone(&grants));
        // Only one is ever given.
        let _ = self.grants.set(grants);
    }

    /// As [`KubernetesBackend::tell_ends`], for this term and those that follow; before
    /// [`run`](Self::run).
    pub fn tell_ends(&self, listener: Arc<dyn EndObserver>) {
        self.current().tell_ends(Arc::clone(&listener));
        // Only one is ever given.
        let _ = self.listener.set(listener);
    }

    /// As [`KubernetesBackend::retry_by`], for this term and those that follow; before
    /// [`run`](Self::run).
    pub fn retry_by(&self, retries: Arc<dyn Retries>) {
        self.current().retry_by(Arc::clone(&retries));
        // Only one is ever given.
        let _ = self.retries.set(retries);
    }

    /// As [`KubernetesBackend::follow_by`], for this term and those that follow; before
    /// [`run`](Self::run).
    pub fn follow_by(&self, follower: Arc<dyn Follower>) {
        self.current().follow_by(Arc::clone(&follower));
        // Only one is ever given.
        let _ = self.follower.set(follower);
    }

    /// As [`KubernetesBackend::now`], of this term.
    pub fn now(&self) -> BTreeMap<WorkloadKey, WorkloadNow> {
        self.current().now()
    }

    /// As [`KubernetesBackend::fare`], of this term.
    pub fn fare(&self, tasks: &BTreeSet<TaskHash>) -> BTreeMap<TaskHash, Faring> {
        self.current().fare(tasks)
    }

    /// The records of the scheduler, if this is the home namespace.
    pub fn records(&self) -> Arc<dyn Records> {
        self.current().records()
    }

    /// Runs term after term until `shutdown`.
    ///
    /// # Errors
    /// [`Fatal`] when the process can't go on.
    pub async fn run(&self, shutdown: CancellationToken) -> Result<(), Fatal> {
        let mut term: u64 = 0;
        loop {
            let backend = self.current();
            let ended = tokio::select! {
                biased;
                ended = backend.run(shutdown.clone()) => ended,
                () = self.tell(&backend) => Err(Fatal::Ended("telling of room")),
            };
            self.room.send_replace(backend.room().borrow().clone());
            match ended {
                Err(Fatal::LostLease { why, .. }) if self.settings.home.is_some() => {
                    tracing::error!(
                        backend = %self.name,
                        "this process does not lead in this namespace any more: {why}; it goes on \
                         without, and tries to lead there again"
                    );
                }
                ended => return ended,
            }
            if shutdown.run_until_cancelled(tokio::time::sleep(PAUSE)).await.is_none() {
                return Ok(());
            }
            term += 1;
            self.next(term);
        }
    }

    fn next(&self, term: u64) {
        let identity = format!("{}_{term}", self.settings.identity);
        let settings = Settings { identity, ..self.settings.clone() };
        let next = KubernetesBackend::new(Arc::clone(&self.api), Arc::clone(&self.clock), settings);
        let limit = self.pending_limit.lock().unwrap_or_else(PoisonError::into_inner);
        next.set_pending_limit(*limit);
        if let Some(grants) = self.grants.get() {
            next.grant_by(Arc::clone(grants));
        }
        if let Some(listener) = self.listener.get() {
            next.tell_ends(Arc::clone(listener));
        }
        if let Some(follower) = self.follower.get() {
            next.follow_by(Arc::clone(follower));
        }
        if let Some(retries) = self.retries.get() {
            next.retry_by(Arc::clone(retries));
        }
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = next;
    }

    async fn tell(&self, backend: &KubernetesBackend) {
        let mut room = backend.room();
        loop {
            let now = room.borrow_and_update().clone();
            self.room.send_if_modified(|told| {
                let news = *told != now;
                *told = now;
                news
            });
            if room.changed().await.is_err() {
                return;
            }
        }
    }
}

#[async_trait]
impl Backend for Successive {
    fn name(&self) -> &BackendName {
        &self.name
    }

    fn room(&self) -> watch::Receiver<Room> {
        self.room.subscribe()
    }

    async fn submit(&self, workload: &Arc<Workload>, tasks: &[Task]) -> Vec<Outcome> {
        self.current().submit(workload, tasks).await
    }

    async fn has(&self, task: &Task) -> Result<bool, Deferral> {
        self.current().has(task).await
    }

    fn knows(&self, task: &Task) -> Option<bool> {
        self.current().knows(task)
    }

    fn binds(&self, task: &Task) -> bool {
        self.current().binds(task)
    }

    async fn clear(&self) -> Result<usize, Deferral> {
        self.current().clear().await
    }

    fn acked(&self, tasks: &[TaskHash]) {
        self.current().acked(tasks);
    }

    fn settled(&self, task: &TaskHash, attempt: Attempt) {
        self.current().settled(task, attempt);
    }
}
