//! Home: who leads, and where the scheduler's records and controls are: in the home namespace, or
//! in files of this machine where no backend is a cluster.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Loaded;
use super::backends::{BackendError, api_of};
use crate::backend::kubernetes::api::ClusterApi;
use crate::backend::kubernetes::records::ConfigMapRecords;
use crate::clock::Clock;
use crate::config::Config;
use crate::config::backends::BackendConfig;
use crate::leadership::Leadership;
use crate::leadership::lock_file::LockFile;
use crate::records::Records;
use crate::records::file::FileRecords;

/// What is at home.
#[derive(Clone)]
pub struct Home {
    /// Who leads.
    pub leadership: Arc<dyn Leadership>,
    /// The leader's own records.
    pub records: Arc<dyn Records>,
    /// What operators tell it.
    pub controls: Arc<dyn Records>,
    /// The lock to be taken, where there is no cluster.
    pub(super) lock: Option<Arc<LockFile>>,
}

fn controls_in(dir: &Path) -> Result<FileRecords, BackendError> {
    let path = dir.join("controls.json");
    FileRecords::open(&path).map_err(|error| BackendError::State(dir.to_owned(), error))
}

/// A home in files of this machine.
pub(super) fn in_files(config: &Config, clock: &Arc<dyn Clock>) -> Result<Home, BackendError> {
    let dir: &PathBuf = &config.state_dir;
    let fault = |error| BackendError::State(dir.clone(), error);
    let controls = controls_in(dir)?;
    let records = FileRecords::open(&dir.join("records.json")).map_err(fault)?;
    let lock = Arc::new(LockFile::new(&dir.join("lock"), Arc::clone(clock)));
    // A first try at once: nobody waits where nobody else is.
    lock.try_hold().map_err(fault)?;
    Ok(Home {
        leadership: Arc::clone(&lock) as Arc<dyn Leadership>,
        records: Arc::new(records),
        controls: Arc::new(controls),
        lock: Some(lock),
    })
}

/// What operators tell the scheduler, through this cluster.
pub(super) fn controls_of(api: Arc<dyn ClusterApi>, scheduler: &str) -> Arc<dyn Records> {
    Arc::new(ConfigMapRecords::of_operators(api, scheduler))
}

/// The home backend's configuration, where a cluster is home.
pub(super) fn backend_of(config: &Config) -> Option<&BackendConfig> {
    config.backends.iter().find(|backend| Some(&backend.name) == config.home.as_ref())
}

/// The controls, for a command that reads or changes them.
///
/// # Errors
/// The cluster or the files can't be reached.
pub async fn open_controls(loaded: &Loaded) -> Result<Arc<dyn Records>, BackendError> {
    let config = &loaded.config;
    match backend_of(config) {
        Some(backend) => Ok(controls_of(api_of(loaded, backend).await?, &config.scheduler)),
        None => Ok(Arc::new(controls_in(&config.state_dir)?)),
    }
}
