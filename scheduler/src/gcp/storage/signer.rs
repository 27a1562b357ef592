//! Signs URLs as the scheduler's own Google service account: with the key of a key file where the
//! application-default credentials are one, by IAM ([`iam`](super::iam)) where they are the metadata
//! server's, and as google-cloud-auth does it for impersonated accounts.
//!
//! Leaves out for how long a URL should be good: that is who asks.

use std::error::Error;
use std::time::Duration;

use async_trait::async_trait;
use google_cloud_auth::credentials::Builder;
use google_cloud_auth::signer::Signer;
use google_cloud_storage::builder::storage::SignedUrlBuilder;
use tokio::sync::Mutex;

use super::iam::IamSigner;
use super::{ObjectName, SignUrls, StorageError};
use crate::domain::causes::with_causes;
use crate::domain::input_url::InputUrl;
use crate::gcp::channel::Endpoint;
use crate::gcp::credentials::Credentials;

/// The longest that signing may take: one call of IAM, and one of the metadata server before it.
const WITHIN: Duration = Duration::from_secs(10);

/// Signs with the application-default credentials, which are looked for when first needed.
pub struct AdcSigner {
    endpoint: String,
    credentials: Credentials,
    signer: Mutex<Option<Signer>>,
}

impl AdcSigner {
    /// Signs URLs that lead to `endpoint`; `credentials` are the application-default ones.
    pub fn new(endpoint: &Endpoint, credentials: Credentials) -> Self {
        let endpoint = endpoint.url().trim_end_matches('/').to_owned();
        Self { endpoint, credentials, signer: Mutex::new(None) }
    }

    /// The signer; one that can't be made now is looked for again the next time.
    async fn signer(&self) -> Result<Signer, StorageError> {
        let mut signer = self.signer.lock().await;
        if let Some(signer) = &*signer {
            return Ok(signer.clone());
        }
        let made = if self.credentials.are_from_metadata() {
            Signer::from(IamSigner::new(self.credentials.clone())?)
        } else {
            Builder::default().build_signer().map_err(|error| {
                StorageError::Unauthenticated(format!(
                    "a URL can't be signed with the application-default credentials: {}; run as a \
                     Google service account, by Workload Identity or a key file",
                    with_causes(&error)
                ))
            })?
        };
        Ok(signer.insert(made).clone())
    }
}

#[async_trait]
impl SignUrls for AdcSigner {
    async fn sign(
        &self,
        object: &ObjectName,
        lifetime: Duration,
    ) -> Result<InputUrl, StorageError> {
        let signer = self.signer().await?;
        sign_as(&signer, &self.endpoint, object, lifetime).await
    }
}

/// Signs as `signer` a URL that leads to `endpoint`.
pub(super) async fn sign_as(
    signer: &Signer,
    endpoint: &str,
    object: &ObjectName,
    lifetime: Duration,
) -> Result<InputUrl, StorageError> {
    let bucket = format!("projects/_/buckets/{}", object.bucket);
    let signing = SignedUrlBuilder::for_object(bucket, object.name.as_str())
        .with_endpoint(endpoint)
        .with_expiration(lifetime)
        .sign_with(signer);
    let signed = match tokio::time::timeout(WITHIN, signing).await {
        Ok(signed) => signed.map_err(|error| sorted(&error))?,
        Err(_) => return Err(StorageError::later("signing a URL took too long")),
    };
    InputUrl::parse(&signed)
        .map_err(|error| StorageError::Refused(format!("the URL of {object} {error}")))
}

/// What to do about a signature that failed. Our own signer says it; google-cloud-auth's tells a
/// refusal from an outage by the text alone.
fn sorted(error: &(dyn Error + 'static)) -> StorageError {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(ours) = error.downcast_ref::<StorageError>() {
            return ours.clone();
        }
        cause = error.source();
    }
    by_text(&with_causes(error))
}

fn by_text(text: &str) -> StorageError {
    let refused = ["PERMISSION_DENIED", "iam.serviceAccounts.signBlob", "status code 403"];
    if refused.iter().any(|mark| text.contains(mark)) {
        return StorageError::Forbidden(
            "this scheduler's Google account may not sign URLs as the account that it \
             impersonates; grant it roles/iam.serviceAccountTokenCreator on that account"
                .to_owned(),
        );
    }
    if text.contains("failed to parse private key") {
        return StorageError::Unauthenticated(
            "the private key of the application-default credentials can't be read".to_owned(),
        );
    }
    StorageError::later(format!("a URL could not be signed: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_to_sign_names_the_role() {
        let text = "failed to generate signature via IAM API: err status: \"{ \\\"status\\\": \
                    \\\"PERMISSION_DENIED\\\" }\"";
        let StorageError::Forbidden(why) = by_text(text) else { panic!("not sorted") };
        assert!(why.contains("roles/iam.serviceAccountTokenCreator"), "{why}");
        assert!(matches!(by_text("connection refused"), StorageError::Later(_)));
        assert!(matches!(
            by_text("failed to parse private key: x"),
            StorageError::Unauthenticated(_)
        ));
    }
}
