//! What is known of the attempts at a followed task.

use super::Acks;
use crate::domain::name::{Attempt, JobName, TaskHash};

/// The highest attempt at a task, as far as the watch and this process's own creates show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Latest {
    /// There is none.
    Nothing,
    /// It has not ended.
    Live(Attempt),
    /// It is complete.
    Completed,
    /// It has failed.
    Failed(Attempt),
}

impl Acks {
    /// The highest attempt at this task; `None` before the first list.
    pub fn latest(&self, task: &TaskHash) -> Option<Latest> {
        if !self.listed {
            return None;
        }
        let later = self.later.get(task).and_then(|later| later.last_key_value());
        let name = match later {
            Some((_, name)) => name.clone(),
            None => JobName::of(task, Attempt::FIRST).to_string(),
        };
        let Some(job) = self.jobs.get(&name).filter(|job| job.task == Some(*task)) else {
            return Some(Latest::Nothing);
        };
        Some(match job.complete {
            None => Latest::Live(job.attempt),
            Some(true) => Latest::Completed,
            Some(false) => Latest::Failed(job.attempt),
        })
    }

    /// The end of the followed attempts up to this one (of all) is known to the task's queue.
    pub fn settled(&mut self, task: &TaskHash, up_to: Option<Attempt>) {
        let first = JobName::of(task, Attempt::FIRST).to_string();
        let later = self.later.get(task).into_iter().flatten().map(|(_, name)| name.clone());
        for name in std::iter::once(first).chain(later).collect::<Vec<_>>() {
            if let Some(job) = self.jobs.get_mut(&name)
                && job.followed
                && up_to.is_none_or(|up_to| job.attempt <= up_to)
            {
                job.acked = true;
            }
        }
    }
}
