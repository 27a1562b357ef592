//! Signing by a small mock of IAM and the metadata server.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};

use super::*;
use crate::gcp::storage::ObjectName;
use crate::gcp::storage::signer::sign_as;

/// What the mock answers to `signBlob`, and the email that it gives.
#[derive(Clone)]
struct Mock {
    email: &'static str,
    answer: (u16, String),
    heard: Arc<Mutex<Vec<String>>>,
}

async fn answer(
    State(mock): State<Mock>,
    headers: HeaderMap,
    uri: Uri,
    body: String,
) -> (StatusCode, String) {
    mock.heard.lock().expect("unpoisoned").push(format!("{} {body}", uri.path()));
    if uri.path().ends_with("/email") {
        let flavoured = headers.get("metadata-flavor").is_some_and(|value| value == "Google");
        let status = if flavoured { StatusCode::OK } else { StatusCode::FORBIDDEN };
        return (status, format!("{}\n", mock.email));
    }
    let (status, answer) = mock.answer;
    (StatusCode::from_u16(status).expect("a status"), answer)
}

async fn sign(
    email: &'static str,
    status: u16,
    said: &str,
) -> (Result<String, StorageError>, Vec<String>) {
    let heard = Arc::default();
    let mock = Mock { email, answer: (status, said.to_owned()), heard: Arc::clone(&heard) };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let host = listener.local_addr().expect("an address").to_string();
    let app = Router::new().fallback(answer).with_state(mock);
    let serving = tokio::spawn(async move { axum::serve(listener, app).await });
    let iam = format!("http://{host}");
    let signer = IamSigner::at(Credentials::anonymous(), Some(&iam), &host).expect("a signer");
    let signer = google_cloud_auth::signer::Signer::from(signer);
    let object = ObjectName::parse("gs://b/dir/o").expect("a name");
    let google = "https://storage.googleapis.com";
    let signed = sign_as(&signer, google, &object, Duration::from_secs(60)).await;
    serving.abort();
    let heard = heard.lock().expect("unpoisoned").clone();
    (signed.map(|url| url.reveal().to_owned()), heard)
}

const SIGNED: &str = r#"{"keyId": "1", "signedBlob": "AQL/"}"#;

#[tokio::test]
async fn the_metadata_servers_account_signs_by_iam() {
    let (url, heard) = sign("me@p.iam.gserviceaccount.com", 200, SIGNED).await;
    let url = url.expect("a URL");
    assert!(url.starts_with("https://storage.googleapis.com/b/dir/o?"), "{url}");
    assert!(url.contains("X-Goog-Credential=me%40p.iam.gserviceaccount.com%2F"), "{url}");
    assert!(url.contains("&X-Goog-Expires=60&"), "{url}");
    assert!(url.ends_with("&X-Goog-Signature=0102ff"), "{url}");
    assert!(heard[0].starts_with("/computeMetadata/v1/"), "{heard:?}");
    let path = "/v1/projects/-/serviceAccounts/me@p.iam.gserviceaccount.com:signBlob {\"payload\":";
    assert!(heard[1].starts_with(path), "{heard:?}");
    assert_eq!(heard.len(), 2, "the account is asked for once");
}

#[tokio::test]
async fn each_refusal_says_what_to_do() {
    let refusal = |status: &str, reason: &str| {
        let details = json!([{ "reason": reason }]);
        json!({ "error": { "status": status, "message": "no", "details": details } }).to_string()
    };
    let me = "me@p";
    let (signed, _) = sign(me, 403, &refusal("PERMISSION_DENIED", "")).await;
    let Err(StorageError::Forbidden(why)) = signed else { panic!("{signed:?}") };
    assert!(why.contains("--role=roles/iam.serviceAccountTokenCreator"), "{why}");
    let (signed, _) = sign(me, 403, &refusal("PERMISSION_DENIED", "SERVICE_DISABLED")).await;
    let Err(StorageError::Forbidden(why)) = signed else { panic!("{signed:?}") };
    assert!(why.contains("gcloud services enable iamcredentials.googleapis.com"), "{why}");
    let (signed, _) = sign(me, 503, "away").await;
    assert!(matches!(signed, Err(StorageError::Later(_))), "{signed:?}");
    let (signed, _) = sign(me, 200, "{}").await;
    assert!(matches!(signed, Err(StorageError::Later(_))), "{signed:?}");
    let (signed, _) = sign(me, 400, &refusal("INVALID_ARGUMENT", "")).await;
    assert!(matches!(signed, Err(StorageError::Refused(_))), "{signed:?}");
    let (signed, heard) = sign("p.svc.id.goog", 200, SIGNED).await;
    let Err(StorageError::Unauthenticated(why)) = signed else { panic!("{signed:?}") };
    assert!(why.contains("iam.gke.io/gcp-service-account"), "{why}");
    assert_eq!(heard.len(), 1, "IAM is not asked");
}
