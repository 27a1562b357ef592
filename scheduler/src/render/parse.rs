//! Rendered text → typed Job, strictly: nothing is dropped, retyped or guessed.
//!
//! The typed Job that k8s-openapi reads ignores fields it does not know, so what it writes back is
//! compared with what was read. Inserted values must have stayed whole scalars ([`escape`]), and
//! get their `$` doubled where Kubernetes would expand it ([`expansion`]). What the Job may say is
//! `shape`'s and `policy`'s to judge.
//!
//! [`escape`]: super::escape
//! [`expansion`]: super::expansion

use k8s_openapi::api::batch::v1::Job;
use serde_json::{Map, Value};

use super::error::RenderError;
use super::escape::{self, Scalar};
use super::expansion;
use super::fields;

/// A rendered text with what is needed to say where something stands.
pub(super) struct Rendered<'a> {
    /// The template's file name.
    pub template: &'a str,
    /// Its source.
    pub source: &'a str,
    /// What it rendered.
    pub text: &'a str,
}

/// Reads one Job from `text` as `check` does, after rendering: YAML of one document without
/// duplicate keys, every field known to the type and of its type. Takes any text.
///
/// # Errors
/// [`RenderError::Template`] with the line of `text`.
pub fn parse_strict(text: &str) -> Result<Job, RenderError> {
    Rendered { template: "text", source: text, text }.parse().map(|(job, _)| job)
}

struct Fault {
    path: Vec<String>,
    problem: &'static str,
}

impl Rendered<'_> {
    /// The Job, and the same as the API would get it.
    pub(super) fn parse(&self) -> Result<(Job, Value), RenderError> {
        let read: Value = read_yaml(self.text).map_err(|e| self.yaml(&e))?;
        let mut path = Vec::new();
        let read = decode(read, &mut path).map_err(|fault| self.misplaced(&fault))?;
        for (field, expect) in [("apiVersion", "batch/v1"), ("kind", "Job")] {
            if read.get(field).and_then(Value::as_str) != Some(expect) {
                return Err(self.fail(self.line_of(field), format!("`{field}` must be {expect}")));
            }
        }
        let job: Job = serde_json::from_value(read.clone()).map_err(|e| self.typed(&read, &e))?;
        let written = serde_json::to_value(&job).map_err(|e| self.fail(None, e))?;
        if let Some(unknown) = fields::unknown(&read, &written) {
            return Err(self.fail(self.line_of(unknown.name()), unknown));
        }
        Ok((job, written))
    }

    /// A fault of this template, at a line of it.
    pub(super) fn fail(&self, line: Option<usize>, problem: impl std::fmt::Display) -> RenderError {
        RenderError::template(self.template, line, problem)
    }

    fn yaml(&self, error: &serde_saphyr::Error) -> RenderError {
        let at = error.location().and_then(|at| usize::try_from(at.line()).ok());
        // An inserted value next to other text often is no YAML at all: say that instead.
        if let Some(line) = escape::misplaced_line(self.text) {
            let excerpt = self.excerpt(Some(line));
            return self.fail(self.template_line(Some(line)), format!("{MIXED}{excerpt}"));
        }
        let message = error.without_snippet().to_string();
        // The position at the end is one in the rendered text, which nobody sees.
        let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(text, _)| text);
        self.fail(self.template_line(at), format!("no valid YAML: {message}{}", self.excerpt(at)))
    }

    fn misplaced(&self, fault: &Fault) -> RenderError {
        let place = format!(" at {}", expansion::shown(&fault.path));
        let field = fault.path.last().map_or("", String::as_str);
        if fault.problem == MIXED {
            let rendered = escape::misplaced_line(self.text);
            let line = self.template_line(rendered).or_else(|| self.line_of(field));
            return self.fail(line, format!("{MIXED}{place}{}", self.excerpt(rendered)));
        }
        self.fail(self.line_of(field), format!("{}{place}", fault.problem))
    }

    fn typed(&self, read: &Value, error: &serde_json::Error) -> RenderError {
        // The same text read straight to the type mostly fails at the same field, and knows its
        // line; a number for a text it takes, so that only the field's name is left to look for.
        let at = read_yaml::<Job>(self.text)
            .err()
            .and_then(|error| usize::try_from(error.location()?.line()).ok());
        let (path, value) = fields::mistyped(read);
        let line = self.template_line(at).or_else(|| self.line_with(path.last()?, &value));
        let place = expansion::shown(&path);
        let problem = format!("{place} has the wrong type: {error}{}", self.excerpt(at));
        self.fail(line, escape::shown(&problem))
    }

    /// `, in` the text of the line, for a line of the rendered text.
    fn excerpt(&self, line: Option<usize>) -> String {
        let text = line.and_then(|line| self.text.lines().nth(line.checked_sub(1)?));
        text.map_or_else(String::new, |text| format!(", in `{}`", escape::shown(text.trim())))
    }

    /// The template's line that made a line of the rendered text: the one with the longest
    /// beginning in common before its first tag.
    fn template_line(&self, rendered: Option<usize>) -> Option<usize> {
        let rendered = rendered?;
        if self.source == self.text {
            return Some(rendered);
        }
        let text = self.text.lines().nth(rendered.checked_sub(1)?)?;
        let likeness = |line: &str| {
            let start = line.find("{{").or_else(|| line.find("{%")).unwrap_or(line.len());
            let beginning = &line[..start];
            let whole = start == line.len();
            let fits = if whole { text == line } else { text.starts_with(beginning) };
            (fits && !beginning.trim().is_empty()).then_some((beginning.len(), whole))
        };
        self.source
            .lines()
            .enumerate()
            .filter_map(|(index, line)| Some((likeness(line)?, std::cmp::Reverse(index))))
            .max()
            .map(|(_, std::cmp::Reverse(index))| index + 1)
    }

    /// The template's line that sets `field`, where only one does.
    pub(super) fn line_of(&self, field: &str) -> Option<usize> {
        self.line_with(field, "")
    }

    /// The same, where only one sets it to something with `value` in it.
    fn line_with(&self, field: &str, value: &str) -> Option<usize> {
        let mut lines = self.source.lines().enumerate().filter(|(_, line)| {
            let line = line.trim_start().trim_start_matches("- ").trim_start();
            line.strip_prefix(field)
                .and_then(|rest| rest.trim_start().strip_prefix(':'))
                .is_some_and(|set| set.contains(value))
        });
        let (index, _) = lines.next()?;
        lines.next().is_none().then_some(index + 1)
    }
}

/// One YAML document. Only `true` and `false` are booleans: `no` is a text, as it looks.
fn read_yaml<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, serde_saphyr::Error> {
    let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
    serde_saphyr::from_str_with_options(text, options)
}

const MIXED: &str = "an inserted value is not the whole of one scalar; write it alone, without \
                     quotes or text next to it (join with `{{ \"a/\" ~ value }}`)";

/// Takes the marks off, at any depth.
fn decode(value: Value, path: &mut Vec<String>) -> Result<Value, Fault> {
    let fault = |path: &[String], problem| Fault { path: path.to_vec(), problem };
    match value {
        Value::String(text) => match escape::read_scalar(&text) {
            Scalar::Literal => Ok(Value::String(text)),
            Scalar::Mixed => Err(fault(path, MIXED)),
            Scalar::Inserted(inserted) if expansion::expands(path) => {
                if inserted.contains('\0') {
                    return Err(fault(path, "a NUL, which no process's environment can hold, is"));
                }
                Ok(Value::String(expansion::literal(&inserted).into_owned()))
            }
            Scalar::Inserted(inserted) => Ok(Value::String(inserted)),
        },
        Value::Array(items) => {
            let mut out = Vec::with_capacity(items.len());
            for (index, item) in items.into_iter().enumerate() {
                path.push(format!("[{index}]"));
                out.push(decode(item, path)?);
                path.pop();
            }
            Ok(Value::Array(out))
        }
        Value::Object(members) => {
            let mut out = Map::new();
            for (key, member) in members {
                let key = match escape::read_scalar(&key) {
                    Scalar::Literal => key,
                    Scalar::Inserted(inserted) => inserted,
                    Scalar::Mixed => return Err(fault(path, MIXED)),
                };
                path.push(key.clone());
                if out.contains_key(&key) {
                    return Err(fault(path, "a key is set twice, by the template and a setting,"));
                }
                let member = decode(member, path)?;
                path.pop();
                out.insert(key, member);
            }
            Ok(Value::Object(out))
        }
        other => Ok(other),
    }
}
