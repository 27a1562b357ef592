//! Buckets of which it is only asked what is in them, for tests.

use std::collections::BTreeSet;
use std::sync::Mutex;

use async_trait::async_trait;

use super::{Fetched, Generation, ObjectName, Objects, StorageError};

/// Knows which objects are there; answers nothing while it hangs.
#[derive(Default)]
pub struct Bucket {
    /// `gs://BUCKET/NAME`, each.
    pub there: BTreeSet<String>,
    /// What every look-up fails with.
    pub fails: Option<StorageError>,
    /// No look-up is ever answered.
    pub hangs: bool,
    /// What was looked for.
    pub asked: Mutex<Vec<String>>,
}

#[async_trait]
impl Objects for Bucket {
    async fn exists(&self, object: &ObjectName) -> Result<bool, StorageError> {
        self.asked.lock().expect("unpoisoned").push(object.to_string());
        if self.hangs {
            std::future::pending::<()>().await;
        }
        match &self.fails {
            Some(error) => Err(error.clone()),
            None => Ok(self.there.contains(&object.to_string())),
        }
    }

    async fn read(
        &self,
        object: &ObjectName,
        _: Option<Generation>,
    ) -> Result<Fetched, StorageError> {
        Err(StorageError::Absent(object.clone()))
    }

    async fn write(
        &self,
        object: &ObjectName,
        _: Vec<u8>,
        _: Option<Generation>,
    ) -> Result<Generation, StorageError> {
        Err(StorageError::Absent(object.clone()))
    }
}
