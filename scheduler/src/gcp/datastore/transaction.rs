//! One entity, changed in a transaction.

use gcloud_sdk::google::datastore::v1::commit_request::{Mode, TransactionSelector};
use gcloud_sdk::google::datastore::v1::key::PathElement;
use gcloud_sdk::google::datastore::v1::key::path_element::IdType;
use gcloud_sdk::google::datastore::v1::mutation::Operation;
use gcloud_sdk::google::datastore::v1::read_options::ConsistencyType;
use gcloud_sdk::google::datastore::v1::{
    BeginTransactionRequest, CommitRequest, Entity, Key, LookupRequest, Mutation, ReadOptions,
    RollbackRequest,
};
use gcloud_sdk::tonic::{Code, Status};

use super::retry::{Refusal, Tries};
use super::{Datastore, DatastoreError};

impl Datastore {
    /// Reads the entity of that kind and name, lets `change` make a new one of it, and writes that,
    /// all in one transaction that is made anew when another one came between. Returns the entity
    /// as it was before, `None` where there was none.
    ///
    /// `change` may be called several times; its error ends it, and nothing is written.
    ///
    /// # Errors
    /// `change`'s own error, or why Datastore did not do it. Where its answer was lost, it may
    /// have been done.
    pub async fn change<E>(
        &self,
        kind: &str,
        name: &str,
        change: impl Fn(Option<&Entity>, Key) -> Result<Entity, E> + Send + Sync,
    ) -> Result<Result<Option<Entity>, E>, DatastoreError> {
        let key = Key {
            partition_id: Some(self.partition()),
            path: vec![PathElement {
                kind: kind.to_owned(),
                id_type: Some(IdType::Name(name.to_owned())),
            }],
        };
        let mut tries = Tries::of_transaction();
        // What was there before a commit whose answer was lost: the next try would see its own.
        let mut unsure: Option<(Option<Entity>, Entity)> = None;
        loop {
            match self.try_once(&key, &change, &mut unsure).await {
                Ok(done) => return Ok(done),
                Err(status) => {
                    let again = tries.again(&status).await;
                    again.map_err(|refusal| refusal.into_error(self.project()))?;
                }
            }
        }
    }

    async fn try_once<E>(
        &self,
        key: &Key,
        change: &(impl Fn(Option<&Entity>, Key) -> Result<Entity, E> + Sync),
        unsure: &mut Option<(Option<Entity>, Entity)>,
    ) -> Result<Result<Option<Entity>, E>, Status> {
        let transaction = self.begin().await?;
        let mut open = true;
        let done = self.within(&transaction, &mut open, key, change, unsure).await;
        if open {
            self.let_go(transaction).await;
        }
        done
    }

    async fn within<E>(
        &self,
        transaction: &[u8],
        open: &mut bool,
        key: &Key,
        change: &(impl Fn(Option<&Entity>, Key) -> Result<Entity, E> + Sync),
        unsure: &mut Option<(Option<Entity>, Entity)>,
    ) -> Result<Result<Option<Entity>, E>, Status> {
        let before = self.read(key, transaction).await?;
        if let Some((first, wanted)) = unsure
            && before.as_ref().is_some_and(|now| now.properties == wanted.properties)
        {
            return Ok(Ok(first.clone()));
        }
        let after = match change(before.as_ref(), key.clone()) {
            Ok(after) => after,
            Err(error) => return Ok(Err(error)),
        };
        let committed = self.commit(transaction, after.clone()).await;
        *open = committed.is_err();
        // Aborted is the one failure that says that nothing was written.
        *unsure = match &committed {
            Err(status) if status.code() != Code::Aborted => Some((before.clone(), after)),
            _ => None,
        };
        committed.map(|()| Ok(before))
    }

    async fn begin(&self) -> Result<Vec<u8>, Status> {
        let begin = BeginTransactionRequest {
            project_id: self.project.clone(),
            ..BeginTransactionRequest::default()
        };
        Ok(self.rpc.begin(begin).await?.transaction)
    }

    /// Ends a transaction that came to nothing: what it has read stays locked against others until
    /// then, and against its own next try. Should this fail, its locks lapse by themselves.
    async fn let_go(&self, transaction: Vec<u8>) {
        let rollback = RollbackRequest {
            project_id: self.project.clone(),
            transaction,
            ..RollbackRequest::default()
        };
        if let Err(status) = self.rpc.rollback(rollback).await {
            tracing::debug!(why = %Refusal::of(&status), "a transaction was not rolled back");
        }
    }

    async fn read(&self, key: &Key, transaction: &[u8]) -> Result<Option<Entity>, Status> {
        let lookup = LookupRequest {
            project_id: self.project.clone(),
            read_options: Some(ReadOptions {
                consistency_type: Some(ConsistencyType::Transaction(transaction.to_vec())),
            }),
            keys: vec![key.clone()],
            ..LookupRequest::default()
        };
        let answer = self.rpc.lookup(lookup).await?;
        if !answer.deferred.is_empty() {
            return Err(Status::unavailable("the read of the entity was put off"));
        }
        Ok(answer.found.into_iter().next().and_then(|found| found.entity))
    }

    async fn commit(&self, transaction: &[u8], entity: Entity) -> Result<(), Status> {
        let mutation =
            Mutation { operation: Some(Operation::Upsert(entity)), ..Mutation::default() };
        let request = CommitRequest {
            project_id: self.project.clone(),
            mode: Mode::Transactional.into(),
            mutations: vec![mutation],
            transaction_selector: Some(TransactionSelector::Transaction(transaction.to_vec())),
            ..CommitRequest::default()
        };
        self.rpc.commit(request).await.map(|_| ())
    }
}
