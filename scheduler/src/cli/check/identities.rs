//! Looks at whether the accounts that tasks run as may act as their Google accounts.

use std::collections::BTreeSet;

use super::cluster::WITHIN;
use super::looks::Looks;
use super::templates::Planned;
use crate::check::findings::Findings;
use crate::config::backends::BackendConfig;
use crate::domain::workload::Account;
use crate::gcp::credentials::Credentials;
use crate::gcp::iam::Standing;
use crate::service::{Identities, Loaded};

const SUBJECT: &str = "accounts";

/// Asks IAM for each account with a Google account, side by side.
pub async fn check(
    loaded: &Loaded,
    backend: &BackendConfig,
    credentials: &Credentials,
    looks: &Looks,
    planned: &[Planned],
) -> Findings {
    let mut findings = Findings::about("workload identity");
    let accounts: BTreeSet<Account> =
        planned.iter().map(|plan| plan.workload.account.clone()).collect();
    let asked = accounts.into_iter().map(|account| {
        let identities = Identities::of(loaded, backend, credentials);
        async move {
            let name = account.name().to_owned();
            let identities = match identities {
                Ok(Some(identities)) => identities,
                Ok(None) => return Ok(Vec::new()),
                Err(error) => return Err((name, error.to_string())),
            };
            let look = async move { identities.standings(&BTreeSet::from([account])).await };
            looks.at(&name, WITHIN, look).await.map_err(|error| (name, error))
        }
    });
    for seen in futures::future::join_all(asked).await {
        match seen {
            Ok(standings) => {
                let grants = loaded.config.accounts.grant_workload_identity;
                for (name, standing) in standings {
                    judge(&name, standing, grants, &mut findings);
                }
            }
            Err((name, error)) => findings.not_checked(&name, error, "see the credentials"),
        }
    }
    if findings.all().is_empty() && !planned.is_empty() {
        findings.pass(SUBJECT, "none acts as a Google account");
    }
    findings
}

fn judge(name: &str, standing: Standing, grants: bool, findings: &mut Findings) {
    match standing {
        Standing::Good => findings.pass(name, "may act as its Google account"),
        Standing::Unsure { why, hint } => findings.warn(name, why, &hint),
        Standing::Missing { why, hint } if grants => {
            let hint = format!("`run` adds it when the account is first needed; or: {hint}");
            findings.warn(name, why, &hint);
        }
        Standing::Missing { why, hint } => findings.fail(name, why, &hint),
        Standing::Unreadable { why, hint } => findings.not_checked(name, why, &hint),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::findings::Verdict;

    #[test]
    fn a_missing_binding_fails_unless_run_adds_it_and_an_unread_one_is_not_checked() {
        let missing = || Standing::Missing { why: "w".into(), hint: "gcloud".into() };
        let unreadable = Standing::Unreadable { why: "w".into(), hint: "h".into() };
        for (standing, grants, expect) in [
            (Standing::Good, false, Verdict::Pass),
            (missing(), false, Verdict::Fail),
            (missing(), true, Verdict::Warn),
            (unreadable, false, Verdict::NotChecked),
        ] {
            let mut findings = Findings::about("workload identity");
            judge("a", standing, grants, &mut findings);
            assert_eq!(findings.worst(), expect, "{findings:?}");
        }
    }
}
