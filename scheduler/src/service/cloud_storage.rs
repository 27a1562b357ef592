//! What of Cloud Storage the service uses: the farm's files there, signed inputs, and outputs that
//! are there already.

use std::sync::Arc;

use super::object_files::ObjectFiles;
use crate::backend::Backend;
use crate::backend::outputs::Outputs;
use crate::backend::signing::Signing;
use crate::config::Config;
use crate::config::files::Files;
use crate::gcp::credentials::Credentials;
use crate::gcp::storage::client::{CloudStorage, endpoint};
use crate::gcp::storage::signer::AdcSigner;
use crate::gcp::storage::{Objects, SignUrls, StorageError};
use crate::gcp::tokens::Tokens;

/// Files of this machine and of Cloud Storage, which is not asked before one of its files is read.
pub fn files() -> Files {
    // Credentials are kept fresh on the runtime that they are made in: the files' own.
    ObjectFiles::through(|| open(Credentials::application_default(rand::random())))
}

/// A client of Cloud Storage.
///
/// # Errors
/// The HTTP client can't be made.
pub fn open(credentials: Credentials) -> Result<Arc<dyn Objects>, StorageError> {
    let endpoint = endpoint();
    let tokens = endpoint.is_authenticated().then(|| Arc::new(credentials) as Arc<dyn Tokens>);
    Ok(Arc::new(CloudStorage::open(&endpoint, tokens)?))
}

/// What signs URLs. Credentials to sign with are not looked for before the first one.
pub fn signer(credentials: &Credentials) -> Arc<dyn SignUrls> {
    Arc::new(AdcSigner::new(&endpoint(), credentials.clone()))
}

/// What is laid over each backend.
pub struct Layers {
    signer: Arc<dyn SignUrls>,
    outputs: Option<(Arc<dyn Objects>, String)>,
}

impl Layers {
    /// The layers that the configuration asks for.
    ///
    /// # Errors
    /// As [`open`], where outputs are configured.
    pub fn new(config: &Config, credentials: &Credentials) -> Result<Self, StorageError> {
        let outputs = match &config.outputs {
            Some(bucket) => Some((open(credentials.clone())?, bucket.clone())),
            None => None,
        };
        Ok(Self { signer: signer(credentials), outputs })
    }

    /// Where outputs are looked for, and in which bucket.
    pub fn outputs(&self) -> Option<(Arc<dyn Objects>, String)> {
        self.outputs.clone()
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
