//! Backends of the kind `local`, made from the configuration and from what this machine permits.

use std::path::Path;
use std::sync::Arc;

use super::BackendError;
use crate::backend::local::{Cgroups, LocalBackend, NoCgroups, Settings};
use crate::clock::Clock;
use crate::config::backends::BackendConfig;

/// What its section of the configuration says, and the command line.
pub(super) struct Asked<'a> {
    pub command: &'a [String],
    pub dir: &'a Path,
    pub jobs: usize,
}

/// Makes the backend. Takes its directory over.
pub(super) fn open(
    backend: &BackendConfig,
    asked: &Asked<'_>,
    clock: &Arc<dyn Clock>,
) -> Result<Arc<LocalBackend>, BackendError> {
    let name = backend.name.to_string();
    let program = std::env::current_exe().map_err(|e| BackendError::OwnPath(name.clone(), e))?;
    let Asked { command, dir, jobs } = *asked;
    let mut settings =
        Settings::new(backend.name.clone(), dir.to_owned(), command.to_vec(), jobs, program);
    settings.retain_finished = backend.retain_finished;
    settings.cgroups = match take_cgroups() {
        Ok(cgroups) => Some(cgroups),
        Err(NoCgroups { lacks, hint }) => {
            tracing::warn!(
                backend = name,
                hint,
                "tasks run without a limit of their memory: {lacks}"
            );
            None
        }
    };
    let opened = LocalBackend::open(settings, Arc::clone(clock));
    opened.map_err(|error| BackendError::Local(name, error))
}

fn take_cgroups() -> Result<Cgroups, NoCgroups> {
    let cgroups = Cgroups::find()?;
    cgroups.take()?;
    Ok(cgroups)
}
