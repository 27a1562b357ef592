//! Workload → Tera template → typed Job → isolation policy, once a workload; then a task's values
//! are set in the checked Job, once a task.
//!
//! The steps, a file each: `source` (what a template may not say), `variables`, `escape`
//! (each value one whole scalar), `parse` (strictly to the typed Job), `shape` (what the
//! scheduler's contract needs), `policy` (isolation), `checked` (filling). Pure: no client, no
//! clock; the only file access is reading templates.

mod checked;
mod env;
mod error;
mod escape;
mod expansion;
mod fields;
pub mod labels;
mod next_attempt;
mod parse;
pub mod policy;
mod sample;
mod shape;
mod source;
#[cfg(test)]
mod tests;
mod variables;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub use checked::{CheckedJob, FilledJob};
pub use error::RenderError;
pub use next_attempt::{NextAttempt, NotAgain, next_attempt};
pub use parse::parse_strict;
pub use policy::Policy;

use crate::domain::workload::{Isolation, Workload};
use parse::Rendered;
use variables::{Sentinels, Variables};

const EMBEDDED: [(&str, &str); 2] = [
    (KATA, include_str!("../../templates/kata.yaml.tera")),
    (STANDARD, include_str!("../../templates/standard.yaml.tera")),
];
const KATA: &str = "kata.yaml.tera";
const STANDARD: &str = "standard.yaml.tera";

/// Where Jobs are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The namespace.
    pub namespace: String,
    /// The scheduler's id, a valid label value.
    pub scheduler: String,
}

/// Both templates, loaded, and tried with sample workloads.
#[derive(Clone)]
pub struct Templates {
    tera: tera::Tera,
    sources: BTreeMap<&'static str, String>,
}

impl Templates {
    /// The templates that come with katabatch.
    ///
    /// # Errors
    /// None is expected.
    pub fn embedded() -> Result<Self, RenderError> {
        Self::load(BTreeMap::new())
    }

    /// `kata.yaml.tera` and `standard.yaml.tera` of `dir`; one that is not there is the embedded
    /// one.
    ///
    /// # Errors
    /// [`RenderError::Template`] where a file can't be read or makes no Job, with its line.
    pub fn from_dir(dir: &Path) -> Result<Self, RenderError> {
        let mut sources = BTreeMap::new();
        for (name, _) in EMBEDDED {
            match std::fs::read_to_string(dir.join(name)) {
                Ok(source) => {
                    sources.insert(name, source);
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(RenderError::template(name, None, error)),
            }
        }
        Self::load(sources)
    }

    fn load(mut sources: BTreeMap<&'static str, String>) -> Result<Self, RenderError> {
        let mut tera = tera::Tera::default();
        // Every name ends with nothing: no template goes unescaped, whatever it is called.
        tera.autoescape_on([""]);
        tera.set_escape_fn(escape::write_scalar);
        for (name, embedded) in EMBEDDED {
            sources.entry(name).or_insert_with(|| embedded.to_owned());
        }
        tera.add_raw_templates(sources.iter().map(|(name, source)| (*name, source.as_str())))
            .map_err(|e| tera_error("of this folder", &e))?;
        for (name, source) in &sources {
            source::check(source)
                .map_err(|f| RenderError::template(name, Some(f.line), f.problem))?;
        }
        let templates = Self { tera, sources };
        templates.try_samples()?;
        Ok(templates)
    }

    /// Renders the samples, so that what is wrong with a template for any workload shows at load.
    fn try_samples(&self) -> Result<(), RenderError> {
        for isolation in [Isolation::Kata, Isolation::Standard] {
            for sample in [sample::upstream, sample::full] {
                let workload = sample("fuzz", isolation)
                    .map_err(|e| RenderError::template("sample", None, e))?;
                self.render(&workload, &sample::target())?;
            }
        }
        Ok(())
    }

    /// Makes the Job of a workload: renders it once with sentinels for a task's values, parses it
    /// strictly and judges it by the isolation policy.
    ///
    /// # Errors
    /// [`RenderError`] names the template and, where it can be told, the line. The whole workload
    /// is to be held.
    pub fn check(
        &self,
        workload: &Workload,
        target: &Target,
        policy: &Policy,
    ) -> Result<CheckedJob, RenderError> {
        let (job, mut value, sentinels) = self.render(workload, target)?;
        let warnings = policy.judge(&job, workload).map_err(|refusals| RenderError::Policy {
            template: template_of(workload).to_owned(),
            refusals,
        })?;
        let spec_hash = spec_hash(&value, &sentinels);
        if let Some(Value::Object(annotations)) = value.pointer_mut("/metadata/annotations") {
            annotations.insert(labels::SPEC.to_owned(), json!(spec_hash));
        }
        Ok(CheckedJob::new(value, sentinels, warnings, spec_hash))
    }

    /// All but the policy.
    fn render(
        &self,
        workload: &Workload,
        target: &Target,
    ) -> Result<(k8s_openapi::api::batch::v1::Job, Value, Sentinels), RenderError> {
        let template = template_of(workload);
        let source = self.sources.get(template).map_or("", String::as_str);
        let (variables, sentinels) = Variables::new(workload, target, source);
        let text = tera::Context::from_serialize(&variables)
            .and_then(|context| self.tera.render(template, &context))
            .map_err(|error| tera_error(template, &error))?;
        let rendered = Rendered { template, source, text: &text };
        let (mut job, mut value) = rendered.parse()?;
        shape::check(&job, &value, workload, target, &sentinels)
            .map_err(|f| rendered.fail(rendered.line_of(&f.field), f.problem))?;
        if env::drop_hidden(&mut job) {
            value = serde_json::to_value(&job).map_err(|e| rendered.fail(None, e))?;
        }
        Ok((job, value, sentinels))
    }
}

/// The template that a workload is rendered with.
fn template_of(workload: &Workload) -> &'static str {
    match workload.isolation {
        Isolation::Kata => KATA,
        Isolation::Standard => STANDARD,
    }
}

/// Sentinels change with the template's source, comments included: the digest leaves them out.
fn spec_hash(value: &Value, sentinels: &Sentinels) -> String {
    let mut text = value.to_string();
    for (slot, sentinel) in sentinels.all().into_iter().enumerate() {
        text = text.replace(sentinel, &format!("task value {slot}"));
    }
    hex::encode(&Sha256::digest(text.as_bytes())[..16])
}

/// A fault that Tera found, in our form. Its own report would show the source around it.
fn tera_error(template: &str, error: &tera::Error) -> RenderError {
    use tera::ErrorKind::{RenderingError, SyntaxError};
    match error.kind() {
        SyntaxError(report) | RenderingError(report) => {
            let name = if report.filename().is_empty() { template } else { report.filename() };
            RenderError::template(name, Some(report.span().start_line), report.message())
        }
        _ => RenderError::template(template, None, error),
    }
}
