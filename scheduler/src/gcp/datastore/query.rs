//! One query over all its pages. Pure: it says what to ask next and takes the answers.

use gcloud_sdk::google::datastore::v1::query_result_batch::MoreResultsType;
use gcloud_sdk::google::datastore::v1::run_query_request::QueryType;
use gcloud_sdk::google::datastore::v1::{
    Entity, Filter, KindExpression, PartitionId, PropertyFilter, PropertyReference, Query,
    RunQueryRequest, RunQueryResponse, filter, property_filter,
};

use super::properties::{list, text};

/// The most entities of one page.
pub(super) const PAGE: i32 = 300;
/// So many pages may bring nothing and lead nowhere before the query counts as failed.
const MOST_IDLE: u32 = 3;

/// Which entities of a kind.
pub(super) enum Matching {
    /// All.
    All,
    /// Those whose property is this.
    Equal(String, String),
    /// Those whose property is one of these.
    AnyOf(String, Vec<String>),
}

impl Matching {
    fn filter(self) -> Option<Filter> {
        let (name, op, value) = match self {
            Self::All => return None,
            Self::Equal(name, value) => (name, property_filter::Operator::Equal, text(value)),
            Self::AnyOf(name, values) => {
                let values = values.into_iter().map(text).collect();
                (name, property_filter::Operator::In, list(values))
            }
        };
        let filter = PropertyFilter {
            property: Some(PropertyReference { name }),
            op: op.into(),
            value: Some(value),
        };
        Some(Filter { filter_type: Some(filter::FilterType::PropertyFilter(filter)) })
    }
}

/// The pages of one query.
pub(super) struct Pages {
    request: RunQueryRequest,
    query: Query,
    entities: Vec<Entity>,
    idle: u32,
    done: bool,
}

impl Pages {
    pub(super) fn of(
        project: &str,
        partition: PartitionId,
        kind: &str,
        matching: Matching,
    ) -> Self {
        let query = Query {
            kind: vec![KindExpression { name: kind.to_owned() }],
            filter: matching.filter(),
            limit: Some(PAGE),
            ..Query::default()
        };
        let request = RunQueryRequest {
            project_id: project.to_owned(),
            partition_id: Some(partition),
            ..RunQueryRequest::default()
        };
        Self { request, query, entities: Vec::new(), idle: 0, done: false }
    }

    /// What to ask next; `None`: all is there.
    pub(super) fn next(&self) -> Option<RunQueryRequest> {
        let query_type = Some(QueryType::Query(self.query.clone()));
        (!self.done).then(|| RunQueryRequest { query_type, ..self.request.clone() })
    }

    /// Takes a page in.
    pub(super) fn take(&mut self, answer: RunQueryResponse) -> Result<(), String> {
        let batch = answer.batch.ok_or("a query's answer has no results in it")?;
        let empty = batch.entity_results.is_empty();
        self.entities.extend(batch.entity_results.into_iter().filter_map(|found| found.entity));
        self.done = match MoreResultsType::try_from(batch.more_results) {
            Ok(MoreResultsType::NotFinished) => false,
            // "May be more": an empty page is the last one.
            Ok(
                MoreResultsType::MoreResultsAfterLimit | MoreResultsType::MoreResultsAfterCursor,
            ) => empty,
            Ok(MoreResultsType::NoMoreResults) => true,
            Ok(MoreResultsType::Unspecified) | Err(_) => {
                return Err("a query's answer does not say whether there is more".into());
            }
        };
        if self.done {
            return Ok(());
        }
        if batch.end_cursor.is_empty() || batch.end_cursor == self.query.start_cursor {
            self.idle += 1;
            // The same page again would count its entities twice.
            if self.idle > MOST_IDLE || !empty {
                return Err("a query says that there is more and does not lead there".into());
            }
        }
        if !batch.end_cursor.is_empty() {
            self.query.start_cursor = batch.end_cursor;
        }
        Ok(())
    }

    pub(super) fn into_entities(self) -> Vec<Entity> {
        self.entities
    }
}
