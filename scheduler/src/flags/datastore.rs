//! Flags in Datastore: `FeatureFlag` entities, whose key is the flag's name.
//!
//! All are read at once, in one query; one that can't be read is an error of the whole set, since
//! an absent flag means something else. Upstream takes a weight only where Python reads a float, so
//! a number is written as one; it is read from whole numbers too.

use async_trait::async_trait;
use gcloud_sdk::google::datastore::v1::value::ValueType;
use gcloud_sdk::google::datastore::v1::{Entity, Key, Value};

use super::change::{Change, ChangeError};
use super::{Flag, FlagSet, FlagSource, FlagsError};
use crate::gcp::datastore::properties::{boolean_of, key_name, number_of, text_of};
use crate::gcp::datastore::{Datastore, DatastoreError};

/// The kind of the entities that are flags.
const KIND: &str = "FeatureFlag";

impl From<DatastoreError> for FlagsError {
    fn from(error: DatastoreError) -> Self {
        Self(error.to_string())
    }
}

/// A project's flags.
#[derive(Debug, Clone)]
pub struct DatastoreFlags {
    datastore: Datastore,
}

impl DatastoreFlags {
    /// The flags in this Datastore.
    pub fn new(datastore: Datastore) -> Self {
        Self { datastore }
    }

    /// Where they are, for people.
    pub fn place(&self) -> String {
        format!("Datastore of project {}", self.datastore.project())
    }

    /// Changes one flag in a transaction; all its other properties stay as they are. Returns the
    /// flag before and after.
    ///
    /// # Errors
    /// [`ChangeError`]; where Datastore's last answer was lost, it may have been changed.
    pub async fn set(
        &self,
        name: &str,
        change: &Change,
    ) -> Result<(Option<Flag>, Flag), ChangeError> {
        let edit = |before: Option<&Entity>, key: Key| {
            let flag = before.map(flag).transpose()?;
            let after = change.apply(name, flag.as_ref())?;
            Ok::<_, ChangeError>(edited(before, key, &after, change))
        };
        let before = match self.datastore.change(KIND, name, edit).await {
            Ok(Ok(before)) => before,
            Ok(Err(error @ ChangeError::Absent { .. })) => {
                return Err(error.with_near(&self.read().await?));
            }
            Ok(Err(error)) => return Err(error),
            Err(error) => return Err(ChangeError::Write(error.to_string())),
        };
        let before = before.as_ref().map(flag).transpose()?;
        let after = change.apply(name, before.as_ref())?;
        Ok((before, after))
    }
}

#[async_trait]
impl FlagSource for DatastoreFlags {
    async fn read(&self) -> Result<FlagSet, FlagsError> {
        let entities = self.datastore.all(KIND).await?;
        // A key with a number is nobody's flag: flags are looked up by name.
        let named = entities.iter().filter_map(|entity| Some((key_name(entity)?, entity)));
        let read = named.map(|(name, entity)| Ok((name.to_owned(), flag(entity)?)));
        Ok(FlagSet(read.collect::<Result<_, FlagsError>>()?))
    }
}

fn flag(entity: &Entity) -> Result<Flag, FlagsError> {
    let read = || {
        let number = number_of(entity, "value")?;
        Ok(Flag {
            enabled: boolean_of(entity, "enabled")?.unwrap_or(false),
            value: number.map(|number| number.value),
            integer: number.is_some_and(|number| number.integer),
            string_value: text_of(entity, "string_value")?,
            // Nothing depends on it: whatever else it is, no flag fails for it.
            description: text_of(entity, "description").unwrap_or_default(),
        })
    };
    read().map_err(|fault: String| FlagsError(fault))
}

/// The entity with the changed properties in it. A new one has all properties that ClusterFuzz's
/// model has, so that its own queries and pages find it.
fn edited(before: Option<&Entity>, key: Key, after: &Flag, change: &Change) -> Entity {
    let fresh = before.is_none();
    let mut entity = before.cloned().unwrap_or_default();
    entity.key = Some(key);
    let mut put = |name: &str, value: ValueType| {
        let before = entity.properties.get(name);
        let unindexed = before.is_some_and(|value| value.exclude_from_indexes);
        let value =
            Value { value_type: Some(value), exclude_from_indexes: unindexed, ..Value::default() };
        entity.properties.insert(name.to_owned(), value);
    };
    let null = || ValueType::NullValue(0);
    if fresh || change.enabled.is_some() {
        put("enabled", ValueType::BooleanValue(after.enabled));
    }
    if fresh || change.value.is_some() {
        put("value", after.value.map_or_else(null, ValueType::DoubleValue));
    }
    if fresh || change.string_value.is_some() {
        put("string_value", after.string_value.clone().map_or_else(null, ValueType::StringValue));
    }
    if fresh {
        put("description", null());
    }
    entity
}

#[cfg(test)]
mod tests;
