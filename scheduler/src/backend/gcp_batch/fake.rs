//! Batch in memory, with faults: scripted ones, or by chance with crashes at any await.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;
use uuid::Uuid;

use super::answer::{Job, Jobs, TaskPage};
use super::api::{Api, ApiError, Fault};
use super::plan::JobId;
use super::spec;
use crate::clock::Clock;
use crate::domain::name::TaskHash;
use crate::records::{InMemory, RecordError, Records};

/// What is to become of a create.
#[derive(Debug, Clone, Copy)]
pub enum Script {
    /// It fails with this and nothing is made.
    Fails(Fault),
    /// It is done, and its answer is this fault.
    Done(Fault),
    /// Its answer is lost, and it is done so much later.
    Late(Duration),
    /// It is done, and the answer is an empty object.
    Empty,
}

/// A create, as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub id: JobId,
    pub request: Uuid,
    pub tasks: usize,
}

struct Late {
    due: Instant,
    parent: String,
    id: JobId,
    body: Value,
}

pub struct World {
    pub jobs: BTreeMap<(String, JobId), Value>,
    pub scripts: VecDeque<Script>,
    /// What is said when queued jobs are counted, by region; `None`: as they are.
    pub counts: BTreeMap<String, Result<u64, Fault>>,
    pub lists_fail: Option<Fault>,
    pub gets_fail: Option<Fault>,
    pub asked: Vec<Asked>,
    pub counted: usize,
    /// The chance of a fault at each call.
    pub chaos: f64,
    /// So many more awaits until the crash.
    pub crash_in: Option<u32>,
    /// The most tasks that wait, ever.
    pub most_waiting: usize,
    late: Vec<Late>,
    chance: ChaCha8Rng,
}

/// The fake. Clones share it.
#[derive(Clone)]
pub struct Fake {
    world: Arc<Mutex<World>>,
    pub crashed: Arc<Notify>,
    clock: Arc<dyn Clock>,
    page: usize,
}

impl Fake {
    pub fn new(clock: Arc<dyn Clock>, seed: u64) -> Self {
        let world = World {
            jobs: BTreeMap::new(),
            scripts: VecDeque::new(),
            counts: BTreeMap::new(),
            lists_fail: None,
            gets_fail: None,
            asked: Vec::new(),
            counted: 0,
            chaos: 0.0,
            crash_in: None,
            most_waiting: 0,
            late: Vec::new(),
            chance: ChaCha8Rng::seed_from_u64(seed),
        };
        Self { world: Arc::new(Mutex::new(world)), crashed: Arc::default(), clock, page: 2 }
    }

    pub fn world(&self) -> MutexGuard<'_, World> {
        let mut world = self.world.lock().expect("no panic before");
        world.land(self.clock.mono(), self.clock.wall());
        world
    }

    /// How many jobs have each task.
    pub fn tasks(&self) -> BTreeMap<TaskHash, usize> {
        let mut tasks = BTreeMap::new();
        for job in self.world().jobs.values() {
            let job: Job = serde_json::from_value(job.clone()).expect("a job");
            job.members().expect("members").iter().for_each(|t| *tasks.entry(*t).or_default() += 1);
        }
        tasks
    }

    /// The sizes of all jobs, in the order of their ids.
    pub fn sizes(&self) -> Vec<usize> {
        let count = |job: &Value| job["taskGroups"][0]["taskEnvironments"].as_array().map(Vec::len);
        self.world().jobs.values().filter_map(count).collect()
    }

    /// Moves jobs on: some wait no more, some end.
    pub fn live(&self) {
        let mut world = self.world();
        let World { jobs, chance, .. } = &mut *world;
        for job in jobs.values_mut() {
            let next = match job["status"]["state"].as_str() {
                Some("QUEUED") => "SCHEDULED",
                Some("SCHEDULED") => "RUNNING",
                Some("RUNNING") if chance.random_bool(0.5) => "FAILED",
                Some("RUNNING") => "SUCCEEDED",
                _ => continue,
            };
            job["status"]["state"] = json!(next);
        }
    }

    /// An await: the place of a crash.
    async fn point(&self) {
        tokio::task::yield_now().await;
        let crash = {
            let mut world = self.world();
            match &mut world.crash_in {
                Some(0) => true,
                Some(left) => {
                    *left -= 1;
                    false
                }
                None => false,
            }
        };
        if crash {
            self.crashed.notify_one();
            std::future::pending::<()>().await;
        }
    }

    fn fault(&self) -> Option<Fault> {
        let mut world = self.world();
        let chaos = world.chaos;
        if !world.chance.random_bool(chaos) {
            return None;
        }
        let faults =
            [Fault::NotSent, Fault::Throttled(None), Fault::Forbidden, Fault::Failed, Fault::Lost];
        Some(faults[world.chance.random_range(0..faults.len())])
    }
}

fn error(fault: Fault) -> ApiError {
    ApiError::new(fault, format!("{fault:?} for https://x/o?X-Goog-Signature=abc"))
}

impl World {
    fn land(&mut self, now: Instant, wall: Timestamp) {
        let (due, later) = std::mem::take(&mut self.late).into_iter().partition(|l| l.due <= now);
        self.late = later;
        let due: Vec<Late> = due;
        for late in due {
            let _ = self.make(&late.parent, &late.id, late.body, wall);
        }
    }

    /// What is being deleted is gone.
    pub fn sweep(&mut self) {
        self.jobs.retain(|_, job| job["status"]["state"] != "DELETION_IN_PROGRESS");
    }

    fn make(&mut self, parent: &str, id: &JobId, body: Value, wall: Timestamp) -> Option<Value> {
        let key = (parent.to_owned(), id.clone());
        if self.jobs.contains_key(&key) {
            return None;
        }
        let mut job = body;
        job["name"] = json!(format!("{parent}/jobs/{id}"));
        job["createTime"] = json!(wall);
        job["status"] = json!({"state": "QUEUED"});
        self.jobs.insert(key, job.clone());
        let waits =
            |job: &&Value| matches!(job["status"]["state"].as_str(), Some("QUEUED" | "SCHEDULED"));
        let count =
            |job: &Value| job["taskGroups"][0]["taskEnvironments"].as_array().map_or(0, Vec::len);
        let waiting = self.jobs.values().filter(waits).map(count).sum();
        self.most_waiting = self.most_waiting.max(waiting);
        Some(job)
    }
}

#[async_trait]
impl Api for Fake {
    async fn create(
        &self,
        parent: &str,
        id: &JobId,
        request: Uuid,
        job: &spec::Job,
    ) -> Result<Job, ApiError> {
        self.point().await;
        let body = serde_json::to_value(job).expect("JSON");
        let count = body["taskGroups"][0]["taskEnvironments"].as_array().map_or(0, Vec::len);
        let wall = self.clock.wall();
        let result = {
            let mut world = self.world();
            world.asked.push(Asked { id: id.clone(), request, tasks: count });
            let mut script = world.scripts.pop_front();
            let chaos = world.chaos;
            if script.is_none() && world.chance.random_bool(chaos) {
                let late = Duration::from_secs(world.chance.random_range(0..300));
                script = Some(match world.chance.random_range(0..6) {
                    0 => Script::Late(late),
                    1 => Script::Done(Fault::Lost),
                    2 => Script::Done(Fault::Failed),
                    3 => Script::Empty,
                    4 => Script::Fails(Fault::Throttled(None)),
                    _ => Script::Fails(Fault::Lost),
                });
            }
            match script {
                Some(Script::Fails(fault)) => Err(error(fault)),
                Some(Script::Late(after)) => {
                    let (parent, id) = (parent.to_owned(), id.clone());
                    world.late.push(Late { due: self.clock.mono() + after, parent, id, body });
                    Err(error(Fault::Lost))
                }
                Some(Script::Done(fault)) => {
                    world.make(parent, id, body, wall);
                    Err(error(fault))
                }
                Some(Script::Empty) => {
                    world.make(parent, id, body, wall);
                    Ok(Job::default())
                }
                None => match world.make(parent, id, body, wall) {
                    Some(job) => Ok(serde_json::from_value(job).expect("a job")),
                    None => Err(error(Fault::Exists)),
                },
            }
        };
        self.point().await;
        result
    }

    async fn get(&self, parent: &str, id: &JobId) -> Result<Option<Job>, ApiError> {
        self.point().await;
        if let Some(fault) = self.world().gets_fail {
            return Err(error(fault));
        }
        if let Some(fault) = self.fault() {
            return Err(error(fault));
        }
        let job = self.world().jobs.get(&(parent.to_owned(), id.clone())).cloned();
        self.point().await;
        Ok(job.map(|job| serde_json::from_value(job).expect("a job")))
    }

    async fn delete(&self, parent: &str, id: &JobId) -> Result<bool, ApiError> {
        self.point().await;
        if let Some(fault) = self.fault() {
            return Err(error(fault));
        }
        let mut world = self.world();
        let Some(job) = world.jobs.get_mut(&(parent.to_owned(), id.clone())) else {
            return Ok(false);
        };
        // It goes when its machines are gone: see [`World::sweep`].
        job["status"]["state"] = json!("DELETION_IN_PROGRESS");
        Ok(true)
    }

    async fn list(&self, parent: &str, page: Option<&str>) -> Result<Jobs, ApiError> {
        self.point().await;
        if let Some(fault) = self.world().lists_fail {
            return Err(error(fault));
        }
        if let Some(fault) = self.fault() {
            return Err(error(fault));
        }
        let mut jobs: Vec<Job> = {
            let world = self.world();
            let here = world.jobs.iter().filter(|((at, _), _)| at == parent);
            here.map(|(_, job)| serde_json::from_value(job.clone()).expect("a job")).collect()
        };
        jobs.sort_by_key(|job| std::cmp::Reverse(job.create_time));
        let from: usize = page.map_or(0, |page| page.parse().expect("a page"));
        let more = jobs.len() > from + self.page;
        let page: Vec<Job> =
            jobs.into_iter().skip(from).take(self.page).map(without_tasks).collect();
        let next = if more { (from + self.page).to_string() } else { String::new() };
        Ok(Jobs { jobs: page, next_page_token: next, unreachable: Vec::new() })
    }

    async fn tasks(
        &self,
        parent: &str,
        id: &JobId,
        page: Option<&str>,
    ) -> Result<TaskPage, ApiError> {
        self.point().await;
        if let Some(fault) = self.fault() {
            return Err(error(fault));
        }
        let key = (parent.to_owned(), id.clone());
        let told = self.world().jobs.get(&key).map(|job| job["tasks"].clone());
        let all: Vec<Value> = told.and_then(|t| t.as_array().cloned()).unwrap_or_default();
        let from: usize = page.map_or(0, |page| page.parse().expect("a page"));
        let next = from + self.page;
        let token = if all.len() > next { next.to_string() } else { String::new() };
        let some: Vec<Value> = all.into_iter().skip(from).take(self.page).collect();
        let answer = json!({"tasks": some, "nextPageToken": token});
        Ok(serde_json::from_value(answer).expect("a page"))
    }

    async fn count_queued(&self, _: &str, region: &str) -> Result<u64, ApiError> {
        self.point().await;
        let mut world = self.world();
        world.counted += 1;
        match world.counts.get(region) {
            Some(Ok(count)) => Ok(*count),
            Some(Err(fault)) => Err(error(*fault)),
            None => Ok(0),
        }
    }
}

/// As lists have jobs.
fn without_tasks(mut job: Job) -> Job {
    job.task_groups.iter_mut().for_each(|group| group.task_environments.clear());
    job
}

/// Records that fail as the world does.
pub struct ChaosRecords {
    pub records: InMemory,
    pub fake: Fake,
}

#[async_trait]
impl Records for ChaosRecords {
    async fn all(&self) -> Result<BTreeMap<String, String>, RecordError> {
        self.fake.point().await;
        self.records.all().await
    }

    async fn write(&self, changes: &[(String, Option<String>)]) -> Result<(), RecordError> {
        self.fake.point().await;
        let fault = self.fake.fault();
        if fault == Some(Fault::Lost) {
            return Err(RecordError::Unavailable("not done".into()));
        }
        let done = self.records.write(changes).await;
        self.fake.point().await;
        if fault == Some(Fault::Failed) {
            return Err(RecordError::Unavailable("done".into()));
        }
        done
    }
}
