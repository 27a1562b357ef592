//! What correctness needs beyond the queue and the Jobs, kept durably under short keys: weight
//! epochs, open plans of GCP Batch, marks that a person set.
//!
//! One set of records for each scheduler. Only the leader writes, so that there is no merging:
//! a write that somebody else came before fails. Leaves out what records mean, and where they are
//! kept: a ConfigMap of the home namespace, or a file of this machine where there is no cluster.

pub mod file;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;

/// Why a record could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Another try may go well. A write may have been made.
    #[error("the scheduler's records can't be reached: {0}")]
    Unavailable(String),
    /// Another process wrote meanwhile: this one does not lead any more.
    #[error("the scheduler's records were changed by another process: {0}")]
    Overtaken(String),
    /// It stays so until somebody acts.
    #[error("the scheduler's records can't be used: {0}")]
    Refused(String),
}

/// The records of one scheduler. Keys are of `[-._a-zA-Z0-9]`, as in a ConfigMap.
#[async_trait]
pub trait Records: Send + Sync {
    /// All records, as they are durably stored now.
    ///
    /// # Errors
    /// [`RecordError`].
    async fn all(&self) -> Result<BTreeMap<String, String>, RecordError>;

    /// Sets (`Some`) and removes (`None`) records, all or none of them. Durable when it returns.
    ///
    /// # Errors
    /// [`RecordError`]; after [`RecordError::Unavailable`] it may have been done, and doing it
    /// again is harmless.
    async fn write(&self, changes: &[(String, Option<String>)]) -> Result<(), RecordError>;
}

/// Makes the changes of a write to what is there.
pub fn apply(records: &mut BTreeMap<String, String>, changes: &[(String, Option<String>)]) {
    for (key, value) in changes {
        match value {
            Some(value) => records.insert(key.clone(), value.clone()),
            None => records.remove(key),
        };
    }
}

/// Records in memory, for tests and for what ends with its process.
#[derive(Debug, Default)]
pub struct InMemory(Mutex<BTreeMap<String, String>>);

#[async_trait]
impl Records for InMemory {
    async fn all(&self) -> Result<BTreeMap<String, String>, RecordError> {
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    async fn write(&self, changes: &[(String, Option<String>)]) -> Result<(), RecordError> {
        apply(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner), changes);
        Ok(())
    }
}
