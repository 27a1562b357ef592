//! Asks the API server of the first Kubernetes backend whose a bearer token is (Kubernetes,
//! authentication.k8s.io/v1 TokenReview). It needs the right that `system:auth-delegator` gives.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};

use crate::http::access::TokenReviewer;

/// How long an answer may take.
const WITHIN: Duration = Duration::from_secs(3);
/// What a service account's user name begins with.
const ACCOUNT: &str = "system:serviceaccount:";

/// The reviewer.
pub(super) struct Reviews {
    client: kube::Client,
    audience: String,
}

impl Reviews {
    /// For tokens of this audience.
    pub fn new(client: kube::Client, audience: String) -> Self {
        Self { client, audience }
    }
}

#[async_trait]
impl TokenReviewer for Reviews {
    async fn review(&self, token: &str) -> Result<Option<String>, String> {
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": { "token": token, "audiences": [self.audience] },
        });
        let request = http::Request::post("/apis/authentication.k8s.io/v1/tokenreviews")
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(review.to_string().into_bytes())
            .map_err(|error| error.to_string())?;
        let answer = tokio::time::timeout(WITHIN, self.client.request::<Value>(request)).await;
        let late = |_| format!("no answer within {} s", WITHIN.as_secs());
        let answer = answer.map_err(late)?.map_err(|error| error.to_string())?;
        Ok(account(&answer, &self.audience))
    }
}

/// The account that a review names, as `NAMESPACE/NAME`; `None`: the token is not good, not for this
/// audience, or no service account's.
fn account(review: &Value, audience: &str) -> Option<String> {
    let status = &review["status"];
    if status["authenticated"] != json!(true) {
        return None;
    }
    // A server that knows nothing of audiences leaves them out, and must not be believed.
    let audiences = status["audiences"].as_array()?;
    if !audiences.iter().any(|of| of == audience) {
        return None;
    }
    let name = status["user"]["username"].as_str()?.strip_prefix(ACCOUNT)?;
    let (namespace, name) = name.split_once(':')?;
    Some(format!("{namespace}/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_service_accounts_good_token_for_our_audience_names_an_account() {
        let review = |authenticated: bool, audiences: Value, user: &str| {
            let user = json!({ "username": user });
            json!({"status": {"authenticated": authenticated, "audiences": audiences, "user": user}})
        };
        let bot = "system:serviceaccount:farm:bot";
        for (review, expect) in [
            (review(true, json!(["a", "katabatch"]), bot), Some("farm/bot")),
            (review(false, json!(["katabatch"]), bot), None),
            (review(true, json!(["https://kubernetes"]), bot), None),
            (review(true, Value::Null, bot), None),
            (review(true, json!(["katabatch"]), "admin"), None),
            (json!({}), None),
        ] {
            assert_eq!(account(&review, "katabatch").as_deref(), expect, "{review}");
        }
    }
}
