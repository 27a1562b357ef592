//! What really happened to Jobs and pods, read from the store itself: every version of every object,
//! in the one order in which they were written, whatever becomes of API server, proxy or scheduler.
//! Judges nothing.
//!
//! The store is etcd, asked over its HTTP gateway ("watch" of its v3 API); the API server is told to
//! keep objects as JSON. A watch of the API server's would have gaps where that is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use serde_json::json;
use tokio::task::JoinHandle;

use super::base64;
use crate::control_plane::ControlPlane;
use crate::site::is_finished;

/// What makes an API server keep its objects so that they can be read here.
pub const APISERVER_ARGUMENT: &str = "--storage-media-type=application/json";

/// One write to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The store's revision: a later write has a greater one.
    pub revision: u64,
    /// What was written.
    pub what: What,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A Job, new or changed.
    Job {
        /// Its name.
        name: String,
        /// Its uid, which no other Job ever has.
        uid: String,
        /// The hash of its task.
        task: String,
        /// Which attempt at the task it is.
        attempt: String,
        /// Whether it has ended.
        finished: bool,
    },
    /// The Job of this name is gone.
    JobGone {
        /// Its name.
        name: String,
    },
    /// A pod of a Job, new or changed.
    Pod {
        /// Its uid.
        uid: String,
        /// Its Job's uid.
        owner: String,
        /// Whether it has left Pending.
        started: bool,
    },
}

/// The history of one namespace, while it is written.
pub struct History {
    shared: Arc<Mutex<Shared>>,
    reading: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    events: Vec<Event>,
    /// The tasks that had a Job.
    tasks: BTreeSet<String>,
    /// The Jobs that are there, and whether they have ended.
    live: BTreeMap<String, bool>,
    /// What was last said of each Job and pod, by its uid.
    latest: BTreeMap<String, What>,
    broken: Option<String>,
}

impl History {
    /// Reads on from now, which must be before the namespace's first Job.
    ///
    /// # Errors
    /// When the store can't be asked.
    pub async fn start(plane: &ControlPlane, namespace: &str) -> Result<Self> {
        let shared: Arc<Mutex<Shared>> = Arc::default();
        let mut reading = Vec::new();
        for resource in ["jobs", "pods"] {
            let prefix = format!("/registry/{resource}/{namespace}/");
            let answer = watch(&plane.store_url()?, &prefix).await?;
            let shared = shared.clone();
            reading.push(tokio::spawn(async move {
                let ended = read(answer, &prefix, &shared).await;
                let why = ended.map_or_else(|error| format!("{error:#}"), |()| "it ended".into());
                lock(&shared).broken = Some(why);
            }));
        }
        Ok(Self { shared, reading })
    }

    /// How many tasks had a Job so far.
    ///
    /// # Errors
    /// When the history has a gap.
    pub fn made(&self) -> Result<usize> {
        Ok(self.look()?.tasks.len())
    }

    /// How many Jobs there are that have not ended.
    ///
    /// # Errors
    /// When the history has a gap.
    pub fn unfinished(&self) -> Result<usize> {
        Ok(self.look()?.live.values().filter(|finished| !**finished).count())
    }

    /// All of it so far, in the store's order.
    ///
    /// # Errors
    /// When the history has a gap.
    pub fn events(&self) -> Result<Vec<Event>> {
        let mut events = self.look()?.events.clone();
        events.sort_by_key(|event| event.revision);
        Ok(events)
    }

    fn look(&self) -> Result<MutexGuard<'_, Shared>> {
        let shared = lock(&self.shared);
        match &shared.broken {
            Some(why) => bail!("the watch of the store has ended, so nothing can be judged: {why}"),
            None => Ok(shared),
        }
    }
}

impl Drop for History {
    fn drop(&mut self) {
        for reading in &self.reading {
            reading.abort();
        }
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn watch(store: &str, prefix: &str) -> Result<reqwest::Response> {
    // The key after all that begin so: the prefix with its last byte, a slash, one greater.
    let end = format!("{}0", prefix.trim_end_matches('/'));
    let range = json!({ "create_request": {
        "key": base64::encode(prefix.as_bytes()),
        "range_end": base64::encode(end.as_bytes()),
        "start_revision": "1",
    }});
    let client = reqwest::Client::new();
    let answer = client.post(format!("{store}/v3/watch")).json(&range).send().await;
    answer.and_then(reqwest::Response::error_for_status).context("watch the store")
}

/// Reads lines until there are no more.
async fn read(mut answer: reqwest::Response, prefix: &str, into: &Mutex<Shared>) -> Result<()> {
    let mut buffer = Vec::new();
    while let Some(chunk) = answer.chunk().await.context("read the store's watch")? {
        let old = buffer.len();
        buffer.extend_from_slice(&chunk);
        let Some(end) = chunk.iter().rposition(|byte| *byte == b'\n') else { continue };
        let rest = buffer.split_off(old + end + 1);
        for line in std::mem::replace(&mut buffer, rest).split(|byte| *byte == b'\n') {
            if line.is_empty() {
                continue;
            }
            let line: Line = serde_json::from_slice(line).context("read what the store said")?;
            let result = line.result.with_context(|| format!("the store said {:?}", line.error))?;
            ensure!(!result.canceled, "the store ended the watch");
            for event in result.events {
                if let Some(event) = event.read(prefix)? {
                    lock(into).note(event);
                }
            }
        }
    }
    Ok(())
}

impl Shared {
    fn note(&mut self, event: Event) {
        let uid = match &event.what {
            What::Job { name, uid, task, finished, .. } => {
                self.tasks.insert(task.clone());
                self.live.insert(name.clone(), *finished);
                Some(uid)
            }
            What::JobGone { name } => {
                self.live.remove(name);
                None
            }
            What::Pod { uid, .. } => Some(uid),
        };
        // Each Job and pod is written often, and seldom says anything new.
        if let Some(uid) = uid
            && self.latest.insert(uid.clone(), event.what.clone()).as_ref() == Some(&event.what)
        {
            return;
        }
        self.events.push(event);
    }
}

#[derive(Deserialize)]
struct Line {
    result: Option<Answer>,
    error: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    events: Vec<StoreEvent>,
    #[serde(default)]
    canceled: bool,
}

#[derive(Deserialize)]
struct StoreEvent {
    #[serde(default, rename = "type")]
    kind: String,
    kv: KeyValue,
}

#[derive(Deserialize)]
struct KeyValue {
    key: String,
    mod_revision: String,
    #[serde(default)]
    value: String,
}

impl StoreEvent {
    /// What it says; nothing if it is the end of a pod, whose Job tells all that counts.
    fn read(self, prefix: &str) -> Result<Option<Event>> {
        let revision = self.kv.mod_revision.parse().context("read a revision")?;
        let key = String::from_utf8(base64::decode(&self.kv.key)?).context("read a key")?;
        let name = key.strip_prefix(prefix).context("a key outside the range")?.to_owned();
        let pods = prefix.starts_with("/registry/pods/");
        let value = base64::decode(&self.kv.value)?;
        let what = match (pods, self.kind == "DELETE") {
            (false, true) => What::JobGone { name },
            (true, true) => return Ok(None),
            (false, false) => job(name, &value)?,
            (true, false) => pod(&value)?,
        };
        Ok(Some(Event { revision, what }))
    }
}

fn job(name: String, value: &[u8]) -> Result<What> {
    let job: Job = serde_json::from_slice(value).context("read a Job")?;
    let finished = is_finished(&job);
    let text = |map: Option<BTreeMap<String, String>>, key: &str| {
        map.and_then(|mut map| map.remove(key)).unwrap_or_default()
    };
    Ok(What::Job {
        name,
        uid: job.metadata.uid.unwrap_or_default(),
        task: text(job.metadata.annotations, "katabatch.dev/task"),
        attempt: text(job.metadata.labels, "katabatch.dev/attempt"),
        finished,
    })
}

fn pod(value: &[u8]) -> Result<What> {
    let pod: Pod = serde_json::from_slice(value).context("read a pod")?;
    let mut owners = pod.metadata.owner_references.unwrap_or_default().into_iter();
    let phase = pod.status.and_then(|status| status.phase).unwrap_or_default();
    Ok(What::Pod {
        uid: pod.metadata.uid.unwrap_or_default(),
        owner: owners.next().map(|owner| owner.uid).unwrap_or_default(),
        started: !matches!(phase.as_str(), "" | "Pending"),
    })
}
