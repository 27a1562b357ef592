//! Which ended Jobs are to be followed by another attempt, and when. Pure.
//!
//! Nothing of it is stored: a failed Job that no higher attempt follows is judged anew by the next
//! process, from what is left of it.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::domain::end::End;
use crate::domain::log_tail::LogTail;
use crate::domain::name::{Attempt, TaskHash};

#[derive(Debug)]
struct Wanted {
    end: End,
    at: Instant,
    under_way: bool,
}

/// The attempts that are wanted, by the uid of the Job before.
#[derive(Debug, Default)]
pub struct Due {
    wanted: BTreeMap<String, Wanted>,
    /// The highest attempt that was seen, of the few tasks that have more than one.
    highest: BTreeMap<TaskHash, Attempt>,
}

impl Due {
    /// A Job of this attempt is there.
    pub fn seen(&mut self, task: TaskHash, attempt: Attempt) {
        if attempt == Attempt::FIRST {
            return;
        }
        let highest = self.highest.entry(task).or_insert(attempt);
        *highest = attempt.max(*highest);
        self.wanted.retain(|_, wanted| wanted.end.task != task || wanted.end.attempt >= attempt);
    }

    /// A Job is gone, and what could be made from it.
    pub fn gone(&mut self, uid: &str, task: Option<TaskHash>, attempt: Attempt) {
        self.wanted.remove(uid);
        if let Some(task) = task
            && self.highest.get(&task) == Some(&attempt)
        {
            self.highest.remove(&task);
        }
    }

    /// The Job of this uid ended so, and is to be run again, unless it was.
    pub fn add(&mut self, uid: &str, end: &End, now: Instant) {
        if self.highest.get(&end.task).is_none_or(|highest| *highest <= end.attempt) {
            let end = End { tail: LogTail::Nothing, ..end.clone() };
            self.wanted.insert(uid.to_owned(), Wanted { end, at: now, under_way: false });
        }
    }

    /// Whether the Job of this uid is still needed.
    pub fn holds(&self, uid: &str) -> bool {
        self.wanted.contains_key(uid)
    }

    /// At most `most` attempts to make now; each is under way from here on.
    pub fn take(&mut self, now: Instant, most: usize) -> Vec<(String, End)> {
        let due =
            self.wanted.iter_mut().filter(|(_, wanted)| !wanted.under_way && wanted.at <= now);
        due.take(most)
            .map(|(uid, wanted)| {
                wanted.under_way = true;
                (uid.clone(), wanted.end.clone())
            })
            .collect()
    }

    /// It was made, or never will be.
    pub fn done(&mut self, uid: &str) {
        self.wanted.remove(uid);
    }

    /// It could not be made yet.
    pub fn again(&mut self, uid: &str, at: Instant) {
        if let Some(wanted) = self.wanted.get_mut(uid) {
            (wanted.at, wanted.under_way) = (at, false);
        }
    }
}
