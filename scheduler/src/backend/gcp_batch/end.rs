//! How Batch's tasks end → the kinds of ends. Pure.
//!
//! Batch has exit codes of its own above 50,000 (Batch, "Troubleshooting: reserved exit codes"). A job
//! that fails without a task that ever ran got no machines; what its events say tells why.

use super::answer::{State, Status};
use crate::domain::end::{EndKind, Verdict};

/// Docker's own exit code: the container was not run.
const NOT_RUN: i32 = 125;
/// Batch's code where a task failed and it can't tell how.
const NO_CODE: i32 = 50_000;

/// The end of one task that is over; `None`: it is not.
pub fn of_task(job: &Status, task: &Status) -> Option<Verdict> {
    match task.state {
        State::Succeeded => Some(Verdict::new(EndKind::Succeeded, Some(0), "")),
        State::Failed => Some(failed(task)),
        State::Unexecuted => Some(unexecuted(job)),
        // A job that is over has no task under way: these were never seen to their end.
        _ => of_state(job.state).map(|kind| Verdict::new(kind, None, last(job))),
    }
}

/// The end of all tasks of a job that lists none though it is over.
pub fn of_job(job: &Status) -> Option<Verdict> {
    match job.state {
        State::Failed => Some(unexecuted(job)),
        state => of_state(state).map(|kind| Verdict::new(kind, None, last(job))),
    }
}

fn of_state(state: State) -> Option<EndKind> {
    match state {
        State::Succeeded => Some(EndKind::Succeeded),
        State::Failed => Some(EndKind::Unknown),
        State::Cancelled => Some(EndKind::Deleted),
        _ => None,
    }
}

/// What was said last.
fn last(status: &Status) -> String {
    status.status_events.last().map(|event| event.description.clone()).unwrap_or_default()
}

fn failed(task: &Status) -> Verdict {
    let events = task.status_events.iter().rev();
    let with_code =
        events.clone().find_map(|e| Some((e.task_execution.as_ref()?.exit_code?, &e.description)));
    let Some((code, description)) = with_code else {
        let kind = by_words(&last(task)).unwrap_or(EndKind::Unknown);
        return Verdict::new(kind, None, last(task));
    };
    let kind = match code {
        50_001 => EndKind::Preempted,
        // The VM's reports stopped, it was rebooted, it and the task hang, it was recreated.
        50_002 | 50_003 | 50_004 | 50_006 => EndKind::NodeLost,
        50_005 => EndKind::Deadline,
        NO_CODE => by_words(description).unwrap_or(EndKind::Unknown),
        NOT_RUN => by_words(description).unwrap_or(EndKind::BadConfiguration),
        // Zero beside a failure is no failure of the work.
        0 => EndKind::Unknown,
        _ => EndKind::TaskFailure,
    };
    let own = (code < NO_CODE).then_some(code);
    Verdict::new(kind, own, description)
}

/// A task that never ran.
fn unexecuted(job: &Status) -> Verdict {
    let events = job.status_events.iter().rev();
    let telling = events.map(|e| &e.description).find(|text| by_words(text).is_some());
    let text = telling.cloned().unwrap_or_else(|| last(job));
    let kind = match job.state {
        State::Cancelled | State::CancellationInProgress | State::DeletionInProgress => {
            EndKind::Deleted
        }
        _ => by_words(&text).unwrap_or(EndKind::NeverStarted),
    };
    Verdict::new(kind, None, text)
}

/// What Batch's codes and Docker's messages say, where they say something.
fn by_words(text: &str) -> Option<EndKind> {
    const WORDS: &[(EndKind, &[&str])] = &[
        (
            EndKind::NeverStarted,
            &["RESOURCE_POOL_EXHAUSTED", "QUOTA_EXCEEDED", "RESOURCE_ERROR", "STOCKOUT"],
        ),
        (
            EndKind::IdentityDenied,
            &["PERMISSION_DENIED", "SERVICE_ACCOUNT_", "iam.serviceAccounts.actAs"],
        ),
        (EndKind::BadConfiguration, &["_NOT_FOUND", "_INVALID", "INVALID_FIELD", "MISMATCHED"]),
        (
            EndKind::ImagePull,
            &["Unable to find image", "manifest unknown", "pull access denied", "failed to pull"],
        ),
        (EndKind::Preempted, &["50001", "VM preemption"]),
        (EndKind::Deadline, &["maxRunDuration", "exceeds max run duration"]),
    ];
    let says = |words: &&[&str]| words.iter().any(|word| text.contains(word));
    WORDS.iter().find(|(_, words)| says(words)).map(|(kind, _)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn job(state: &str, event: &str) -> Status {
        serde_json::from_value(json!({"state": state, "statusEvents": [{"description": event}]}))
            .expect("a status")
    }

    fn task(code: Option<i32>, event: &str) -> Status {
        let execution = code.map(|exit_code| json!({"exitCode": exit_code}));
        serde_json::from_value(json!({"state": "FAILED", "statusEvents": [
            {"description": "Task state is updated from ASSIGNED to RUNNING"},
            {"description": event, "taskExecution": execution.unwrap_or(json!({}))},
        ]}))
        .expect("a status")
    }

    #[test]
    fn a_queued_job_that_failed_with_no_task_run_never_started() {
        for (event, kind) in [
            ("Job state is set from QUEUED to FAILED for job projects/1/…", EndKind::NeverStarted),
            ("Job failed: CODE_GCE_ZONE_RESOURCE_POOL_EXHAUSTED", EndKind::NeverStarted),
            ("Job failed: CODE_GCE_QUOTA_EXCEEDED", EndKind::NeverStarted),
            ("Job failed: CODE_MACHINE_TYPE_NOT_FOUND", EndKind::BadConfiguration),
            ("Job failed: CODE_GCE_PERMISSION_DENIED", EndKind::IdentityDenied),
        ] {
            let end = of_job(&job("FAILED", event)).expect("an end");
            assert_eq!((end.kind, end.exit_code), (kind, None), "{event}");
        }
        assert!(EndKind::NeverStarted.is_infrastructure());
        assert_eq!(of_job(&job("QUEUED", "")), None);
        assert_eq!(of_job(&job("CANCELLED", "")).expect("an end").kind, EndKind::Deleted);
    }

    #[test]
    fn batchs_own_exit_codes_are_the_machines_faults_and_50001_a_preemption() {
        for (code, kind) in [
            (50_001, EndKind::Preempted),
            (50_002, EndKind::NodeLost),
            (50_003, EndKind::NodeLost),
            (50_004, EndKind::NodeLost),
            (50_005, EndKind::Deadline),
            (50_006, EndKind::NodeLost),
            (50_000, EndKind::Unknown),
        ] {
            let end = of_task(&job("FAILED", ""), &task(Some(code), "x")).expect("an end");
            assert_eq!((end.kind, end.exit_code), (kind, None), "{code}");
        }
        assert!(EndKind::Preempted.is_infrastructure());
    }

    #[test]
    fn a_tasks_own_exit_code_is_kept_and_an_image_that_is_not_there_is_told_from_it() {
        let end = |code, event| {
            let end = of_task(&job("FAILED", ""), &task(code, event)).expect("an end");
            (end.kind, end.exit_code)
        };
        assert_eq!(end(Some(1), "exit code 1"), (EndKind::TaskFailure, Some(1)));
        assert_eq!(end(Some(137), "killed"), (EndKind::TaskFailure, Some(137)));
        let pull = "docker: Error response from daemon: manifest unknown";
        assert_eq!(end(Some(125), pull), (EndKind::ImagePull, Some(125)));
        assert_eq!(end(Some(125), "docker: bad flag"), (EndKind::BadConfiguration, Some(125)));
        assert_eq!(end(None, "VM preemption, 50001"), (EndKind::Preempted, None));
        assert_eq!(end(None, "?"), (EndKind::Unknown, None));
    }

    #[test]
    fn what_an_event_says_is_shown_without_signatures() {
        let event = "failed to fetch https://x/o?X-Goog-Signature=abcdef";
        let end = of_task(&job("FAILED", ""), &task(Some(1), event)).expect("an end");
        assert!(!end.detail.contains("abcdef"), "{}", end.detail);
    }
}
