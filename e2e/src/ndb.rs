//! Entities as ClusterFuzz's models (Python's ndb) store them: all properties of a model are there,
//! unset ones as null; long texts stand in no index; numbered keys are the store's to give.

use std::collections::HashMap;

use anyhow::Result;
use gcloud_sdk::google::datastore::v1::commit_request::Mode;
use gcloud_sdk::google::datastore::v1::datastore_client::DatastoreClient;
use gcloud_sdk::google::datastore::v1::key::PathElement;
use gcloud_sdk::google::datastore::v1::key::path_element::IdType;
use gcloud_sdk::google::datastore::v1::mutation::Operation;
use gcloud_sdk::google::datastore::v1::value::ValueType;
use gcloud_sdk::google::datastore::v1::{
    ArrayValue, CommitRequest, Entity, Key, Mutation, PartitionId, Value,
};
use katabatch::gcp::channel::Endpoint;
use katabatch::gcp::datastore::Datastore;

/// The project of everything that is put in.
pub const PROJECT: &str = "test-clusterfuzz";
/// The most mutations of one commit (Datastore's limit).
const MOST_MUTATIONS: usize = 500;

/// The emulator, as katabatch sees it.
///
/// # Errors
/// When the address is none.
pub async fn open(host: &str) -> Result<Datastore> {
    Ok(Datastore::at(&Endpoint::choose(None, Some(host), ""), PROJECT).await?)
}

fn value(value: ValueType) -> Value {
    Value { value_type: Some(value), ..Value::default() }
}

fn text(text: &str) -> Value {
    value(ValueType::StringValue(text.to_owned()))
}

/// A `TextProperty`.
fn long_text(long: &str) -> Value {
    Value { exclude_from_indexes: true, ..text(long) }
}

/// A property that is not set.
pub fn null() -> Value {
    value(ValueType::NullValue(0))
}

/// A whole number.
pub fn integer(number: i64) -> Value {
    value(ValueType::IntegerValue(number))
}

/// A `FloatProperty`.
pub fn float(number: f64) -> Value {
    value(ValueType::DoubleValue(number))
}

fn optional(set: Option<&str>) -> Value {
    set.map_or_else(null, text)
}

fn entity<const N: usize>(
    kind: &str,
    name: Option<&str>,
    properties: [(&str, Value); N],
) -> Entity {
    let id_type = name.map(|name| IdType::Name(name.to_owned()));
    let partition = PartitionId { project_id: PROJECT.to_owned(), ..PartitionId::default() };
    Entity {
        key: Some(Key {
            partition_id: Some(partition),
            path: vec![PathElement { kind: kind.to_owned(), id_type }],
        }),
        properties: properties
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect::<HashMap<_, _>>(),
    }
}

/// A `Job`.
pub fn job(
    name: &str,
    platform: &str,
    environment: &str,
    templates: &[&str],
    project: Option<&str>,
) -> Entity {
    let templates = ArrayValue { values: templates.iter().map(|name| text(name)).collect() };
    entity(
        "Job",
        None,
        [
            ("name", text(name)),
            ("platform", text(platform)),
            ("environment_string", long_text(environment)),
            ("templates", value(ValueType::ArrayValue(templates))),
            ("project", optional(project)),
            ("base_os_version", null()),
            ("description", null()),
            ("custom_binary_revision", null()),
            ("keywords", value(ValueType::ArrayValue(ArrayValue::default()))),
        ],
    )
}

/// A `JobTemplate`.
pub fn template(name: &str, environment: &str) -> Entity {
    entity(
        "JobTemplate",
        None,
        [("name", text(name)), ("environment_string", long_text(environment))],
    )
}

/// An `OssFuzzProject`.
pub fn project(name: &str, base_os_version: Option<&str>) -> Entity {
    entity(
        "OssFuzzProject",
        Some(name),
        [
            ("name", text(name)),
            ("base_os_version", optional(base_os_version)),
            ("high_end", value(ValueType::BooleanValue(false))),
            ("cpu_weight", float(1.0)),
        ],
    )
}

/// A `FeatureFlag`.
pub fn flag(name: &str, enabled: bool, number: Value) -> Entity {
    entity(
        "FeatureFlag",
        Some(name),
        [
            ("enabled", value(ValueType::BooleanValue(enabled))),
            ("value", number),
            ("string_value", null()),
            ("description", long_text("what it is for")),
        ],
    )
}

/// Puts entities in.
///
/// # Errors
/// When the emulator does not take them.
pub async fn put(host: &str, entities: &[Entity]) -> Result<()> {
    let channel = Endpoint::choose(None, Some(host), "").open().await?;
    let mut client = DatastoreClient::new(channel);
    for some in entities.chunks(MOST_MUTATIONS) {
        let mutation = |entity: &Entity| Mutation {
            operation: Some(Operation::Upsert(entity.clone())),
            ..Mutation::default()
        };
        let request = CommitRequest {
            project_id: PROJECT.to_owned(),
            mode: Mode::NonTransactional.into(),
            mutations: some.iter().map(mutation).collect(),
            ..CommitRequest::default()
        };
        client.commit(request).await?;
    }
    Ok(())
}
