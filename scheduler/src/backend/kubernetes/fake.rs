//! A cluster in memory, with faults on order: for tests and simulations.
//!
//! Each call has its whole effect at one instant, with a yield before and after it, so that a
//! future dropped at any await has either done all or nothing. Nothing happens by itself but
//! bookmarks: pods are made, started and ended by the methods of [`lifecycle`](self). What an API
//! server checks of a Job's spec is left out.

mod faults;
mod lifecycle;
mod pages;
mod watching;
mod work_pods;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::sleep;

pub use self::faults::{Fault, Verb};
use self::pages::page_of;
pub use self::work_pods::story;
use super::api::{
    AccountFacts, ApiError, ClusterApi, ConfigMapFacts, EventFacts, JobFacts, LeaseFacts, Page,
    PodFacts, Watch, WatchEvent,
};
use super::facts::WorkPod;
use super::wire;
use crate::clock::Clock;
use crate::domain::log_tail::LogTail;

/// What happened to a kind of object, for watches: versions and events.
type History<T> = Vec<(u64, WatchEvent<T>)>;

#[derive(Debug, Default)]
struct State {
    version: u64,
    uids: u64,
    jobs: BTreeMap<String, JobFacts>,
    bodies: BTreeMap<String, serde_json::Value>,
    pods: BTreeMap<String, PodFacts>,
    accounts: BTreeMap<String, AccountFacts>,
    config_maps: BTreeMap<String, ConfigMapFacts>,
    leases: BTreeMap<String, LeaseFacts>,
    work_pods: BTreeMap<String, WorkPod>,
    logs: BTreeMap<String, LogTail>,
    events: BTreeMap<String, Vec<EventFacts>>,
    job_history: History<JobFacts>,
    work_history: History<WorkPod>,
    pod_history: History<PodFacts>,
    /// Watches from an older version get a 410.
    compacted: u64,
    /// Watches opened before the last cut end.
    cuts: u64,
    muted: bool,
    job_pages: BTreeMap<String, Page<JobFacts>>,
    pod_pages: BTreeMap<String, Page<PodFacts>>,
    work_pages: BTreeMap<String, Page<WorkPod>>,
    page_size: usize,
    script: BTreeMap<Verb, VecDeque<Fault>>,
    standing: BTreeMap<Verb, Fault>,
    calls: BTreeMap<Verb, usize>,
    made: BTreeMap<String, usize>,
    late: Vec<Vec<u8>>,
    most_pending: usize,
}

/// A cluster's one namespace.
#[derive(Clone)]
pub struct FakeCluster {
    state: Arc<Mutex<State>>,
    changed: Arc<watch::Sender<u64>>,
    clock: Arc<dyn Clock>,
}

fn not_found(kind: &str, name: &str) -> ApiError {
    ApiError::answered(404, "NotFound", &format!("{kind} \"{name}\" not found"))
}

fn conflict(reason: &str, name: &str) -> ApiError {
    ApiError::answered(409, reason, &format!("\"{name}\" {reason}"))
}

impl FakeCluster {
    /// An empty namespace.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let state = State { version: 1, page_size: 500, ..State::default() };
        Self { state: Arc::new(Mutex::new(state)), changed: Arc::new(watch::Sender::new(0)), clock }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something at one instant, and wakes the watches.
    fn at_once<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        let result = work(&mut self.lock());
        self.changed.send_modify(|count| *count += 1);
        result
    }

    /// A call: its fault, and its work at one instant.
    async fn call<T>(
        &self,
        verb: Verb,
        work: impl FnOnce(&mut State) -> Result<T, ApiError> + Send,
    ) -> Result<T, ApiError> {
        yield_now().await;
        let fault = self.lock().fault(verb);
        if let Fault::Slow(time) = fault {
            sleep(time).await;
        }
        let result = match &fault {
            Fault::Refuse(error) | Fault::Late(error) => Err(error.clone()),
            _ => self.at_once(work),
        };
        yield_now().await;
        match fault {
            Fault::DoneThen(error) => Err(error),
            _ => result,
        }
    }

    fn create(state: &mut State, body: &[u8], now: Timestamp) -> Result<JobFacts, ApiError> {
        let bad = |text: &str| ApiError::answered(400, "BadRequest", text);
        let mut body: serde_json::Value =
            serde_json::from_slice(body).map_err(|error| bad(&error.to_string()))?;
        let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if state.jobs.contains_key(&name) {
            return Err(conflict("AlreadyExists", &name));
        }
        state.uids += 1;
        body["metadata"]["uid"] = format!("uid-{}", state.uids).into();
        let second = Timestamp::from_second(now.as_second()).unwrap_or(now);
        body["metadata"]["creationTimestamp"] = second.to_string().into();
        let job: JobFacts = wire::object(400, body.to_string().as_bytes())?;
        state.bodies.insert(name.clone(), body);
        *state.made.entry(name).or_default() += 1;
        let job = state.put_job(job);
        state.most_pending = state.most_pending.max(state.pending());
        Ok(job)
    }
}

impl State {
    fn fault(&mut self, verb: Verb) -> Fault {
        *self.calls.entry(verb).or_default() += 1;
        let scripted = self.script.get_mut(&verb).and_then(VecDeque::pop_front);
        scripted.or_else(|| self.standing.get(&verb).cloned()).unwrap_or(Fault::Pass)
    }

    fn bump(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    fn put_job(&mut self, job: JobFacts) -> JobFacts {
        let job = JobFacts { resource_version: self.bump(), ..job };
        self.job_history.push((self.version, WatchEvent::Applied(job.clone())));
        self.jobs.insert(job.name.clone(), job.clone());
        job
    }

    fn put_pod(&mut self, pod: PodFacts) {
        let pod = PodFacts { resource_version: self.bump(), ..pod };
        self.pod_history.push((self.version, WatchEvent::Applied(pod.clone())));
        self.pods.insert(pod.name.clone(), pod);
    }

    fn take_job(&mut self, name: &str) -> Option<JobFacts> {
        let job = self.jobs.remove(name)?;
        self.bodies.remove(name);
        let job = JobFacts { resource_version: self.bump(), ..job };
        self.job_history.push((self.version, WatchEvent::Deleted(job.clone())));
        self.take_pods_of(name);
        self.take_work_pod(name);
        Some(job)
    }

    fn take_pod(&mut self, name: &str) {
        if let Some(pod) = self.pods.remove(name) {
            let pod = PodFacts { resource_version: self.bump(), ..pod };
            self.pod_history.push((self.version, WatchEvent::Deleted(pod)));
        }
    }

    fn take_pods_of(&mut self, job: &str) {
        let of = |pod: &&PodFacts| pod.job.as_ref().is_some_and(|owner| owner.name == job);
        let names: Vec<String> =
            self.pods.values().filter(of).map(|pod| pod.name.clone()).collect();
        names.iter().for_each(|name| self.take_pod(name));
    }

    /// What is pending in truth: Jobs of which no pod has left Pending yet, and loose pods.
    fn pending(&self) -> usize {
        let waiting = |job: &&JobFacts| !job.progress.finished && !job.progress.started;
        let loose = |pod: &&PodFacts| pod.farm && pod.job.is_none();
        self.jobs.values().filter(|job| job.farm).filter(waiting).count()
            + self.pods.values().filter(loose).count()
    }
}

#[async_trait]
impl ClusterApi for FakeCluster {
    async fn create_job(&self, _name: &str, body: Vec<u8>) -> Result<JobFacts, ApiError> {
        let late = {
            let state = self.lock();
            let next = state.script.get(&Verb::CreateJob).and_then(VecDeque::front);
            matches!(next.or(state.standing.get(&Verb::CreateJob)), Some(Fault::Late(_)))
        };
        if late {
            self.lock().late.push(body.clone());
        }
        let clock = Arc::clone(&self.clock);
        self.call(Verb::CreateJob, |state| Self::create(state, &body, clock.wall())).await
    }

    async fn get_job(&self, name: &str) -> Result<Option<JobFacts>, ApiError> {
        self.call(Verb::GetJob, |state| Ok(state.jobs.get(name).cloned())).await
    }

    async fn read_job(&self, name: &str) -> Result<Option<serde_json::Value>, ApiError> {
        self.call(Verb::ReadJob, |state| Ok(state.bodies.get(name).cloned())).await
    }

    async fn delete_job(&self, name: &str, uid: &str) -> Result<(), ApiError> {
        self.call(Verb::DeleteJob, |state| match state.jobs.get(name) {
            None => Err(not_found("jobs.batch", name)),
            Some(job) if job.uid != uid => Err(conflict("Conflict", name)),
            Some(_) => state.take_job(name).map(|_| ()).ok_or_else(|| not_found("job", name)),
        })
        .await
    }

    async fn list_jobs(&self, next: Option<&str>) -> Result<Page<JobFacts>, ApiError> {
        self.call(Verb::ListJobs, |state| {
            let jobs = state.jobs.values().cloned();
            page_of(&mut state.job_pages, jobs, state.page_size, state.version, next)
        })
        .await
    }

    async fn watch_jobs(&self, from: &str) -> Result<Watch<JobFacts>, ApiError> {
        self.call(Verb::WatchJobs, |_| Ok(())).await?;
        Ok(self.watch_from(from, |state| &state.job_history))
    }

    async fn list_pending_pods(&self, next: Option<&str>) -> Result<Page<PodFacts>, ApiError> {
        self.call(Verb::ListPods, |state| {
            let pods = state.pods.values().cloned();
            page_of(&mut state.pod_pages, pods, state.page_size, state.version, next)
        })
        .await
    }

    async fn watch_pending_pods(&self, from: &str) -> Result<Watch<PodFacts>, ApiError> {
        self.call(Verb::WatchPods, |_| Ok(())).await?;
        Ok(self.watch_from(from, |state| &state.pod_history))
    }

    async fn list_work_pods(&self, next: Option<&str>) -> Result<Page<WorkPod>, ApiError> {
        self.call(Verb::ListWorkPods, |state| {
            let pods = state.work_pods.values().cloned();
            page_of(&mut state.work_pages, pods, state.page_size, state.version, next)
        })
        .await
    }

    async fn watch_work_pods(&self, from: &str) -> Result<Watch<WorkPod>, ApiError> {
        self.call(Verb::WatchWorkPods, |_| Ok(())).await?;
        Ok(self.watch_from(from, |state| &state.work_history))
    }

    async fn list_pods_of(&self, uid: &str) -> Result<Vec<WorkPod>, ApiError> {
        self.call(Verb::ListPodsOf, |state| {
            let of = |pod: &&WorkPod| pod.job.as_ref().is_some_and(|owner| owner.uid == uid);
            Ok(state.work_pods.values().filter(of).cloned().collect())
        })
        .await
    }

    async fn pod_log(&self, pod: &str, _: &str, previous: bool) -> Result<LogTail, ApiError> {
        self.call(Verb::PodLog, |state| {
            let found = state.work_pods.values().find(|found| found.name == pod);
            let container = &found.ok_or_else(|| not_found("pods", pod))?.story.container;
            if previous && container.as_ref().is_none_or(|container| container.before.is_none()) {
                let message = "previous terminated container not found";
                return Err(ApiError::answered(400, "BadRequest", message));
            }
            Ok(state.logs.get(pod).cloned().unwrap_or(LogTail::Nothing))
        })
        .await
    }

    async fn list_events(&self, uid: &str) -> Result<Vec<EventFacts>, ApiError> {
        let read = |state: &mut State| Ok(state.events.get(uid).cloned().unwrap_or_default());
        self.call(Verb::ListEvents, read).await
    }

    async fn get_account(&self, name: &str) -> Result<Option<AccountFacts>, ApiError> {
        self.call(Verb::GetAccount, |state| Ok(state.accounts.get(name).cloned())).await
    }

    async fn create_account(&self, name: &str, email: &str) -> Result<(), ApiError> {
        self.call(Verb::CreateAccount, |state| {
            if state.accounts.contains_key(name) {
                return Err(conflict("AlreadyExists", name));
            }
            let facts = AccountFacts { email: Some(email.to_owned()) };
            state.accounts.insert(name.to_owned(), facts);
            Ok(())
        })
        .await
    }

    async fn get_config_map(&self, name: &str) -> Result<Option<ConfigMapFacts>, ApiError> {
        self.call(Verb::GetConfigMap, |state| Ok(state.config_maps.get(name).cloned())).await
    }

    async fn put_config_map(
        &self,
        name: &str,
        facts: &ConfigMapFacts,
    ) -> Result<ConfigMapFacts, ApiError> {
        self.call(Verb::PutConfigMap, |state| {
            let stored = state.config_maps.get(name).map(|found| found.resource_version.clone());
            match stored {
                None if !facts.resource_version.is_empty() => Err(not_found("configmaps", name)),
                Some(version) if version != facts.resource_version => {
                    Err(conflict("Conflict", name))
                }
                _ => {
                    let data = facts.data.clone();
                    let written = ConfigMapFacts { data, resource_version: state.bump() };
                    state.config_maps.insert(name.to_owned(), written.clone());
                    Ok(written)
                }
            }
        })
        .await
    }

    async fn get_lease(&self, name: &str) -> Result<Option<LeaseFacts>, ApiError> {
        self.call(Verb::GetLease, |state| Ok(state.leases.get(name).cloned())).await
    }

    async fn put_lease(
        &self,
        name: &str,
        facts: &LeaseFacts,
        _: Timestamp,
    ) -> Result<LeaseFacts, ApiError> {
        self.call(Verb::PutLease, |state| {
            match state.leases.get(name).map(|found| &found.resource_version) {
                None if !facts.resource_version.is_empty() => Err(not_found("leases", name)),
                Some(version) if *version != facts.resource_version => {
                    Err(conflict("Conflict", name))
                }
                _ => {
                    let resource_version = state.bump();
                    let written = LeaseFacts { resource_version, ..facts.clone() };
                    state.leases.insert(name.to_owned(), written.clone());
                    Ok(written)
                }
            }
        })
        .await
    }
}
