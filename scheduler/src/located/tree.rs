//! A YAML document as a tree that remembers lines and how a scalar was written.
//!
//! Scalars are typed by YAML 1.2's core rules (`yes` is text, `0123` and `1_000` are text), since
//! readers that want the older rules of a farm's own Python can still see the text. Anchors and
//! merge keys are followed; a repeated key is kept, for the reader to report with its line.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// A value and the line, from 1, where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The line of its first character.
    pub line: u32,
    /// What it is.
    pub value: Value,
}

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nothing: `null`, `~` or left empty.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int {
        /// Its value.
        value: i128,
        /// As it was written.
        written: String,
    },
    /// Any other number.
    Float {
        /// Its value.
        value: f64,
        /// As it was written.
        written: String,
    },
    /// Text.
    Text {
        /// The text.
        text: String,
        /// Written without quotes.
        plain: bool,
    },
    /// A list.
    List(Vec<Node>),
    /// A mapping, in the order written; a repeated key is there twice.
    Map(Vec<Entry>),
}

/// A key and its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The key's text.
    pub key: String,
    /// The line of the key.
    pub line: u32,
    /// The value.
    pub value: Node,
}

/// A text that is no YAML, or more of it than anyone writes by hand.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct SyntaxError {
    /// The line, from 1.
    pub line: u32,
    /// What is wrong.
    pub problem: String,
}

/// A million or so small entities: far above a real catalog, far below what would hurt.
const MAX_NODES: usize = 20_000_000;

impl Node {
    /// Reads one YAML document.
    ///
    /// # Errors
    /// [`SyntaxError`] when it can't be read as a whole.
    pub fn parse(text: &str) -> Result<Self, SyntaxError> {
        match serde_saphyr::from_str_with_options::<Raw>(text, options()) {
            Ok(raw) => Ok(raw.locate(text)),
            Err(error) => {
                let line = error.location().map_or(1, |l| short(l.line()));
                Err(SyntaxError { line, problem: without_place(&error.to_string()) })
            }
        }
    }

    /// What kind of value it is, for people.
    pub fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "true or false",
            Value::Int { .. } => "a whole number",
            Value::Float { .. } => "a number",
            Value::Text { .. } => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }

    /// The value of a key of a mapping; the last one, where a key is repeated.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match &self.value {
            Value::Map(entries) => {
                entries.iter().rev().find(|entry| entry.key == key).map(|entry| &entry.value)
            }
            _ => None,
        }
    }

    /// The text, if it is text.
    pub fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text { text, .. } => Some(text),
            _ => None,
        }
    }

    /// A JSON value that stands on `line`.
    pub fn from_json(value: serde_json::Value, line: u32) -> Self {
        use serde_json::Value as Json;
        let value = match value {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(value),
            Json::Number(number) => {
                let written = number.to_string();
                match number.as_i128() {
                    Some(value) => Value::Int { value, written },
                    None => Value::Float { value: number.as_f64().unwrap_or(f64::NAN), written },
                }
            }
            Json::String(text) => Value::Text { text, plain: false },
            Json::Array(items) => {
                Value::List(items.into_iter().map(|item| Self::from_json(item, line)).collect())
            }
            Json::Object(entries) => Value::Map(
                entries
                    .into_iter()
                    .map(|(key, value)| Entry { key, line, value: Self::from_json(value, line) })
                    .collect(),
            ),
        };
        Self { line, value }
    }
}

/// How documents are read, here and wherever the same must be read again.
pub(super) fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_nodes: MAX_NODES,
            max_events: 2 * MAX_NODES,
            max_total_scalar_bytes: 1 << 30,
        },
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::PassThrough,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        strict_booleans: true,
        null_as_string: true,
        non_finite_float_policy: serde_saphyr::NonFiniteFloatPolicy::PassThrough,
        with_snippet: false,
    }
}

fn short(line: u64) -> u32 {
    u32::try_from(line).unwrap_or(u32::MAX)
}

/// The reader's messages end with the place, which the caller prints in front.
fn without_place(message: &str) -> String {
    let first = message.lines().next().unwrap_or(message);
    // What follows a semicolon is advice to programmers.
    let first = first.split(';').next().unwrap_or(first);
    let end = first.rfind(" at line ").unwrap_or(first.len());
    let shown = first.get(..end).unwrap_or(first);
    let shown = match shown.split_once(": ") {
        Some((place, rest)) if place.starts_with("error: line ") || place.starts_with("line ") => {
            rest
        }
        _ => shown,
    };
    shown.trim_end_matches([',', ';', ':', ' ']).to_owned()
}

/// A node before its scalars were compared with the text that they were written as.
struct Raw(Spanned<RawValue>);

enum RawValue {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Raw>),
    Map(Vec<(Spanned<String>, Raw)>),
}

impl Raw {
    fn locate(self, source: &str) -> Node {
        let line = short(self.0.referenced.line());
        let span = self.0.defined.span();
        let written = || {
            let start = usize::try_from(span.byte_offset()?).ok()?;
            let length = usize::try_from(span.byte_len()?).ok()?;
            source.get(start..start.checked_add(length)?)
        };
        let value = match self.0.value {
            RawValue::Null => Value::Null,
            RawValue::Bool(value) => Value::Bool(value),
            RawValue::Int(value) => Value::Int {
                value,
                written: written().map_or_else(|| value.to_string(), |w| w.trim().to_owned()),
            },
            RawValue::Float(value) => Value::Float {
                value,
                written: written().map_or_else(|| value.to_string(), |w| w.trim().to_owned()),
            },
            RawValue::Text(text) => {
                let quoted = written().is_none_or(|w| w.starts_with(['"', '\'', '|', '>']));
                Value::Text { text, plain: !quoted }
            }
            RawValue::List(items) => {
                Value::List(items.into_iter().map(|item| item.locate(source)).collect())
            }
            RawValue::Map(entries) => Value::Map(
                entries
                    .into_iter()
                    .map(|(key, value)| Entry {
                        line: short(key.referenced.line()),
                        key: key.value,
                        value: value.locate(source),
                    })
                    .collect(),
            ),
        };
        Node { line, value }
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Spanned::deserialize(deserializer).map(Self)
    }
}

impl<'de> Deserialize<'de> for RawValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = RawValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<RawValue, E> {
        Ok(RawValue::Null)
    }

    fn visit_none<E>(self) -> Result<RawValue, E> {
        Ok(RawValue::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<RawValue, E> {
        Ok(RawValue::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<RawValue, E> {
        Ok(RawValue::Int(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<RawValue, E> {
        Ok(RawValue::Int(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<RawValue, E> {
        Ok(RawValue::Int(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<RawValue, E> {
        Ok(RawValue::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<RawValue, E> {
        Ok(RawValue::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<RawValue, E> {
        Ok(RawValue::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<RawValue, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(RawValue::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawValue, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(RawValue::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Node {
        Node::parse(text).expect("yaml")
    }

    #[test]
    fn values_know_their_lines_and_how_they_were_written() {
        let node = parse("# c\na: 24.04\nb:\n  - \"no\"\n  - no\n  - 0123\nc: 123456789012\nd:\n");
        let a = node.get("a").expect("a");
        assert_eq!(a.line, 2);
        assert_eq!(a.value, Value::Float { value: 24.04, written: "24.04".into() });
        let Some(Value::List(items)) = node.get("b").map(|b| b.value.clone()) else {
            unreachable!("a list")
        };
        let texts: Vec<_> = items.into_iter().map(|item| (item.line, item.value)).collect();
        let text = |text: &str, plain| Value::Text { text: text.into(), plain };
        assert_eq!(texts, [(4, text("no", false)), (5, text("no", true)), (6, text("0123", true))]);
        assert_eq!(
            node.get("c").map(|c| c.value.clone()),
            Some(Value::Int { value: 123_456_789_012, written: "123456789012".into() })
        );
        assert_eq!(node.get("d").map(|d| &d.value), Some(&Value::Null));
    }

    #[test]
    fn anchors_and_merges_are_followed_and_repeated_keys_kept() {
        let node = parse("a: &x {k: 1, l: 2}\nb:\n  <<: *x\n  k: 3\nc: *x\nd: 1\nd: 2\nnull: 3\n");
        let b = node.get("b").expect("b");
        let number = |node: &Node, key: &str| match node.get(key).map(|n| &n.value) {
            Some(Value::Int { value, .. }) => Some(*value),
            _ => None,
        };
        assert_eq!((number(b, "k"), number(b, "l")), (Some(3), Some(2)));
        assert_eq!(number(node.get("c").expect("c"), "k"), Some(1));
        let Value::Map(entries) = &node.value else { unreachable!("a mapping") };
        let keys: Vec<_> = entries.iter().map(|e| (e.key.as_str(), e.line)).collect();
        assert_eq!(keys, [("a", 1), ("b", 2), ("c", 5), ("d", 6), ("d", 7), ("null", 8)]);
    }

    #[test]
    fn a_syntax_error_has_its_line_and_an_empty_text_is_nothing() {
        let error = Node::parse("a: 1\nb: [1,\nc: 2\n").expect_err("unclosed");
        assert!(error.line >= 2, "{error:?}");
        assert!(!error.problem.is_empty() && !error.problem.contains("line "), "{error:?}");
        for empty in ["", "# only a comment\n", "---\n"] {
            assert!(
                matches!(parse(empty).value, Value::Null | Value::Map(_) | Value::List(_)),
                "{empty:?}"
            );
        }
    }
}
