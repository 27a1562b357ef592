//! The same credentials as google-cloud-auth's: for the clients of Google's own crates.

use std::sync::{Mutex, PoisonError};

use google_cloud_auth::credentials as theirs;
use google_cloud_auth::credentials::{
    CacheableResource, CredentialsProvider, EntityTag, anonymous,
};
use google_cloud_auth::errors::CredentialsError;
use http::{Extensions, HeaderMap, HeaderValue, header};

use super::{Credentials, Kind};
use crate::gcp::tokens::{Bearer, TokenError, Tokens as _};

/// The header that names the project that a request counts against.
pub(in crate::gcp) const QUOTA_PROJECT: &str = "x-goog-user-project";

/// The token that was last given, and the tag that it went by.
#[derive(Default)]
pub(super) struct Given(Mutex<Option<(Bearer, EntityTag)>>);

impl Given {
    /// The tag of this token: the same as long as it is the same.
    fn tag(&self, bearer: &Bearer) -> EntityTag {
        let mut given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*given {
            Some((last, tag)) if last == bearer => tag.clone(),
            _ => {
                let tag = EntityTag::new();
                *given = Some((bearer.clone(), tag.clone()));
                tag
            }
        }
    }
}

impl Credentials {
    /// These credentials for a client of one of Google's crates, sharing their tokens.
    pub fn for_library(&self) -> theirs::Credentials {
        match &self.kind {
            Kind::Kept(_) => theirs::Credentials::from(self.clone()),
            Kind::Anonymous => anonymous::Builder::new().build(),
        }
    }

    fn headers_of(&self, bearer: &Bearer) -> Result<HeaderMap, CredentialsError> {
        let bad = |_| CredentialsError::from_msg(false, "the access token can't be sent");
        let token = bearer.header().map_err(bad)?;
        let mut headers = HeaderMap::from_iter([(header::AUTHORIZATION, token)]);
        if let Some(project) = self.quota_project() {
            let bad = |_| CredentialsError::from_msg(false, "the quota project is no project");
            headers.insert(QUOTA_PROJECT, HeaderValue::from_str(project).map_err(bad)?);
        }
        Ok(headers)
    }
}

impl CredentialsProvider for Credentials {
    async fn headers(
        &self,
        known: Extensions,
    ) -> Result<CacheableResource<HeaderMap>, CredentialsError> {
        let bearer = self.bearer().await.map_err(|error| {
            CredentialsError::from_msg(matches!(error, TokenError::Later(_)), error.to_string())
        })?;
        let entity_tag = match &self.kind {
            Kind::Kept(kept) => kept.given.tag(&bearer),
            Kind::Anonymous => EntityTag::new(),
        };
        if known.get::<EntityTag>() == Some(&entity_tag) {
            return Ok(CacheableResource::NotModified);
        }
        Ok(CacheableResource::New { entity_tag, data: self.headers_of(&bearer)? })
    }

    async fn universe_domain(&self) -> Option<String> {
        None
    }
}
