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

/// Where job types are looked up.
#[derive(Clone)]
pub struct CatalogSource(Kind);

#[derive(Clone)]
enum Kind {
    Files(Arc<FileCatalog>),
    Datastore(Arc<CachedCatalog<DatastoreCatalog>>),
}

impl CatalogSource {
    /// Opens it. Datastore is not asked for anything yet.
    ///
    /// # Errors
    /// What is wrong with its files, or why there is no client.
    pub async fn open(loaded: &Loaded, clock: &Arc<dyn Clock>) -> Result<Self, String> {
        Ok(Self(match &loaded.config.catalog {
            CatalogConfig::Files(files) => {
                let catalog = FileCatalog::open_in(loaded.files.clone(), files.clone())
                    .map_err(|e| e.to_string())?;
                Kind::Files(Arc::new(catalog))
            }
            CatalogConfig::Datastore { project, cache, max_stale } => {
                let datastore = datastore(loaded, project.as_deref(), "catalog").await?;
                let source = Arc::new(DatastoreCatalog::new(datastore));
                let bounds =
                    Bounds { lifetime: *cache, max_stale: *max_stale, job_types: MOST_JOB_TYPES };
                let cached = CachedCatalog::new(source, Arc::clone(clock), bounds);
                Kind::Datastore(Arc::new(cached))
            }
        }))
    }

    /// The catalog.
    pub fn catalog(&self) -> Arc<dyn Catalog> {
        match &self.0 {
            Kind::Files(files) => files.clone(),
            Kind::Datastore(datastore) => datastore.clone(),
        }
    }

    /// Every job type that the catalog names.
    ///
    /// # Errors
    /// The catalog can't be read.
    pub async fn job_types(&self) -> Result<Vec<JobType>, CatalogError> {
        match &self.0 {
            Kind::Files(files) => Ok(files.index().job_types().map(JobType::from).collect()),
            Kind::Datastore(datastore) => datastore.source().job_types().await,
        }
    }

    /// What is wrong with entities in the catalog's files, each with file and line. Datastore's are
    /// known with the job types that they belong to.
    pub fn faults(&self) -> Vec<String> {
        match &self.0 {
            Kind::Files(files) => files.index().faults().to_vec(),
            Kind::Datastore(_) => Vec::new(),
        }
    }
}

impl Lookups {
    /// Opens both. Datastore is not asked for anything yet.
    ///
    /// # Errors
    /// Their problems, a line each.
    pub async fn open(loaded: &Loaded, clock: &Arc<dyn Clock>) -> Result<Self, String> {
        let catalog = CatalogSource::open(loaded, clock).await?;
        for fault in catalog.faults() {
            tracing::warn!("{fault}");
        }
        Ok(Self { catalog, flags: open_flags(loaded).await? })
    }

    /// The catalog.
    pub fn catalog(&self) -> Arc<dyn Catalog> {
        self.catalog.catalog()
    }

    /// The flags.
    pub fn flags(&self) -> Arc<dyn FlagSource> {
        Arc::new(self.flags.clone())
    }

    /// For how long the catalog can't be read; zero while it can.
    pub fn stale_for(&self) -> Duration {
        match &self.catalog.0 {
            Kind::Files(_) => Duration::ZERO,
            Kind::Datastore(datastore) => datastore.stale_for(),
        }
    }

    /// Looks at the catalog's files, and reloads them when they changed. Flags are read anew each
    /// time, and Datastore's entities have a lifetime.
    pub fn poll(&self) -> Reload {
        match &self.catalog.0 {
            Kind::Files(files) => files.poll(),
            Kind::Datastore(_) => Reload::Unchanged,
        }
    }
}

/// The flags alone, to be read and set.
///
/// # Errors
/// Why Datastore can't be opened.
pub async fn open_flags(loaded: &Loaded) -> Result<FlagStore, String> {
    Ok(match &loaded.config.flags.source {
        FlagsFrom::Files(files) => {
            FlagStore::Files(FileFlags::read_in(loaded.files.clone(), files.clone()))
        }
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
