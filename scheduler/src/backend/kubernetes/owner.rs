//! Whose namespace it is: the ConfigMap `katabatch-owner` names the scheduler.
//!
//! Two schedulers in one namespace would spend the same room, so that one refuses to run. To give
//! a namespace to another scheduler, delete the ConfigMap.

use super::api::{ApiError, ClusterApi, ConfigMapFacts};

/// The ConfigMap's name.
pub const OWNER: &str = "katabatch-owner";
/// The key in its data.
const KEY: &str = "scheduler";

/// Why the namespace could not be claimed.
#[derive(Debug, thiserror::Error)]
pub enum Claim {
    /// It is another scheduler's.
    #[error("it belongs to the scheduler `{0}`")]
    Another(String),
    /// It is not known whose it is: try again.
    #[error(transparent)]
    Unknown(#[from] ApiError),
}

/// Claims the namespace for `scheduler`; again and again is the same as once.
///
/// # Errors
/// [`Claim::Another`] when another scheduler has it.
pub async fn claim(api: &dyn ClusterApi, scheduler: &str) -> Result<(), Claim> {
    let ours = |facts: &ConfigMapFacts| match facts.data.get(KEY) {
        Some(owner) if owner == scheduler => Ok(()),
        owner => Err(Claim::Another(owner.cloned().unwrap_or_default())),
    };
    if let Some(found) = api.get_config_map(OWNER).await? {
        return ours(&found);
    }
    let wanted = ConfigMapFacts {
        data: [(KEY.to_owned(), scheduler.to_owned())].into(),
        resource_version: String::new(),
    };
    match api.put_config_map(OWNER, &wanted).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_conflict() => match api.get_config_map(OWNER).await? {
            Some(found) => ours(&found),
            None => Err(Claim::Unknown(error)),
        },
        Err(error) => Err(Claim::Unknown(error)),
    }
}
