//! Entity files: Datastore entities as people write them and as exports give them.
//!
//! YAML (a list, several documents, or one entity) or JSON lines. An entity has `kind` and its
//! properties beside it, or under `properties`, or comes with a Datastore `key`; values are plain
//! or in Datastore's typed form (`{"stringValue": "x"}`). Which kinds and properties matter is the
//! reader's to say. What can't be read is a fault of that one entity.

use std::path::Path;

use super::tree::{Entry, Node, SyntaxError, Value};

/// One entity.
#[derive(Debug, Clone, PartialEq)]
pub struct Entity {
    /// The line where it begins.
    pub line: u32,
    /// Its kind.
    pub kind: String,
    /// The name in its Datastore key, where that has one.
    pub key_name: Option<String>,
    properties: Vec<Entry>,
}

/// A number, and whether it is written as an integer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Number {
    /// Its value.
    pub value: f64,
    /// It is an integer in the file, as Datastore and Python tell it from a float.
    pub integer: bool,
}

/// What is wrong with one entity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}: {problem}")]
pub struct Fault {
    /// The line.
    pub line: u32,
    /// What is wrong.
    pub problem: String,
}

/// A wrong property: its name, its line, what it is.
fn wrong(name: &str, node: &Node, wanted: &str) -> Fault {
    Fault { line: node.line, problem: format!("`{name}` is {}, {wanted} is wanted", node.kind()) }
}

impl Entity {
    fn property(&self, name: &str) -> Option<&Node> {
        let found = self.properties.iter().rev().find(|entry| entry.key == name)?;
        (found.value.value != Value::Null).then_some(&found.value)
    }

    /// A text property; absent and null are `None`. A number is taken as it is written, since a
    /// person who names a job type 1e3 means the text.
    ///
    /// # Errors
    /// When it is no text.
    pub fn text(&self, name: &str) -> Result<Option<String>, Fault> {
        let Some(node) = self.property(name) else { return Ok(None) };
        match &node.value {
            Value::Text { text, .. } => Ok(Some(text.clone())),
            Value::Int { written, .. } | Value::Float { written, .. } => Ok(Some(written.clone())),
            _ => Err(wrong(name, node, "text")),
        }
    }

    /// A list of texts; absent and null are empty.
    ///
    /// # Errors
    /// When it is no list, or has something else in it.
    pub fn texts(&self, name: &str) -> Result<Vec<String>, Fault> {
        let Some(node) = self.property(name) else { return Ok(Vec::new()) };
        let Value::List(items) = &node.value else { return Err(wrong(name, node, "a list")) };
        let text = |item: &Node| {
            item.as_text().map(str::to_owned).ok_or_else(|| wrong(name, item, "a list of texts"))
        };
        items.iter().map(text).collect()
    }

    /// A number; absent and null are `None`, and a whole number is a number.
    ///
    /// # Errors
    /// When it is no number.
    pub fn number(&self, name: &str) -> Result<Option<Number>, Fault> {
        let Some(node) = self.property(name) else { return Ok(None) };
        match &node.value {
            // Weights and limits are far below 2^53, where this is exact.
            #[expect(clippy::cast_precision_loss)]
            Value::Int { value, .. } => Ok(Some(Number { value: *value as f64, integer: true })),
            Value::Float { value, .. } => Ok(Some(Number { value: *value, integer: false })),
            _ => Err(wrong(name, node, "a number")),
        }
    }

    /// `true` or `false`; absent and null are `None`.
    ///
    /// # Errors
    /// When it is neither.
    pub fn boolean(&self, name: &str) -> Result<Option<bool>, Fault> {
        let Some(node) = self.property(name) else { return Ok(None) };
        match &node.value {
            Value::Bool(value) => Ok(Some(*value)),
            _ => Err(wrong(name, node, "true or false")),
        }
    }

    /// The properties of a mapping as an entity of a known kind.
    ///
    /// # Errors
    /// When it is no mapping.
    pub fn of_kind(kind: &str, node: Node) -> Result<Self, Fault> {
        let line = node.line;
        match node.value {
            Value::Map(entries) => Ok(Self {
                line,
                kind: kind.to_owned(),
                key_name: None,
                properties: plain_entries(entries),
            }),
            _ => Err(Fault { line, problem: format!("is {}, no entity", node.kind()) }),
        }
    }

    /// Reads one entity in any of its forms.
    fn read(node: Node) -> Result<Self, Fault> {
        let line = node.line;
        let mut entity = Self::of_kind("", node)?;
        if let Some(inner) = take_map(&mut entity.properties, "entity") {
            entity.properties = inner;
        }
        if let Some(key) = entity.properties.iter().find(|entry| entry.key == "key") {
            let last = key.value.get("path").and_then(|path| match &path.value {
                Value::List(items) => items.last(),
                _ => None,
            });
            let part = |name| last.and_then(|part| part.get(name)).and_then(Node::as_text);
            entity.kind = part("kind").unwrap_or_default().to_owned();
            entity.key_name = part("name").map(str::to_owned);
        }
        if let Some(kind) = entity.text("kind")? {
            entity.kind = kind;
        }
        if let Some(properties) = take_map(&mut entity.properties, "properties") {
            entity.properties = properties;
        }
        if entity.kind.is_empty() {
            let problem = "has no `kind`, such as Job, JobTemplate, OssFuzzProject or FeatureFlag";
            return Err(Fault { line, problem: problem.into() });
        }
        Ok(entity)
    }
}

fn take_map(entries: &mut Vec<Entry>, key: &str) -> Option<Vec<Entry>> {
    let at = entries.iter().position(|e| e.key == key && matches!(e.value.value, Value::Map(_)))?;
    match entries.swap_remove(at).value.value {
        Value::Map(inner) => Some(plain_entries(inner)),
        _ => None,
    }
}

fn plain_entries(entries: Vec<Entry>) -> Vec<Entry> {
    entries.into_iter().map(|entry| Entry { value: plain(entry.value), ..entry }).collect()
}

/// A value without Datastore's typed form around it (Datastore REST API, `Value`).
fn plain(node: Node) -> Node {
    let Node { line, value } = node;
    let Value::Map(mut entries) = value else { return Node { line, value } };
    let is_note = |key: &str| matches!(key, "excludeFromIndexes" | "meaning");
    let mut values = entries.iter().enumerate().filter(|(_, entry)| !is_note(&entry.key));
    let only = match (values.next(), values.next()) {
        (Some((at, entry)), None) if entry.key.ends_with("Value") => Some(at),
        _ => None,
    };
    let Some(at) = only else { return Node { line, value: Value::Map(entries) } };
    let entry = entries.swap_remove(at);
    typed(&entry.key, entry.value)
        .unwrap_or_else(|entry| Node { line, value: Value::Map(vec![entry]) })
}

fn typed(kind: &str, node: Node) -> Result<Node, Entry> {
    let Node { line, value } = node;
    let parsed = match (kind, value) {
        ("stringValue", value @ Value::Text { .. })
        | ("booleanValue", value @ Value::Bool(_))
        | ("integerValue", value @ Value::Int { .. })
        | ("doubleValue", value @ Value::Float { .. }) => Some(value),
        // JSON writes the double 1.0 as 1, too: what Datastore says of its type counts.
        #[expect(clippy::cast_precision_loss)]
        ("doubleValue", Value::Int { value, written }) => {
            Some(Value::Float { value: value as f64, written })
        }
        ("nullValue", _) => Some(Value::Null),
        ("integerValue", Value::Text { text, .. }) => {
            text.parse().ok().map(|value| Value::Int { value, written: text })
        }
        ("doubleValue", Value::Text { text, .. }) => {
            text.parse().ok().map(|value| Value::Float { value, written: text })
        }
        ("arrayValue", Value::Map(entries)) => {
            let list = entries.into_iter().find(|e| e.key == "values").map(|e| e.value.value);
            match list {
                None | Some(Value::Null) => Some(Value::List(Vec::new())),
                Some(Value::List(items)) => {
                    Some(Value::List(items.into_iter().map(plain).collect()))
                }
                Some(_) => None,
            }
        }
        // A kind that nobody here reads, or a value that isn't of its kind: of no use as text.
        (_, value) => {
            return Err(Entry { key: kind.to_owned(), line, value: Node { line, value } });
        }
    };
    parsed.map(|value| Node { line, value }).ok_or_else(|| Entry {
        key: kind.to_owned(),
        line,
        value: Node { line, value: Value::Null },
    })
}

/// Reads all documents of a file: JSON lines by the extensions `.jsonl` and `.ndjson` (or `.json`
/// when it begins with `{`), YAML else. One that can't be read is a fault among the others.
pub fn documents(path: &Path, text: &str) -> Vec<Result<Node, Fault>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if is_json_lines(path, text) { json_lines(text) } else { yaml_documents(text) }
}

/// Whether the file has one JSON document a line.
pub fn is_json_lines(path: &Path, text: &str) -> bool {
    match path.extension().and_then(|e| e.to_str()).unwrap_or_default() {
        "jsonl" | "ndjson" => true,
        "json" => text.trim_start().starts_with('{'),
        _ => false,
    }
}

/// Reads all entities of a file, in order.
pub fn read(path: &Path, text: &str) -> Vec<Result<Entity, Fault>> {
    let mut entities = Vec::new();
    for document in documents(path, text) {
        match document {
            Err(fault) => entities.push(Err(fault)),
            Ok(Node { value: Value::Null, .. }) => {}
            Ok(Node { value: Value::List(items), .. }) => {
                entities.extend(items.into_iter().map(Entity::read));
            }
            Ok(node) => entities.push(Entity::read(node)),
        }
    }
    entities
}

fn json_lines(text: &str) -> Vec<Result<Node, Fault>> {
    let lines = (1_u32..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let read = |(line, text): (u32, &str)| match serde_json::from_str(text) {
        Ok(value) => Ok(Node::from_json(value, line)),
        Err(error) => Err(Fault { line, problem: format!("is not valid JSON: {error}") }),
    };
    lines.map(read).collect()
}

/// One document of a file: where it begins, in bytes and in lines from 0, and its text.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'a> {
    /// The byte at which it begins.
    pub start: usize,
    /// So many lines come before it.
    pub lines: u32,
    /// Its text.
    pub text: &'a str,
}

/// A line that begins with `---` always begins a document, so that documents can be told apart
/// before they are read, and a broken one harms no other. Those that say nothing are left out.
pub fn yaml_pieces(text: &str) -> Vec<Piece<'_>> {
    let mut starts = vec![(0, 0_u32)];
    let mut offset = 0;
    for (index, line) in (0_u32..).zip(text.split_inclusive('\n')) {
        let rest = line.strip_prefix("---");
        if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace)) {
            starts.push((offset, index));
        }
        offset += line.len();
    }
    let ends = starts.iter().skip(1).map(|(start, _)| *start).chain([text.len()]);
    let says_nothing = |line: &str| line.trim().is_empty() || line.starts_with(['#', '%']);
    starts
        .iter()
        .zip(ends)
        .map(|((start, lines), end)| Piece {
            start: *start,
            lines: *lines,
            text: text.get(*start..end).unwrap_or_default(),
        })
        .filter(|piece| !piece.text.lines().all(says_nothing))
        .collect()
}

fn yaml_documents(text: &str) -> Vec<Result<Node, Fault>> {
    let read = |piece: Piece<'_>| match Node::parse(piece.text) {
        Ok(mut node) => {
            shift(&mut node, piece.lines);
            Ok(node)
        }
        Err(SyntaxError { line, problem }) => Err(Fault {
            line: line.saturating_add(piece.lines),
            problem: format!("is not valid YAML: {problem}"),
        }),
    };
    yaml_pieces(text).into_iter().map(read).collect()
}

fn shift(node: &mut Node, lines: u32) {
    if lines == 0 {
        return;
    }
    node.line = node.line.saturating_add(lines);
    match &mut node.value {
        Value::List(items) => items.iter_mut().for_each(|item| shift(item, lines)),
        Value::Map(entries) => {
            for entry in entries {
                entry.line = entry.line.saturating_add(lines);
                shift(&mut entry.value, lines);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
