//! Backends of the kind `gcp_batch`, made from the configuration and the farm's `batch.yaml`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::{BackendError, Home, Loaded};
use crate::backend::gcp_batch::api::Api;
use crate::backend::gcp_batch::client::{ClientError, ENDPOINT, RestApi};
use crate::backend::gcp_batch::{self, GcpBatch, spec};
use crate::clock::Clock;
use crate::config::backends::{BackendConfig, BackendKind};
use crate::gcp::credentials::Credentials;
use crate::gcp::tokens::Tokens;

/// How often jobs are listed: what they do takes minutes.
const POLL: Duration = Duration::from_secs(10);

/// What its section of the configuration says.
pub(super) struct Asked<'a> {
    pub project: &'a Option<String>,
    pub endpoint: &'a Option<String>,
    pub timeout: Duration,
}

/// Batch's API, and where the farm's jobs may be: its parents. Connects to nothing yet.
pub(super) fn reach(
    loaded: &Loaded,
    asked: &Asked<'_>,
    credentials: &Credentials,
) -> Result<(Arc<dyn Api>, BTreeSet<String>), ClientError> {
    let endpoint = asked.endpoint.as_deref().unwrap_or(ENDPOINT);
    // As with Pub/Sub: a plain endpoint is an emulator or a mock, which must get no token.
    let tokens: Option<Arc<dyn Tokens>> = match endpoint.starts_with("https://") {
        true => Some(Arc::new(credentials.clone())),
        false => None,
    };
    let api = RestApi::new(endpoint, tokens, asked.timeout)?;
    let farm = &loaded.farm.batch;
    let own = asked.project.as_deref().filter(|own| Some(*own) != farm.project.as_deref());
    let of_farm = farm.project_number.as_deref().or(farm.project.as_deref());
    let parents = own.or(of_farm).map(|project| {
        farm.subconfigs.values().map(|place| spec::parent(project, &place.region)).collect()
    });
    Ok((Arc::new(api), parents.unwrap_or_default()))
}

/// The same, for a command.
///
/// # Errors
/// It is no Batch, or no client can be made.
pub fn batch_of(
    loaded: &Loaded,
    backend: &BackendConfig,
) -> Result<(Arc<dyn Api>, BTreeSet<String>), BackendError> {
    let name = || backend.name.to_string();
    let BackendKind::GcpBatch { project, endpoint, request_timeout } = &backend.kind else {
        return Err(BackendError::NoBatch(name()));
    };
    let credentials = Credentials::application_default(rand::random());
    let asked = Asked { project, endpoint, timeout: *request_timeout };
    reach(loaded, &asked, &credentials).map_err(|error| BackendError::Batch(name(), error))
}

/// Makes the backend. Connects to nothing yet.
pub(super) fn open(
    loaded: &Loaded,
    backend: &BackendConfig,
    asked: &Asked<'_>,
    credentials: &Credentials,
    home: &Home,
    clock: &Arc<dyn Clock>,
) -> Result<Arc<GcpBatch>, ClientError> {
    let (api, parents) = reach(loaded, asked, credentials)?;
    let settings = gcp_batch::Settings {
        name: backend.name.clone(),
        scheduler: loaded.config.scheduler.clone(),
        project: asked.project.clone(),
        parents,
        pending_limit_default: backend.limits.pending,
        live_limit: backend.limits.live,
        poll: POLL,
        seed: rand::random(),
    };
    let (records, clock) = (Arc::clone(&home.records), Arc::clone(clock));
    Ok(GcpBatch::new(api, records, clock, Arc::clone(&home.leadership), settings))
}
