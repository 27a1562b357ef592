//! The bearer token of a request to Google, as a trait: what asks for one need not know where it
//! is from, and tests give their own.
//!
//! Leaves out where tokens are from and when they are renewed.

use std::fmt;

use async_trait::async_trait;
use http::HeaderValue;

/// An access token. Shows nothing of itself but through [`header`](Self::header).
#[derive(Clone, PartialEq, Eq)]
pub struct Bearer(String);

impl Bearer {
    /// The token as it came.
    pub fn new(token: impl Into<String>) -> Self {
        Self(token.into())
    }

    /// The value of an `Authorization` header, marked as sensitive: no client shows it.
    ///
    /// # Errors
    /// [`TokenError::Unusable`]: it can't stand in a header.
    pub fn header(&self) -> Result<HeaderValue, TokenError> {
        let value = HeaderValue::try_from(format!("Bearer {}", self.0));
        let mut value =
            value.map_err(|_| TokenError::Unusable("it can't stand in a header".to_owned()))?;
        value.set_sensitive(true);
        Ok(value)
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer(…)")
    }
}

/// Why there is no token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Asking again later may help.
    #[error("no access token for now: {0}")]
    Later(String),
    /// It stays so until somebody changes the credentials.
    #[error("no access token: {0}")]
    Unusable(String),
}

/// Where tokens come from. All are of the scope `cloud-platform`.
#[async_trait]
pub trait Tokens: Send + Sync {
    /// A token that lives at least for some seconds; usually without waiting.
    ///
    /// # Errors
    /// [`TokenError`], credentials taken out of its text.
    async fn bearer(&self) -> Result<Bearer, TokenError>;

    /// Says that a server refused `bearer` (401), and waits for another; at once where there is
    /// one already.
    ///
    /// # Errors
    /// As [`bearer`](Self::bearer).
    async fn renew(&self, refused: &Bearer) -> Result<Bearer, TokenError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_sent_as_a_bearer_and_never_shown() {
        let bearer = Bearer::new("t");
        let header = bearer.header().expect("a header");
        assert_eq!(header, "Bearer t");
        assert!(header.is_sensitive());
        assert!(Bearer::new("t\n").header().is_err());
        assert!(format!("{bearer:?}") == "Bearer(…)");
    }
}
