//! The Job of a task's next attempt, made from the one before it as the API server has it.
//!
//! Its spec is what was asked for then, whatever catalog, template and configuration have become:
//! a retry repeats the work, not the resolving. What the server wrote into it is taken out, and name
//! and attempt are the next ones. A template that hands the attempt's number to the worker hands it
//! the first one's again: which values were that number can't be told from a Job.

use serde_json::{Map, Value};

use super::labels;
use super::shape::INPUT_VARIABLE;
use crate::domain::input_url::InputUrl;
use crate::domain::name::{Attempt, JobName, TaskHash};

/// The labels by which the Job controller finds a Job's pods (Kubernetes, "Jobs": it sets them
/// itself, and refuses a Job that brings them).
const CONTROLLERS: [&str; 4] = [
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
];

/// A Job to be created.
pub struct NextAttempt {
    /// Its name.
    pub name: JobName,
    /// The body of the request: JSON. Holds the task's URL, a credential.
    pub body: Vec<u8>,
    /// The task's input, as the process is told it.
    pub input: Option<InputUrl>,
}

/// The object is no Job that can be made again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the Job can't be made again: it has no {0}")]
pub struct NotAgain(&'static str);

/// The Job of `attempt` at the task of `hash`, like `job`.
///
/// # Errors
/// [`NotAgain`] names what it lacks.
pub fn next_attempt(
    job: &Value,
    hash: &TaskHash,
    attempt: Attempt,
) -> Result<NextAttempt, NotAgain> {
    let name = JobName::of(hash, attempt);
    let before = job.pointer("/metadata/name").and_then(Value::as_str);
    let before = before.ok_or(NotAgain("name"))?.to_owned();
    let mut spec = job.get("spec").filter(|spec| spec.is_object()).cloned();
    let mut spec = spec.take().ok_or(NotAgain("spec"))?;
    let template = spec.pointer_mut("/template/metadata").and_then(Value::as_object_mut);
    cleaned(template.ok_or(NotAgain("pod template with labels"))?, attempt);
    if let Some(spec) = spec.as_object_mut() {
        // The server's own choice, by the first Job's uid.
        spec.remove("selector");
    }
    let mut metadata = Map::new();
    for part in ["namespace", "labels", "annotations"] {
        if let Some(found) = job.pointer(&format!("/metadata/{part}")) {
            metadata.insert(part.to_owned(), found.clone());
        }
    }
    cleaned(&mut metadata, attempt);
    metadata.insert("name".to_owned(), Value::from(before.as_str()));
    let mut next = Map::new();
    next.insert("apiVersion".to_owned(), "batch/v1".into());
    next.insert("kind".to_owned(), "Job".into());
    next.insert("metadata".to_owned(), metadata.into());
    next.insert("spec".to_owned(), spec);
    let mut next = Value::from(next);
    rename(&mut next, &before, name.as_str());
    let input = input_of(&next);
    Ok(NextAttempt { name, body: next.to_string().into_bytes(), input })
}

/// Takes out what the server wrote into labels and annotations, and sets the attempt.
fn cleaned(metadata: &mut Map<String, Value>, attempt: Attempt) {
    metadata.remove("creationTimestamp");
    if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
        labels.retain(|name, _| !CONTROLLERS.contains(&name.as_str()));
        labels.insert(labels::ATTEMPT.to_owned(), attempt.to_string().into());
    }
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.retain(|name, _| !name.starts_with("batch.kubernetes.io/"));
    }
}

/// A name stands as the whole of a value, wherever the template put it.
fn rename(value: &mut Value, before: &str, name: &str) {
    match value {
        Value::String(text) if text == before => name.clone_into(text),
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, before, name)),
        Value::Object(members) => {
            members.values_mut().for_each(|member| rename(member, before, name));
        }
        _ => {}
    }
}

fn input_of(job: &Value) -> Option<InputUrl> {
    let containers = job.pointer("/spec/template/spec/containers")?.as_array()?;
    let variables = containers.iter().filter_map(|container| container.get("env")?.as_array());
    let is_input = |variable: &&Value| variable["name"] == INPUT_VARIABLE;
    let value = variables.flatten().find(is_input)?.get("value")?.as_str()?;
    // Doubled when it was filled in, so that it comes out of Kubernetes' expansion as it is.
    InputUrl::parse(&value.replace("$$", "$")).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::sample::full;
    use super::super::tests::filled;
    use super::*;
    use crate::domain::name::Subject;
    use crate::domain::workload::Isolation;

    const URL: &str = "https://storage.googleapis.com/b/o?a=$(HOST_UID)&X-Goog-Signature=5ec2e7";

    /// What an API server makes of a Job.
    fn stored(mut job: Value) -> Value {
        job["metadata"]["uid"] = "u".into();
        job["metadata"]["resourceVersion"] = "7".into();
        job["metadata"]["creationTimestamp"] = "2026-11-30T10:00:00Z".into();
        job["metadata"]["managedFields"] = json!([{"manager": "katabatch"}]);
        job["metadata"]["annotations"]["batch.kubernetes.io/job-tracking"] = "".into();
        job["spec"]["selector"] = json!({"matchLabels": {CONTROLLERS[2]: "u"}});
        job["spec"]["template"]["metadata"]["creationTimestamp"] = Value::Null;
        let name = job["metadata"]["name"].clone();
        for label in CONTROLLERS {
            job["spec"]["template"]["metadata"]["labels"][label] =
                if label.ends_with("uid") { "u".into() } else { name.clone() };
        }
        job["status"] = json!({"failed": 1});
        job
    }

    #[test]
    fn the_next_attempt_is_the_same_job_but_for_name_and_number() {
        let workload = full("minimize", Isolation::Kata).expect("a workload");
        let first = filled(&workload, URL);
        let annotation = first["metadata"]["annotations"][labels::TASK].as_str();
        let hash = TaskHash::parse(annotation.expect("a hash")).expect("a hash");
        let two = Attempt::new(2).expect("above zero");
        let next = next_attempt(&stored(first.clone()), &hash, two).expect("a Job");
        let made: Value = serde_json::from_slice(&next.body).expect("JSON");
        let mut expected = first.clone();
        for part in ["", "/spec/template"] {
            let labels = expected.pointer_mut(&format!("{part}/metadata/labels")).expect("labels");
            labels[labels::ATTEMPT] = "2".into();
        }
        let before = first["metadata"]["name"].as_str().expect("a name").to_owned();
        rename(&mut expected, &before, next.name.as_str());
        assert_eq!(made, expected);
        assert!(!made.to_string().contains(&before));
        assert_ne!(next.name.as_str(), before);
        assert_eq!(next.input.expect("a URL").reveal(), URL);
    }

    #[test]
    fn what_is_no_job_is_not_made_again() {
        let hash = TaskHash::of(&"fuzz".into(), &"j".into(), &Subject::Message("1".into()));
        let two = Attempt::new(2).expect("above zero");
        for (job, lacks) in [
            (json!({}), "name"),
            (json!({"metadata": {"name": "n"}}), "spec"),
            (json!({"metadata": {"name": "n"}, "spec": {}}), "pod template with labels"),
        ] {
            let fault = next_attempt(&job, &hash, two).err();
            assert_eq!(fault, Some(NotAgain(lacks)));
        }
    }
}
