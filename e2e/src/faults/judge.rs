//! Whether a run kept the contract, told from what was asked for, what happened, and what is left.
//! Pure: made-up histories that break it are its tests.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::history::{Event, What};

/// What was asked for.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// The hashes of the tasks that must be run.
    pub run: BTreeSet<String>,
    /// Those that must not be run: their URLs were dead from the beginning.
    pub reject: BTreeSet<String>,
    /// How many Jobs may wait to start at once.
    pub limit: usize,
}

/// What is left in the queue, by the hashes of the tasks.
#[derive(Debug, Clone, Default)]
pub struct Left {
    /// Messages that are still to be seen to.
    pub waiting: BTreeSet<String>,
    /// Messages that were rejected.
    pub quarantined: BTreeSet<String>,
}

/// What is found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Found {
    /// Tasks that must be run, whose messages are gone or rejected, and that never had a Job.
    pub lost: usize,
    /// Jobs beyond the first of one task and attempt.
    pub doubled: usize,
    /// How many more Jobs than allowed waited to start, at the worst moment.
    pub over_the_limit: usize,
    /// Tasks that must not be run, and that had a Job or are not in the quarantine; and Jobs of
    /// tasks that nobody asked for.
    pub wrongly_run: usize,
    /// Tasks that still wait.
    pub unsettled: usize,
    /// Pods beyond the first of one Job that started.
    pub extra_pod_starts: usize,
    /// The most Jobs that waited at once.
    pub most_waiting: usize,
    /// All Jobs that were made, attempts after the first included.
    pub jobs: usize,
    /// Some of the hashes that the counts above are about, with the reason.
    pub examples: Vec<String>,
}

impl Found {
    /// Whether the contract was kept.
    #[must_use]
    pub fn is_well(&self) -> bool {
        let Self { lost, doubled, over_the_limit, wrongly_run, unsettled, .. } = self;
        [lost, doubled, over_the_limit, wrongly_run, unsettled].into_iter().all(|n| *n == 0)
    }

    fn example(&mut self, text: String) {
        if self.examples.len() < 20 {
            self.examples.push(text);
        }
    }
}

/// Judges a history that begins before the first Job, in the order of its revisions.
#[must_use]
pub fn judge(asked: &Asked, events: &[Event], left: &Left) -> Found {
    let mut found = Found::default();
    let jobs = jobs(events);
    for ((task, attempt), uids) in &jobs {
        found.jobs += uids.len();
        if uids.len() > 1 {
            found.doubled += uids.len() - 1;
            found.example(format!("task {task} attempt {attempt} had {} Jobs", uids.len()));
        }
    }
    let made: BTreeSet<&String> = jobs.keys().map(|(task, _)| *task).collect();
    for task in &asked.run {
        if made.contains(task) {
            continue;
        }
        if left.waiting.contains(task) {
            found.unsettled += 1;
            found.example(format!("task {task} still waits"));
        } else {
            found.lost += 1;
            let how = if left.quarantined.contains(task) { "was rejected" } else { "is gone" };
            found.example(format!("task {task} {how} and never had a Job"));
        }
    }
    found.unsettled += left.waiting.iter().filter(|task| !asked.run.contains(*task)).count();
    for task in &asked.reject {
        if made.contains(task) || !left.quarantined.contains(task) {
            found.wrongly_run += 1;
            found.example(format!("task {task} was dead and is not in quarantine, or had a Job"));
        }
    }
    for task in made {
        if !asked.run.contains(task) && !asked.reject.contains(task) {
            found.wrongly_run += 1;
            found.example(format!("task {task} was never asked for"));
        }
    }
    found.most_waiting = most_waiting(events);
    found.over_the_limit = found.most_waiting.saturating_sub(asked.limit);
    found.extra_pod_starts = extra_pod_starts(events);
    found
}

/// The Jobs' uids by task and attempt.
fn jobs(events: &[Event]) -> BTreeMap<(&String, &String), BTreeSet<&String>> {
    let mut jobs: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for event in events {
        if let What::Job { uid, task, attempt, .. } = &event.what {
            jobs.entry((task, attempt)).or_default().insert(uid);
        }
    }
    jobs
}

/// The most Jobs that waited to start at one moment: there, not ended, and none of their pods has
/// left Pending.
fn most_waiting(events: &[Event]) -> usize {
    let mut waiting: BTreeMap<&str, &str> = BTreeMap::new();
    // A Job that has started never comes back to waiting.
    let mut done: BTreeSet<&str> = BTreeSet::new();
    let mut most = 0;
    for event in events {
        match &event.what {
            What::Job { uid, finished, .. } if *finished => {
                waiting.remove(uid.as_str());
                done.insert(uid);
            }
            What::Job { name, uid, .. } => {
                if !done.contains(uid.as_str()) {
                    waiting.insert(uid, name);
                }
            }
            What::JobGone { name } => waiting.retain(|_, of| of != name),
            What::Pod { owner, started, .. } => {
                if *started {
                    waiting.remove(owner.as_str());
                    done.insert(owner);
                }
            }
        }
        most = most.max(waiting.len());
    }
    most
}

/// Pods that started, beyond the first of each Job.
fn extra_pod_starts(events: &[Event]) -> usize {
    let mut started: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for event in events {
        if let What::Pod { uid, owner, started: true } = &event.what {
            started.entry(owner).or_default().insert(uid);
        }
    }
    started.values().map(|pods| pods.len() - 1).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A history in words: `job NAME UID TASK ATTEMPT`, `end …` of the same, `gone NAME`,
    /// `pod UID OWNER`, `start UID OWNER`.
    fn history(lines: &[&str]) -> Vec<Event> {
        let event = |(n, line): (usize, &&str)| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let what = match words.as_slice() {
                [kind, name, uid, task, attempt] => What::Job {
                    name: name.clone(),
                    uid: uid.clone(),
                    task: task.clone(),
                    attempt: attempt.clone(),
                    finished: kind == "end",
                },
                [_, name] => What::JobGone { name: name.clone() },
                [kind, uid, owner] => {
                    What::Pod { uid: uid.clone(), owner: owner.clone(), started: kind == "start" }
                }
                _ => panic!("{line}"),
            };
            Event { revision: n as u64, what }
        };
        lines.iter().enumerate().map(event).collect()
    }

    fn set(words: &str) -> BTreeSet<String> {
        words.split_whitespace().map(str::to_owned).collect()
    }

    /// Tasks a and b must run, x must not, two may wait at once.
    fn check(lines: &[&str], left: &Left) -> Found {
        let asked = Asked { run: set("a b"), reject: set("x"), limit: 2 };
        judge(&asked, &history(lines), left)
    }

    const GOOD: [&str; 6] =
        ["job ja u1 a 1", "job jb u2 b 1", "pod p1 u1", "start p1 u1", "end ja u1 a 1", "gone ja"];

    fn only_x() -> Left {
        Left { quarantined: set("x"), ..Left::default() }
    }

    /// The good history, and one more event.
    fn and(more: &[&'static str]) -> Vec<&'static str> {
        GOOD.into_iter().chain(more.iter().copied()).collect()
    }

    #[test]
    fn a_good_history_is_well() {
        let found = check(&GOOD, &only_x());
        assert!(found.is_well(), "{found:?}");
        assert_eq!((found.jobs, found.most_waiting, found.extra_pod_starts), (2, 2, 0));
    }

    #[test]
    fn a_message_that_is_gone_without_a_job_is_lost() {
        let found = check(&["job ja u1 a 1"], &only_x());
        assert_eq!((found.lost, found.unsettled), (1, 0));
        assert!(!found.is_well());
    }

    #[test]
    fn a_good_message_that_was_rejected_is_lost() {
        let left = Left { quarantined: set("b x"), ..Left::default() };
        assert_eq!(check(&["job ja u1 a 1"], &left).lost, 1);
    }

    #[test]
    fn a_message_that_still_waits_is_not_lost_but_not_well() {
        let left = Left { waiting: set("b"), quarantined: set("x") };
        let found = check(&["job ja u1 a 1"], &left);
        assert_eq!((found.lost, found.unsettled), (0, 1));
        assert!(!found.is_well());
    }

    #[test]
    fn a_second_job_of_a_task_is_one_too_many_even_after_the_first_has_gone() {
        assert_eq!(check(&and(&["job ja u3 a 1"]), &only_x()).doubled, 1);
        assert_eq!(check(&and(&["job other u3 b 1"]), &only_x()).doubled, 1);
    }

    #[test]
    fn a_next_attempt_is_none_too_many() {
        assert!(check(&and(&["job ja2 u3 a 2"]), &only_x()).is_well());
        assert_eq!(check(&and(&["job ja2 u3 a 2", "job ja3 u4 a 2"]), &only_x()).doubled, 1);
    }

    #[test]
    fn a_moment_over_the_limit_is_found() {
        let lines = ["job ja u1 a 1", "job jb u2 b 1", "job ja2 u3 a 2", "start p1 u1", "gone jb"];
        let found = check(&lines, &only_x());
        assert_eq!((found.most_waiting, found.over_the_limit), (3, 1));
        assert!(!found.is_well());
    }

    #[test]
    fn a_job_that_started_before_the_next_one_makes_room() {
        let lines =
            ["job ja u1 a 1", "job jb u2 b 1", "start p1 u1", "job ja u1 a 1", "job n u3 a 2"];
        assert_eq!(check(&lines, &only_x()).most_waiting, 2);
    }

    #[test]
    fn a_dead_task_must_be_in_quarantine_and_have_no_job() {
        assert_eq!(check(&GOOD, &Left::default()).wrongly_run, 1);
        assert_eq!(check(&and(&["job jx u3 x 1"]), &only_x()).wrongly_run, 1);
        assert_eq!(check(&and(&["job jy u3 y 1"]), &only_x()).wrongly_run, 1);
    }

    #[test]
    fn pods_that_start_again_are_counted_apart() {
        let found = check(&and(&["start p1 u1", "start p9 u1", "pod p8 u2"]), &only_x());
        assert_eq!(found.extra_pod_starts, 1);
        assert!(found.is_well());
    }
}
