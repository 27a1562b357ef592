//! Reads typed values out of a [`tree`](super::tree), collecting every problem on the way.
//!
//! A value that is wrong gives `None` and leaves a problem behind; the reader goes on, and only at
//! the end asks whether there were any. So all errors of a file are reported at once. A section
//! knows which of its keys were asked for: the others are unknown.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::duration::parse_duration;
use super::problem::{ConfigErrors, Problem, nearest};
use super::tree::{Node, Value};
use crate::domain::quantity::Quantity;

/// The reading of one file.
#[derive(Debug)]
pub struct Reading {
    file: PathBuf,
    problems: RefCell<Vec<Problem>>,
    /// Which keys were asked for, list places as `[]`: true when one was there.
    asked: RefCell<BTreeMap<String, bool>>,
}

impl Reading {
    /// A reading of `file`, without problems yet.
    pub fn of(file: &Path) -> Self {
        Self { file: file.to_owned(), problems: RefCell::default(), asked: RefCell::default() }
    }

    /// Reads `text` as one YAML document.
    ///
    /// # Errors
    /// When it is no YAML.
    pub fn parse(&self, text: &str) -> Result<Node, ConfigErrors> {
        Node::parse(text).map_err(|error| {
            ConfigErrors(vec![Problem {
                file: self.file.clone(),
                line: error.line,
                key: String::new(),
                problem: format!("is not valid YAML: {error}"),
                hint: None,
            }])
        })
    }

    /// The document itself, as a field.
    pub fn root<'a>(&'a self, node: &'a Node) -> Field<'a> {
        Field { node, path: String::new(), reading: self }
    }

    /// A part of a document that is read by itself, so that its problems stay its own.
    pub fn part<'a>(&'a self, field: &Field<'a>) -> Field<'a> {
        Field { node: field.node, path: field.path.clone(), reading: self }
    }

    /// Leaves a problem behind.
    pub fn fault(&self, line: u32, key: &str, problem: impl Into<String>, hint: &str) {
        self.problems.borrow_mut().push(Problem {
            file: self.file.clone(),
            line,
            key: key.to_owned(),
            problem: problem.into(),
            hint: (!hint.is_empty()).then(|| hint.to_owned()),
        });
    }

    /// Every key that was asked for, and whether it was there.
    pub fn asked(&self) -> BTreeMap<String, bool> {
        self.asked.borrow().clone()
    }

    /// `value`, unless there were problems.
    ///
    /// # Errors
    /// All problems, in the order of their lines.
    pub fn finish<T>(self, value: T) -> Result<T, ConfigErrors> {
        let mut problems = self.problems.into_inner();
        if problems.is_empty() {
            return Ok(value);
        }
        problems.sort_by_key(|problem| problem.line);
        Err(ConfigErrors(problems))
    }
}

/// A value, with the key that leads to it.
#[derive(Debug, Clone)]
pub struct Field<'a> {
    node: &'a Node,
    path: String,
    reading: &'a Reading,
}

impl<'a> Field<'a> {
    /// The line where it stands.
    pub fn line(&self) -> u32 {
        self.node.line
    }

    /// The key that leads to it.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The value itself.
    pub fn node(&self) -> &'a Node {
        self.node
    }

    /// Whether it is `null` or left empty.
    pub fn is_null(&self) -> bool {
        self.node.value == Value::Null
    }

    /// Leaves a problem with this value behind.
    pub fn fault(&self, problem: impl Into<String>, hint: &str) {
        self.reading.fault(self.node.line, &self.path, problem, hint);
    }

    fn wrong_type<T>(&self, hint: &str) -> Option<T> {
        let is = match &self.node.value {
            Value::Text { text, .. } => format!("is the text {}", shown(text)),
            Value::Int { written, .. } | Value::Float { written, .. } => {
                format!("is the number {written}")
            }
            Value::Bool(value) => format!("is {value}"),
            Value::Null => "is empty".to_owned(),
            _ => format!("is {}", self.node.kind()),
        };
        self.fault(is, hint);
        None
    }

    /// Text that isn't empty.
    pub fn text(&self) -> Option<&'a str> {
        match &self.node.value {
            Value::Text { text, .. } if text.is_empty() => {
                self.fault("is empty", "write some text");
                None
            }
            Value::Text { text, .. } => Some(text),
            Value::Int { written, .. } | Value::Float { written, .. } => {
                self.wrong_type(&format!("text is wanted: put it in quotes, \"{written}\""))
            }
            Value::Bool(value) => {
                self.wrong_type(&format!("text is wanted: put it in quotes, \"{value}\""))
            }
            _ => self.wrong_type("text is wanted"),
        }
    }

    /// Text, empty allowed.
    pub fn any_text(&self) -> Option<&'a str> {
        match &self.node.value {
            Value::Text { text, .. } => Some(text),
            _ => self.text(),
        }
    }

    /// Text that `read` understands; its error is `(problem, hint)`.
    pub fn read<T>(&self, read: impl FnOnce(&str) -> Result<T, (String, String)>) -> Option<T> {
        match read(self.text()?) {
            Ok(value) => Some(value),
            Err((problem, hint)) => {
                self.fault(problem, &hint);
                None
            }
        }
    }

    /// `true` or `false`.
    pub fn boolean(&self) -> Option<bool> {
        match self.node.value {
            Value::Bool(value) => Some(value),
            _ => self.wrong_type("write true or false"),
        }
    }

    /// `true` or `false` as Python's YAML reader takes them: `yes`, `no`, `on`, `off` too, unless
    /// in quotes (YAML 1.1).
    pub fn python_boolean(&self) -> Option<bool> {
        match &self.node.value {
            Value::Text { text, plain: true } => match text.as_str() {
                "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Some(true),
                "no" | "No" | "NO" | "off" | "Off" | "OFF" => Some(false),
                _ => self.boolean(),
            },
            _ => self.boolean(),
        }
    }

    /// A whole number in `range`.
    pub fn whole<T>(&self, range: std::ops::RangeInclusive<T>) -> Option<T>
    where
        T: TryFrom<i128> + PartialOrd + std::fmt::Display,
    {
        let hint = format!("write a whole number from {} to {}", range.start(), range.end());
        match &self.node.value {
            Value::Int { value, .. } => match T::try_from(*value) {
                Ok(value) if range.contains(&value) => Some(value),
                _ => self.wrong_type(&hint),
            },
            _ => self.wrong_type(&hint),
        }
    }

    /// A number in `range`.
    pub fn number(&self, range: std::ops::RangeInclusive<f64>) -> Option<f64> {
        let hint = format!("write a number from {} to {}", range.start(), range.end());
        let value = match &self.node.value {
            // Settings are far below 2^53, where this is exact.
            #[expect(clippy::cast_precision_loss)]
            Value::Int { value, .. } => *value as f64,
            Value::Float { value, .. } => *value,
            _ => return self.wrong_type(&hint),
        };
        if range.contains(&value) { Some(value) } else { self.wrong_type(&hint) }
    }

    /// A length of time: `90s`, `10m`, `1h30m`.
    pub fn duration(&self) -> Option<Duration> {
        const HINT: &str = "write a length of time such as 90s, 10m or 1h30m";
        match &self.node.value {
            Value::Text { text, .. } => match parse_duration(text) {
                Some(duration) => Some(duration),
                None => self.wrong_type(HINT),
            },
            _ => self.wrong_type(HINT),
        }
    }

    /// A Kubernetes quantity, above zero: `2`, `500m`, `3.75Gi`.
    pub fn quantity(&self) -> Option<Quantity> {
        let text = match &self.node.value {
            Value::Text { text, .. } => text,
            Value::Int { written, .. } | Value::Float { written, .. } => written,
            _ => return self.wrong_type("write a quantity such as 2, 500m or 3.75Gi"),
        };
        match Quantity::parse(text) {
            Ok(quantity) if quantity.milli() > 0 => Some(quantity),
            Ok(_) => self.wrong_type("write a quantity above zero"),
            Err(error) => {
                self.fault(error.to_string(), "");
                None
            }
        }
    }

    /// The items of a list.
    pub fn list(&self) -> Option<Vec<Field<'a>>> {
        match &self.node.value {
            Value::List(items) => Some(
                items
                    .iter()
                    .enumerate()
                    .map(|(index, node)| Field {
                        node,
                        path: format!("{}[{index}]", self.path),
                        reading: self.reading,
                    })
                    .collect(),
            ),
            _ => self.wrong_type("a list is wanted"),
        }
    }

    /// The items of a list, or the one value itself.
    pub fn one_or_more(&self) -> Vec<Field<'a>> {
        match &self.node.value {
            Value::List(_) => self.list().unwrap_or_default(),
            _ => vec![self.clone()],
        }
    }

    /// A mapping with keys of the writer's own choice; a repeated key is a problem.
    pub fn entries(&self) -> Option<Vec<(&'a str, Field<'a>)>> {
        let section = self.section()?;
        Some(section.entries.into_iter().map(|(key, _, field)| (key, field)).collect())
    }

    /// A mapping with known keys.
    pub fn section(&self) -> Option<Section<'a>> {
        let Value::Map(entries) = &self.node.value else {
            return self.wrong_type("a mapping (key: value) is wanted");
        };
        let mut seen = BTreeSet::new();
        let mut kept = Vec::with_capacity(entries.len());
        for entry in entries {
            let path = match self.path.as_str() {
                "" => entry.key.clone(),
                path => format!("{path}.{}", entry.key),
            };
            if seen.insert(entry.key.as_str()) {
                let field = Field { node: &entry.value, path, reading: self.reading };
                kept.push((entry.key.as_str(), entry.line, field));
            } else {
                self.reading.fault(entry.line, &path, "is written twice", "keep one of them");
            }
        }
        Some(Section { field: self.clone(), entries: kept, known: RefCell::default() })
    }
}

/// A mapping being read key by key.
#[derive(Debug)]
#[must_use = "its unknown keys are only found by `finish`"]
pub struct Section<'a> {
    field: Field<'a>,
    entries: Vec<(&'a str, u32, Field<'a>)>,
    known: RefCell<Vec<&'static str>>,
}

impl<'a> Section<'a> {
    /// The mapping itself, for problems with it as a whole.
    pub fn whole(&self) -> &Field<'a> {
        &self.field
    }

    /// The value of `key`, if it is there.
    pub fn get(&self, key: &'static str) -> Option<Field<'a>> {
        self.known.borrow_mut().push(key);
        let found = self.entries.iter().find(|(name, ..)| *name == key);
        let pattern = pattern(&self.field.path, key);
        *self.field.reading.asked.borrow_mut().entry(pattern).or_default() |= found.is_some();
        found.map(|(_, _, field)| field.clone())
    }

    /// The value of `key`, if it is there and not `null`.
    pub fn set(&self, key: &'static str) -> Option<Field<'a>> {
        self.get(key).filter(|field| !field.is_null())
    }

    /// The value of `key`, which must be there.
    pub fn required(&self, key: &'static str, hint: &str) -> Option<Field<'a>> {
        let found = self.get(key);
        if found.is_none() {
            self.field.fault(format!("has no `{key}`"), hint);
        }
        found
    }

    /// The keys that nobody asked for, with their lines.
    pub fn unknown(&self) -> Vec<(&'a str, u32)> {
        let known = self.known.borrow();
        let unknown = self.entries.iter().filter(|(key, ..)| !known.contains(key));
        unknown.map(|(key, line, _)| (*key, *line)).collect()
    }

    /// Reports the keys that nobody asked for.
    pub fn finish(self) {
        let known = self.known.borrow();
        for (key, line, field) in &self.entries {
            if known.contains(key) {
                continue;
            }
            let hint = match nearest(key, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known keys here: {}", known.join(", ")),
            };
            self.field.reading.fault(*line, field.path(), "is not a known key", &hint);
        }
    }
}

/// `path.key` with every list place as `[]`.
fn pattern(path: &str, key: &str) -> String {
    let mut out = String::new();
    let mut inside = false;
    for c in path.chars() {
        match c {
            '[' => {
                inside = true;
                out.push_str("[]");
            }
            ']' => inside = false,
            c if !inside => out.push(c),
            _ => {}
        }
    }
    if out.is_empty() { key.to_owned() } else { format!("{out}.{key}") }
}

/// Text in quotes, cut where it is long.
fn shown(text: &str) -> String {
    let cut: String = text.chars().take(60).collect();
    let dots = if cut.len() < text.len() { "…" } else { "" };
    format!("`{}{dots}`", cut.escape_debug())
}
