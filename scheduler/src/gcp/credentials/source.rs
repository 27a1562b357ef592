//! What tokens are fetched from, one at a time.

use std::time::Duration;

use async_trait::async_trait;

use crate::gcp::tokens::{Bearer, TokenError};

/// All that is done here is in this scope; what is allowed is IAM's to say.
pub(super) const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// A token, and how long it lives from the moment that it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fetched {
    pub(super) bearer: Bearer,
    pub(super) lives: Duration,
}

/// Fetches tokens. Holds none, and tries once.
#[async_trait]
pub(super) trait Source: Send + Sync {
    /// A token.
    ///
    /// # Errors
    /// [`TokenError`], without secrets in it.
    async fn fetch(&self) -> Result<Fetched, TokenError>;
}
