//! How a Job ended: one verdict from its conditions, by type and status, and from what was seen of
//! its pods. Pure.
//!
//! The reasons are Kubernetes' own words: the Job controller's ("Jobs", "Job termination and
//! cleanup"), the pod's ("Pod Lifecycle"; "Disruptions", "Pod disruption conditions"), and the
//! kubelet's ("Node-pressure Eviction", "Images"). Who gathers the facts is elsewhere.

use super::blame;
use super::facts::{Ended, JobStory, Phase, Said};
use super::pod_history::PodHistory;
use crate::domain::end::{EndKind, Resource, Verdict};

/// Waiting reasons of a container whose image can't be had.
const IMAGE: &[&str] = &[
    "ErrImagePull",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
    "ImageInspectError",
    "RegistryUnavailable",
    "SignatureValidationFailed",
];
/// Waiting reasons of a container that can't be made as it is asked for.
const CONFIGURATION: &[&str] = &[
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "StartError",
    "ContainerCannotRun",
];

/// Why a pod does not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stuck {
    /// The kind of end that this leads to.
    pub kind: EndKind,
    /// What was said of it.
    pub detail: String,
    /// It would not start in an empty cluster either.
    pub own: bool,
}

/// Why this pod does not start, as far as it says.
pub fn stuck(pod: &PodHistory) -> Option<Stuck> {
    if pod.ran {
        return None;
    }
    if let Some(waiting) = &pod.waiting {
        let kind = waits_for(waiting)?;
        return Some(Stuck { kind, detail: text_of(waiting), own: true });
    }
    let why = pod.unscheduled.as_ref().filter(|why| !why.is_empty())?;
    let own = blame::unscheduled_by_itself(why.as_str());
    let detail = format!("unschedulable: {}", why.as_str());
    Some(Stuck { kind: EndKind::NeverStarted, detail, own })
}

fn waits_for(waiting: &Said) -> Option<EndKind> {
    match waiting.reason.as_str() {
        reason if IMAGE.contains(&reason) => Some(EndKind::ImagePull),
        reason if CONFIGURATION.contains(&reason) => Some(EndKind::BadConfiguration),
        _ => None,
    }
}

/// What else is known of a Job.
#[derive(Debug, Clone, Copy, Default)]
pub struct Besides<'a> {
    /// Why the Job controller could make no pod (events `FailedCreate`).
    pub uncreated: Option<&'a str>,
    /// A hook's failure (events `FailedPostStartHook`, `FailedPreStopHook`).
    pub hook: Option<&'a str>,
}

/// The verdict on a Job with a final condition.
pub fn of_job(job: &JobStory, pods: &[PodHistory], besides: Besides<'_>) -> Verdict {
    let pod = pods.last();
    let Some(end) = &job.end else { return gone_unseen(pods) };
    if end.complete {
        return complete(pod);
    }
    if let Some(verdict) = pod.and_then(put_out) {
        return verdict;
    }
    match (end.said.reason.as_str(), pod) {
        ("DeadlineExceeded", Some(pod)) if pod.ran => {
            Verdict::new(EndKind::Deadline, None, text_of(&end.said))
        }
        ("DeadlineExceeded", pod) => never_started(pod, besides),
        (_, Some(pod)) => of_pod(pod, besides, &end.said),
        (_, None) => unseen(&end.said),
    }
}

/// The verdict on a Job that was deleted without a final condition.
pub fn of_deleted(pods: &[PodHistory], besides: Besides<'_>) -> Verdict {
    match pods.last().filter(|pod| pod.ended_by_itself()) {
        Some(pod) => of_ended_pod(pod, besides),
        None => Verdict::new(EndKind::Deleted, None, "somebody deleted the Job before its end"),
    }
}

/// The verdict on a Job that was there once and is not any more, nobody having looked.
pub fn gone_unseen(pods: &[PodHistory]) -> Verdict {
    match pods.last().filter(|pod| pod.ended_by_itself()) {
        Some(pod) => of_ended_pod(pod, Besides::default()),
        None => Verdict::new(EndKind::Unknown, None, "the Job went while nobody was looking"),
    }
}

/// Whether a log shows that the account was refused its token, by Google's IAM or by GKE's
/// metadata server.
pub fn is_identity_denied(log: &str) -> bool {
    let mut lines = log.lines().rev().take(200);
    lines.any(|line| {
        (line.contains("getAccessToken") && line.to_lowercase().contains("denied"))
            || line.contains("Unable to generate access token")
    })
}

fn complete(pod: Option<&PodHistory>) -> Verdict {
    let end = pod.and_then(|pod| pod.end.as_ref());
    match end {
        // The kernel killed a process of it, and its shell went on to the end.
        Some(end) if end.reason.as_str() == "OOMKilled" => {
            let detail = "a process was killed for want of memory, and its shell went on";
            Verdict::new(EndKind::OutOfMemory, Some(end.exit_code), detail)
        }
        end => Verdict::new(EndKind::Succeeded, end.map(|end| end.exit_code), ""),
    }
}

/// A pod that its node, the scheduler or a controller put out.
fn put_out(pod: &PodHistory) -> Option<Verdict> {
    let reason = pod.said.as_ref().map_or("", |said| said.reason.as_str());
    let said = pod.said.as_deref().map(text_of);
    let verdict = |kind| {
        let of_disruption = pod.disruption.as_deref().map(text_of);
        let detail = said.clone().or(of_disruption).unwrap_or_default();
        Verdict::new(kind, None, detail)
    };
    match reason {
        "Evicted" => {
            let message = pod.said.as_ref().map_or("", |said| said.message.as_str());
            return Some(verdict(EndKind::Evicted).of(used_up(message)));
        }
        "NodeLost" => return Some(verdict(EndKind::NodeLost)),
        // A node that shuts down, gracefully; the first two are of older kubelets.
        "Terminated" | "Shutdown" | "NodeShutdown" | "Preempting" => {
            return Some(verdict(EndKind::Preempted));
        }
        // The kubelet would not have it.
        "NodeAffinity" | "UnexpectedAdmissionError" | "Preempted" => {
            return Some(verdict(EndKind::NeverStarted));
        }
        _ if reason.starts_with("OutOf") || reason.starts_with("Outof") => {
            return Some(verdict(EndKind::NeverStarted));
        }
        _ => {}
    }
    let why = pod.disruption.as_ref()?;
    // A pod that is put out after its own end ended by itself.
    if pod.ended_by_itself() && !matches!(why.reason.as_str(), "TerminationByKubelet") {
        return None;
    }
    Some(verdict(match why.reason.as_str() {
        "DeletionByTaintManager" | "DeletionByPodGC" => EndKind::NodeLost,
        _ => EndKind::Preempted,
    }))
}

/// What an eviction's message names.
fn used_up(message: &str) -> Option<Resource> {
    let has = |words: &str| message.contains(words);
    match () {
        () if has("EmptyDir volume") || has("olume \"") => Some(Resource::Volume),
        () if has("ephemeral") => Some(Resource::EphemeralStorage),
        () if has("inodes") => Some(Resource::Inodes),
        () if has("resource: memory") => Some(Resource::Memory),
        () if has("resource: pids") => Some(Resource::Pids),
        () => None,
    }
}

/// The deadline passed and nothing had run.
fn never_started(pod: Option<&PodHistory>, besides: Besides<'_>) -> Verdict {
    if let Some(Stuck { kind, detail, .. }) = pod.and_then(stuck) {
        return Verdict::new(kind, None, format!("until its deadline: {detail}"));
    }
    match (pod, besides.uncreated) {
        (None, Some(why)) => Verdict::new(
            EndKind::BadConfiguration,
            None,
            format!("until its deadline no pod of it could be made: {why}"),
        ),
        (None, None) => {
            Verdict::new(EndKind::NeverStarted, None, "until its deadline no pod of it was seen")
        }
        (Some(pod), _) => {
            let why = pod.waiting.as_deref().map_or_else(String::new, text_of);
            let detail = format!("until its deadline its pod did not start. {why}");
            Verdict::new(EndKind::NeverStarted, None, detail.trim_end())
        }
    }
}

/// A Job that failed by its pod.
fn of_pod(pod: &PodHistory, besides: Besides<'_>, said: &Said) -> Verdict {
    match (&pod.end, stuck(pod)) {
        (None, Some(Stuck { kind, detail, .. })) => Verdict::new(kind, None, detail),
        (None, None) => unseen(said),
        (Some(_), _) => of_ended_pod(pod, besides),
    }
}

fn of_ended_pod(pod: &PodHistory, besides: Besides<'_>) -> Verdict {
    if let Some(verdict) = put_out(pod) {
        return verdict;
    }
    let Some(end) = &pod.end else { return unseen(&Said::default()) };
    if pod.phase == Phase::Succeeded {
        return complete(Some(pod));
    }
    let code = Some(end.exit_code);
    if let Some(why) = besides.hook.map(str::to_owned).or(pod.hook.as_deref().map(text_of)) {
        return Verdict::new(EndKind::HookFailure, code, why);
    }
    match end.reason.as_str() {
        "OOMKilled" => Verdict::new(EndKind::OutOfMemory, code, "killed for want of memory"),
        reason if CONFIGURATION.contains(&reason) => {
            Verdict::new(EndKind::BadConfiguration, code, text_of(&said_of(end)))
        }
        "DeadlineExceeded" => Verdict::new(EndKind::Deadline, code, ""),
        // The kubelet has lost sight of it, over a restart of its node or its own.
        "ContainerStatusUnknown" => Verdict::new(EndKind::NodeLost, code, text_of(&said_of(end))),
        _ => Verdict::new(EndKind::TaskFailure, code, exit_text(end)),
    }
}

fn said_of(end: &Ended) -> Said {
    Said { reason: end.reason.clone(), message: end.message.clone() }
}

fn exit_text(end: &Ended) -> String {
    let code = end.exit_code;
    let by = match code {
        129..=192 => format!("exit code {code}, signal {}", code - 128),
        _ => format!("exit code {code}"),
    };
    if end.message.is_empty() { by } else { format!("{by}: {}", end.message.as_str()) }
}

/// A Job that failed, and nothing is known of its pod.
fn unseen(said: &Said) -> Verdict {
    let message = said.message.as_str();
    // A pod failure policy names the code: "… failed with exit code 3 matching FailJob rule …".
    let code = message.split("failed with exit code ").nth(1);
    let code = code.and_then(|rest| rest.split(' ').next()).and_then(|code| code.parse().ok());
    match code {
        Some(_) => Verdict::new(EndKind::TaskFailure, code, text_of(said)),
        None => {
            let said = text_of(said);
            let detail = format!("the Job failed, and its pod was gone before it was seen. {said}");
            Verdict::new(EndKind::Unknown, None, detail.trim_end())
        }
    }
}

/// `reason: message`.
pub fn text_of(said: &Said) -> String {
    match (said.reason.as_str(), said.message.as_str()) {
        (reason, "") => reason.to_owned(),
        ("", message) => message.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    }
}

#[cfg(test)]
mod tests;
