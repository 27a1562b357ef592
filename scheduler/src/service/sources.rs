//! The catalog and the flags that the configuration names, in files or in Datastore.

use std::sync::Arc;
use std::time::Duration;

use super::Loaded;
use crate::catalog::cached::{Bounds, CachedCatalog};
use crate::catalog::datastore::DatastoreCatalog;
use crate::catalog::file::FileCatalog;
use crate::catalog::{Catalog, CatalogError};
use crate::clock::Clock;
use crate::config::entities::{CatalogConfig, FlagsFrom};
use crate::config::watch::Reload;
use crate::domain::name::JobType;
use crate::flags::datastore::DatastoreFlags;
use crate::flags::file::FileFlags;
use crate::flags::{FlagSource, store::FlagStore};
use crate::gcp::datastore::Datastore;

/// So many job types are remembered: three times OSS-Fuzz's.
const MOST_JOB_TYPES: usize = 10_000;

/// Where job types and flags are looked up.
#[derive(Clone)]
pub struct Lookups {
    catalog: CatalogSource,
    flags: FlagStore,
}

#[derive(Clone)]
enum CatalogSource {
    Files(Arc<FileCatalog>),
    Datastore(Arc<CachedCatalog<DatastoreCatalog>>),
}

impl Lookups {
    /// Opens both. Datastore is not asked for anything yet.
    ///
    /// # Errors
    /// Their problems, a line each.
    pub async fn open(loaded: &Loaded, clock: &Arc<dyn Clock>) -> Result<Self, String> {
        let catalog = match &loaded.config.catalog {
            CatalogConfig::Files(files) => {
                let catalog = FileCatalog::open(files.clone()).map_err(|e| e.to_string())?;
                for fault in catalog.index().faults() {
                    tracing::warn!("{fault}");
                }
                CatalogSource::Files(Arc::new(catalog))
            }
            CatalogConfig::Datastore { project, cache, max_stale } => {
                let datastore = datastore(loaded, project.as_deref(), "catalog").await?;
                let source = Arc::new(DatastoreCatalog::new(datastore));
                let bounds =
                    Bounds { lifetime: *cache, max_stale: *max_stale, job_types: MOST_JOB_TYPES };
                let cached = CachedCatalog::new(source, Arc::clone(clock), bounds);
                CatalogSource::Datastore(Arc::new(cached))
            }
        };
        Ok(Self { catalog, flags: open_flags(loaded).await? })
    }

    /// The catalog.
    pub fn catalog(&self) -> Arc<dyn Catalog> {
        match &self.catalog {
            CatalogSource::Files(files) => files.clone(),
            CatalogSource::Datastore(datastore) => datastore.clone(),
        }
    }

    /// The flags.
    pub fn flags(&self) -> Arc<dyn FlagSource> {
        Arc::new(self.flags.clone())
    }

    /// Every job type that the catalog names.
    ///
    /// # Errors
    /// The catalog can't be read.
    pub async fn job_types(&self) -> Result<Vec<JobType>, CatalogError> {
        match &self.catalog {
            CatalogSource::Files(files) => {
                Ok(files.index().job_types().map(JobType::from).collect())
            }
            CatalogSource::Datastore(datastore) => datastore.source().job_types().await,
        }
    }

    /// For how long the catalog can't be read; zero while it can.
    pub fn stale_for(&self) -> Duration {
        match &self.catalog {
            CatalogSource::Files(_) => Duration::ZERO,
            CatalogSource::Datastore(datastore) => datastore.stale_for(),
        }
    }

    /// Looks at the catalog's files, and reloads them when they changed. Flags are read anew each
    /// time, and Datastore's entities have a lifetime.
    pub fn poll(&self) -> Reload {
        match &self.catalog {
            CatalogSource::Files(files) => files.poll(),
            CatalogSource::Datastore(_) => Reload::Unchanged,
        }
    }
}

/// The flags alone, to be read and set.
///
/// # Errors
/// Why Datastore can't be opened.
pub async fn open_flags(loaded: &Loaded) -> Result<FlagStore, String> {
    Ok(match &loaded.config.flags.source {
        FlagsFrom::Files(files) => FlagStore::Files(FileFlags::new(files.clone())),
        FlagsFrom::Datastore { project } => {
            let datastore = datastore(loaded, project.as_deref(), "flags").await?;
            FlagStore::Datastore(DatastoreFlags::new(datastore))
        }
    })
}

/// The Datastore of the configured project, else of the farm's own.
async fn datastore(
    loaded: &Loaded,
    configured: Option<&str>,
    section: &str,
) -> Result<Datastore, String> {
    let project = configured.or(loaded.farm.application_project.as_deref()).ok_or_else(|| {
        format!(
            "{section}.datastore has no project, and project.yaml no env.APPLICATION_ID; write \
             `project: …` in {section}.datastore"
        )
    })?;
    Datastore::open(project).await.map_err(|error| format!("{section}.datastore: {error}"))
}
