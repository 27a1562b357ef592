//! Whether this process may do in each cluster what it is going to do, asked once at the start: a
//! missing right would otherwise show only as tasks that are held.

use std::time::Duration;

use super::ServiceError;
use crate::backend::kubernetes::preflight::Preflight;
use crate::domain::name::BackendName;

/// How long one review of all rights may take.
const WITHIN: Duration = Duration::from_secs(10);
/// A right that was just granted is known to the API server a moment later: so often it is asked
/// again, after so long, before a right counts as missing.
const AGAIN: u32 = 3;
const AFTER: Duration = Duration::from_secs(1);

/// Reviews the rights in all clusters, side by side. Where the review can't be made, `run` goes on
/// with a warning: a server that is away is waited for.
///
/// # Errors
/// [`ServiceError::Rights`]: every right that is missing, by backend.
pub(super) async fn review(clusters: &[(BackendName, Preflight)]) -> Result<(), ServiceError> {
    let reviews = clusters.iter().map(|(name, preflight)| async move {
        match tokio::time::timeout(WITHIN, missing(preflight)).await {
            Ok(Ok(missing)) if missing.is_empty() => None,
            Ok(Ok(missing)) => Some(format!(
                "backend {name}: this account may not {} in the namespace {ns}; grant it: kubectl \
                 apply -n {ns} -f deploy/rbac.yaml",
                missing.join(", "),
                ns = preflight.name(),
            )),
            Ok(Err(error)) => {
                tracing::warn!(backend = %name, %error, "the permissions could not be reviewed");
                None
            }
            Err(_) => {
                let within = WITHIN.as_secs();
                tracing::warn!(backend = %name, within, "the permissions were not reviewed in time");
                None
            }
        }
    });
    let missing: Vec<String> =
        futures::future::join_all(reviews).await.into_iter().flatten().collect();
    if missing.is_empty() { Ok(()) } else { Err(ServiceError::Rights(missing.join("\n"))) }
}

async fn missing(preflight: &Preflight) -> Result<Vec<String>, String> {
    for _ in 0..AGAIN {
        match preflight.missing_permissions().await {
            Ok(missing) if missing.is_empty() => return Ok(missing),
            // A token that was refused is another one by now.
            Ok(_) | Err(_) => tokio::time::sleep(AFTER).await,
        }
    }
    preflight.missing_permissions().await
}
