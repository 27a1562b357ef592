//! The objects of Cloud Storage by its JSON API.
//!
//! One API for all calls, and the one that emulators speak (`STORAGE_EMULATOR_HOST`, as Google's own
//! clients take it). What an answer means is [`answer`](super::answer)'s.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Method, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Client, Response};
use serde_json::Value;

use super::answer::{Wish, error};
use super::{Fetched, Generation, ObjectName, Objects, StorageError};
use crate::gcp::channel::Endpoint;
use crate::gcp::tokens::{Bearer, TokenError, Tokens};

/// Google's own endpoint.
pub const GOOGLE: &str = "https://storage.googleapis.com";
/// The longest that a connection may take to come up.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// The longest that one request may take, its answer read.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// The largest object that is read: a Datastore export of all of OSS-Fuzz is 5 MiB.
const LARGEST: usize = 64 << 20;
/// The pauses before a read is tried again: a short trouble is nobody's business.
const AGAIN: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(800)];
/// What stands for itself in a path's segment (RFC 3986, "unreserved").
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The endpoint in force: an emulator's, else Google's.
pub fn endpoint() -> Endpoint {
    let emulator = std::env::var("STORAGE_EMULATOR_HOST").ok();
    Endpoint::choose(None, emulator.as_deref(), GOOGLE)
}

/// A client of Cloud Storage. Connects when first used.
pub struct CloudStorage {
    http: Client,
    base: String,
    tokens: Option<Arc<dyn Tokens>>,
}

impl CloudStorage {
    /// A client of `endpoint`, as whom `tokens` say; an emulator wants none.
    ///
    /// # Errors
    /// The HTTP client can't be made.
    pub fn open(
        endpoint: &Endpoint,
        tokens: Option<Arc<dyn Tokens>>,
    ) -> Result<Self, StorageError> {
        let mut builder = Client::builder()
            .connect_timeout(CONNECT_WITHIN)
            .timeout(ANSWER_WITHIN)
            // A redirect would carry the token elsewhere.
            .redirect(reqwest::redirect::Policy::none());
        if tokens.is_none() {
            // An emulator is near; a proxy for the outside would not find it.
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(|error| StorageError::Refused(error.to_string()))?;
        Ok(Self { http, base: endpoint.url().trim_end_matches('/').to_owned(), tokens })
    }

    fn url_of(&self, object: &ObjectName) -> String {
        let encode = |text| utf8_percent_encode(text, SEGMENT);
        format!("{}/storage/v1/b/{}/o/{}", self.base, encode(&object.bucket), encode(&object.name))
    }

    /// Sends a request; a token that is refused is renewed once.
    async fn send(&self, method: Method, url: &str, body: &[u8]) -> Result<Response, StorageError> {
        let Some(tokens) = &self.tokens else {
            return self.send_as(method, url, body, None).await;
        };
        let bearer = tokens.bearer().await.map_err(no_token)?;
        let answer = self.send_as(method.clone(), url, body, Some(&bearer)).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        let bearer = tokens.renew(&bearer).await.map_err(no_token)?;
        self.send_as(method, url, body, Some(&bearer)).await
    }

    async fn send_as(
        &self,
        method: Method,
        url: &str,
        body: &[u8],
        bearer: Option<&Bearer>,
    ) -> Result<Response, StorageError> {
        let mut request = self.http.request(method.clone(), url);
        if let Some(bearer) = bearer {
            request = request.header(AUTHORIZATION, bearer.header().map_err(no_token)?);
        }
        if method == Method::POST {
            request = request.header(CONTENT_TYPE, "application/octet-stream").body(body.to_vec());
        }
        request.send().await.map_err(lost)
    }

    async fn get(&self, wish: Wish, object: &ObjectName, query: &str) -> Result<Got, StorageError> {
        let url = format!("{}{query}", self.url_of(object));
        let mut pauses = AGAIN.iter();
        loop {
            let got = self.get_once(wish, object, &url).await;
            match (got, pauses.next()) {
                (Err(StorageError::Later(_)), Some(pause)) => tokio::time::sleep(*pause).await,
                (got, _) => return got,
            }
        }
    }

    async fn get_once(
        &self,
        wish: Wish,
        object: &ObjectName,
        url: &str,
    ) -> Result<Got, StorageError> {
        let answer = self.send(Method::GET, url, &[]).await?;
        let status = answer.status();
        if status == StatusCode::NOT_MODIFIED {
            return Ok(Got::NotModified);
        }
        let generation = answer.headers().get("x-goog-generation");
        let generation = generation.and_then(|value| value.to_str().ok()?.parse().ok());
        let bytes = body(answer, object).await?;
        if !status.is_success() {
            return Err(error(wish, object, status, &bytes));
        }
        Ok(Got::Body { generation: generation.map(Generation), bytes })
    }
}

/// A good answer to a GET.
enum Got {
    NotModified,
    Body { generation: Option<Generation>, bytes: Vec<u8> },
}

#[async_trait]
impl Objects for CloudStorage {
    async fn read(
        &self,
        object: &ObjectName,
        known: Option<Generation>,
    ) -> Result<Fetched, StorageError> {
        let query = match known {
            Some(Generation(number)) => format!("?alt=media&ifGenerationNotMatch={number}"),
            None => "?alt=media".to_owned(),
        };
        match self.get(Wish::Read, object, &query).await? {
            Got::NotModified => Ok(Fetched::Same),
            // An emulator may not know the condition, and give it all.
            Got::Body { generation, .. } if generation.is_some() && generation == known => {
                Ok(Fetched::Same)
            }
            Got::Body { generation: Some(generation), bytes } => {
                Ok(Fetched::New { generation, bytes })
            }
            Got::Body { generation: None, .. } => Err(StorageError::Refused(format!(
                "the answer to a read of {object} has no x-goog-generation"
            ))),
        }
    }

    async fn exists(&self, object: &ObjectName) -> Result<bool, StorageError> {
        match self.get(Wish::Look, object, "?fields=generation").await {
            Ok(_) => Ok(true),
            Err(StorageError::Absent(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn write(
        &self,
        object: &ObjectName,
        bytes: Vec<u8>,
        over: Option<Generation>,
    ) -> Result<Generation, StorageError> {
        let encode = |text| utf8_percent_encode(text, SEGMENT);
        let condition =
            over.map(|over| format!("&ifGenerationMatch={}", over.0)).unwrap_or_default();
        let url = format!(
            "{}/upload/storage/v1/b/{}/o?uploadType=media&name={}{condition}",
            self.base,
            encode(&object.bucket),
            encode(&object.name),
        );
        let answer = self.send(Method::POST, &url, &bytes).await?;
        let status = answer.status();
        let said = body(answer, object).await?;
        if !status.is_success() {
            let error = error(Wish::Write, object, status, &said);
            // With a condition, 404 says that the object is gone which was to be replaced.
            return Err(match error {
                StorageError::Absent(object) => StorageError::Overtaken(object),
                other => other,
            });
        }
        let json: Option<Value> = serde_json::from_slice(&said).ok();
        let generation = json.as_ref().and_then(|json| json.get("generation")?.as_str());
        let none = || StorageError::later("the answer to a write names no generation");
        generation.and_then(|text| text.parse().ok()).map(Generation).ok_or_else(none)
    }
}

/// The whole body, unless it is too large.
async fn body(mut answer: Response, object: &ObjectName) -> Result<Vec<u8>, StorageError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(lost)? {
        if bytes.len() + chunk.len() > LARGEST {
            let most = LARGEST >> 20;
            return Err(StorageError::Refused(format!("{object} is larger than {most} MiB")));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// A request without an answer. The URL is not part of the text, and no number that changes.
fn lost(error: reqwest::Error) -> StorageError {
    let what = if error.is_timeout() {
        "it gave no answer in time"
    } else if error.is_connect() {
        "no connection comes up"
    } else {
        "the connection broke"
    };
    StorageError::later(what)
}

fn no_token(error: TokenError) -> StorageError {
    match error {
        TokenError::Later(why) => StorageError::later(why),
        TokenError::Unusable(why) => StorageError::Unauthenticated(why),
    }
}

#[cfg(test)]
mod tests;
