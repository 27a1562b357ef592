//! The catalog and the flags that the configuration names.

use std::sync::Arc;

use crate::catalog::Catalog;
use crate::catalog::file::FileCatalog;
use crate::config::Config;
use crate::config::watch::Reload;
use crate::domain::name::JobType;
use crate::flags::FlagSource;
use crate::flags::file::FileFlags;

/// Where job types and flags are looked up.
#[derive(Clone)]
pub struct Lookups {
    catalog: Arc<FileCatalog>,
    flags: Arc<FileFlags>,
}

impl Lookups {
    /// Opens both.
    ///
    /// # Errors
    /// Their problems, a line each.
    pub fn open(config: &Config) -> Result<Self, String> {
        let catalog = FileCatalog::open(config.catalog.clone()).map_err(|e| e.to_string())?;
        for fault in catalog.index().faults() {
            tracing::warn!("{fault}");
        }
        let flags = FileFlags::new(config.flags.files.clone());
        Ok(Self { catalog: Arc::new(catalog), flags: Arc::new(flags) })
    }

    /// The catalog.
    pub fn catalog(&self) -> Arc<dyn Catalog> {
        self.catalog.clone()
    }

    /// The flags.
    pub fn flags(&self) -> Arc<dyn FlagSource> {
        self.flags.clone()
    }

    /// Every job type that the catalog names.
    pub fn job_types(&self) -> Vec<JobType> {
        self.catalog.index().job_types().map(JobType::from).collect()
    }

    /// Looks at the catalog's files, and reloads them when they changed. Flags are read anew each
    /// time.
    pub fn poll(&self) -> Reload {
        self.catalog.poll()
    }
}
