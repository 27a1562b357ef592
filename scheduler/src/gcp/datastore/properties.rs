//! An entity's properties, read by the types that ClusterFuzz's models (Python's ndb) write.
//!
//! A property that is absent or null is unset. One of another type is wrong: the error says which
//! entity, which property, what it is and what it should be.

use gcloud_sdk::google::datastore::v1::key::path_element::IdType;
use gcloud_sdk::google::datastore::v1::value::ValueType;
use gcloud_sdk::google::datastore::v1::{ArrayValue, Entity, Key, Value};

/// A text value.
pub fn text(text: impl Into<String>) -> Value {
    ValueType::StringValue(text.into()).into_value()
}

/// A list value.
pub(super) fn list(values: Vec<Value>) -> Value {
    ValueType::ArrayValue(ArrayValue { values }).into_value()
}

/// Wraps the kinds of values into values.
pub trait IntoValue {
    /// An indexed value.
    fn into_value(self) -> Value;
}

impl IntoValue for ValueType {
    fn into_value(self) -> Value {
        Value { value_type: Some(self), ..Value::default() }
    }
}

/// The name in an entity's key; one with a number has none.
pub fn key_name(entity: &Entity) -> Option<&str> {
    match entity.key.as_ref()?.path.last()?.id_type.as_ref()? {
        IdType::Name(name) => Some(name),
        IdType::Id(_) => None,
    }
}

/// An entity, for people: its kind and what its key says.
pub fn shown(entity: &Entity) -> String {
    let last = entity.key.as_ref().and_then(|key| key.path.last());
    match last.map(|part| (part.kind.as_str(), part.id_type.as_ref())) {
        Some((kind, Some(IdType::Id(id)))) => format!("{kind} {id}"),
        Some((kind, Some(IdType::Name(name)))) => format!("{kind} `{name}`"),
        Some((kind, None)) => kind.to_owned(),
        None => "an entity without a key".to_owned(),
    }
}

/// A key's place among others: path by path, numbers before names.
pub(super) fn key_order(entity: &Entity) -> Vec<(String, i64, String)> {
    let path = entity.key.as_ref().map(|key: &Key| key.path.as_slice()).unwrap_or_default();
    path.iter()
        .map(|part| match &part.id_type {
            Some(IdType::Id(id)) => (part.kind.clone(), *id, String::new()),
            Some(IdType::Name(name)) => (part.kind.clone(), i64::MAX, name.clone()),
            None => (part.kind.clone(), i64::MIN, String::new()),
        })
        .collect()
}

fn property<'a>(entity: &'a Entity, name: &str) -> Option<&'a ValueType> {
    match entity.properties.get(name)?.value_type.as_ref()? {
        ValueType::NullValue(_) => None,
        value => Some(value),
    }
}

fn wrong(entity: &Entity, name: &str, is: &ValueType, wanted: &str) -> String {
    let kind = match is {
        ValueType::NullValue(_) => "null",
        ValueType::BooleanValue(_) => "true or false",
        ValueType::IntegerValue(_) => "a whole number",
        ValueType::DoubleValue(_) => "a number",
        ValueType::TimestampValue(_) => "a time",
        ValueType::KeyValue(_) => "a key",
        ValueType::StringValue(_) => "text",
        ValueType::BlobValue(_) => "bytes",
        ValueType::GeoPointValue(_) => "a place",
        ValueType::EntityValue(_) => "an entity",
        ValueType::ArrayValue(_) => "a list",
    };
    format!("{}: `{name}` is {kind}, {wanted} is wanted", shown(entity))
}

/// Text; a whole number as its digits, and bytes that are text, as older models wrote it.
fn as_text(value: &ValueType) -> Option<String> {
    match value {
        ValueType::StringValue(text) => Some(text.clone()),
        ValueType::IntegerValue(number) => Some(number.to_string()),
        ValueType::BlobValue(bytes) => String::from_utf8(bytes.clone()).ok(),
        _ => None,
    }
}

/// A text property.
///
/// # Errors
/// When it is something else.
pub fn text_of(entity: &Entity, name: &str) -> Result<Option<String>, String> {
    let Some(value) = property(entity, name) else { return Ok(None) };
    as_text(value).map(Some).ok_or_else(|| wrong(entity, name, value, "text"))
}

/// A list of texts; a single text is a list of one.
///
/// # Errors
/// When it is something else.
pub fn list_of(entity: &Entity, name: &str) -> Result<Vec<String>, String> {
    let Some(value) = property(entity, name) else { return Ok(Vec::new()) };
    let ValueType::ArrayValue(array) = value else {
        let text = as_text(value).ok_or_else(|| wrong(entity, name, value, "a list of texts"))?;
        return Ok(vec![text]);
    };
    let null = ValueType::NullValue(0);
    let item = |value: &Value| {
        let value = value.value_type.as_ref().unwrap_or(&null);
        as_text(value).ok_or_else(|| wrong(entity, name, value, "a list of texts"))
    };
    array.values.iter().map(item).collect()
}

/// Whatever is text in a property, once: what a query could have found it by.
pub(super) fn texts_of(entity: &Entity, name: &str) -> Vec<String> {
    let mut texts = match property(entity, name) {
        Some(ValueType::ArrayValue(array)) => {
            array.values.iter().filter_map(|v| as_text(v.value_type.as_ref()?)).collect()
        }
        Some(value) => as_text(value).into_iter().collect::<Vec<_>>(),
        None => Vec::new(),
    };
    texts.sort();
    texts.dedup();
    texts
}

/// A number, and whether it is stored as an integer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Number {
    /// Its value.
    pub value: f64,
    /// It is an integer in the store, which Python reads as `int` and not as `float`.
    pub integer: bool,
}

/// A number; a whole one is a number too.
///
/// # Errors
/// When it is something else.
pub fn number_of(entity: &Entity, name: &str) -> Result<Option<Number>, String> {
    let Some(value) = property(entity, name) else { return Ok(None) };
    match value {
        // Weights and limits are far below 2^53, where this is exact.
        #[expect(clippy::cast_precision_loss)]
        ValueType::IntegerValue(number) => {
            Ok(Some(Number { value: *number as f64, integer: true }))
        }
        ValueType::DoubleValue(number) => Ok(Some(Number { value: *number, integer: false })),
        other => Err(wrong(entity, name, other, "a number")),
    }
}

/// `true` or `false`.
///
/// # Errors
/// When it is something else.
pub fn boolean_of(entity: &Entity, name: &str) -> Result<Option<bool>, String> {
    match property(entity, name) {
        None => Ok(None),
        Some(ValueType::BooleanValue(value)) => Ok(Some(*value)),
        Some(other) => Err(wrong(entity, name, other, "true or false")),
    }
}
