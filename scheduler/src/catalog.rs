//! The catalog trait: what a farm's Datastore says about job types.
//!
//! Entities come as they are stored; what follows from them is `pipeline::resolve`'s to decide.

pub mod cached;
pub mod datastore;
pub mod entity;
pub mod environment;
pub mod file;

use std::collections::BTreeMap;

use async_trait::async_trait;

use crate::domain::name::JobType;
use entity::JobEntities;

/// Why the catalog can't answer. Always our side's fault: tasks are held.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the catalog can't be read: {0}")]
pub struct CatalogError(pub String);

/// How fresh an answer must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// A cached answer will do.
    Cached,
    /// Read it anew: a rejection depends on it.
    Fresh,
}

/// Looks job types up.
#[async_trait]
pub trait Catalog: Send + Sync {
    /// The entities of each job type. A job type without a `Job` entity has an empty
    /// [`JobEntities::jobs`]; several jobs of one name are all there.
    async fn look_up(
        &self,
        job_types: &[JobType],
        freshness: Freshness,
    ) -> Result<BTreeMap<JobType, JobEntities>, CatalogError>;
}
