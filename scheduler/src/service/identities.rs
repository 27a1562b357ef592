//! Whether the accounts that tasks run as may act as their Google accounts.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::timeout;

use super::{Loaded, cluster_of};
use crate::backend::kubernetes::Grants;
use crate::config::backends::{BackendConfig, BackendKind};
use crate::domain::workload::Account;
use crate::gcp::credentials::Credentials;
use crate::gcp::iam::{Iam, Member, Standing};
use crate::gcp::rest::Rest;
use crate::gcp::tokens::TokenError;

/// How long granting may take.
const GRANT: Duration = Duration::from_secs(10);

/// Google's IAM, asked for the accounts of one backend's namespace.
pub struct Identities {
    iam: Iam,
    /// The project of the cluster; `None`: it is not known.
    project: Option<String>,
    namespace: String,
}

impl Identities {
    /// For `backend`; `None`: it is no cluster.
    ///
    /// # Errors
    /// This machine has no TLS roots.
    pub fn of(
        loaded: &Loaded,
        backend: &BackendConfig,
        credentials: &Credentials,
    ) -> Result<Option<Self>, TokenError> {
        let BackendKind::Kubernetes { namespace, .. } = &backend.kind else { return Ok(None) };
        let cluster = cluster_of(&backend.kind, &loaded.farm).unwrap_or_default();
        // As gcloud takes it (its property api_endpoint_overrides/iam).
        let endpoint = std::env::var("CLOUDSDK_API_ENDPOINT_OVERRIDES_IAM").ok();
        let endpoint = endpoint.filter(|url| !url.is_empty());
        Ok(Some(Self {
            iam: Iam::new(Rest::new(credentials.clone())?, endpoint.as_deref()),
            project: cluster.gke.unwrap_or(cluster.farm).project,
            namespace: namespace.clone(),
        }))
    }

    /// How each of these accounts stands, those without a Google account left out: the account's
    /// name, and what was found. Changes nothing.
    pub async fn standings(&self, accounts: &BTreeSet<Account>) -> Vec<(String, Standing)> {
        let mut standings = Vec::new();
        for account in accounts {
            let Account::Google { name, email } = account else { continue };
            let standing = match self.member(name) {
                Some(member) => self.iam.standing(&member, email).await,
                None => Standing::Unreadable {
                    why: "the cluster's project is not known".to_owned(),
                    hint: "set K8S_PROJECT, or `gke: {project: …}` of the backend".to_owned(),
                },
            };
            standings.push((name.clone(), standing));
        }
        standings
    }

    fn member(&self, account: &str) -> Option<Member> {
        Some(Member {
            project: self.project.clone()?,
            namespace: self.namespace.clone(),
            account: account.to_owned(),
        })
    }
}

#[async_trait]
impl Grants for Identities {
    async fn grant(&self, account: &str, email: &str) -> Result<bool, String> {
        let member = self.member(account).ok_or("the cluster's project is not known")?;
        // The tasks of this account wait meanwhile.
        let granted = timeout(GRANT, self.iam.grant(&member, email)).await;
        let granted = granted.map_err(|_| format!("IAM did not answer within {GRANT:?}"))?;
        granted.map_err(|error| error.to_string())
    }
}
