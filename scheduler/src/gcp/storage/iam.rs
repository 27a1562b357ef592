//! Signs by IAM's `signBlob`, as the account that the metadata server gives: no key is in the
//! process. The account needs `roles/iam.serviceAccountTokenCreator` on itself.

use std::fmt;
use std::time::Duration;

use axum::body::Bytes;
use google_cloud_auth::signer::{SigningError, SigningProvider};
use http::Method;
use k8s_openapi::ByteString;
use serde_json::json;
use tokio::sync::OnceCell;

use super::StorageError;
use crate::gcp::channel::Endpoint;
use crate::gcp::credentials::Credentials;
use crate::gcp::rest::{Rest, RestError};
use crate::gcp::tokens::TokenError;

const GOOGLE: &str = "https://iamcredentials.googleapis.com";
const METADATA: &str = "metadata.google.internal";
const EMAIL: &str = "computeMetadata/v1/instance/service-accounts/default/email";
/// The longest that the metadata server may take: it is next door.
const EMAIL_WITHIN: Duration = Duration::from_secs(5);

/// A signer without a key.
pub struct IamSigner {
    rest: Rest,
    iam: String,
    metadata: String,
    http: reqwest::Client,
    email: OnceCell<String>,
}

impl fmt::Debug for IamSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IamSigner").field("email", &self.email).finish_non_exhaustive()
    }
}

impl IamSigner {
    /// Signs by Google's IAM and metadata server, or those that gcloud's and Google's clients'
    /// variables name (`CLOUDSDK_API_ENDPOINT_OVERRIDES_IAMCREDENTIALS`, `GCE_METADATA_HOST`).
    ///
    /// # Errors
    /// The HTTP client can't be made.
    pub fn new(credentials: Credentials) -> Result<Self, StorageError> {
        let set = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
        let iam = set("CLOUDSDK_API_ENDPOINT_OVERRIDES_IAMCREDENTIALS");
        let metadata = set("GCE_METADATA_HOST");
        Self::at(credentials, iam.as_deref(), metadata.as_deref().unwrap_or(METADATA))
    }

    fn at(
        credentials: Credentials,
        iam: Option<&str>,
        metadata: &str,
    ) -> Result<Self, StorageError> {
        let refused = |error: &dyn fmt::Display| StorageError::Refused(error.to_string());
        let http = reqwest::Client::builder().no_proxy().timeout(EMAIL_WITHIN).build();
        Ok(Self {
            rest: Rest::new(credentials).map_err(|error| refused(&error))?,
            iam: Endpoint::choose(iam, None, GOOGLE).url().trim_end_matches('/').to_owned(),
            metadata: format!("http://{metadata}/{EMAIL}"),
            http: http.map_err(|error| refused(&error))?,
            email: OnceCell::new(),
        })
    }

    async fn email(&self) -> Result<&str, StorageError> {
        self.email.get_or_try_init(|| self.ask_email()).await.map(String::as_str)
    }

    async fn ask_email(&self) -> Result<String, StorageError> {
        let lost =
            |_| StorageError::later("the metadata server does not say whose account this is");
        let asked = self.http.get(&self.metadata).header("Metadata-Flavor", "Google").send().await;
        let answer = asked.and_then(reqwest::Response::error_for_status).map_err(lost)?;
        let email = answer.text().await.map_err(lost)?.trim().to_owned();
        // With direct federation it is the name of a pool.
        if email.contains('@') {
            return Ok(email);
        }
        Err(StorageError::Unauthenticated(
            "only a Google service account can sign a URL, and this scheduler's Kubernetes account \
             has none; annotate it with iam.gke.io/gcp-service-account"
                .to_owned(),
        ))
    }

    async fn sign_blob(&self, content: &[u8]) -> Result<Bytes, StorageError> {
        let email = self.email().await?;
        let url = format!("{}/v1/projects/-/serviceAccounts/{email}:signBlob", self.iam);
        let body = json!({ "payload": ByteString(content.to_vec()) });
        let answer = self.rest.call(Method::POST, &url, Some(&body)).await;
        let answer = answer.map_err(|error| sorted(&error, email))?;
        let signed = answer.get("signedBlob").cloned().unwrap_or_default();
        // An absent one reads as an empty one.
        match serde_json::from_value(signed) {
            Ok(ByteString(bytes)) if !bytes.is_empty() => Ok(bytes.into()),
            _ => Err(StorageError::later("IAM's answer holds no signature")),
        }
    }
}

/// What to do about a refusal.
fn sorted(error: &RestError, email: &str) -> StorageError {
    match error {
        RestError::Token(TokenError::Unusable(why)) => StorageError::Unauthenticated(why.clone()),
        RestError::Refused { status: 401, .. } => {
            StorageError::Unauthenticated(format!("IAM refuses the credentials of {email}"))
        }
        RestError::Refused { refusal, .. } if refusal.reason == "SERVICE_DISABLED" => {
            StorageError::Forbidden(
                "the API that signs is off; run `gcloud services enable \
                 iamcredentials.googleapis.com` in this scheduler's project"
                    .to_owned(),
            )
        }
        RestError::Refused { status: 403, .. } => StorageError::Forbidden(format!(
            "{email} may not sign URLs as itself; run `gcloud iam service-accounts \
             add-iam-policy-binding {email} --member=serviceAccount:{email} \
             --role=roles/iam.serviceAccountTokenCreator`"
        )),
        error if error.is_transient() => StorageError::later(error),
        error => StorageError::Refused(error.to_string()),
    }
}

impl SigningProvider for IamSigner {
    async fn client_email(&self) -> Result<String, SigningError> {
        self.email().await.map(str::to_owned).map_err(SigningError::from_msg)
    }

    async fn sign(&self, content: &[u8]) -> Result<Bytes, SigningError> {
        self.sign_blob(content).await.map_err(SigningError::from_msg)
    }
}

#[cfg(test)]
mod tests;
