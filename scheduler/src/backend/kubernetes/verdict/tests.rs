//! Each kind of end, from objects as a real cluster writes them (Kubernetes 1.34, with real kubelets
//! or as its documentation and sources have them).

use serde_json::{Value, json};

use super::super::api::JobFacts;
use super::super::facts::WorkPod;
use super::super::wire;
use super::*;

fn job(conditions: Value) -> JobStory {
    let job = json!({
        "metadata": {
            "name": "cf-job-1", "uid": "u", "creationTimestamp": "2026-11-30T10:00:00Z",
            "labels": { "task_name": "fuzz", "job_name": "j", "katabatch.dev/scheduler": "s" },
        },
        "status": { "startTime": "2026-11-30T10:00:00Z", "conditions": conditions },
    });
    let facts: JobFacts = wire::object(200, job.to_string().as_bytes()).expect("a Job");
    *facts.story.expect("a story")
}

fn failed(reason: &str, message: &str) -> JobStory {
    let condition = |kind: &str| {
        json!({ "type": kind, "status": "True", "reason": reason, "message": message,
                "lastTransitionTime": "2026-11-30T11:00:00Z" })
    };
    job(json!([condition("FailureTarget"), condition("Failed")]))
}

fn backoff() -> JobStory {
    failed("BackoffLimitExceeded", "Job has reached the specified backoff limit")
}

fn deadline() -> JobStory {
    failed("DeadlineExceeded", "Job was active longer than specified deadline")
}

fn completed() -> JobStory {
    job(json!([
        { "type": "SuccessCriteriaMet", "status": "True", "reason": "CompletionsReached" },
        { "type": "Complete", "status": "True", "reason": "CompletionsReached" },
    ]))
}

fn see(status: Value, deleting: bool) -> WorkPod {
    let mut pod = json!({
        "metadata": { "name": "cf-job-1-x", "uid": "p",
            "ownerReferences": [{ "kind": "Job", "name": "cf-job-1", "uid": "u" }] },
        "status": status,
    });
    if deleting {
        pod["metadata"]["deletionTimestamp"] = "2026-11-30T11:00:00Z".into();
    }
    wire::object(200, pod.to_string().as_bytes()).expect("a pod")
}

/// A pod by its statuses, the last of them while it is being deleted, if that is said.
fn pod(statuses: &[Value]) -> PodHistory {
    let mut history: Option<PodHistory> = None;
    for status in statuses {
        let seen = see(status.clone(), status["deleting"] == true);
        match &mut history {
            Some(history) => {
                history.see(&seen);
            }
            None => history = Some(PodHistory::new(&seen)),
        }
    }
    history.expect("a status")
}

fn running() -> Value {
    let state = json!({ "running": { "startedAt": "2026-11-30T10:00:05Z" } });
    json!({ "phase": "Running", "containerStatuses": [{ "name": "cf-job-1", "state": state }] })
}

fn exited(phase: &str, code: i32, reason: &str) -> Value {
    let state = json!({ "terminated": { "exitCode": code, "reason": reason,
        "startedAt": "2026-11-30T10:00:05Z", "finishedAt": "2026-11-30T10:30:05Z" } });
    json!({ "phase": phase, "containerStatuses": [{ "name": "cf-job-1", "state": state }] })
}

fn waits(reason: &str, message: &str) -> Value {
    let state = json!({ "waiting": { "reason": reason, "message": message } });
    json!({ "phase": "Pending", "containerStatuses": [{ "name": "cf-job-1", "state": state }] })
}

/// What a pod looks like that is deleted before it ran, or while it ran.
fn killed() -> Value {
    let mut status = exited("Failed", 137, "Error");
    status["deleting"] = true.into();
    status
}

fn with(mut status: Value, more: Value) -> Value {
    if let (Some(status), Some(more)) = (status.as_object_mut(), more.as_object()) {
        status.extend(more.clone());
    }
    status
}

fn disrupted(reason: &str) -> Value {
    json!({ "conditions": [{ "type": "DisruptionTarget", "status": "True", "reason": reason,
        "message": "the node goes" }] })
}

#[track_caller]
fn check(job: &JobStory, statuses: &[Value], expect: (EndKind, Option<i32>), detail: &str) {
    let pods: Vec<PodHistory> = (!statuses.is_empty()).then(|| pod(statuses)).into_iter().collect();
    let verdict = of_job(job, &pods, Besides::default());
    assert_eq!((verdict.kind, verdict.exit_code), expect, "{verdict:?}");
    assert!(verdict.detail.contains(detail), "{verdict:?} lacks {detail}");
}

#[test]
fn work_that_ran_to_its_end() {
    check(
        &completed(),
        &[running(), exited("Succeeded", 0, "Completed")],
        (EndKind::Succeeded, Some(0)),
        "",
    );
    check(&completed(), &[], (EndKind::Succeeded, None), "");
    check(
        &backoff(),
        &[running(), exited("Failed", 3, "Error")],
        (EndKind::TaskFailure, Some(3)),
        "exit code 3",
    );
    check(
        &backoff(),
        &[exited("Failed", 139, "Error")],
        (EndKind::TaskFailure, Some(139)),
        "signal 11",
    );
    check(
        &backoff(),
        &[exited("Failed", 137, "OOMKilled")],
        (EndKind::OutOfMemory, Some(137)),
        "memory",
    );
    let policy = failed(
        "PodFailurePolicy",
        "Container c for pod ns/p failed with exit code 3 matching FailJob rule at index 0",
    );
    check(&policy, &[], (EndKind::TaskFailure, Some(3)), "PodFailurePolicy");
    check(&backoff(), &[], (EndKind::Unknown, None), "its pod was gone");
}

#[test]
fn a_memory_kill_that_the_shell_survives_completes_the_job_and_is_out_of_memory() {
    check(
        &completed(),
        &[exited("Succeeded", 0, "OOMKilled")],
        (EndKind::OutOfMemory, Some(0)),
        "shell",
    );
}

#[test]
fn a_deadline_that_passes_while_it_runs() {
    check(&deadline(), &[running(), killed()], (EndKind::Deadline, None), "longer than specified");
    check(&deadline(), &[running()], (EndKind::Deadline, None), "");
}

#[test]
fn a_deadline_that_passes_before_anything_ran_says_why() {
    let no_node = json!({ "phase": "Pending", "conditions": [{ "type": "PodScheduled",
        "status": "False", "reason": "Unschedulable",
        "message": "0/5 nodes are available: 5 Insufficient memory." }] });
    check(
        &deadline(),
        &[no_node.clone(), killed()],
        (EndKind::NeverStarted, None),
        "5 Insufficient memory",
    );
    check(&deadline(), &[no_node], (EndKind::NeverStarted, None), "unschedulable: 0/5");
    let creating = waits("ContainerCreating", "");
    check(&deadline(), &[creating, killed()], (EndKind::NeverStarted, None), "did not start");
    check(&deadline(), &[], (EndKind::NeverStarted, None), "no pod of it was seen");
    for reason in ["ErrImagePull", "ImagePullBackOff", "InvalidImageName"] {
        let waiting = waits(reason, "Back-off pulling image \"registry.test/x:1\"");
        check(&deadline(), &[waiting, killed()], (EndKind::ImagePull, None), "registry.test/x:1");
    }
    let configuration = waits("CreateContainerConfigError", "secret \"s\" not found");
    check(&deadline(), &[configuration], (EndKind::BadConfiguration, None), "secret");
}

#[test]
fn a_job_whose_pods_cant_be_made_is_badly_configured() {
    let quota = "pods \"x\" is forbidden: exceeded quota: q, requested: pods=1, limited: pods=0";
    let besides = Besides { uncreated: Some(quota), hook: None };
    let verdict = of_job(&deadline(), &[], besides);
    assert_eq!(verdict.kind, EndKind::BadConfiguration);
    assert!(verdict.detail.contains("exceeded quota"), "{verdict:?}");
}

#[test]
fn an_eviction_names_its_resource() {
    for (message, resource) in [
        (
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi.",
            Some(Resource::Memory),
        ),
        ("The node was low on resource: ephemeral-storage. ", Some(Resource::EphemeralStorage)),
        ("The node was low on resource: inodes. ", Some(Resource::Inodes)),
        ("The node was low on resource: pids. ", Some(Resource::Pids)),
        ("Usage of EmptyDir volume \"shm\" exceeds the limit \"1900Mi\". ", Some(Resource::Volume)),
        (
            "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ",
            Some(Resource::EphemeralStorage),
        ),
        ("The node had condition: [MemoryPressure]. ", None),
    ] {
        let status = with(
            exited("Failed", 137, "Error"),
            json!({ "reason": "Evicted", "message": message }),
        );
        let status = with(status, disrupted("TerminationByKubelet"));
        let verdict = of_job(&backoff(), &[pod(&[running(), status])], Besides::default());
        assert_eq!((verdict.kind, verdict.resource), (EndKind::Evicted, resource), "{verdict:?}");
        assert!(verdict.detail.contains(message.trim_end()), "{verdict:?}");
    }
}

#[test]
fn a_node_that_goes_is_no_failure_of_the_task() {
    let terminated = with(
        exited("Failed", 137, "Error"),
        json!({ "reason": "Terminated",
        "message": "Pod was terminated in response to imminent node shutdown." }),
    );
    check(
        &backoff(),
        &[running(), terminated],
        (EndKind::Preempted, None),
        "imminent node shutdown",
    );
    for (reason, kind) in [
        ("PreemptionByScheduler", EndKind::Preempted),
        ("EvictionByEvictionAPI", EndKind::Preempted),
        ("DeletionByTaintManager", EndKind::NodeLost),
        ("DeletionByPodGC", EndKind::NodeLost),
    ] {
        let ends = with(killed(), disrupted(reason));
        check(&backoff(), &[running(), ends.clone()], (kind, None), reason);
        // A node that is not heard of keeps its pods until the Job's deadline.
        check(&deadline(), &[running(), with(running(), disrupted(reason))], (kind, None), reason);
    }
    let lost = json!({ "phase": "Failed", "reason": "NodeLost" });
    check(&backoff(), &[running(), lost], (EndKind::NodeLost, None), "NodeLost");
    let full = json!({ "phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu" });
    check(&backoff(), &[full], (EndKind::NeverStarted, None), "OutOfcpu");
}

#[test]
fn an_end_before_the_disruption_is_its_own() {
    let ended = exited("Failed", 3, "Error");
    let later = with(ended.clone(), disrupted("DeletionByPodGC"));
    check(&backoff(), &[running(), ended, later], (EndKind::TaskFailure, Some(3)), "exit code 3");
}

#[test]
fn a_hook_that_fails_is_a_hook_failure() {
    let message = "Exec lifecycle hook ([mkdir]) for Container \"cf-job-1\" failed - exited with 1";
    let waiting = waits("PostStartHookError", message);
    check(
        &backoff(),
        &[running(), waiting, exited("Failed", 137, "Error")],
        (EndKind::HookFailure, Some(137)),
        "lifecycle hook",
    );
    let besides = Besides { uncreated: None, hook: Some("FailedPostStartHook: exited with 1") };
    let verdict = of_job(&backoff(), &[pod(&[exited("Failed", 137, "Error")])], besides);
    assert_eq!((verdict.kind, verdict.exit_code), (EndKind::HookFailure, Some(137)));
}

#[test]
fn a_container_that_is_started_again_ended_as_it_did_first() {
    let mut again = exited("Running", 1, "Error");
    again["containerStatuses"][0]["restartCount"] = 1.into();
    let last = again["containerStatuses"][0]["state"].take();
    again["containerStatuses"][0]["lastState"] = last;
    again["containerStatuses"][0]["state"] = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
    check(
        &backoff(),
        &[running(), again, killed()],
        (EndKind::TaskFailure, Some(1)),
        "exit code 1",
    );
}

#[test]
fn a_job_that_went_is_deleted_or_unknown_unless_its_pod_had_ended() {
    let none = Besides::default();
    assert_eq!(of_deleted(&[pod(&[running(), killed()])], none).kind, EndKind::Deleted);
    assert_eq!(of_deleted(&[], none).kind, EndKind::Deleted);
    let done = [pod(&[running(), exited("Succeeded", 0, "Completed")])];
    assert_eq!(of_deleted(&done, none).kind, EndKind::Succeeded);
    assert_eq!(gone_unseen(&done).kind, EndKind::Succeeded);
    assert_eq!(gone_unseen(&[pod(&[running()])]).kind, EndKind::Unknown);
    assert_eq!(gone_unseen(&[]).kind, EndKind::Unknown);
}

#[test]
fn a_refused_token_is_told_by_the_log() {
    for (log, denied) in [
        (
            "ERROR: Permission 'iam.serviceAccounts.getAccessToken' denied on resource (or it may not exist).",
            true,
        ),
        ("google.auth: Unable to generate access token; IAM returned 403 Forbidden", true),
        ("INFO: getAccessToken took 3 ms", false),
        ("permission denied", false),
    ] {
        assert_eq!(is_identity_denied(&format!("start\n{log}\nend")), denied, "{log}");
    }
}

#[test]
fn a_condition_that_is_not_final_or_not_true_ends_nothing() {
    for conditions in [
        json!([{ "type": "FailureTarget", "status": "True", "reason": "BackoffLimitExceeded" }]),
        json!([{ "type": "SuccessCriteriaMet", "status": "True" }]),
        json!([{ "type": "Failed", "status": "False" }, { "type": "Suspended", "status": "True" }]),
        json!(null),
    ] {
        assert_eq!(job(conditions.clone()).end, None, "{conditions}");
    }
}
