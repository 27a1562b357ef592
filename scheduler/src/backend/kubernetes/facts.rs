//! What is kept of our Jobs and their pods to tell how they end: read straight from the API
//! server's JSON, all else skipped. What it means is [`verdict`](super::verdict)'s to say.
//!
//! Texts are cut as they are read, so that ten thousand pods stay within a few megabytes.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};

use super::api::OwnerJob;
use crate::domain::name::Attempt;
use crate::domain::task::WorkloadKey;

/// The longest text kept of a reason or message, in bytes.
const TEXT_MAX: usize = 600;

/// A text, cut to a readable length.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Text(Box<str>);

impl Text {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.get(..text.floor_char_boundary(TEXT_MAX)).unwrap_or_default().into())
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Option::<std::borrow::Cow<'de, str>>::deserialize(from)?;
        Ok(text.as_deref().map(Self::from).unwrap_or_default())
    }
}

/// A reason and what was said of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct Said {
    /// `reason`, such as `ImagePullBackOff`.
    pub reason: Text,
    /// `message`.
    pub message: Text,
}

impl Said {
    /// A reason with its message.
    pub fn new(reason: &str, message: &str) -> Self {
        Self { reason: reason.into(), message: message.into() }
    }
}

/// What a Job of ours says of itself, beyond what the account of room needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobStory {
    /// Command and job type, by labels and annotations.
    pub key: Option<WorkloadKey>,
    /// Which attempt it is.
    pub attempt: Option<Attempt>,
    /// Its message waits for its end.
    pub followed: bool,
    /// `spec.activeDeadlineSeconds`.
    pub deadline: Option<Duration>,
    /// `status.startTime`.
    pub started: Option<Timestamp>,
    /// The condition that ended it.
    pub end: Option<JobEnd>,
}

/// A condition that is true and final.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobEnd {
    /// Complete, not Failed.
    pub complete: bool,
    /// Why.
    pub said: Said,
    /// Since when.
    pub at: Option<Timestamp>,
}

/// A pod's phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum Phase {
    /// Not all its containers have started.
    #[default]
    Pending,
    /// It runs.
    Running,
    /// All its containers ended with 0.
    Succeeded,
    /// A container ended otherwise, or the pod was put out.
    Failed,
    /// Its node is not heard of.
    #[serde(other)]
    Unknown,
}

/// What is kept of a pod of ours, whatever its phase.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkPod {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// The Job that it is of.
    pub job: Option<OwnerJob>,
    /// It has a `deletionTimestamp`.
    pub deleting: bool,
    /// How it fares.
    pub story: PodStory,
}

/// How a pod fares.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodStory {
    /// `status.phase`.
    pub phase: Phase,
    /// `status.reason` and `message`: why the pod as a whole was put out.
    pub said: Option<Box<Said>>,
    /// The condition DisruptionTarget, when true.
    pub disruption: Option<Box<Said>>,
    /// The condition PodScheduled, when false: what the scheduler says.
    pub unscheduled: Option<Text>,
    /// Its worker's container.
    pub container: Option<Box<ContainerStory>>,
}

/// How a container fares.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContainerStory {
    /// Its name.
    pub name: Text,
    /// How often it was started again.
    pub restarts: u32,
    /// Why it waits.
    pub waiting: Option<Said>,
    /// It runs, since then.
    pub running: Option<Running>,
    /// It has ended.
    pub ended: Option<Ended>,
    /// How it ended the time before, if it was started again.
    pub before: Option<Ended>,
}

/// A container that runs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Running {
    /// Since when.
    pub started_at: Option<Timestamp>,
}

/// A container that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Ended {
    /// Its exit code; 128 + n for signal n.
    pub exit_code: i32,
    /// `OOMKilled`, `Error`, `Completed`, …
    pub reason: Text,
    /// What was said of it.
    pub message: Text,
    /// When it had started; `None` where it never did.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

impl ContainerStory {
    /// How it ended the last time.
    pub fn last_end(&self) -> Option<&Ended> {
        self.ended.as_ref().or(self.before.as_ref())
    }
}

/// A container's status as the server sends it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WireContainer {
    name: Text,
    restart_count: u32,
    state: Option<WireState>,
    last_state: Option<WireState>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireState {
    waiting: Option<Said>,
    running: Option<Running>,
    terminated: Option<Ended>,
}

impl WireContainer {
    fn story(self) -> ContainerStory {
        let state = self.state.unwrap_or_default();
        ContainerStory {
            name: self.name,
            restarts: self.restart_count,
            waiting: state.waiting,
            running: state.running,
            ended: state.terminated.map(Ended::honest),
            before: self.last_state.and_then(|last| last.terminated).map(Ended::honest),
        }
    }
}

impl Ended {
    /// A container that was never there has times of 1970, or none.
    fn honest(self) -> Self {
        let started_at = self.started_at.filter(|at| at.as_second() > 0);
        Self { started_at, ..self }
    }
}

/// A pod's status as the server sends it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WirePodStatus {
    phase: Phase,
    reason: Text,
    message: Text,
    conditions: Option<Vec<WireCondition>>,
    container_statuses: Option<Vec<WireContainer>>,
    init_container_statuses: Option<Vec<WireContainer>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireCondition {
    r#type: Text,
    status: Text,
    reason: Text,
    message: Text,
}

impl WirePodStatus {
    /// The story of a pod of the Job of this name.
    pub(super) fn story(self, job: Option<&str>) -> PodStory {
        let mut disruption = None;
        let mut unscheduled = None;
        for condition in self.conditions.into_iter().flatten() {
            match (condition.r#type.as_str(), condition.status.as_str()) {
                ("DisruptionTarget", "True") => {
                    let WireCondition { reason, message, .. } = condition;
                    disruption = Some(Box::new(Said { reason, message }));
                }
                ("PodScheduled", "False") => unscheduled = Some(condition.message),
                _ => {}
            }
        }
        let said = Said { reason: self.reason, message: self.message };
        PodStory {
            phase: self.phase,
            said: (said != Said::default()).then(|| Box::new(said)),
            disruption,
            unscheduled,
            container: worker(self.container_statuses, self.init_container_statuses, job)
                .map(Box::new),
        }
    }
}

/// The container that tells how the pod fares: the worker's, which has the Job's name, or an
/// initial one that keeps it from starting.
fn worker(
    containers: Option<Vec<WireContainer>>,
    initial: Option<Vec<WireContainer>>,
    job: Option<&str>,
) -> Option<ContainerStory> {
    let mut containers = containers.unwrap_or_default();
    let named = containers.iter().position(|one| Some(one.name.as_str()) == job).unwrap_or(0);
    let main =
        (named < containers.len()).then(|| containers.swap_remove(named)).map(WireContainer::story);
    if main.as_ref().is_some_and(|main| main.running.is_some() || main.last_end().is_some()) {
        return main;
    }
    let stuck = initial.into_iter().flatten().map(WireContainer::story).find(|one| {
        one.waiting.as_ref().is_some_and(|said| said.reason.as_str() != "PodInitializing")
            || one.last_end().is_some_and(|end| end.exit_code != 0)
    });
    stuck.or(main)
}
