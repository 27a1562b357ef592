//! What of Cloud Storage the service uses: the farm's files there, signed inputs, and outputs that
//! are there already.

use std::sync::Arc;

use async_trait::async_trait;
use google_cloud_auth::credentials::{AccessTokenCredentials, Builder};

use super::object_files::ObjectFiles;
use crate::backend::Backend;
use crate::backend::outputs::Outputs;
use crate::backend::signing::Signing;
use crate::config::Config;
use crate::config::files::Files;
use crate::gcp::storage::client::{CloudStorage, endpoint};
use crate::gcp::storage::signer::AdcSigner;
use crate::gcp::storage::{Objects, SignUrls, StorageError};
use crate::gcp::tokens::{Bearer, TokenError, Tokens};

/// Files of this machine and of Cloud Storage, which is not asked before one of its files is read.
pub fn files() -> Files {
    ObjectFiles::through(open)
}

/// A client of Cloud Storage. Must be called inside of a tokio runtime.
///
/// # Errors
/// Credentials that can't be used.
pub fn open() -> Result<Arc<dyn Objects>, StorageError> {
    let endpoint = endpoint();
    let tokens = if endpoint.is_authenticated() { Some(tokens()?) } else { None };
    Ok(Arc::new(CloudStorage::open(&endpoint, tokens)?))
}

/// What is laid over each backend.
pub struct Layers {
    signer: Arc<dyn SignUrls>,
    outputs: Option<(Arc<dyn Objects>, String)>,
}

impl Layers {
    /// The layers that the configuration asks for. Credentials to sign with are not looked for
    /// before an input has to be signed.
    ///
    /// # Errors
    /// As [`open`], where outputs are configured.
    pub fn new(config: &Config) -> Result<Self, StorageError> {
        let signer = Arc::new(AdcSigner::new(&endpoint()));
        let outputs = match &config.outputs {
            Some(bucket) => Some((open()?, bucket.clone())),
            None => None,
        };
        Ok(Self { signer, outputs })
    }

    /// The backend with them. Outputs are looked for first: what is done needs no signature.
    pub fn over(&self, backend: Arc<dyn Backend>) -> Arc<dyn Backend> {
        let signing = Signing::over(backend, Arc::clone(&self.signer));
        match &self.outputs {
            Some((objects, bucket)) => Outputs::over(signing, Arc::clone(objects), bucket.clone()),
            None => signing,
        }
    }
}

/// The application-default credentials' tokens.
fn tokens() -> Result<Arc<dyn Tokens>, StorageError> {
    let scope = "https://www.googleapis.com/auth/cloud-platform";
    let built = Builder::default().with_scopes([scope]).build_access_token_credentials();
    let built = built.map_err(|error| StorageError::Unauthenticated(error.to_string()))?;
    Ok(Arc::new(AdcTokens(built)))
}

struct AdcTokens(AccessTokenCredentials);

#[async_trait]
impl Tokens for AdcTokens {
    async fn bearer(&self) -> Result<Bearer, TokenError> {
        let token = self.0.access_token().await;
        token.map(|token| Bearer::new(token.token)).map_err(|e| TokenError::Later(e.to_string()))
    }

    async fn renew(&self, _refused: &Bearer) -> Result<Bearer, TokenError> {
        self.bearer().await
    }
}
