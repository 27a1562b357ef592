//! Tokens from the metadata server of a Compute Engine machine, or of a GKE pod (Workload Identity
//! Federation for GKE): no key file is needed there.

use std::time::Duration;

use async_trait::async_trait;

use super::exchange::{Answer, read_answer};
use super::source::{Fetched, SCOPE, Source};
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
                    super::said(&error.without_url())
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
