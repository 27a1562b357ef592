//! Where the application-default credentials are (AIP-4110): the file that
//! `GOOGLE_APPLICATION_CREDENTIALS` names, the one that gcloud leaves, the metadata server.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use google_cloud_auth::credentials::{AccessTokenCredentials, external_account_authorized_user};
use google_cloud_auth::credentials::{external_account, impersonated, service_account};
use serde_json::Value;

use super::exchange::{Exchange, Grant, Key};
use super::metadata::{self, Metadata};
use super::source::{Fetched, SCOPE, Source};
use crate::domain::causes::with_causes;
use crate::domain::redact::redact;
use crate::gcp::tokens::{Bearer, TokenError};

const VARIABLE: &str = "GOOGLE_APPLICATION_CREDENTIALS";
/// The least lifetime that can be configured for the tokens of an impersonated or external
/// account: what google-cloud-auth fetches comes without its end.
const LEAST_LIFE: Duration = Duration::from_secs(600);

/// Credentials that were found.
pub(super) struct Found {
    pub(super) source: Arc<dyn Source>,
    /// For people: where they are.
    pub(super) origin: String,
    /// The project that requests count against, where the file names one.
    pub(super) quota_project: Option<String>,
}

impl Found {
    /// Credentials of which nothing but this can be had.
    pub(super) fn broken(error: TokenError) -> Self {
        let origin = "credentials that can't be used".to_owned();
        Self { source: Arc::new(Broken(error)), origin, quota_project: None }
    }
}

struct Broken(TokenError);

#[async_trait]
impl Source for Broken {
    async fn fetch(&self) -> Result<Fetched, TokenError> {
        Err(self.0.clone())
    }
}

/// Finds them by this process's environment.
pub(super) fn find() -> Result<Found, TokenError> {
    let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    if let Some(path) = named {
        return read(&path)?.ok_or_else(|| unusable(&path, "it is not there"));
    }
    if let Some(path) = well_known()
        && let Some(found) = read(&path)?
    {
        return Ok(found);
    }
    let host = std::env::var(metadata::VARIABLE).ok().filter(|host| !host.is_empty());
    let source = Metadata::new(host.as_deref(), Metadata::is_likely())?;
    Ok(Found {
        source: Arc::new(source),
        origin: match host {
            Some(host) => format!("the metadata server at {host}"),
            None => "the metadata server".to_owned(),
        },
        quota_project: None,
    })
}

/// gcloud's own file.
fn well_known() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let dir = set("CLOUDSDK_CONFIG").or_else(|| Some(set("HOME")?.join(".config/gcloud")))?;
    Some(dir.join("application_default_credentials.json"))
}

fn unusable(path: &Path, why: impl std::fmt::Display) -> TokenError {
    TokenError::Unusable(format!("{}: {}", path.display(), redact(&why.to_string())))
}

/// The credentials of a file; `None`: there is no such file.
fn read(path: &Path) -> Result<Option<Found>, TokenError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(path, error)),
    };
    // An error of the parser would show what it stumbled over.
    let file: Value = serde_json::from_str(&text).map_err(|_| unusable(path, "is no JSON"))?;
    let quota_project = file.get("quota_project_id").and_then(Value::as_str).map(str::to_owned);
    let source = source_of(file).map_err(|why| unusable(path, why))?;
    Ok(Some(Found { source, origin: path.display().to_string(), quota_project }))
}

fn source_of(file: Value) -> Result<Arc<dyn Source>, String> {
    let kind = file.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let grant = match kind.as_str() {
        "authorized_user" => Grant::Person(
            serde_json::from_value(file)
                .map_err(|_| "lacks client_id, client_secret or refresh_token")?,
        ),
        "service_account" => Grant::Key(key_of(file)?),
        "impersonated_service_account"
        | "external_account"
        | "external_account_authorized_user" => return Ok(Arc::new(Library { file, kind })),
        other => return Err(format!("is of the type `{other}`, which is not known")),
    };
    Exchange::new(grant)
        .map(|exchange| Arc::new(exchange) as Arc<dyn Source>)
        .map_err(|error| error.to_string())
}

fn key_of(file: Value) -> Result<Key, String> {
    let text = |key: &str| file.get(key).and_then(Value::as_str).map(str::to_owned);
    let missing = |key: &str| format!("lacks `{key}`");
    Ok(Key {
        email: text("client_email").ok_or_else(|| missing("client_email"))?,
        id: text("private_key_id").ok_or_else(|| missing("private_key_id"))?,
        token_uri: text("token_uri"),
        signer: service_account::Builder::new(file)
            .build_signer()
            .map_err(|error| error.to_string())?,
    })
}

/// What google-cloud-auth knows how to fetch.
struct Library {
    file: Value,
    kind: String,
}

#[async_trait]
impl Source for Library {
    async fn fetch(&self) -> Result<Fetched, TokenError> {
        // Made anew each time: it would give the token that it holds, whose end it does not tell.
        let credentials = self.build().map_err(TokenError::Unusable)?;
        let token = credentials.access_token().await.map_err(|error| {
            let why = redact(&with_causes(&error)).into_owned();
            if error.is_transient() { TokenError::Later(why) } else { TokenError::Unusable(why) }
        })?;
        Ok(Fetched { bearer: Bearer::new(token.token), lives: LEAST_LIFE })
    }
}

impl Library {
    fn build(&self) -> Result<AccessTokenCredentials, String> {
        let (file, scopes) = (self.file.clone(), [SCOPE]);
        let built = match self.kind.as_str() {
            "impersonated_service_account" => impersonated::Builder::new(file)
                .with_scopes(scopes)
                .build_access_token_credentials(),
            "external_account" => external_account::Builder::new(file)
                .with_scopes(scopes)
                .build_access_token_credentials(),
            // The scopes are those that the person consented to.
            _ => external_account_authorized_user::Builder::new(file)
                .build_access_token_credentials(),
        };
        built.map_err(|error| redact(&with_causes(&error)).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_file_that_holds_no_credentials_says_why_and_shows_nothing_of_itself() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("adc.json");
        assert!(read(&path).expect("absent").is_none());
        for (text, expect) in [
            ("sekrit".to_owned(), "is no JSON"),
            (json!({"private_key": "sekrit"}).to_string(), "is of the type ``"),
            (json!({"type": "gdch_service_account"}).to_string(), "which is not known"),
            (json!({"type": "authorized_user", "client_secret": "sekrit"}).to_string(), "lacks"),
            (
                json!({"type": "service_account", "private_key": "sekrit"}).to_string(),
                "lacks `client_email`",
            ),
        ] {
            std::fs::write(&path, text).expect("written");
            let error = read(&path).err().expect("no credentials").to_string();
            assert!(error.contains(expect) && error.contains("adc.json"), "{error}");
            assert!(!error.contains("sekrit"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_persons_file_gives_its_quota_project() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("adc.json");
        let person = json!({"type": "authorized_user", "client_id": "i", "client_secret": "s",
            "refresh_token": "r", "quota_project_id": "q"});
        std::fs::write(&path, person.to_string()).expect("written");
        let found = read(&path).expect("credentials").expect("there");
        assert_eq!(found.quota_project.as_deref(), Some("q"));
        assert_eq!(found.origin, path.display().to_string());
    }
}
