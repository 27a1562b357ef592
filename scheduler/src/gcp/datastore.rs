//! Datastore, as far as a ClusterFuzz farm's entities need it: the entities of a kind, all or those
//! whose property has one of many values, and one entity changed in a transaction.
//!
//! Everything is in the default database and the default namespace, where ClusterFuzz has it.
//! What an entity means is its reader's to say.

#[cfg(test)]
pub(crate) mod fake;
pub mod properties;
mod query;
mod retry;
mod rpc;
mod transaction;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::{FutureExt, StreamExt, TryStreamExt};
use gcloud_sdk::google::datastore::v1::{Entity, PartitionId};

use super::channel::{ChannelError, Endpoint};
use query::Matching;
use retry::{Refusal, Tries};
use rpc::{GrpcRpc, Rpc};

/// Google's own endpoint.
const GOOGLE: &str = "https://datastore.googleapis.com";
/// The variable that names an emulator, as Google's own clients take it.
pub const EMULATOR_VARIABLE: &str = "DATASTORE_EMULATOR_HOST";
/// The most values of one IN filter (Datastore's limit on disjunctions).
const MOST_VALUES: usize = 30;
/// The longest text that is indexed, in bytes (Datastore's limit): a longer one is found nowhere,
/// and asking for it is an error.
const LONGEST_INDEXED: usize = 1_500;
/// For more values than this the whole kind is read, page by page, and sorted through here: fewer
/// queries, and far less work for an emulator (100 times for a farm of 3,489 job types).
const LIST_ABOVE: usize = 10 * MOST_VALUES;
/// So many queries at once: enough to hide the way there, few enough to disturb nobody.
const AT_ONCE: usize = 4;

/// Why Datastore doesn't answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DatastoreError {
    /// It may answer later.
    #[error("Datastore does not answer: {0}")]
    Unavailable(String),
    /// It will go on refusing until something is mended.
    #[error("Datastore refuses: {0}")]
    Refused(String),
}

/// What was found for each of the values that were asked for.
#[derive(Debug, Default)]
pub struct Found {
    /// The entities by the value that they were found by, in the order of their keys. A value
    /// without any entity is absent.
    pub entities: BTreeMap<String, Vec<Entity>>,
    /// The values that alone were refused, with the reason.
    pub refused: BTreeMap<String, String>,
}

/// A project's Datastore. Cheap to clone.
#[derive(Clone)]
pub struct Datastore {
    rpc: Arc<dyn Rpc>,
    project: String,
    /// Set once IN was refused where equality was not: the legacy emulator knows no IN.
    without_in: Arc<AtomicBool>,
}

impl std::fmt::Debug for Datastore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Datastore").field("project", &self.project).finish_non_exhaustive()
    }
}

impl Datastore {
    /// The Datastore of `project`, at Google or at the emulator that `DATASTORE_EMULATOR_HOST`
    /// names. Connects when it is first asked.
    ///
    /// # Errors
    /// The emulator's address is none, or there are credentials that can't be read.
    pub async fn open(project: &str) -> Result<Self, ChannelError> {
        let emulator = std::env::var(EMULATOR_VARIABLE).ok();
        Self::at(&Endpoint::choose(None, emulator.as_deref(), GOOGLE), project).await
    }

    /// As [`open`](Self::open), at a given endpoint.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn at(endpoint: &Endpoint, project: &str) -> Result<Self, ChannelError> {
        Ok(Self::over(Arc::new(GrpcRpc::new(endpoint.open().await?)), project))
    }

    fn over(rpc: Arc<dyn Rpc>, project: &str) -> Self {
        let without_in = Arc::new(AtomicBool::new(false));
        Self { rpc, project: project.to_owned(), without_in }
    }

    /// The project.
    pub fn project(&self) -> &str {
        &self.project
    }

    fn partition(&self) -> PartitionId {
        PartitionId { project_id: self.project.clone(), ..PartitionId::default() }
    }

    /// All entities of a kind, in the order of their keys.
    ///
    /// # Errors
    /// [`DatastoreError`]; never fewer entities.
    pub async fn all(&self, kind: &str) -> Result<Vec<Entity>, DatastoreError> {
        let found = self.query(kind, Matching::All).await;
        found.map_err(|refusal| refusal.into_error(&self.project))
    }

    /// The entities of a kind whose text property `property` is, or has among its values, one of
    /// `values`: IN queries of at most 30 values, side by side; one by one where IN is not known,
    /// and the whole kind for very many values.
    ///
    /// # Errors
    /// [`DatastoreError`]; never fewer entities. One value that alone is refused while others are
    /// not is none.
    pub async fn by_values(
        &self,
        kind: &str,
        property: &str,
        values: &[&str],
    ) -> Result<Found, DatastoreError> {
        let askable: BTreeSet<&str> = values
            .iter()
            .copied()
            .filter(|value| !value.is_empty() && value.len() <= LONGEST_INDEXED)
            .collect();
        if askable.len() > LIST_ABOVE {
            let entities = self.all(kind).await?;
            return Ok(by_value(property, &askable, entities, BTreeMap::new()));
        }
        let all: Vec<String> = askable.iter().map(|value| (*value).to_owned()).collect();
        let chunks: Vec<_> = all
            .chunks(MOST_VALUES)
            .map(|chunk| self.chunk(kind.to_owned(), property.to_owned(), chunk.to_vec()).boxed())
            .collect();
        let answers: Vec<Chunk> = futures::stream::iter(chunks)
            .buffered(AT_ONCE)
            .try_collect()
            .await
            .map_err(|refusal: Refusal| refusal.into_error(&self.project))?;
        let (mut entities, mut refused) = (Vec::new(), BTreeMap::new());
        for answer in answers {
            entities.extend(answer.entities);
            refused.extend(answer.refused);
        }
        if !askable.is_empty()
            && refused.len() == askable.len()
            && let Some(reason) = refused.values().next()
        {
            return Err(DatastoreError::Refused(reason.clone()));
        }
        Ok(by_value(property, &askable, entities, refused))
    }

    async fn chunk(
        &self,
        kind: String,
        property: String,
        values: Vec<String>,
    ) -> Result<Chunk, Refusal> {
        let mut refusal = None;
        if values.len() > 1 && !self.without_in.load(Ordering::Relaxed) {
            let matching = Matching::AnyOf(property.clone(), values.clone());
            match self.query(&kind, matching).await {
                Ok(entities) => return Ok(Chunk { entities, ..Chunk::default() }),
                Err(argument @ Refusal::Argument(_)) => refusal = Some(argument),
                Err(other) => return Err(other),
            }
        }
        let chunk = self.one_by_one(&kind, &property, values).await?;
        // Where one value is refused alone, it was that value, not IN.
        if let Some(refusal) = refusal
            && chunk.refused.is_empty()
            && !self.without_in.swap(true, Ordering::Relaxed)
        {
            tracing::info!("Datastore knows no IN here ({refusal}): values are asked for singly");
        }
        Ok(chunk)
    }

    async fn one_by_one(
        &self,
        kind: &str,
        property: &str,
        values: Vec<String>,
    ) -> Result<Chunk, Refusal> {
        let mut chunk = Chunk::default();
        for value in values {
            let matching = Matching::Equal(property.to_owned(), value.clone());
            match self.query(kind, matching).await {
                Ok(entities) => chunk.entities.extend(entities),
                Err(Refusal::Argument(reason)) => {
                    chunk.refused.insert(value, reason);
                }
                Err(other) => return Err(other),
            }
        }
        Ok(chunk)
    }

    async fn query(&self, kind: &str, matching: Matching) -> Result<Vec<Entity>, Refusal> {
        let mut pages = query::Pages::of(&self.project, self.partition(), kind, matching);
        while let Some(request) = pages.next() {
            let mut tries = Tries::of_call();
            let answer = loop {
                match self.rpc.run_query(request.clone()).await {
                    Ok(answer) => break answer,
                    Err(status) => tries.again(&status).await?,
                }
            };
            pages.take(answer).map_err(Refusal::Later)?;
        }
        Ok(pages.into_entities())
    }
}

#[derive(Default)]
struct Chunk {
    entities: Vec<Entity>,
    refused: BTreeMap<String, String>,
}

/// Sorts entities under the values that they were found by. One that is found by several values
/// (a list property) is under each.
fn by_value(
    property: &str,
    asked: &BTreeSet<&str>,
    mut entities: Vec<Entity>,
    refused: BTreeMap<String, String>,
) -> Found {
    entities.sort_by_cached_key(properties::key_order);
    entities.dedup_by(|a, b| a.key == b.key);
    let mut found = Found { refused, ..Found::default() };
    for entity in entities {
        for value in properties::texts_of(&entity, property) {
            if asked.contains(value.as_str()) {
                found.entities.entry(value).or_default().push(entity.clone());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests;
