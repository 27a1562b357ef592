//! A Job that was checked once for its workload, and is filled in for each task.
//!
//! Filling replaces sentinels by values: the Job's JSON was cut at the sentinels beforehand, so a
//! body is its pieces and the values between them, each as a JSON string. Nothing is parsed, and
//! there is nothing to inject into.

use std::fmt;
use std::sync::{Arc, OnceLock};

use k8s_openapi::api::batch::v1::Job;
use serde_json::Value;

use super::expansion;
use super::labels::{self, HASH_LABEL_LEN};
use super::variables::Sentinels;
use crate::domain::labels::TaskLabels;
use crate::domain::name::{Attempt, JobName};
use crate::domain::task::{Follow, Task};

/// A workload's Job, checked; cheap to clone.
#[derive(Clone)]
pub struct CheckedJob {
    inner: Arc<Inner>,
}

struct Inner {
    /// The Job with sentinels.
    value: Value,
    sentinels: Sentinels,
    pieces: Vec<Piece>,
    /// The same for a task that is followed: made when the first one is.
    followed: OnceLock<Vec<Piece>>,
    warnings: Vec<String>,
    spec_hash: String,
}

enum Piece {
    Text(String),
    /// The index of a sentinel in [`Sentinels::all`].
    Slot(usize),
}

impl CheckedJob {
    pub(super) fn new(
        value: Value,
        sentinels: Sentinels,
        warnings: Vec<String>,
        spec_hash: String,
    ) -> Self {
        let pieces = cut(&value.to_string(), &sentinels);
        let followed = OnceLock::new();
        Self { inner: Arc::new(Inner { value, sentinels, pieces, followed, warnings, spec_hash }) }
    }

    /// The Job of one attempt at `task`. Takes microseconds.
    pub fn fill(&self, task: &Task, attempt: Attempt) -> FilledJob {
        let name = JobName::of(&task.hash, attempt);
        let hash = task.hash.to_string();
        let label = hash.chars().take(HASH_LABEL_LEN).collect();
        // In the order of the sentinels. A URL only stands where Kubernetes expands `$` (`shape`).
        let values = [
            name.as_str().to_owned(),
            expansion::literal(task.input.reveal()).into_owned(),
            hash,
            label,
            attempt.to_string(),
            task.published_at.to_string(),
        ];
        let (labels, follow) = (task.labels.clone(), task.follow != Follow::No);
        FilledJob { name, values, labels, follow, checked: self.clone(), value: OnceLock::new() }
    }

    /// What the policy lets pass and a person should know.
    pub fn warnings(&self) -> &[String] {
        &self.inner.warnings
    }

    /// A digest of the Job before a task's values go in. It informs, nothing more.
    pub fn spec_hash(&self) -> &str {
        &self.inner.spec_hash
    }
}

/// Cuts a JSON text at the sentinels, their quotes included. Each is the whole of a string.
fn cut(json: &str, sentinels: &Sentinels) -> Vec<Piece> {
    let quoted = sentinels.all().map(|sentinel| format!("\"{sentinel}\""));
    let mut pieces = Vec::new();
    let mut rest = json;
    loop {
        let next = quoted
            .iter()
            .enumerate()
            .filter_map(|(slot, text)| Some((rest.find(text.as_str())?, slot, text.len())))
            .min();
        let Some((at, slot, len)) = next else { break };
        pieces.push(Piece::Text(rest[..at].to_owned()));
        pieces.push(Piece::Slot(slot));
        rest = &rest[at + len..];
    }
    pieces.push(Piece::Text(rest.to_owned()));
    pieces
}

/// The Job of one task and attempt, ready to be created.
#[derive(Clone)]
pub struct FilledJob {
    /// Its name.
    pub name: JobName,
    /// In the order of [`Sentinels::all`].
    values: [String; 6],
    /// What the task's sender labelled it with.
    labels: TaskLabels,
    /// Its message waits for its end.
    follow: bool,
    checked: CheckedJob,
    value: OnceLock<Value>,
}

/// The same Job, marked as one whose end its message waits for.
fn marked(value: &Value) -> Value {
    let mut value = value.clone();
    if let Some(Value::Object(annotations)) = value.pointer_mut("/metadata/annotations") {
        annotations.insert(labels::ACK.to_owned(), labels::ON_COMPLETED.into());
    }
    value
}

impl FilledJob {
    /// The Job as JSON. Holds the task's URL, a credential.
    pub fn value(&self) -> &Value {
        self.value.get_or_init(|| {
            let value = &self.checked.inner.value;
            let marked = self.follow.then(|| marked(value));
            let mut value = self.substitute(marked.as_ref().unwrap_or(value));
            self.label(&mut value);
            value
        })
    }

    /// Puts the sender's labels on Job and pod, in the place of none that is there.
    fn label(&self, job: &mut Value) {
        for labels in ["/metadata/labels", "/spec/template/metadata/labels"] {
            let Some(Value::Object(labels)) = job.pointer_mut(labels) else { continue };
            for (key, value) in self.labels.iter() {
                labels.entry(key).or_insert_with(|| Value::from(value));
            }
        }
    }

    fn substitute(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => {
                let sentinels = self.checked.inner.sentinels.all();
                let filled = sentinels.iter().zip(&self.values).find(|(s, _)| *s == text);
                Value::String(filled.map_or(text, |(_, value)| value).clone())
            }
            Value::Array(items) => items.iter().map(|item| self.substitute(item)).collect(),
            Value::Object(members) => {
                members.iter().map(|(key, member)| (key.clone(), self.substitute(member))).collect()
            }
            other => other.clone(),
        }
    }

    /// The body of the request that creates it: JSON. Holds the task's URL, a credential.
    pub fn to_body(&self) -> Vec<u8> {
        if !self.labels.is_empty() {
            return self.value().to_string().into_bytes();
        }
        let mut body =
            Vec::with_capacity(4096 + self.values.iter().map(String::len).sum::<usize>());
        let Inner { value, sentinels, pieces, followed, .. } = &*self.checked.inner;
        let pieces = match self.follow {
            true => followed.get_or_init(|| cut(&marked(value).to_string(), sentinels)),
            false => pieces,
        };
        for piece in pieces {
            match piece {
                Piece::Text(text) => body.extend_from_slice(text.as_bytes()),
                Piece::Slot(slot) => {
                    let value = self.values.get(*slot).map_or("", String::as_str);
                    body.extend_from_slice(Value::from(value).to_string().as_bytes());
                }
            }
        }
        body
    }

    /// The typed Job.
    ///
    /// # Errors
    /// None is expected: the same Job was read so when it was checked.
    pub fn typed(&self) -> Result<Job, serde_json::Error> {
        serde_json::from_value(self.value().clone())
    }
}

impl fmt::Debug for FilledJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilledJob").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for CheckedJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckedJob").field("spec", &self.spec_hash()).finish_non_exhaustive()
    }
}
