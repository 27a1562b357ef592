//! Tokens in exchange for what a credentials file holds: a person's refresh token, or a service
//! account's key.
//!
//! A key is exchanged for an access token (RFC 7523), not used to sign tokens of its own, which a
//! GKE API server does not take.

use std::time::Duration;

use async_trait::async_trait;
use google_cloud_auth::signer::Signer;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use serde::Deserialize;
use serde_json::json;

use super::source::{Fetched, SCOPE, Source};
use crate::domain::causes::with_causes;
use crate::domain::redact::redact;
use crate::gcp::tokens::{Bearer, TokenError};

/// Google's token endpoint, where a file names none.
const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";
/// How long a signed request for a token is good, in seconds: the most that is taken.
const ASSERTION_LIVES: i64 = 3_600;

/// What a token endpoint said.
pub(super) enum Answer {
    Token(Fetched),
    /// It will say so again.
    Refused(String),
    /// It may say something else later.
    Failed(String),
}

/// A token endpoint's answer (RFC 6749, sections 5.1 and 5.2; the metadata server's is alike).
pub(super) async fn read_answer(response: reqwest::Response, who: &str) -> Answer {
    #[derive(Deserialize)]
    struct Body {
        access_token: String,
        #[serde(default)]
        expires_in: u64,
    }
    let status = response.status();
    let text = match response.text().await {
        Ok(text) => text,
        Err(error) => return Answer::Failed(format!("{who} breaks off: {}", error.without_url())),
    };
    if !status.is_success() {
        let shown: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let shown: String = redact(&shown).chars().take(300).collect();
        let why = format!("{who} says {status}: {shown}");
        let later = status.is_server_error() || matches!(status.as_u16(), 408 | 429);
        return if later { Answer::Failed(why) } else { Answer::Refused(why) };
    }
    match serde_json::from_str::<Body>(&text) {
        Ok(body) if !body.access_token.is_empty() => Answer::Token(Fetched {
            bearer: Bearer::new(body.access_token),
            lives: Duration::from_secs(body.expires_in),
        }),
        // The text may hold a token: it is not shown.
        _ => Answer::Failed(format!("{who} answers with no token")),
    }
}

/// What is exchanged.
pub(super) enum Grant {
    /// A person's, as `gcloud auth application-default login` leaves it.
    Person(Person),
    /// A service account's key.
    Key(Key),
}

/// A file of the type `authorized_user`.
#[derive(Deserialize)]
pub(super) struct Person {
    client_id: String,
    client_secret: String,
    refresh_token: String,
    token_uri: Option<String>,
}

/// A file of the type `service_account`.
pub(super) struct Key {
    pub(super) email: String,
    pub(super) id: String,
    pub(super) token_uri: Option<String>,
    pub(super) signer: Signer,
}

/// Exchanges a grant for tokens.
pub(super) struct Exchange {
    http: reqwest::Client,
    grant: Grant,
}

impl Exchange {
    pub(super) fn new(grant: Grant) -> Result<Self, TokenError> {
        let http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| TokenError::Unusable(error.to_string()))?;
        Ok(Self { http, grant })
    }
}

#[async_trait]
impl Source for Exchange {
    async fn fetch(&self) -> Result<Fetched, TokenError> {
        let (uri, form) = match &self.grant {
            Grant::Person(person) => (&person.token_uri, person.form()),
            Grant::Key(key) => (&key.token_uri, key.form().await?),
        };
        let uri = uri.as_deref().unwrap_or(TOKEN_URI);
        let form = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let request = self
            .http
            .post(uri)
            .header("Content-Type", "application/x-www-form-urlencoded")
            .body(form);
        let response = request.send().await.map_err(|error| {
            let why = with_causes(&error.without_url());
            TokenError::Later(format!("the token endpoint does not answer: {why}"))
        })?;
        match read_answer(response, "the token endpoint").await {
            Answer::Token(fetched) => Ok(fetched),
            Answer::Failed(why) => Err(TokenError::Later(why)),
            Answer::Refused(why) => Err(TokenError::Unusable(match &self.grant {
                Grant::Person(_) => format!("{why}; run `gcloud auth application-default login`"),
                Grant::Key(key) => format!("{why}; is the key of {} still there?", key.email),
            })),
        }
    }
}

impl Person {
    fn form(&self) -> Vec<(&'static str, String)> {
        vec![
            ("grant_type", "refresh_token".to_owned()),
            ("client_id", self.client_id.clone()),
            ("client_secret", self.client_secret.clone()),
            ("refresh_token", self.refresh_token.clone()),
        ]
    }
}

impl Key {
    async fn form(&self) -> Result<Vec<(&'static str, String)>, TokenError> {
        let now = Timestamp::now().as_second();
        let header = json!({ "alg": "RS256", "typ": "JWT", "kid": self.id });
        let claims = json!({
            "iss": self.email,
            "scope": SCOPE,
            "aud": self.token_uri.as_deref().unwrap_or(TOKEN_URI),
            "iat": now,
            "exp": now + ASSERTION_LIVES,
        });
        let part = |value: &serde_json::Value| base64_url(value.to_string().into_bytes());
        let text = format!("{}.{}", part(&header), part(&claims));
        let signed = self.signer.sign(text.clone()).await;
        let signed = signed.map_err(|error| {
            let why = redact(&error.to_string()).into_owned();
            TokenError::Unusable(format!("the key of {} can't sign: {why}", self.email))
        })?;
        let assertion = format!("{text}.{}", base64_url(signed.to_vec()));
        let kind = "urn:ietf:params:oauth:grant-type:jwt-bearer";
        Ok(vec![("grant_type", kind.to_owned()), ("assertion", assertion)])
    }
}

/// RFC 4648, section 5, without padding.
fn base64_url(bytes: Vec<u8>) -> String {
    let standard = serde_json::to_value(ByteString(bytes)).unwrap_or_default();
    let standard = standard.as_str().unwrap_or_default();
    standard.trim_end_matches('=').replace('+', "-").replace('/', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_urls() {
        for (bytes, expect) in
            [(vec![], ""), (vec![0xfb, 0xff], "-_8"), (vec![0xff; 3], "____"), (vec![0], "AA")]
        {
            assert_eq!(base64_url(bytes), expect);
        }
    }
}
