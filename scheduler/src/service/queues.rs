//! The queues that the configuration names.

use std::sync::Arc;

use crate::clock::Clock;
use crate::config::farm::Farm;
use crate::config::queues::{QueueConfig, QueueSource};
use crate::domain::pubsub::{Names, Written};
use crate::gcp::channel::{Channel, Endpoint};
use crate::queue::pubsub::{EMULATOR, ENDPOINT, PubSub};
use crate::queue::spool::Spool;
use crate::queue::{Queue, QueueError};

/// Opens one queue. A subscription is not asked whether it is there: its first pull tells.
///
/// # Errors
/// [`QueueError::Unusable`] says what is wrong and what to do.
pub(super) async fn open(
    queue: &QueueConfig,
    farm: &Farm,
    clock: &Arc<dyn Clock>,
) -> Result<Arc<dyn Queue>, QueueError> {
    let (name, clock) = (queue.name.clone(), Arc::clone(clock));
    Ok(match &queue.source {
        QueueSource::Spool { path } => Arc::new(Spool::open(path, name, clock)?),
        QueueSource::PubSub { names, endpoint } => {
            let at = address(endpoint.as_deref());
            let (names, channel) = reach(names, endpoint.as_deref(), farm).await?;
            tracing::info!(queue = %name, at = at.url(), from = names.subscription, "takes tasks");
            Arc::new(PubSub::new(name, names, &channel, clock))
        }
    })
}

/// The full names of a subscription and its topics.
///
/// # Errors
/// [`QueueError::Unusable`]: no project is known.
pub fn full_names(names: &Written, farm: &Farm) -> Result<Names, QueueError> {
    Names::resolve(names, farm.application_project.as_deref())
        .map_err(|error| QueueError::Unusable(error.to_string()))
}

/// The full names of a subscription and its topics, and a channel to them.
///
/// # Errors
/// [`QueueError::Unusable`]: no project is known, or the endpoint or the credentials are no good.
pub async fn reach(
    names: &Written,
    endpoint: Option<&str>,
    farm: &Farm,
) -> Result<(Names, Channel), QueueError> {
    let unusable = |error: &dyn std::fmt::Display| QueueError::Unusable(error.to_string());
    let names = full_names(names, farm)?;
    let channel = address(endpoint).open().await;
    Ok((names, channel.map_err(|error| unusable(&error))?))
}

/// Where the API is: as configured, else the emulator that the environment names, else Google's.
fn address(configured: Option<&str>) -> Endpoint {
    Endpoint::choose(configured, std::env::var(EMULATOR).ok().as_deref(), ENDPOINT)
}
