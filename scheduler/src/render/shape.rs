//! What every Job must have for the scheduler to keep its contract: the task's values where they
//! are looked for, our labels on Job and pod, and exactly one pod for one task.
//!
//! Judged with the sentinels still in place. What is isolation is `policy`'s.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Container;
use serde_json::Value;

use super::Target;
use super::expansion::{expands, shown};
use super::labels::{self, KATA_APP};
use super::variables::Sentinels;
use crate::domain::name::{is_label_value, label_value};
use crate::domain::workload::{Isolation, Workload};

/// The variable that a worker reads its input's URL from.
pub(super) const INPUT_VARIABLE: &str = "UWORKER_INPUT_DOWNLOAD_URL";

/// The first thing that is wrong: the field to look for in the template, and the problem.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ShapeFault {
    pub field: String,
    pub problem: String,
}

fn fault(field: &str, problem: impl Into<String>) -> Result<(), ShapeFault> {
    Err(ShapeFault { field: field.to_owned(), problem: problem.into() })
}

/// Judges a parsed Job.
pub(super) fn check(
    job: &Job,
    value: &Value,
    workload: &Workload,
    target: &Target,
    sentinels: &Sentinels,
) -> Result<(), ShapeFault> {
    check_names(job, target, sentinels)?;
    let mut seen = Seen::default();
    walk(value, &mut Vec::new(), sentinels, &mut seen)?;
    check_input(job, &seen)?;
    check_metadata(job, workload, target, sentinels)?;
    check_one_pod(job)
}

fn check_names(job: &Job, target: &Target, sentinels: &Sentinels) -> Result<(), ShapeFault> {
    if job.metadata.name.as_ref() != Some(&sentinels.name) {
        return fault("name", "metadata.name must be `{{ task.name }}`");
    }
    if job.metadata.generate_name.is_some() {
        return fault("generateName", "metadata.generateName must go: a Job's name says its task");
    }
    if job.metadata.namespace.as_ref() != Some(&target.namespace) {
        return fault("namespace", "metadata.namespace must be `{{ namespace }}`");
    }
    let named = |c: &&Container| c.name == sentinels.name;
    let containers = pod(job).map(|pod| pod.containers.as_slice()).unwrap_or_default();
    if containers.iter().filter(named).count() != 1 {
        return fault(
            "containers",
            "exactly one container must be named `{{ task.name }}`, as its Job is",
        );
    }
    Ok(())
}

fn pod(job: &Job) -> Option<&k8s_openapi::api::core::v1::PodSpec> {
    job.spec.as_ref()?.template.spec.as_ref()
}

#[derive(Default)]
struct Seen {
    url: bool,
}

/// Finds every sentinel; each must be a whole string, and the URL where only the worker sees it.
fn walk(
    value: &Value,
    path: &mut Vec<String>,
    sentinels: &Sentinels,
    seen: &mut Seen,
) -> Result<(), ShapeFault> {
    match value {
        Value::String(text) => {
            let Some(sentinel) = sentinels.all().into_iter().find(|s| text.contains(s)) else {
                return Ok(());
            };
            let place = shown(path);
            if text != sentinel {
                return fault(
                    path.last().map_or("", String::as_str),
                    format!("a value of the task is not the whole of {place}; insert it alone"),
                );
            }
            if sentinel == sentinels.url {
                if !expands(path) {
                    return fault(
                        path.last().map_or("", String::as_str),
                        format!(
                            "`{{{{ task.url }}}}` is a credential, and may stand in a container's \
                             env, args or command alone, not in {place}"
                        ),
                    );
                }
                seen.url = true;
            }
            Ok(())
        }
        Value::Array(items) => items.iter().enumerate().try_for_each(|(index, item)| {
            path.push(format!("[{index}]"));
            walk(item, path, sentinels, seen)?;
            path.pop();
            Ok(())
        }),
        Value::Object(members) => members.iter().try_for_each(|(key, member)| {
            path.push(key.clone());
            if sentinels.all().iter().any(|sentinel| key.contains(sentinel)) {
                return fault("", format!("a value of the task is a key, in {}", shown(path)));
            }
            walk(member, path, sentinels, seen)?;
            path.pop();
            Ok(())
        }),
        _ => Ok(()),
    }
}

fn check_input(job: &Job, seen: &Seen) -> Result<(), ShapeFault> {
    if !seen.url {
        return fault(
            INPUT_VARIABLE,
            format!(
                "the worker gets no input: set the variable {INPUT_VARIABLE} to `{{{{ task.url }}}}`"
            ),
        );
    }
    let Some(pod) = pod(job) else { return Ok(()) };
    for container in &pod.containers {
        let set = container.env.iter().flatten().filter(|v| v.name == INPUT_VARIABLE).count();
        if set > 1 {
            return fault(
                INPUT_VARIABLE,
                format!("{INPUT_VARIABLE} is set {set} times; only the template may set it, once"),
            );
        }
    }
    Ok(())
}

fn check_metadata(
    job: &Job,
    workload: &Workload,
    target: &Target,
    sentinels: &Sentinels,
) -> Result<(), ShapeFault> {
    let annotation = job.metadata.annotations.as_ref().and_then(|all| all.get(labels::TASK));
    if annotation != Some(&sentinels.hash) {
        return fault(
            labels::TASK,
            format!("metadata.annotations must set {}: {{{{ task.hash }}}}", labels::TASK),
        );
    }
    let command = label_value(workload.key.command.as_str());
    let job_type = label_value(workload.key.job_type.as_str());
    let mut expected = vec![
        (labels::COMMAND, command.as_str(), "{{ command_label }}"),
        (labels::JOB_TYPE, job_type.as_str(), "{{ job_type_label }}"),
        (labels::MANAGED_BY, labels::MANAGER, labels::MANAGER),
        (labels::SCHEDULER, target.scheduler.as_str(), "{{ scheduler }}"),
        (labels::TASK, sentinels.hash_label.as_str(), "{{ task.hash_label }}"),
        (labels::ATTEMPT, sentinels.attempt.as_str(), "{{ task.attempt }}"),
    ];
    if workload.isolation == Isolation::Kata {
        expected.push((labels::APP, KATA_APP, KATA_APP));
    }
    let pod = job.spec.as_ref().and_then(|spec| spec.template.metadata.as_ref());
    let of_pod = pod.and_then(|metadata| metadata.labels.as_ref());
    for (what, found) in [("Job", job.metadata.labels.as_ref()), ("pod template", of_pod)] {
        for (label, value, written) in &expected {
            if found.and_then(|labels| labels.get(*label)).map(String::as_str) != Some(value) {
                return fault(label, format!("the {what}'s labels must set {label}: {written}"));
            }
        }
        check_labels(found)?;
    }
    Ok(())
}

fn check_labels(labels: Option<&BTreeMap<String, String>>) -> Result<(), ShapeFault> {
    for (name, value) in labels.into_iter().flatten() {
        let (prefix, bare) = name.rsplit_once('/').unwrap_or(("", name));
        let valid_name = !bare.is_empty()
            && is_label_value(bare)
            && prefix.is_empty() != name.contains('/')
            && (prefix.is_empty() || crate::domain::name::is_dns_subdomain(prefix));
        if !valid_name {
            return fault(name, format!("`{name}` is no label name that Kubernetes takes"));
        }
        if !is_label_value(value) {
            return fault(
                name,
                format!(
                    "`{value}` is no value for the label {name}: Kubernetes takes at most 63 \
                     letters, digits, `-`, `_` and `.`, with a letter or digit at both ends"
                ),
            );
        }
    }
    Ok(())
}

/// One task is one pod at a time, for a bounded time.
fn check_one_pod(job: &Job) -> Result<(), ShapeFault> {
    let Some(spec) = &job.spec else { return fault("spec", "`spec` is missing") };
    for (field, count) in [("parallelism", spec.parallelism), ("completions", spec.completions)] {
        if count.is_some_and(|count| count != 1) {
            return fault(field, format!("{field} must be 1 or absent: a Job is one task"));
        }
    }
    for (field, set) in [
        ("completionMode", spec.completion_mode.as_deref().is_some_and(|m| m != "NonIndexed")),
        ("backoffLimitPerIndex", spec.backoff_limit_per_index.is_some()),
        ("managedBy", spec.managed_by.is_some()),
        ("selector", spec.selector.is_some()),
        ("manualSelector", spec.manual_selector.is_some()),
        ("suspend", spec.suspend == Some(true)),
    ] {
        if set {
            return fault(field, format!("spec.{field} must go: a Job is one task, run at once"));
        }
    }
    if spec.active_deadline_seconds.is_none_or(|seconds| seconds < 1) {
        return fault(
            "activeDeadlineSeconds",
            "spec.activeDeadlineSeconds must be above zero: `{{ deadline_seconds }}`",
        );
    }
    let restart = pod(job).and_then(|pod| pod.restart_policy.as_deref());
    if !matches!(restart, Some("Never" | "OnFailure")) {
        return fault("restartPolicy", "restartPolicy must be Never or OnFailure, as Jobs need");
    }
    Ok(())
}
