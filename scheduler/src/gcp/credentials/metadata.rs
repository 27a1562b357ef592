//! Tokens from the metadata server of a Compute Engine machine, or of a GKE pod (Workload Identity
//! Federation for GKE): no key file is needed there.

use std::time::Duration;

use async_trait::async_trait;

use super::exchange::{Answer, read_answer};
use super::source::{Fetched, SCOPE, Source};
use crate::domain::causes::with_causes;
use crate::gcp::tokens::TokenError;

/// The variable that names another metadata server, as Google's own clients take it.
pub(super) const VARIABLE: &str = "GCE_METADATA_HOST";
const GOOGLE: &str = "metadata.google.internal";
const PATH: &str = "computeMetadata/v1/instance/service-accounts/default/token";

/// A metadata server.
pub(super) struct Metadata {
    http: reqwest::Client,
    url: String,
    /// Whether there is reason to believe in one: then it is waited for.
    expected: bool,
}

impl Metadata {
    /// The one at `host` (`HOST` or `HOST:PORT`), else Google's.
    pub(super) fn new(host: Option<&str>, expected: bool) -> Result<Self, TokenError> {
        let http = reqwest::Client::builder()
            // It is next door: a proxy would not find it, and must not see its tokens.
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(3))
            .build()
            .map_err(|error| TokenError::Unusable(error.to_string()))?;
        let url = format!("http://{}/{PATH}", host.unwrap_or(GOOGLE));
        Ok(Self { http, url, expected: expected || host.is_some() })
    }

    /// Whether this machine looks like one of Google's: its firmware says so, or it is a pod,
    /// whose node hides the firmware.
    pub(super) fn is_likely() -> bool {
        let firmware = std::fs::read_to_string("/sys/class/dmi/id/product_name");
        firmware.is_ok_and(|name| name.trim().starts_with("Google"))
            || std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
    }
}

#[async_trait]
impl Source for Metadata {
    async fn fetch(&self) -> Result<Fetched, TokenError> {
        let url = format!("{}?scopes={SCOPE}", self.url);
        let asked = self.http.get(url).header("Metadata-Flavor", "Google").send().await;
        let response = match asked {
            Err(_) if !self.expected => {
                return Err(TokenError::Unusable(
                    "there are no application-default credentials, and no metadata server; run \
                     `gcloud auth application-default login`, or give this workload a Google \
                     service account"
                        .to_owned(),
                ));
            }
            asked => asked.map_err(|error| {
                TokenError::Later(format!(
                    "the metadata server does not answer: {}",
                    with_causes(&error.without_url())
                ))
            })?,
        };
        match read_answer(response, "the metadata server").await {
            Answer::Token(fetched) => Ok(fetched),
            // While a pod is young its metadata server may not know it yet, and an account may
            // get its role a minute late: no refusal of it is for ever.
            Answer::Refused(why) | Answer::Failed(why) => Err(TokenError::Later(why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::http::{HeaderMap, StatusCode, Uri};
    use axum::routing::get;

    use super::*;

    async fn answer(headers: HeaderMap, uri: Uri) -> (StatusCode, &'static str) {
        let scope = "scopes=https://www.googleapis.com/auth/cloud-platform";
        if headers.get("metadata-flavor").is_none_or(|flavor| flavor != "Google") {
            return (StatusCode::FORBIDDEN, "no Metadata-Flavor");
        }
        if uri.query() != Some(scope) {
            return (StatusCode::BAD_REQUEST, "another scope");
        }
        (StatusCode::OK, r#"{"access_token":"t","expires_in":3599,"token_type":"Bearer"}"#)
    }

    #[tokio::test]
    async fn the_token_t_of_the_scope_cloud_platform_is_sent_as_bearer_t() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let host = listener.local_addr().expect("an address").to_string();
        let router = Router::new().route(&format!("/{PATH}"), get(answer));
        let serving = tokio::spawn(async move { axum::serve(listener, router).await });
        let source = Metadata::new(Some(&host), false).expect("a source");
        let fetched = source.fetch().await.expect("a token");
        assert_eq!(fetched.bearer.header().expect("a header"), "Bearer t");
        assert_eq!(fetched.lives, Duration::from_secs(3_599));
        serving.abort();
    }

    #[tokio::test]
    async fn a_silent_metadata_server_is_waited_for_only_where_one_is_expected() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let named = Metadata::new(Some("127.0.0.1:1"), false).expect("a source");
        let error = named.fetch().await.expect_err("nobody there");
        assert!(matches!(error, TokenError::Later(_)), "{error}");
        let mut found = Metadata::new(Some("127.0.0.1:1"), false).expect("a source");
        found.expected = false;
        let error = found.fetch().await.expect_err("nobody there");
        assert!(matches!(error, TokenError::Unusable(_)), "{error}");
        assert!(error.to_string().contains("gcloud auth application-default login"), "{error}");
    }
}
