//! The Kubernetes backend: one namespace of one cluster, one Job a task.
//!
//! [`submit`] makes Jobs, within the account kept by [`ledger`] and the [`window`]; [`watch`] keeps
//! that account true; [`settle`] clears up lost answers; [`janitor`] deletes what has ended; and
//! [`leader`] sees to it that one process at a time does any of that. All of them know the API server through [`api`] alone, which [`client`] implements. What a Job looks
//! like is `render`'s, and what is submitted when is the pipeline's.

mod accounts;
mod acks;
pub mod api;
mod bearer;
mod blame;
pub mod calls;
mod classify;
pub mod client;
pub mod connect;
mod entry;
pub mod facts;
#[cfg(any(test, feature = "sim"))]
pub mod fake;
mod follow;
mod gauges;
mod janitor;
mod leader;
mod ledger;
#[cfg(test)]
mod ledger_model;
mod lookup;
mod observe;
mod owner;
pub mod place;
mod pod_history;
pub mod preflight;
pub mod records;
mod retry;
mod room;
mod select;
mod settings;
mod settle;
mod sinks;
mod slots;
mod submit;
pub mod successive;
#[cfg(test)]
mod tests;
mod verdict;
mod watch;
mod window;
mod wire;
mod workloads;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::join_all;
use tokio::time::{sleep, sleep_until};
use tokio_util::sync::CancellationToken;

pub use self::accounts::Grants;
use self::accounts::{AccountError, Accounts, account_unread};
use self::api::{ApiError, ClusterApi, JobFacts, PodFacts};
use self::janitor::{Janitor, SharedAcks};
use self::leader::Leader;
use self::lookup::Lookup;
use self::observe::Observe;
use self::owner::Claim;
use self::records::ConfigMapRecords;
use self::room::Rooms;
pub use self::settings::{Fatal, Settings};
use self::sinks::{JobSink, PodSink};
use self::slots::Slots;
use self::submit::{LANDING, Submitter};
use self::window::Window;
use self::workloads::Workloads;
use super::Backend;
use crate::clock::Clock;
use crate::domain::name::{Attempt, BackendName, JobName, TaskHash};
use crate::domain::outcome::{Deferral, HoldKind, Outcome, Scope};
use crate::domain::room::Room;
use crate::domain::task::Task;
use crate::domain::workload::Workload;
use crate::leadership::Leadership;
use crate::records::Records;
use crate::render::{CheckedJob, Target};

/// One namespace of one cluster.
pub struct KubernetesBackend {
    name: BackendName,
    namespace: String,
    scheduler: String,
    seed: u64,
    api: Arc<dyn ClusterApi>,
    clock: Arc<dyn Clock>,
    request_timeout: Duration,
    leader: Arc<Leader>,
    rooms: Arc<Rooms>,
    observe: Arc<Observe>,
    slots: Arc<Slots>,
    acks: SharedAcks,
    accounts: Accounts,
    workloads: Workloads,
    submitter: Submitter,
    janitor: Janitor,
}

impl KubernetesBackend {
    /// A backend that knows nothing yet: it creates nothing until [`run`](Self::run) has listed
    /// its namespace.
    pub fn new(api: Arc<dyn ClusterApi>, clock: Arc<dyn Clock>, settings: Settings) -> Arc<Self> {
        let rooms = Rooms::new(settings.pending_limit_default, settings.live_limit);
        let window = Window::new(settings.window, settings.creates_per_second);
        let slots = Slots::new(window, Arc::clone(&clock));
        let acks = SharedAcks::new(&settings.scheduler);
        let (server, scheduler) = (Arc::clone(&api), &settings.scheduler);
        let (ours, home) = (&settings.identity, settings.home);
        let leader = Leader::new(server, Arc::clone(&clock), scheduler, ours, home);
        let target =
            Target { namespace: settings.namespace.clone(), scheduler: settings.scheduler.clone() };
        let strict = settings.policy.strict;
        let (server, times) = (Arc::clone(&api), Arc::clone(&clock));
        let (watched, by) = (Arc::clone(&rooms), settings.name.clone());
        let observe = Observe::new(server, times, watched, by, &settings.scheduler);
        Arc::new(Self {
            accounts: Accounts::new(Arc::clone(&api), &settings.namespace, strict),
            workloads: Workloads::new(settings.templates, target, settings.policy),
            submitter: Submitter {
                api: Arc::clone(&api),
                clock: Arc::clone(&clock),
                rooms: Arc::clone(&rooms),
                slots: Arc::clone(&slots),
                leader: Arc::clone(&leader),
                acks: acks.clone(),
                observe: Arc::clone(&observe),
                request_timeout: settings.request_timeout,
            },
            janitor: Janitor::new(
                Arc::clone(&api),
                Arc::clone(&clock),
                acks.clone(),
                Arc::clone(&leader),
                Arc::clone(&observe),
                &settings.scheduler,
                settings.retain_finished,
            ),
            name: settings.name,
            namespace: settings.namespace,
            scheduler: settings.scheduler,
            seed: settings.seed,
            api,
            clock,
            request_timeout: settings.request_timeout,
            leader,
            rooms,
            observe,
            slots,
            acks,
        })
    }

    /// Sets the pending limit, as the flag says it.
    pub fn set_pending_limit(&self, limit: usize) {
        self.rooms.with(|ledger| ledger.set_pending_limit(limit));
    }

    /// Who leads, by this namespace's Lease.
    pub fn leadership(&self) -> Arc<dyn Leadership> {
        Arc::clone(&self.leader) as Arc<dyn Leadership>
    }

    /// The scheduler's records, kept in this namespace; for whoever leads by its Lease.
    pub fn records(&self) -> Arc<dyn Records> {
        let (leader, api) = (Arc::clone(&self.leader), Arc::clone(&self.api));
        Arc::new(ConfigMapRecords::led_by(leader, api, &self.scheduler))
    }

    /// Claims the namespace, leads, then watches, settles and tidies up, until `shutdown`.
    ///
    /// # Errors
    /// [`Fatal`] when it can't go on.
    pub async fn run(self: &Arc<Self>, shutdown: CancellationToken) -> Result<(), Fatal> {
        let ended = tokio::select! {
            biased;
            () = shutdown.cancelled() => Ok(()),
            fatal = self.lead() => Err(fatal),
        };
        self.rooms.with(|ledger| ledger.jobs_unknown("the backend has stopped".to_owned()));
        if self.leader.resign() {
            self.janitor.close().await;
            if ended.is_ok() {
                let by_then = self.clock.mono() + self.request_timeout + LANDING;
                if let Some(landed) = self.rooms.with(|ledger| ledger.landing(by_then)) {
                    sleep_until(landed).await;
                }
                self.leader.release().await;
            }
        }
        ended
    }

    /// Works for as long as this process leads.
    async fn lead(&self) -> Fatal {
        if let Err(fatal) = self.claim().await {
            return fatal;
        }
        let tell = |why: &str| self.rooms.with(|ledger| ledger.jobs_unknown(why.to_owned()));
        let expired = self.leader.acquire(tell).await;
        tokio::select! {
            biased;
            why = self.leader.keep() => {
                Fatal::LostLease { scheduler: self.scheduler.clone(), why }
            }
            part = self.work(expired) => Fatal::Ended(part),
        }
    }

    /// Lists, watches, settles and tidies up; the answer is what has ended. After a predecessor
    /// that may have died while it created, its last creates land first, so that they are listed.
    async fn work(&self, wait: bool) -> &'static str {
        if wait {
            sleep(self.request_timeout).await;
        }
        self.leader.begin();
        self.patiently("the settled watermark could not be read", || self.janitor.resume()).await;
        let (api, rooms, clock) = (&self.api, &self.rooms, &self.clock);
        let jobs = JobSink {
            rooms: Arc::clone(rooms),
            acks: self.acks.clone(),
            observe: Arc::clone(&self.observe),
            clock: clock.clone(),
        };
        let pods = PodSink { rooms: Arc::clone(rooms) };
        let follow_jobs = watch::follow::<JobFacts>(Arc::clone(api), &jobs, self.seed);
        let follow_pods = async {
            // Jobs come first: a pod that is missing from a later list has left Pending.
            rooms.jobs_listed().await;
            watch::follow::<PodFacts>(Arc::clone(api), &pods, self.seed.wrapping_add(1)).await;
        };
        let acks = self.acks.clone();
        let settle = settle::settle(Arc::clone(api), Arc::clone(rooms), acks, Arc::clone(clock));
        tokio::select! {
            biased;
            () = follow_jobs => "watch of Jobs",
            () = follow_pods => "watch of pods",
            () = settle => "settling of lost answers",
            () = self.janitor.run() => "janitor",
            part = self.follow_ends() => part,
            () = self.retry_ended() => "maker of next attempts",
        }
    }

    /// Claims the namespace, for as long as it takes.
    async fn claim(&self) -> Result<(), Fatal> {
        let claim = || async {
            match owner::claim(self.api.as_ref(), &self.scheduler).await {
                Ok(()) => Ok(Ok(())),
                Err(Claim::Unknown(error)) => Err(error),
                Err(Claim::Another(owner)) => Ok(Err(Fatal::OwnedByAnother {
                    namespace: self.namespace.clone(),
                    owner,
                    scheduler: self.scheduler.clone(),
                })),
            }
        };
        self.patiently("the namespace could not be claimed yet", claim).await
    }

    /// Tries again and again, less often each time; meanwhile the room is unknown for this reason.
    async fn patiently<T, F>(&self, why_not: &str, attempt: impl Fn() -> F) -> T
    where
        F: Future<Output = Result<T, ApiError>>,
    {
        let mut wait = Duration::from_secs(1);
        loop {
            match attempt().await {
                Ok(done) => return done,
                Err(error) => {
                    tracing::warn!(backend = %self.name, %error, "can't start yet; trying again");
                    self.rooms.with(|ledger| ledger.jobs_unknown(format!("{why_not}: {error}")));
                }
            }
            sleep(wait).await;
            wait = (wait * 2).min(Duration::from_secs(30));
        }
    }

    /// What all tasks of a workload need before the first of them: a checked Job, an account.
    async fn prepare(&self, workload: &Arc<Workload>) -> Result<CheckedJob, Deferral> {
        let later = Duration::from_secs(60);
        let checked =
            std::panic::catch_unwind(AssertUnwindSafe(|| self.workloads.checked(workload)))
                .unwrap_or_else(|_| {
                    Err((HoldKind::Panicked, "rendering this workload's Job panicked".to_owned()))
                })
                .map_err(|(kind, text)| Deferral::new(Scope::Workload, kind, text, later))?;
        match self.accounts.ensure(&workload.account).await {
            Ok(()) => Ok(checked),
            Err(AccountError::Refused(text)) => {
                Err(Deferral::new(Scope::Workload, HoldKind::AccountRefused, text, later))
            }
            Err(AccountError::Api(error)) => Err(account_unread(&error)),
        }
    }

    fn lookup(&self) -> Lookup<'_> {
        let Self { api, leader, rooms, acks, .. } = self;
        Lookup { api: api.as_ref(), leader, rooms, acks }
    }

    async fn submit_attempt(
        &self,
        workload: &Workload,
        checked: &CheckedJob,
        task: &Task,
        attempt: Attempt,
    ) -> Outcome {
        let name = JobName::of(&task.hash, attempt);
        let body = || checked.fill(task, attempt).to_body();
        let submission = self.submitter.submit(name.as_str(), task.hash, body);
        match AssertUnwindSafe(submission).catch_unwind().await {
            Ok(submitted) => {
                if submitted.account_missing {
                    self.accounts.forget(&workload.account);
                }
                submitted.outcome
            }
            Err(_) => Outcome::Deferred(Deferral::new(
                Scope::Task,
                HoldKind::Panicked,
                "making this task's Job panicked",
                Duration::from_secs(5),
            )),
        }
    }
}

#[async_trait]
impl Backend for KubernetesBackend {
    fn name(&self) -> &BackendName {
        &self.name
    }

    fn room(&self) -> tokio::sync::watch::Receiver<Room> {
        self.rooms.subscribe()
    }

    async fn submit(&self, workload: &Arc<Workload>, tasks: &[Task]) -> Vec<Outcome> {
        match self.prepare(workload).await {
            Ok(checked) => {
                join_all(tasks.iter().map(|task| self.submit_one(workload, &checked, task))).await
            }
            Err(deferral) => tasks.iter().map(|_| Outcome::Deferred(deferral.clone())).collect(),
        }
    }

    async fn has(&self, task: &Task) -> Result<bool, Deferral> {
        self.lookup().has(task).await
    }

    fn knows(&self, task: &Task) -> Option<bool> {
        self.lookup().knows(task)
    }

    async fn clear(&self) -> Result<usize, Deferral> {
        self.lookup().clear(&self.scheduler).await
    }

    fn acked(&self, tasks: &[TaskHash]) {
        self.acks.lock().acked(tasks);
    }

    fn settled(&self, task: &TaskHash, attempt: Attempt) {
        self.acks.lock().settled(task, Some(attempt));
    }
}
