//! Looks at a cluster: that it answers, lets us do what we do, and would take our Jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;

use super::catalog::Knowing;
use super::identities;
use super::looks::Looks;
use super::nodes;
use super::templates::{self, Planned};
use crate::backend::kubernetes::connect::connect;
use crate::backend::kubernetes::place::Chosen;
use crate::backend::kubernetes::preflight::{Answer, Preflight, Seen};
use crate::check::findings::Findings;
use crate::check::runtime_class::{self, is_privileged};
use crate::config::backends::{BackendConfig, BackendKind};
use crate::domain::workload::Account;
use crate::gcp::credentials::Credentials;
use crate::service::{Loaded, cluster_of};
use k8s_openapi::api::node::v1::RuntimeClass;

/// How long one look at a cluster may take.
pub const WITHIN: Duration = Duration::from_secs(20);
/// So many dry runs go side by side.
const DRY_RUNS: usize = 8;

/// The RuntimeClasses that Jobs name, where they could be read.
pub type Classes = BTreeMap<String, RuntimeClass>;

/// Looks at the cluster of a Kubernetes backend, and has it judge the Jobs of all workloads.
pub async fn check(
    loaded: &Arc<Loaded>,
    backend: &BackendConfig,
    offline: bool,
    looks: &Looks,
    knowing: Knowing,
) -> Findings {
    let mut findings = Findings::about("cluster");
    let BackendKind::Kubernetes { namespace, .. } = &backend.kind else { return findings };
    let credentials = Credentials::application_default(rand::random());
    let reached = async {
        if offline { None } else { Some(reach(loaded, backend, &credentials, looks).await) }
    };
    let (reached, known) = tokio::join!(reached, knowing);
    let name = backend.name.as_str();
    let (of_templates, planned) = templates::check(loaded, backend, namespace, &known.workloads);
    let preflight = match reached {
        Some(Ok(Reached { preflight, version, chosen })) => {
            findings.pass(name, &chosen);
            for warning in &chosen.warnings {
                findings.warn(name, warning, "see the backend's `kubernetes` section");
            }
            findings.pass(name, format!("answers, version {version}"));
            Some(preflight)
        }
        Some(Err((error, hint))) => {
            findings.fail(name, error, &hint);
            let rest = "namespace, permissions, RuntimeClasses, nodes, accounts and dry runs";
            findings.not_checked(rest, "the cluster does not answer", "");
            None
        }
        None => {
            findings.not_checked(name, "--offline asks no cluster", "");
            None
        }
    };
    findings.extend(of_templates);
    if let Some(preflight) = preflight {
        let (inside, identities) = tokio::join!(
            inside(loaded, &preflight, looks, &planned),
            identities::check(loaded, backend, &credentials, looks, &planned),
        );
        findings.extend(inside);
        findings.extend(identities);
    }
    findings
}

/// A cluster that answers.
struct Reached {
    preflight: Preflight,
    version: String,
    /// Which way it was found.
    chosen: Chosen,
}

/// Finds the cluster, and has it answer; else what is wrong, and what to do about it.
async fn reach(
    loaded: &Loaded,
    backend: &BackendConfig,
    credentials: &Credentials,
    looks: &Looks,
) -> Result<Reached, (String, String)> {
    let away = "is the cluster up, and are the credentials good?".to_owned();
    let BackendKind::Kubernetes { namespace, .. } = &backend.kind else {
        return Err(("is no cluster".to_owned(), String::new()));
    };
    let cluster = cluster_of(&backend.kind, &loaded.farm).unwrap_or_default();
    let (namespace, credentials, hint) = (namespace.clone(), credentials.clone(), away.clone());
    let look = async move {
        let connected = connect(&cluster, &credentials)
            .await
            .map_err(|error| (error.to_string(), error.hint()))?;
        let preflight = Preflight::new(connected.client, &namespace);
        match preflight.version().await {
            Ok(version) => Ok(Reached { preflight, version, chosen: connected.chosen }),
            Err(error) => Err((format!("{}: {error}", connected.chosen), hint)),
        }
    };
    let seen = looks.at(&format!("cluster of {}", backend.name), WITHIN, look).await;
    seen.unwrap_or_else(|error| Err((error, away)))
}

async fn inside(
    loaded: &Loaded,
    preflight: &Preflight,
    looks: &Looks,
    planned: &[Planned],
) -> Findings {
    let strict = loaded.config.policy.strict;
    let by_class = async {
        let (mut findings, classes) = runtime_classes(preflight, looks, planned, strict).await;
        findings.extend(nodes::check(preflight, looks, planned, &classes).await);
        findings
    };
    let (namespace, permissions, by_class, accounts, dry_runs) = tokio::join!(
        namespace(preflight, looks),
        permissions(preflight, looks),
        by_class,
        accounts(preflight, looks, planned, strict),
        dry_runs(preflight, looks, planned),
    );
    let mut findings = namespace;
    for others in [permissions, by_class, accounts, dry_runs] {
        findings.extend(others);
    }
    findings
}

/// One question, within its time.
pub async fn ask<T, F>(looks: &Looks, what: &str, question: F) -> Answer<T>
where
    T: Send + 'static,
    F: Future<Output = Answer<T>> + Send + 'static,
{
    looks.at(what, WITHIN, question).await?
}

async fn namespace(preflight: &Preflight, looks: &Looks) -> Findings {
    let mut findings = Findings::about("namespace");
    let name = preflight.name().to_owned();
    let asked = preflight.clone();
    match ask(looks, "the namespace", async move { asked.namespace().await }).await {
        Ok(Seen::There(())) => findings.pass(&name, "is there"),
        Ok(Seen::Absent) => {
            findings.fail(&name, "is not there", &format!("kubectl create namespace {name}"));
        }
        Ok(Seen::Forbidden(said)) => {
            findings.not_checked(&name, said, "`run` does not need to know");
        }
        Err(error) => findings.fail(&name, error, "see the cluster"),
    }
    findings
}

async fn permissions(preflight: &Preflight, looks: &Looks) -> Findings {
    let mut findings = Findings::about("permissions");
    let name = preflight.name().to_owned();
    let asked = preflight.clone();
    match ask(looks, "permissions", async move { asked.missing_permissions().await }).await {
        Ok(missing) if missing.is_empty() => findings.pass(&name, "all that are used"),
        Ok(missing) => {
            let hint =
                format!("kubectl apply -n {name} -f deploy/rbac.yaml; `run` refuses to start");
            findings.fail(&name, format!("missing: {}", missing.join(", ")), &hint);
        }
        Err(error) => {
            findings.not_checked(&name, error, "the cluster must take SelfSubjectAccessReviews");
        }
    }
    findings
}

async fn runtime_classes(
    preflight: &Preflight,
    looks: &Looks,
    planned: &[Planned],
    strict: bool,
) -> (Findings, Classes) {
    let mut findings = Findings::about("runtime class");
    let mut classes = Classes::new();
    let mut wanted: BTreeMap<&str, bool> = BTreeMap::new();
    for plan in planned {
        let pod = plan.job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        if let Some(name) = pod.and_then(|pod| pod.runtime_class_name.as_deref()) {
            *wanted.entry(name).or_default() |= is_privileged(&plan.job);
        }
    }
    for (name, privileged) in wanted {
        let (asked, class) = (preflight.clone(), name.to_owned());
        match ask(looks, name, async move { asked.runtime_class(&class).await }).await {
            Ok(Seen::There(class)) => {
                findings.extend(runtime_class::judge(&class, privileged, strict));
                classes.insert(name.to_owned(), class);
            }
            Ok(Seen::Absent) => {
                let hint = "kubectl apply -f kata/runtimeclass.yaml, on nodes with Kata Containers";
                findings.fail(name, "is not there: the API server refuses its pods", hint);
            }
            Ok(Seen::Forbidden(said)) => {
                findings.not_checked(name, said, "run `check` as someone who may read it");
            }
            Err(error) => findings.fail(name, error, "see the cluster"),
        }
    }
    (findings, classes)
}

async fn accounts(
    preflight: &Preflight,
    looks: &Looks,
    planned: &[Planned],
    strict: bool,
) -> Findings {
    let mut findings = Findings::about("account");
    let accounts: BTreeSet<&Account> = planned.iter().map(|plan| &plan.workload.account).collect();
    for account in accounts {
        let name = account.name();
        let (asked, of) = (preflight.clone(), name.to_owned());
        match ask(looks, name, async move { asked.account(&of).await }).await {
            Ok(found) => judge_account(account, found, strict, &mut findings),
            Err(error) => findings.not_checked(name, error, "see the permissions"),
        }
    }
    findings
}

/// `found` is its annotation for Workload Identity, where the account is there.
fn judge_account(
    account: &Account,
    found: Option<Option<String>>,
    strict: bool,
    findings: &mut Findings,
) {
    let name = account.name();
    match (account, found) {
        (Account::Existing { .. }, None) => {
            let hint = format!("kubectl create serviceaccount {name}");
            findings.fail(name, "is not there, and a name without @ is never created", &hint);
        }
        (Account::Existing { .. }, Some(_)) => findings.pass(name, "is there"),
        (Account::Google { .. }, None) => findings.pass(name, "is created when first needed"),
        (Account::Google { email, .. }, Some(Some(found))) if found == *email => {
            findings.pass(name, format!("is there, for {email}"));
        }
        (Account::Google { email, .. }, Some(Some(found))) => {
            let detail = format!("is annotated for {found}, not for {email}");
            findings.fail(name, detail, "its tasks are held: correct batch.yaml or the account");
        }
        (Account::Google { .. }, Some(None)) if strict => {
            findings.fail(name, "is not annotated", "annotate it: policy.strict refuses it");
        }
        (Account::Google { email, .. }, Some(None)) => {
            let hint = format!(
                "it has no Workload Identity; kubectl annotate serviceaccount {name} \
                 iam.gke.io/gcp-service-account={email}"
            );
            findings.warn(name, "is there, not annotated", &hint);
        }
    }
}

async fn dry_runs(preflight: &Preflight, looks: &Looks, planned: &[Planned]) -> Findings {
    let mut findings = Findings::about("dry run");
    let one = |plan: &Planned| {
        let (asked, job, label) = (preflight.clone(), plan.job.clone(), plan.label.clone());
        let looks = looks.clone();
        async move {
            let said = ask(&looks, &label, async move { asked.dry_run(&job).await }).await;
            (label, said)
        }
    };
    let looks: Vec<_> = planned.iter().map(one).collect();
    let said: Vec<_> = futures::stream::iter(looks).buffered(DRY_RUNS).collect().await;
    for (label, said) in said {
        match said {
            Ok(()) => findings.pass(&label, "the API server would take it"),
            Err(error) => findings.fail(&label, error, "the API server refuses this Job"),
        }
    }
    findings
}
