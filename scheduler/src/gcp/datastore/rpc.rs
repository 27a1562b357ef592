//! The calls of Datastore's gRPC API that are used, behind a trait so that tests can answer them.

use std::time::Duration;

use async_trait::async_trait;
use gcloud_sdk::RequestTimeouts;
use gcloud_sdk::google::datastore::v1::datastore_client::DatastoreClient;
use gcloud_sdk::google::datastore::v1::{
    BeginTransactionRequest, BeginTransactionResponse, CommitRequest, CommitResponse,
    LookupRequest, LookupResponse, RollbackRequest, RollbackResponse, RunQueryRequest,
    RunQueryResponse,
};
use gcloud_sdk::tonic::{Request, Status};

use crate::gcp::channel::Channel;

/// The longest that one call may take: a query of 30 values takes some ten milliseconds of Google's
/// service, and up to seconds of an emulator that holds a whole farm.
const CALL_WITHIN: Duration = Duration::from_secs(10);
/// The largest answer that is taken in. Entities are up to 1 MiB each, and a page has up to 300;
/// tonic's own bound of 4 MiB is below what 30 large job types come to.
const LARGEST_ANSWER: usize = 256 << 20;

/// The calls.
#[async_trait]
pub(crate) trait Rpc: Send + Sync {
    async fn run_query(&self, request: RunQueryRequest) -> Result<RunQueryResponse, Status>;
    async fn begin(
        &self,
        request: BeginTransactionRequest,
    ) -> Result<BeginTransactionResponse, Status>;
    async fn lookup(&self, request: LookupRequest) -> Result<LookupResponse, Status>;
    async fn commit(&self, request: CommitRequest) -> Result<CommitResponse, Status>;
    async fn rollback(&self, request: RollbackRequest) -> Result<RollbackResponse, Status>;
}

/// The calls, over a channel.
pub(super) struct GrpcRpc(DatastoreClient<Channel>);

impl GrpcRpc {
    pub(super) fn new(channel: Channel) -> Self {
        Self(DatastoreClient::new(channel).max_decoding_message_size(LARGEST_ANSWER))
    }
}

fn in_time<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(RequestTimeouts::new().with_total(CALL_WITHIN));
    request
}

#[async_trait]
impl Rpc for GrpcRpc {
    async fn run_query(&self, request: RunQueryRequest) -> Result<RunQueryResponse, Status> {
        Ok(self.0.clone().run_query(in_time(request)).await?.into_inner())
    }

    async fn begin(
        &self,
        request: BeginTransactionRequest,
    ) -> Result<BeginTransactionResponse, Status> {
        Ok(self.0.clone().begin_transaction(in_time(request)).await?.into_inner())
    }

    async fn lookup(&self, request: LookupRequest) -> Result<LookupResponse, Status> {
        Ok(self.0.clone().lookup(in_time(request)).await?.into_inner())
    }

    async fn commit(&self, request: CommitRequest) -> Result<CommitResponse, Status> {
        Ok(self.0.clone().commit(in_time(request)).await?.into_inner())
    }

    async fn rollback(&self, request: RollbackRequest) -> Result<RollbackResponse, Status> {
        Ok(self.0.clone().rollback(in_time(request)).await?.into_inner())
    }
}
