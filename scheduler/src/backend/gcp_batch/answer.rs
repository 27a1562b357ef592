//! What Batch answers, as far as it is read. Unknown states and fields are no errors: what can't be
//! told is told as such.
//!
//! Of a task's environment only our hash is kept: the input beside it is a credential.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};

use super::spec::{HASH_VARIABLE, SCHEDULER_LABEL};
use crate::domain::name::TaskHash;

/// A job.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Job {
    /// `projects/…/locations/…/jobs/ID`; the project by name or by number.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// When it was created.
    pub create_time: Option<Timestamp>,
    /// How it is.
    pub status: Status,
    /// Its tasks: one group.
    pub task_groups: Vec<TaskGroup>,
}

/// How a job or a task is.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// Its state.
    pub state: State,
    /// What befell it, the oldest first.
    pub status_events: Vec<StatusEvent>,
    /// Of a job: the counts of its tasks by state, by group.
    pub task_groups: BTreeMap<String, GroupStatus>,
}

/// How a job's tasks are.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct GroupStatus {
    /// How many are in a state; a state that no task is in may be left out.
    #[serde(deserialize_with = "counts")]
    pub counts: BTreeMap<String, u64>,
}

/// The states of jobs and tasks that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum State {
    /// A job or task that waits.
    Queued,
    /// A job whose machines are being made.
    Scheduled,
    /// A task that waits.
    Pending,
    /// A task that has a machine.
    Assigned,
    /// It runs.
    Running,
    /// It did well.
    Succeeded,
    /// It failed.
    Failed,
    /// A task that never ran and will not.
    Unexecuted,
    /// A job that is being deleted.
    DeletionInProgress,
    /// A job that is being cancelled.
    CancellationInProgress,
    /// A job that was cancelled.
    Cancelled,
    /// Another one, or none.
    #[serde(other)]
    #[default]
    Unknown,
}

impl State {
    /// Whether a job in this state waits to start. One that can't be told counts as waiting.
    pub fn waits(self) -> bool {
        matches!(self, Self::Queued | Self::Scheduled | Self::Unknown)
    }

    /// Whether a job in this state is over.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

/// Something that befell a job or a task.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusEvent {
    /// What, for people.
    pub description: String,
    /// When.
    pub event_time: Option<Timestamp>,
    /// Of a task: the state that it came to by it.
    pub task_state: Option<State>,
    /// Of a task that failed: its process's end.
    pub task_execution: Option<TaskExecution>,
}

/// A process's end.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TaskExecution {
    /// Its exit code, or one of Batch's own above 50,000.
    pub exit_code: Option<i32>,
}

/// A job's tasks.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TaskGroup {
    /// How many.
    #[serde(deserialize_with = "count")]
    pub task_count: u64,
    /// One a task; left out of lists.
    pub task_environments: Vec<Environment>,
}

/// A task's environment: our hash, where it is there.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Environment(pub Option<TaskHash>);

impl<'de> Deserialize<'de> for Environment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Raw {
            variables: BTreeMap<String, String>,
        }
        let raw = Raw::deserialize(deserializer)?;
        Ok(Self(raw.variables.get(HASH_VARIABLE).and_then(|text| TaskHash::parse(text))))
    }
}

/// A page of jobs.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Jobs {
    /// The jobs.
    pub jobs: Vec<Job>,
    /// Where the next page begins; empty: there is none.
    pub next_page_token: String,
    /// What could not be asked: the list is not whole then.
    pub unreachable: Vec<String>,
}

/// A page of tasks.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TaskPage {
    /// The tasks.
    pub tasks: Vec<Task>,
    /// Where the next page begins; empty: there is none.
    pub next_page_token: String,
}

/// A task.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Task {
    /// `…/taskGroups/group0/tasks/INDEX`.
    pub name: String,
    /// How it is.
    pub status: Status,
}

impl Task {
    /// Its place among the job's tasks.
    pub fn index(&self) -> Option<usize> {
        self.name.rsplit_once("/tasks/")?.1.parse().ok()
    }
}

/// The answer of `jobs:countByState`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobCounts {
    /// How many jobs are in a state.
    #[serde(deserialize_with = "counts")]
    pub job_counts: BTreeMap<String, u64>,
}

/// A number of 64 bits, which Google writes as text; older answers have numbers.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Number(u64),
}

impl Written {
    fn read<E: serde::de::Error>(self) -> Result<u64, E> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Text(text) => text.parse().map_err(|_| E::custom("not a count")),
        }
    }
}

fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Written::deserialize(deserializer)?.read()
}

fn counts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, u64>, D::Error> {
    let written = BTreeMap::<String, Written>::deserialize(deserializer)?;
    written.into_iter().map(|(state, count)| Ok((state, count.read()?))).collect()
}

impl Job {
    /// The last part of its name.
    pub fn id(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or_default()
    }

    /// Whether it carries this scheduler's id.
    pub fn is_of(&self, scheduler: &str) -> bool {
        self.labels.get(SCHEDULER_LABEL).is_some_and(|id| *id == super::spec::label(scheduler))
    }

    /// How many tasks it has.
    pub fn tasks(&self) -> usize {
        let count: u64 = self.task_groups.iter().map(|group| group.task_count).sum();
        usize::try_from(count).unwrap_or(usize::MAX)
    }

    /// How many of them are over.
    pub fn done(&self) -> usize {
        let groups = self.status.task_groups.values();
        let over = |group: &GroupStatus| -> u64 {
            ["SUCCEEDED", "FAILED", "UNEXECUTED"].iter().filter_map(|s| group.counts.get(*s)).sum()
        };
        usize::try_from(groups.map(over).sum::<u64>()).unwrap_or(usize::MAX).min(self.tasks())
    }

    /// Its tasks' hashes; `None` where they are not all told (as in lists).
    pub fn members(&self) -> Option<Vec<TaskHash>> {
        let groups = self.task_groups.iter();
        let hashes: Option<Vec<_>> =
            groups.flat_map(|group| &group.task_environments).map(|env| env.0).collect();
        hashes.filter(|hashes| !hashes.is_empty() && hashes.len() == self.tasks())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_job_tells_its_members_and_nothing_of_their_inputs() {
        let hash = "ab".repeat(32);
        let job: Job = serde_json::from_value(json!({
            "name": "projects/1/locations/r/jobs/j-1",
            "labels": {SCHEDULER_LABEL: "s"},
            "createTime": "2026-01-01T00:00:00.123Z",
            "status": {"state": "RUNNING", "runDuration": "3s", "taskGroups": {"group0": {
                "counts": {"SUCCEEDED": "1", "RUNNING": "1"}, "instances": []}}},
            "taskGroups": [{"taskCount": "1", "taskEnvironments": [
                {"variables": {"UWORKER_INPUT_DOWNLOAD_URL": "https://x/?secret", HASH_VARIABLE: hash}}]}],
            "somethingNew": 1,
        }))
        .expect("a job");
        assert_eq!((job.id(), job.is_of("s"), job.is_of("t")), ("j-1", true, false));
        assert_eq!(job.members(), Some(vec![TaskHash::parse(&hash).expect("a hash")]));
        assert_eq!((job.tasks(), job.done(), job.status.state), (1, 1, State::Running));
        assert!(!format!("{job:?}").contains("secret"));
    }

    #[test]
    fn members_that_are_not_all_told_are_not_told_and_an_unknown_state_is_no_error() {
        let job: Job = serde_json::from_value(
            json!({"status": {"state": "A_NEW_ONE"}, "taskGroups": [{"taskCount": 2}]}),
        )
        .expect("a job");
        assert_eq!((job.members(), job.status.state), (None, State::Unknown));
        let counts: JobCounts =
            serde_json::from_value(json!({"jobCounts": {"QUEUED": "10"}})).expect("counts");
        assert_eq!(counts.job_counts["QUEUED"], 10);
    }
}
