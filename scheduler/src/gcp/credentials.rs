//! As whom Google is asked: the application-default credentials, kept fresh by one keeper for
//! all who share them.
//!
//! google-cloud-auth does the hard part for impersonated and external accounts; the simple
//! sources are asked here, since it tells no token's end, can't be made to renew a token that a
//! server refused, gives up for ever on some errors that pass, and signs tokens of its own with a
//! key file, which GKE does not take.

mod discovery;
mod exchange;
mod keeper;
mod library;
mod metadata;
mod source;
mod state;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use super::tokens::{Bearer, TokenError, Tokens};
use keeper::Keeper;
pub(super) use library::QUOTA_PROJECT;

/// Credentials. Cheap to clone; clones share their tokens.
#[derive(Clone)]
pub struct Credentials {
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Kept(Arc<Kept>),
    Anonymous,
}

struct Kept {
    keeper: Keeper,
    origin: String,
    broken: Option<TokenError>,
    quota_project: Option<String>,
    /// What google-cloud-auth's clients last got, so that they can tell a new token from it.
    given: library::Given,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({})", self.origin())
    }
}

impl Credentials {
    /// The application-default credentials. They are looked for now and used when they are first
    /// needed, which is also when it is told that they can't be. Must be called inside of a tokio
    /// runtime; `seed` keeps the retries of many processes apart.
    pub fn application_default(seed: u64) -> Self {
        let found = discovery::find();
        let broken = found.as_ref().err().cloned();
        let found = found.unwrap_or_else(discovery::Found::broken);
        let quota = std::env::var("GOOGLE_CLOUD_QUOTA_PROJECT").ok().filter(|p| !p.is_empty());
        Self {
            kind: Kind::Kept(Arc::new(Kept {
                keeper: Keeper::new(found.source, seed),
                origin: found.origin,
                broken,
                quota_project: quota.or(found.quota_project),
                given: library::Given::default(),
            })),
        }
    }

    /// Why they can't ever be used, where that is known without asking anybody: a credentials file
    /// that is none.
    pub fn broken(&self) -> Option<&TokenError> {
        match &self.kind {
            Kind::Kept(kept) => kept.broken.as_ref(),
            Kind::Anonymous => None,
        }
    }

    /// The project that requests count against, where one is named: a person's credentials need
    /// one for some APIs.
    pub(super) fn quota_project(&self) -> Option<&str> {
        match &self.kind {
            Kind::Kept(kept) => kept.quota_project.as_deref(),
            Kind::Anonymous => None,
        }
    }

    /// None: for emulators and mocks, which are sent no token.
    pub fn anonymous() -> Self {
        Self { kind: Kind::Anonymous }
    }

    /// Whether the metadata server gives them: there is no key here to sign with.
    pub fn are_from_metadata(&self) -> bool {
        self.origin().starts_with("the metadata server")
    }

    /// Where they are from, for people: a file, or the metadata server.
    pub fn origin(&self) -> &str {
        match &self.kind {
            Kind::Kept(kept) => &kept.origin,
            Kind::Anonymous => "anonymous",
        }
    }
}

#[async_trait]
impl Tokens for Credentials {
    async fn bearer(&self) -> Result<Bearer, TokenError> {
        match &self.kind {
            Kind::Kept(kept) => kept.keeper.bearer().await,
            Kind::Anonymous => Err(TokenError::Unusable("these are anonymous".to_owned())),
        }
    }

    async fn renew(&self, refused: &Bearer) -> Result<Bearer, TokenError> {
        match &self.kind {
            Kind::Kept(kept) => kept.keeper.renew(refused).await,
            Kind::Anonymous => self.bearer().await,
        }
    }
}
