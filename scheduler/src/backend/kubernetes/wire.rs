//! The API server's JSON, decoded only as far as it is needed: what is not named here (managed
//! fields, specs) is skipped as it is read.

mod pods;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::api::{
    AccountFacts, ApiError, ConfigMapFacts, JobFacts, LeaseFacts, Page, Progress, SelectedJob,
    WatchEvent,
};
use super::facts::{JobEnd, JobStory, Said, Text};
use crate::domain::name::{Attempt, TaskHash};
use crate::domain::task::WorkloadKey;
use crate::render::labels::ON_COMPLETED;

/// What the farm's pods carry as `app.kubernetes.io/name`, and ours as `…/managed-by`.
const KATA_POD: &str = "clusterfuzz-kata-job";
const MANAGED_BY: &str = "katabatch";

/// The labels that matter.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Labels {
    task_name: Option<String>,
    job_name: Option<String>,
    #[serde(rename = "katabatch.dev/attempt")]
    attempt: Option<String>,
    #[serde(rename = "app.kubernetes.io/name")]
    name: Option<String>,
    #[serde(rename = "app.kubernetes.io/managed-by")]
    managed_by: Option<String>,
    #[serde(rename = "katabatch.dev/scheduler")]
    scheduler: Option<String>,
}

impl Labels {
    fn farm(&self) -> bool {
        self.task_name.is_some()
            || self.name.as_deref() == Some(KATA_POD)
            || self.managed_by.as_deref() == Some(MANAGED_BY)
    }
}

/// The annotations that matter.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Annotations {
    #[serde(rename = "katabatch.dev/task")]
    task: Option<String>,
    #[serde(rename = "katabatch.dev/command")]
    command: Option<String>,
    #[serde(rename = "katabatch.dev/job-type")]
    job_type: Option<String>,
    #[serde(rename = "katabatch.dev/ack")]
    ack: Option<String>,
    #[serde(rename = "iam.gke.io/gcp-service-account")]
    email: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Owner {
    kind: String,
    name: String,
    uid: String,
}

/// `metadata` of an object.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Meta {
    name: String,
    uid: String,
    resource_version: String,
    creation_timestamp: Option<Timestamp>,
    deletion_timestamp: Option<Timestamp>,
    labels: Option<Labels>,
    annotations: Option<Annotations>,
    owner_references: Option<Vec<Owner>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Condition {
    r#type: String,
    status: String,
    reason: Text,
    message: Text,
    last_transition_time: Option<Timestamp>,
}

impl Condition {
    /// It ends the Job, for good.
    fn is_final(&self) -> bool {
        matches!(self.r#type.as_str(), "Complete" | "Failed") && self.status == "True"
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct JobSpec {
    active_deadline_seconds: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct JobStatus {
    start_time: Option<Timestamp>,
    active: Option<i64>,
    ready: Option<i64>,
    succeeded: Option<i64>,
    failed: Option<i64>,
    conditions: Option<Vec<Condition>>,
}

impl JobStatus {
    fn progress(&self) -> Progress {
        let some = |count: Option<i64>| count.unwrap_or_default() >= 1;
        Progress {
            active: some(self.active),
            started: some(self.ready) || some(self.succeeded) || some(self.failed),
            finished: self.conditions.iter().flatten().any(Condition::is_final),
        }
    }

    fn end(&mut self) -> Option<JobEnd> {
        let found = self.conditions.take().into_iter().flatten().find(Condition::is_final)?;
        let Condition { r#type, reason, message, last_transition_time: at, .. } = found;
        Some(JobEnd { complete: r#type == "Complete", said: Said { reason, message }, at })
    }
}

/// An object that has facts worth keeping.
pub(super) trait Facts: Sized {
    /// The object as the server sends it.
    type Wire: DeserializeOwned;
    /// The facts; `None` when it lacks what every stored object has.
    fn from_wire(wire: Self::Wire) -> Option<Self>;
}

/// A Job, or its metadata alone.
#[derive(Debug, Deserialize)]
pub(super) struct WireJob {
    metadata: Meta,
    #[serde(default)]
    spec: JobSpec,
    #[serde(default)]
    status: JobStatus,
}

impl Facts for JobFacts {
    type Wire = WireJob;

    fn from_wire(WireJob { metadata, spec, mut status }: WireJob) -> Option<Self> {
        let mut labels = metadata.labels.unwrap_or_default();
        let farm = labels.farm();
        let annotations = metadata.annotations.unwrap_or_default();
        (!metadata.name.is_empty() && !metadata.uid.is_empty()).then_some(())?;
        let progress = status.progress();
        let scheduler = labels.scheduler.take();
        let task = annotations.task.as_deref().and_then(TaskHash::parse);
        let story = scheduler.as_ref().map(|_| {
            // A label that could not hold the name has it in an annotation.
            let key = annotations
                .command
                .or(labels.task_name)
                .zip(annotations.job_type.or(labels.job_name));
            Box::new(JobStory {
                key: key.map(|(command, job_type)| WorkloadKey {
                    command: command.into(),
                    job_type: job_type.into(),
                }),
                attempt: labels.attempt.and_then(|n| n.parse().ok()).and_then(Attempt::new),
                followed: annotations.ack.as_deref() == Some(ON_COMPLETED),
                deadline: spec.active_deadline_seconds.map(Duration::from_secs),
                started: status.start_time,
                end: status.end(),
            })
        });
        Some(Self {
            name: metadata.name,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            created: metadata.creation_timestamp?,
            deleting: metadata.deletion_timestamp.is_some(),
            farm,
            task,
            scheduler,
            progress,
            story,
        })
    }
}

impl Facts for SelectedJob {
    type Wire = WireJob;

    fn from_wire(WireJob { metadata, status, .. }: WireJob) -> Option<Self> {
        let labels = metadata.labels.unwrap_or_default();
        (!metadata.name.is_empty() && !metadata.uid.is_empty()).then_some(Self {
            name: metadata.name,
            uid: metadata.uid,
            command: labels.task_name.unwrap_or_default(),
            job_type: labels.job_name.unwrap_or_default(),
            finished: status.progress().finished,
            deleting: metadata.deletion_timestamp.is_some(),
        })
    }
}

/// An object as the server sends it, with all that it holds.
pub(super) struct Whole(pub serde_json::Value);

impl Facts for Whole {
    type Wire = serde_json::Value;

    fn from_wire(wire: serde_json::Value) -> Option<Self> {
        Some(Self(wire))
    }
}

/// Anything by its metadata.
#[derive(Debug, Deserialize)]
pub(super) struct WireMeta {
    metadata: Meta,
}

impl Facts for AccountFacts {
    type Wire = WireMeta;

    fn from_wire(WireMeta { metadata }: WireMeta) -> Option<Self> {
        Some(Self { email: metadata.annotations.and_then(|annotations| annotations.email) })
    }
}

/// A ConfigMap.
#[derive(Debug, Deserialize)]
pub(super) struct WireConfigMap {
    metadata: Meta,
    #[serde(default)]
    data: Option<BTreeMap<String, String>>,
}

impl Facts for ConfigMapFacts {
    type Wire = WireConfigMap;

    fn from_wire(WireConfigMap { metadata, data }: WireConfigMap) -> Option<Self> {
        let resource_version = metadata.resource_version;
        Some(Self { data: data.unwrap_or_default(), resource_version })
    }
}

/// A Lease.
#[derive(Debug, Deserialize)]
pub(super) struct WireLease {
    metadata: Meta,
    #[serde(default)]
    spec: LeaseSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeaseSpec {
    #[serde(default)]
    holder_identity: Option<String>,
}

impl Facts for LeaseFacts {
    type Wire = WireLease;

    fn from_wire(WireLease { metadata, spec }: WireLease) -> Option<Self> {
        let resource_version = metadata.resource_version;
        Some(Self { holder: spec.holder_identity.unwrap_or_default(), resource_version })
    }
}

fn unreadable(status: u16, why: &str) -> ApiError {
    ApiError::answered(status, "", &format!("the answer can't be read: {why}"))
}

/// Reads one object from the body of a successful answer.
pub(super) fn object<T: Facts>(status: u16, body: &[u8]) -> Result<T, ApiError> {
    if body.is_empty() {
        return Err(unreadable(status, "it is empty"));
    }
    let wire = serde_json::from_slice(body).map_err(|e| unreadable(status, &e.to_string()))?;
    T::from_wire(wire).ok_or_else(|| unreadable(status, "it lacks name, uid or creation time"))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
    r#continue: Option<String>,
}

#[derive(Debug, Deserialize)]
struct List<W> {
    metadata: ListMeta,
    items: Option<Vec<W>>,
}

/// Reads a page of a list.
pub(super) fn page<T: Facts>(status: u16, body: &[u8]) -> Result<Page<T>, ApiError> {
    let list: List<T::Wire> =
        serde_json::from_slice(body).map_err(|e| unreadable(status, &e.to_string()))?;
    let items = list.items.unwrap_or_default();
    let facts: Option<Vec<T>> = items.into_iter().map(T::from_wire).collect();
    Ok(Page {
        items: facts.ok_or_else(|| unreadable(status, "an item lacks name or uid"))?,
        next: list.metadata.r#continue.filter(|token| !token.is_empty()),
        resource_version: list.metadata.resource_version,
    })
}

#[derive(Debug, Deserialize)]
struct EventKind {
    r#type: String,
}

#[derive(Debug, Deserialize)]
struct EventObject<W> {
    object: W,
}

/// Reads one line of a watch.
pub(super) fn event<T: Facts>(line: &[u8]) -> Result<WatchEvent<T>, ApiError> {
    let bad = |error: serde_json::Error| unreadable(200, &error.to_string());
    let facts = || {
        let event: EventObject<T::Wire> = serde_json::from_slice(line).map_err(bad)?;
        T::from_wire(event.object).ok_or_else(|| unreadable(200, "an object lacks name or uid"))
    };
    let kind: EventKind = serde_json::from_slice(line).map_err(bad)?;
    match kind.r#type.as_str() {
        "ADDED" | "MODIFIED" => Ok(WatchEvent::Applied(facts()?)),
        "DELETED" => Ok(WatchEvent::Deleted(facts()?)),
        "BOOKMARK" => {
            let event: EventObject<WireMeta> = serde_json::from_slice(line).map_err(bad)?;
            Ok(WatchEvent::Bookmark(event.object.metadata.resource_version))
        }
        "ERROR" => {
            let event: EventObject<Status> = serde_json::from_slice(line).map_err(bad)?;
            Err(event.object.into_error(500))
        }
        other => Err(unreadable(200, &format!("an event of type `{other}`"))),
    }
}

/// `metav1.Status`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    code: Option<u16>,
    reason: String,
    message: String,
    details: Option<Details>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    retry_after_seconds: Option<u64>,
}

impl Status {
    fn into_error(self, status: u16) -> ApiError {
        let error = ApiError::answered(self.code.unwrap_or(status), &self.reason, &self.message);
        match self.details.and_then(|details| details.retry_after_seconds) {
            Some(seconds) if seconds > 0 => {
                error.with_retry_after(std::time::Duration::from_secs(seconds))
            }
            _ => error,
        }
    }
}

/// Reads the body of an answer that is no success: a Status, or some proxy's text.
pub(super) fn refusal(status: u16, body: &[u8]) -> ApiError {
    match serde_json::from_slice::<Status>(body) {
        Ok(read) if !read.reason.is_empty() || !read.message.is_empty() => {
            // The status line is what happened; a code in the body could be anything.
            Status { code: None, ..read }.into_error(status)
        }
        _ => ApiError::answered(status, "", &String::from_utf8_lossy(body)),
    }
}
