//! Where the values of a YAML or JSON document stand, byte for byte: for edits in place, which keep
//! everything around them as it was written.
//!
//! What the values mean is for [`tree`](super::tree) and its readers; this knows texts and places.

use std::ops::Range;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use super::tree::options;

/// A value and its bytes in the document.
#[derive(Debug, Clone, PartialEq)]
pub struct Spot {
    /// Its bytes. Only of scalars are they exact; of nothing at all (`key:`) they are empty.
    pub span: Range<usize>,
    /// What stands there.
    pub value: Spots,
}

/// What stands somewhere.
#[derive(Debug, Clone, PartialEq)]
pub enum Spots {
    /// Text, a number, `true`, nothing: as text where it is text, else `None`.
    Scalar(Option<String>),
    /// A list.
    List(Vec<Spot>),
    /// A mapping: each key with its bytes, and the value.
    Map(Vec<(String, Range<usize>, Spot)>),
}

impl Spot {
    /// Reads one document; `None` when it can't be.
    pub fn parse(text: &str) -> Option<Self> {
        serde_saphyr::from_str_with_options::<Raw>(text, options()).ok().map(Raw::place)
    }

    /// The entries of a mapping; of anything else, none.
    pub fn entries(&self) -> &[(String, Range<usize>, Spot)] {
        match &self.value {
            Spots::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The value of a key; the last one, where a key is repeated.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.entries().iter().rev().find(|(name, ..)| name == key).map(|(.., value)| value)
    }

    /// The text, if it is text.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Spots::Scalar(text) => text.as_deref(),
            _ => None,
        }
    }
}

struct Raw(Spanned<RawValue>);

enum RawValue {
    Scalar(Option<String>),
    List(Vec<Raw>),
    Map(Vec<(Spanned<String>, Raw)>),
}

fn span<T>(spanned: &Spanned<T>) -> Range<usize> {
    let span = spanned.defined.span();
    let number = |n: Option<u64>| n.and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    let start = number(span.byte_offset());
    start..start.saturating_add(number(span.byte_len()))
}

impl Raw {
    fn place(self) -> Spot {
        let span_here = span(&self.0);
        let value = match self.0.value {
            RawValue::Scalar(text) => Spots::Scalar(text),
            RawValue::List(items) => Spots::List(items.into_iter().map(Self::place).collect()),
            RawValue::Map(entries) => Spots::Map(
                entries
                    .into_iter()
                    .map(|(key, value)| {
                        let at = span(&key);
                        (key.value, at, value.place())
                    })
                    .collect(),
            ),
        };
        Spot { span: span_here, value }
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

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<RawValue, E> {
        Ok(RawValue::Scalar(None))
    }

    fn visit_none<E>(self) -> Result<RawValue, E> {
        Ok(RawValue::Scalar(None))
    }

    fn visit_bool<E>(self, _: bool) -> Result<RawValue, E> {
        Ok(RawValue::Scalar(None))
    }

    fn visit_i64<E>(self, _: i64) -> Result<RawValue, E> {
        Ok(RawValue::Scalar(None))
    }

    fn visit_u64<E>(self, _: u64) -> Result<RawValue, E> {
        Ok(RawValue::Scalar(None))
    }

    fn visit_i128<E>(self, _: i128) -> Result<RawValue, E> {
        Ok(RawValue::Scalar(None))
    }

    fn visit_f64<E>(self, _: f64) -> Result<RawValue, E> {
        Ok(RawValue::Scalar(None))
    }

    fn visit_str<E>(self, value: &str) -> Result<RawValue, E> {
        Ok(RawValue::Scalar(Some(value.to_owned())))
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
