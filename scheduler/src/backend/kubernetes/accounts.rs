//! The ServiceAccounts that pods run as: read, verified, and made where the rules say so.
//!
//! Asked once per account; a good answer is kept until a create says that the account is missing.
//! The rules are in [`judge`], which is pure.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as StdMutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex;

use super::KubernetesBackend;
use super::api::{AccountFacts, ApiError, ClusterApi, EMAIL_ANNOTATION};
use super::classify::{Verdict, classify};
use crate::domain::outcome::{Deferral, HoldKind, Scope};
use crate::domain::workload::Account;

/// Lets Kubernetes accounts act as Google accounts.
#[async_trait]
pub trait Grants: Send + Sync {
    /// Lets the account `name` act as `email`; whether that was new.
    ///
    /// # Errors
    /// Why not, for people.
    async fn grant(&self, name: &str, email: &str) -> Result<bool, String>;
}

/// What to do about an account.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Judgement {
    Use,
    UseWarned(String),
    Create { email: String },
    Refuse(String),
}

/// Why an account can't be used now.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// The rules refuse it: a person must act.
    #[error("{0}")]
    Refused(String),
    /// The API server did not say.
    #[error(transparent)]
    Api(#[from] ApiError),
}

/// The rules. An account found with no annotation is one that a farm made by hand: it is used, but
/// it can't be told whose identity it gives, so `strict` refuses it. One that somebody annotated
/// otherwise would run work under the wrong identity.
fn judge(account: &Account, found: Option<&AccountFacts>, strict: bool, ns: &str) -> Judgement {
    let name = account.name();
    if name == "default" {
        return Judgement::Refuse(
            "the ServiceAccount `default` is what every pod without an account shares; name an \
             account of its own as service_account_email"
                .to_owned(),
        );
    }
    match (account, found) {
        (Account::Existing { .. }, Some(_)) => Judgement::Use,
        (Account::Existing { .. }, None) => Judgement::Refuse(format!(
            "the ServiceAccount `{name}` is not there, and a service_account_email without `@` \
             names one that exists: make it with `kubectl --namespace {ns} create serviceaccount \
             {name}`, or give the whole email"
        )),
        (Account::Google { email, .. }, None) => Judgement::Create { email: email.clone() },
        (Account::Google { email, .. }, Some(found)) => match &found.email {
            Some(other) if other == email => Judgement::Use,
            Some(other) => Judgement::Refuse(format!(
                "the ServiceAccount `{name}` has the annotation {EMAIL_ANNOTATION}: {other}, but \
                 the mapping says {email}; change the one that is wrong"
            )),
            None => {
                let text = format!(
                    "the ServiceAccount `{name}` has no annotation {EMAIL_ANNOTATION}; it should \
                     be {email}"
                );
                if strict {
                    Judgement::Refuse(format!("{text} (policy: strict)"))
                } else {
                    Judgement::UseWarned(text)
                }
            }
        },
    }
}

impl KubernetesBackend {
    /// Has the accounts also be let act as their Google accounts, by `grants`; the first call
    /// counts.
    pub fn grant_by(&self, grants: Arc<dyn Grants>) {
        // A second one would do the same.
        let _ = self.accounts.grants.set(grants);
    }
}

/// The accounts of one namespace.
pub struct Accounts {
    api: Arc<dyn ClusterApi>,
    namespace: String,
    strict: bool,
    grants: OnceLock<Arc<dyn Grants>>,
    /// One lock an account, so that the first task of many asks and the others wait; true is good.
    known: StdMutex<BTreeMap<Account, Arc<Mutex<bool>>>>,
}

impl Accounts {
    /// The accounts of `namespace`.
    pub fn new(api: Arc<dyn ClusterApi>, namespace: &str, strict: bool) -> Self {
        let (known, grants) = (StdMutex::default(), OnceLock::new());
        Self { api, namespace: namespace.to_owned(), strict, grants, known }
    }

    /// Sees to it that the account is there and ours to use.
    ///
    /// # Errors
    /// [`AccountError`] says whether the rules refuse it or the API server did not answer.
    pub async fn ensure(&self, account: &Account) -> Result<(), AccountError> {
        let cell = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(known.entry(account.clone()).or_default())
        };
        let mut good = cell.lock().await;
        if !*good {
            self.check(account).await?;
            *good = true;
            self.grant(account).await;
        }
        Ok(())
    }

    /// That it can't be granted stops nothing: the project's policy may have it, and else the
    /// pods say so.
    async fn grant(&self, account: &Account) {
        let (Some(grants), Account::Google { name, email }) = (self.grants.get(), account) else {
            return;
        };
        match grants.grant(name, email).await {
            Ok(true) => tracing::info!(account = name, email, "may now act as this account"),
            Ok(false) => {}
            Err(why) => {
                tracing::error!(account = name, email, why, "can't be let act as this account");
            }
        }
    }

    /// A create said that the account is missing: the next task asks again.
    pub fn forget(&self, account: &Account) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(account);
    }

    async fn check(&self, account: &Account) -> Result<(), AccountError> {
        let name = account.name();
        let mut raced = false;
        loop {
            let found = self.api.get_account(name).await?;
            match judge(account, found.as_ref(), self.strict, &self.namespace) {
                Judgement::Use => return Ok(()),
                Judgement::UseWarned(text) => {
                    tracing::warn!(account = name, "{text}");
                    return Ok(());
                }
                Judgement::Refuse(text) => return Err(AccountError::Refused(text)),
                Judgement::Create { email } => match self.api.create_account(name, &email).await {
                    Ok(()) => return Ok(()),
                    // Somebody made it in between: what they made is what counts.
                    Err(error) if error.is_conflict() && !raced => raced = true,
                    Err(error) => return Err(error.into()),
                },
            }
        }
    }
}

/// The account could not be read or made. What every other request would meet stops the backend;
/// the rest concerns this workload, a moment.
pub fn account_unread(error: &ApiError) -> Deferral {
    let soon = Duration::from_secs(5);
    let (scope, kind, after) = match classify(error) {
        Verdict::Stop(kind) => (Scope::Backend, kind, soon),
        Verdict::Throttled(after) => (Scope::Backend, HoldKind::Throttled, after.unwrap_or(soon)),
        Verdict::Refused(_) if error.status == Some(403) => {
            (Scope::Workload, HoldKind::Forbidden, Duration::from_secs(60))
        }
        Verdict::Refused(_) => (Scope::Workload, HoldKind::AccountRefused, Duration::from_secs(60)),
        Verdict::Retry(kind) => (Scope::Workload, kind, soon),
        Verdict::Exists | Verdict::MaybeDone => (Scope::Workload, HoldKind::BackendFailed, soon),
    };
    Deferral::new(scope, kind, error, after)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn google() -> Account {
        Account::Google { name: "unpriv-sa".into(), email: "unpriv-sa@p.iam".into() }
    }

    fn annotated(email: &str) -> AccountFacts {
        AccountFacts { email: Some(email.into()) }
    }

    #[test]
    fn ours_is_used_an_absent_one_made_and_anothers_refused() {
        let judge = |found: Option<AccountFacts>| judge(&google(), found.as_ref(), true, "farm");
        assert_eq!(judge(Some(annotated("unpriv-sa@p.iam"))), Judgement::Use);
        assert_eq!(judge(None), Judgement::Create { email: "unpriv-sa@p.iam".into() });
        assert!(
            matches!(judge(Some(annotated("x@p.iam"))), Judgement::Refuse(t) if t.contains("x@p.iam"))
        );
    }

    #[test]
    fn one_without_annotation_is_used_with_a_warning_and_refused_when_strict() {
        let found = AccountFacts::default();
        let judge = |strict| judge(&google(), Some(&found), strict, "farm");
        assert!(matches!(judge(false), Judgement::UseWarned(_)));
        assert!(matches!(judge(true), Judgement::Refuse(_)));
    }

    #[test]
    fn default_is_refused_and_a_bare_name_is_never_made() {
        let default = Account::Google { name: "default".into(), email: "default@p".into() };
        let found = annotated("default@p");
        assert!(matches!(judge(&default, Some(&found), false, "farm"), Judgement::Refuse(_)));
        let bare = Account::Existing { name: "unpriv-sa".into() };
        assert_eq!(judge(&bare, Some(&AccountFacts::default()), true, "farm"), Judgement::Use);
        let Judgement::Refuse(text) = judge(&bare, None, false, "farm") else { panic!("used") };
        assert!(text.contains("kubectl --namespace farm create serviceaccount unpriv-sa"));
    }
}
