//! What each request is answered, given what the test told. A text is sent as it is.

use serde_json::{Value, json};

use super::{EMAIL, Told};

const ACCOUNT: &str = "/computeMetadata/v1/instance/service-accounts/default/";
const POLICY: &str = "/v1/projects/-/serviceAccounts/";

pub(super) fn to(told: &mut Told, path: &str, flavoured: bool, body: &Value) -> (u16, Value) {
    if let Some(what) = path.strip_prefix(ACCOUNT) {
        // Without it a request may have been sent by somebody who was tricked into it.
        return if flavoured { metadata(told, what) } else { (403, "Metadata-Flavor".into()) };
    }
    if let Some((email, verb)) = path.strip_prefix(POLICY).and_then(|rest| rest.split_once(':')) {
        return account(told, email, verb, body);
    }
    if path == "/oauth" {
        return metadata(told, "token");
    }
    if path.starts_with("/v1/projects/") && path.ends_with("/clusters") {
        return told.list_refusal.clone().unwrap_or_else(|| (200, told.clusters.clone()));
    }
    if told.objects_refused && path.starts_with("/storage/v1/b/") {
        return denied("storage.objects.get");
    }
    unknown(path)
}

pub(super) fn denied(message: &str) -> (u16, Value) {
    let error = json!({ "code": 403, "status": "PERMISSION_DENIED", "message": message });
    (403, json!({ "error": error }))
}

fn unknown(what: &str) -> (u16, Value) {
    let message = format!("{what} is not there");
    (404, json!({ "error": { "code": 404, "status": "NOT_FOUND", "message": message } }))
}

fn metadata(told: &mut Told, what: &str) -> (u16, Value) {
    match what {
        "email" => (200, EMAIL.into()),
        // What the token endpoint answers alike.
        "token" if told.token_failures > 0 => {
            told.token_failures -= 1;
            (503, "not yet".into())
        }
        "token" => {
            let next = match told.tokens.len() {
                0 | 1 => told.tokens.front().cloned(),
                _ => told.tokens.pop_front(),
            };
            match next {
                Some((token, lives)) => (
                    200,
                    json!({ "access_token": token, "expires_in": lives, "token_type": "Bearer" }),
                ),
                None => (404, "this account is not there".into()),
            }
        }
        other => unknown(other),
    }
}

/// What is done with a service account. A policy's etag is a number that counts its versions.
fn account(told: &mut Told, email: &str, verb: &str, body: &Value) -> (u16, Value) {
    if verb == "signBlob" {
        // Signed by nobody: the signature is the payload.
        let signed = json!({ "keyId": "none", "signedBlob": body["payload"] });
        return told.signing_refusal.clone().unwrap_or((200, signed));
    }
    let Some(policy) = told.policies.get_mut(email) else { return unknown(email) };
    let version = policy["etag"].as_str().and_then(|etag| etag.parse::<u64>().ok()).unwrap_or(0);
    match verb {
        "getIamPolicy" => {
            policy["etag"] = version.to_string().into();
            (200, policy.clone())
        }
        "setIamPolicy" if body["policy"]["etag"] != json!(version.to_string()) => {
            let error = json!({ "code": 409, "status": "ABORTED", "message": "the etag is old" });
            (409, json!({ "error": error }))
        }
        "setIamPolicy" => {
            *policy = body["policy"].clone();
            policy["etag"] = (version + 1).to_string().into();
            (200, policy.clone())
        }
        other => unknown(other),
    }
}
