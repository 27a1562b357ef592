//! Channels to Google's gRPC APIs: to the real endpoint with the application-default credentials,
//! or to an emulator without any.
//!
//! A channel connects when it is first used and again whenever its connection broke, so opening
//! one fails only on what is written wrong. It knows no API: the generated clients take a channel.

mod named;

use std::time::Duration;

use gcloud_sdk::tonic::transport::{ClientTlsConfig, Endpoint as Transport};
use gcloud_sdk::{GoogleAuthHeaders, GoogleAuthMiddlewareLayer};
use tower::Layer;

use named::Named;

use super::credentials::Credentials;
use crate::domain::causes::with_causes;
use crate::domain::redact::redact;

/// A channel that adds credentials to each request, and its address to each error of the
/// connection. Cheap to clone; clones share the connection.
pub type Channel = <GoogleAuthMiddlewareLayer as Layer<Named>>::Service;

/// The longest that a connection may take to come up.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How often a real endpoint's connection is asked whether it lives, and how long it may take to
/// answer: without, one that was cut silently would hang its requests until their timeouts.
const PING_EVERY: Duration = Duration::from_secs(30);
const PONG_WITHIN: Duration = Duration::from_secs(10);

/// Why a channel can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The address is none.
    #[error("`{0}` is no endpoint; write https://HOST, or http://HOST:PORT for an emulator")]
    Address(String),
    /// The credentials can't be used.
    #[error(
        "the application-default credentials can't be used: {0}; run `gcloud auth \
         application-default login`, or give this workload a Google service account"
    )]
    Credentials(String),
}

/// Where an API is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    url: String,
}

impl Endpoint {
    /// The endpoint that is configured; else the one that the emulator's variable names, as
    /// Google's own clients take it (`localhost:8085`); else Google's.
    pub fn choose(configured: Option<&str>, emulator: Option<&str>, google: &str) -> Self {
        let url = match (given(configured), given(emulator)) {
            (Some(url), _) => url.to_owned(),
            (None, Some(host)) if host.contains("://") => host.to_owned(),
            (None, Some(host)) => format!("http://{host}"),
            (None, None) => google.to_owned(),
        };
        Self { url }
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether credentials are sent: never over a connection that anyone can read.
    pub fn is_authenticated(&self) -> bool {
        self.url.starts_with("https://")
    }

    /// Opens a channel to it. Must be called inside of a tokio runtime, since the credentials
    /// refresh themselves there.
    ///
    /// # Errors
    /// The address is none, or there are credentials that can't be read.
    pub async fn open(&self) -> Result<Channel, ChannelError> {
        let named = self.connect_lazily()?;
        let credentials = if self.is_authenticated() {
            Credentials::application_default(rand::random())
        } else {
            Credentials::anonymous()
        };
        if let Some(error) = credentials.broken() {
            return Err(ChannelError::Credentials(error.to_string()));
        }
        let headers = GoogleAuthHeaders::from(credentials.for_library());
        let layer = GoogleAuthMiddlewareLayer::new(headers, None)
            .map_err(|e| ChannelError::Credentials(redact(&with_causes(&e)).into_owned()))?;
        Ok(layer.layer(named))
    }

    fn connect_lazily(&self) -> Result<Named, ChannelError> {
        let wrong = || ChannelError::Address(self.url.clone());
        if !self.is_authenticated() && !self.url.starts_with("http://") {
            return Err(wrong());
        }
        let transport = Transport::from_shared(self.url.clone())
            .map_err(|_| wrong())?
            .connect_timeout(CONNECT_WITHIN)
            .tcp_nodelay(true);
        let named = |transport: Transport| Named::new(transport.connect_lazy(), transport.uri());
        if !self.is_authenticated() {
            return Ok(named(transport));
        }
        let transport = transport
            .http2_keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PONG_WITHIN)
            .keep_alive_while_idle(true)
            .tls_config(ClientTlsConfig::new().with_webpki_roots())
            .map_err(|_| wrong())?;
        Ok(named(transport))
    }
}

/// A setting that says something.
fn given(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configured_endpoint_wins_over_the_emulators_and_that_over_googles() {
        let google = "https://pubsub.googleapis.com";
        for (configured, emulator, expect, authenticated) in [
            (None, None, google, true),
            (None, Some(""), google, true),
            (None, Some("localhost:8085"), "http://localhost:8085", false),
            (None, Some("[::1]:8085"), "http://[::1]:8085", false),
            (None, Some("http://x:1"), "http://x:1", false),
            (Some("http://y:1"), Some("x:1"), "http://y:1", false),
            (Some("https://y"), Some("x:1"), "https://y", true),
        ] {
            let endpoint = Endpoint::choose(configured, emulator, google);
            assert_eq!((endpoint.url(), endpoint.is_authenticated()), (expect, authenticated));
        }
    }

    #[tokio::test]
    async fn an_address_that_is_none_says_what_one_is() {
        for wrong in ["pubsub.googleapis.com", "ftp://x", "http://", "http://a b", "https://"] {
            let opened = Endpoint::choose(Some(wrong), None, "").open().await;
            let error = opened.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains("write https://HOST"), "{wrong}: {error}");
        }
    }

    #[tokio::test]
    async fn an_error_of_the_connection_says_where_it_was_to() {
        use gcloud_sdk::google::pubsub::v1::GetTopicRequest;
        use gcloud_sdk::google::pubsub::v1::publisher_client::PublisherClient;
        use gcloud_sdk::tonic::Code;

        let endpoint = Endpoint::choose(Some("http://somebody:hush@127.0.0.1:1"), None, "");
        let channel = endpoint.open().await.expect("opened");
        let asked = PublisherClient::new(channel).get_topic(GetTopicRequest::default()).await;
        let status = asked.expect_err("nobody listens");
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        let said = status.message();
        assert!(said.starts_with("127.0.0.1:1: ") && said.contains("refused"), "{said}");
        assert!(!format!("{status:?}").contains("hush"), "{status:?}");
    }

    #[tokio::test]
    async fn opening_a_channel_to_an_emulator_needs_neither_it_nor_credentials() {
        let endpoint = Endpoint::choose(None, Some("127.0.0.1:1"), "");
        assert!(endpoint.open().await.is_ok());
    }
}
