//! One call of a Google API by REST, with what it says when it refuses.
//!
//! For the APIs of which a few fields are needed: their generated clients are far larger than all
//! of this program. Whether to call again is the caller's to say.

use std::time::Duration;

use http::Method;
use serde::Deserialize;
use serde_json::Value;

use super::credentials::{Credentials, QUOTA_PROJECT};
use super::tokens::{Bearer, TokenError, Tokens as _};
use crate::domain::causes::with_causes;
use crate::domain::redact::redact;

/// The longest that a call may take.
const WITHIN: Duration = Duration::from_secs(30);
/// The longest text of a refusal that is shown.
const SHOWN: usize = 400;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RestError {
    /// No token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Nothing came back, or nothing that can be read.
    #[error("{host} does not answer: {why}")]
    Lost {
        /// Who was asked.
        host: String,
        /// What happened.
        why: String,
    },
    /// It refused.
    #[error("{host} says {status} {}: {}", .refusal.status, .refusal.message)]
    Refused {
        /// Who was asked.
        host: String,
        /// The HTTP status.
        status: u16,
        /// What it said.
        refusal: Refusal,
    },
}

/// What an API says when it refuses (AIP-193).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refusal {
    /// The code: `PERMISSION_DENIED`.
    pub status: String,
    /// For people; credentials taken out.
    pub message: String,
    /// The reason, where an ErrorInfo tells one: `SERVICE_DISABLED`.
    pub reason: String,
}

impl RestError {
    /// Whether the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Token(error) => matches!(error, TokenError::Later(_)),
            Self::Lost { .. } => true,
            Self::Refused { status, .. } => matches!(status, 408 | 429 | 500..=599),
        }
    }

    /// What the API said, where it did.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused { refusal, .. } => Some(refusal),
            Self::Token(_) | Self::Lost { .. } => None,
        }
    }
}

/// Calls Google's APIs. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Rest {
    http: reqwest::Client,
    credentials: Credentials,
}

impl Rest {
    /// Calls as these credentials.
    ///
    /// # Errors
    /// This machine has no TLS roots.
    pub fn new(credentials: Credentials) -> Result<Self, TokenError> {
        let http = reqwest::Client::builder()
            .timeout(WITHIN)
            .connect_timeout(Duration::from_secs(5))
            // A redirect would carry the token elsewhere.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| TokenError::Unusable(with_causes(&error)))?;
        Ok(Self { http, credentials })
    }

    /// Calls once, and once more with another token after a 401. No token is sent over a
    /// connection that anyone can read (`http://`, which mocks are at).
    ///
    /// # Errors
    /// [`RestError`].
    pub async fn call(
        &self,
        method: Method,
        url: &str,
        body: Option<&Value>,
    ) -> Result<Value, RestError> {
        if !url.starts_with("https://") {
            return self.once(&method, url, body, None).await;
        }
        let token = self.credentials.bearer().await?;
        match self.once(&method, url, body, Some(&token)).await {
            Err(RestError::Refused { status: 401, .. }) => {
                let token = self.credentials.renew(&token).await?;
                self.once(&method, url, body, Some(&token)).await
            }
            answer => answer,
        }
    }

    async fn once(
        &self,
        method: &Method,
        url: &str,
        body: Option<&Value>,
        token: Option<&Bearer>,
    ) -> Result<Value, RestError> {
        let host = host(url);
        let mut request = self.http.request(method.clone(), url);
        if let Some(token) = token {
            request = request.header(http::header::AUTHORIZATION, token.header()?);
            if let Some(project) = self.credentials.quota_project() {
                request = request.header(QUOTA_PROJECT, project);
            }
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let lost = |error: reqwest::Error| RestError::Lost {
            host: host.clone(),
            why: redact(&with_causes(&error.without_url())).into_owned(),
        };
        let response = request.send().await.map_err(lost)?;
        let status = response.status();
        let text = response.text().await.map_err(lost)?;
        if !status.is_success() {
            let refusal = refusal(&text);
            return Err(RestError::Refused { host, status: status.as_u16(), refusal });
        }
        serde_json::from_str(&text).map_err(|error| RestError::Lost {
            host,
            why: format!("its answer is no JSON: {error}"),
        })
    }
}

fn host(url: &str) -> String {
    let parsed = url::Url::parse(url).ok();
    parsed.and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_else(|| url.to_owned())
}

/// Reads an error's body; one of another shape is the message as it is.
fn refusal(text: &str) -> Refusal {
    #[derive(Deserialize)]
    struct Body {
        error: Told,
    }
    #[derive(Deserialize)]
    struct Told {
        #[serde(default)]
        status: String,
        #[serde(default)]
        message: String,
        #[serde(default)]
        details: Vec<Value>,
    }
    let shown = |text: &str| {
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        redact(&line).chars().take(SHOWN).collect::<String>()
    };
    let Ok(Body { error }) = serde_json::from_str::<Body>(text) else {
        return Refusal { message: shown(text), ..Refusal::default() };
    };
    let reason = error.details.iter().find_map(|detail| detail.get("reason")?.as_str());
    Refusal {
        status: error.status,
        message: shown(&error.message),
        reason: reason.unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_read_with_its_reason_and_any_other_text_is_the_message() {
        let told = refusal(
            r#"{"error":{"code":403,"status":"PERMISSION_DENIED","message":"not\nused",
            "details":[{"@type":"x"},{"reason":"SERVICE_DISABLED"}]}}"#,
        );
        assert_eq!(
            (told.status.as_str(), told.message.as_str(), told.reason.as_str()),
            ("PERMISSION_DENIED", "not used", "SERVICE_DISABLED")
        );
        assert_eq!(refusal("<html>\n no").message, "<html> no");
        assert_eq!(refusal(&"x".repeat(9_000)).message.len(), SHOWN);
    }
}
