//! A Datastore in memory, for tests: as much as the calls here need, with faults on demand.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use gcloud_sdk::google::datastore::v1::key::PathElement;
use gcloud_sdk::google::datastore::v1::key::path_element::IdType;
use gcloud_sdk::google::datastore::v1::mutation::Operation;
use gcloud_sdk::google::datastore::v1::query_result_batch::MoreResultsType;
use gcloud_sdk::google::datastore::v1::run_query_request::QueryType;
use gcloud_sdk::google::datastore::v1::value::ValueType;
use gcloud_sdk::google::datastore::v1::{
    BeginTransactionRequest, BeginTransactionResponse, CommitRequest, CommitResponse, Entity,
    EntityResult, Key, LookupRequest, LookupResponse, Query, QueryResultBatch, RollbackRequest,
    RollbackResponse, RunQueryRequest, RunQueryResponse, filter, property_filter,
};
use gcloud_sdk::tonic::{Code, Status};

use super::properties::{IntoValue, texts_of};
use super::rpc::Rpc;
use super::{Datastore, MOST_VALUES};

/// What is in it, and how it behaves.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) entities: Vec<Entity>,
    /// Failures of the next calls, whatever they are; `None` lets one through.
    pub(crate) failures: VecDeque<Option<Code>>,
    /// Failures of the next commits: the code, and whether the commit is made all the same.
    pub(crate) commits: VecDeque<(Code, bool)>,
    /// Transactions begun and neither committed nor rolled back.
    pub(crate) open: usize,
    /// Values that are refused, in whatever query.
    pub(crate) refused: BTreeSet<String>,
    /// It knows no IN.
    pub(crate) without_in: bool,
    /// The most entities of one answer; 0: as many as asked for.
    pub(crate) page: usize,
    /// The number of values of each query made.
    pub(crate) queries: Vec<usize>,
}

/// The Datastore.
#[derive(Clone, Default)]
pub(crate) struct Fake(Arc<Mutex<State>>);

/// An entity with a numbered key.
pub(crate) fn entity(kind: &str, id: i64, properties: &[(&str, ValueType)]) -> Entity {
    keyed(kind, IdType::Id(id), properties)
}

/// An entity with a named key.
pub(crate) fn named(kind: &str, name: &str, properties: &[(&str, ValueType)]) -> Entity {
    keyed(kind, IdType::Name(name.to_owned()), properties)
}

fn keyed(kind: &str, id: IdType, properties: &[(&str, ValueType)]) -> Entity {
    let path = vec![PathElement { kind: kind.to_owned(), id_type: Some(id) }];
    let property =
        |(name, value): &(&str, ValueType)| ((*name).to_owned(), value.clone().into_value());
    Entity {
        key: Some(Key { partition_id: None, path }),
        properties: properties.iter().map(property).collect(),
    }
}

/// A text value.
pub(crate) fn s(text: &str) -> ValueType {
    ValueType::StringValue(text.to_owned())
}

impl Fake {
    pub(crate) fn holding(entities: Vec<Entity>) -> Self {
        let fake = Self::default();
        fake.with(|state| state.entities = entities);
        fake
    }

    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.0.lock().expect("the state"))
    }

    pub(crate) fn datastore(&self) -> Datastore {
        Datastore::over(Arc::new(self.clone()), "p")
    }

    fn fail(&self) -> Result<(), Status> {
        match self.with(|state| state.failures.pop_front()).flatten() {
            Some(code) => Err(Status::new(code, "as told")),
            None => Ok(()),
        }
    }
}

fn kind_of(entity: &Entity) -> &str {
    let last = entity.key.as_ref().and_then(|key| key.path.last());
    last.map(|part| part.kind.as_str()).unwrap_or_default()
}

fn path_of(key: Option<&Key>) -> &[PathElement] {
    key.map(|key| key.path.as_slice()).unwrap_or_default()
}

impl State {
    fn values(&self, query: &Query) -> Result<Option<(String, Vec<String>)>, Status> {
        let Some(filter) = &query.filter else { return Ok(None) };
        let Some(filter::FilterType::PropertyFilter(filter)) = &filter.filter_type else {
            return Err(Status::invalid_argument("no property filter"));
        };
        let is_in = filter.op == i32::from(property_filter::Operator::In);
        let values: Vec<String> = match filter.value.as_ref().and_then(|v| v.value_type.as_ref()) {
            Some(ValueType::StringValue(text)) if !is_in => vec![text.clone()],
            Some(ValueType::ArrayValue(array)) if is_in && !self.without_in => {
                let text = |v: &gcloud_sdk::google::datastore::v1::Value| match &v.value_type {
                    Some(ValueType::StringValue(text)) => text.clone(),
                    _ => String::new(),
                };
                array.values.iter().map(text).collect()
            }
            _ => return Err(Status::invalid_argument("no such filter")),
        };
        if values.len() > MOST_VALUES || values.iter().any(|v| self.refused.contains(v)) {
            return Err(Status::invalid_argument("the values are refused"));
        }
        let property = filter.property.as_ref().map(|p| p.name.clone()).unwrap_or_default();
        Ok(Some((property, values)))
    }

    fn run(&mut self, query: &Query) -> Result<QueryResultBatch, Status> {
        let values = self.values(query)?;
        self.queries.push(values.as_ref().map_or(0, |(_, values)| values.len()));
        let kind = query.kind.first().map(|k| k.name.as_str()).unwrap_or_default();
        let matches = |entity: &&Entity| {
            kind_of(entity) == kind
                && values.as_ref().is_none_or(|(property, values)| {
                    texts_of(entity, property).iter().any(|text| values.contains(text))
                })
        };
        let all: Vec<Entity> = self.entities.iter().filter(matches).cloned().collect();
        let start = match query.start_cursor.as_slice() {
            [] => 0,
            text => String::from_utf8_lossy(text).parse().expect("a cursor of ours"),
        };
        let limit = usize::try_from(query.limit.expect("a limit")).expect("a limit");
        let most = if self.page == 0 { limit } else { limit.min(self.page) };
        let end = all.len().min(start + most);
        let more = if end == start + limit {
            MoreResultsType::MoreResultsAfterLimit
        } else if end < all.len() {
            MoreResultsType::NotFinished
        } else {
            MoreResultsType::NoMoreResults
        };
        let result = |entity: &Entity| EntityResult {
            entity: Some(entity.clone()),
            ..EntityResult::default()
        };
        Ok(QueryResultBatch {
            entity_results: all[start..end].iter().map(result).collect(),
            end_cursor: end.to_string().into_bytes(),
            more_results: more.into(),
            ..QueryResultBatch::default()
        })
    }
}

#[async_trait]
impl Rpc for Fake {
    async fn run_query(&self, request: RunQueryRequest) -> Result<RunQueryResponse, Status> {
        // As a network does, so that calls side by side mix.
        tokio::task::yield_now().await;
        self.fail()?;
        let Some(QueryType::Query(query)) = &request.query_type else {
            return Err(Status::invalid_argument("no query"));
        };
        let batch = self.with(|state| state.run(query))?;
        Ok(RunQueryResponse { batch: Some(batch), ..RunQueryResponse::default() })
    }

    async fn begin(&self, _: BeginTransactionRequest) -> Result<BeginTransactionResponse, Status> {
        self.fail()?;
        self.with(|state| state.open += 1);
        Ok(BeginTransactionResponse { transaction: vec![1] })
    }

    async fn lookup(&self, request: LookupRequest) -> Result<LookupResponse, Status> {
        self.fail()?;
        let wanted = path_of(request.keys.first());
        let found = self.with(|state| {
            state.entities.iter().find(|e| path_of(e.key.as_ref()) == wanted).cloned()
        });
        let result = |entity| EntityResult { entity: Some(entity), ..EntityResult::default() };
        Ok(LookupResponse { found: found.map(result).into_iter().collect(), ..Default::default() })
    }

    async fn commit(&self, request: CommitRequest) -> Result<CommitResponse, Status> {
        let failure = self.with(|state| state.commits.pop_front());
        if failure.is_none_or(|(_, made)| made) {
            for mutation in request.mutations {
                let Some(Operation::Upsert(entity)) = mutation.operation else { continue };
                self.with(|state| {
                    let path = path_of(entity.key.as_ref()).to_vec();
                    state.entities.retain(|e| path_of(e.key.as_ref()) != path);
                    state.entities.push(entity);
                });
            }
        }
        match failure {
            Some((code, _)) => Err(Status::new(code, "as told")),
            None => {
                self.with(|state| state.open -= 1);
                Ok(CommitResponse::default())
            }
        }
    }

    async fn rollback(&self, _: RollbackRequest) -> Result<RollbackResponse, Status> {
        self.with(|state| state.open -= 1);
        Ok(RollbackResponse::default())
    }
}
