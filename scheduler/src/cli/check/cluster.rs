//! Checks a cluster: that it answers, takes our requests, and would take our Jobs.

use std::collections::BTreeMap;

use super::Findings;
use crate::backend::kubernetes::connect::connect;
use crate::backend::kubernetes::preflight::Preflight;
use crate::config::backends::{BackendConfig, BackendKind};
use crate::domain::input_url::InputUrl;
use crate::domain::name::Attempt;
use crate::domain::task::Task;
use crate::domain::workload::{Account, Isolation, Workload};
use crate::gcp::credentials::Credentials;
use crate::render::{Policy, Target};
use crate::service::{Loaded, cluster_of, templates};

/// Checks the cluster of a Kubernetes backend with `workloads`, one for each kind of Job.
pub async fn check(
    loaded: &Loaded,
    backend: &BackendConfig,
    workloads: &[Workload],
    findings: &mut Findings,
) {
    let BackendKind::Kubernetes { namespace, .. } = &backend.kind else { return };
    let what = format!("cluster of {}", backend.name);
    let cluster = cluster_of(&backend.kind, &loaded.farm).unwrap_or_default();
    let credentials = Credentials::application_default(rand::random());
    let client = match connect(&cluster, &credentials).await {
        Ok(connected) => {
            findings.pass(&what, &connected.chosen);
            for warning in &connected.chosen.warnings {
                findings.warn(&what, warning, "");
            }
            connected.client
        }
        Err(error) => return findings.fail(&what, &error, &error.hint()),
    };
    let preflight = Preflight::new(client, namespace);
    match preflight.version().await {
        Ok(version) => findings.pass(&what, format!("answers, version {version}")),
        Err(error) => {
            return findings.fail(&what, error, "is the cluster up, and are the credentials good?");
        }
    }
    let what = format!("namespace {namespace}");
    match preflight.namespace().await {
        Ok(Some(true)) => findings.pass(&what, "is there"),
        Ok(Some(false)) => {
            let hint = format!("kubectl create namespace {namespace}");
            findings.fail(&what, "is not there", &hint);
        }
        Ok(None) => findings.pass(&what, "can't be read, which `run` does not need"),
        Err(error) => findings.fail(&what, error, ""),
    }
    match preflight.missing_permissions().await {
        Ok(missing) if missing.is_empty() => findings.pass("permissions", "all that are used"),
        Ok(missing) => {
            let hint = format!("kubectl apply -n {namespace} -f deploy/rbac.yaml");
            findings.fail("permissions", format!("missing: {}", missing.join(", ")), &hint);
        }
        Err(error) => findings.fail("permissions", error, ""),
    }
    runtime_classes(&preflight, workloads, findings).await;
    accounts(&preflight, loaded, workloads, findings).await;
    dry_runs(&preflight, loaded, backend, namespace, workloads, findings).await;
}

async fn runtime_classes(preflight: &Preflight, workloads: &[Workload], findings: &mut Findings) {
    let kata = workloads.iter().filter(|w| w.isolation == Isolation::Kata);
    let names: std::collections::BTreeSet<&str> =
        kata.map(|workload| workload.profile.runtime_class.as_str()).collect();
    for name in names {
        let what = format!("RuntimeClass {name}");
        match preflight.runtime_class(name).await {
            Ok(Some(true)) => findings.pass(&what, "is there"),
            Ok(Some(false)) => {
                let hint = "kubectl apply -f kata/runtimeclass.yaml, on nodes with Kata Containers";
                findings.fail(&what, "is not there: the API server refuses Kata pods", hint);
            }
            Ok(None) => findings.warn(&what, "may not be read", "check it with more rights"),
            Err(error) => findings.fail(&what, error, ""),
        }
    }
}

async fn accounts(
    preflight: &Preflight,
    loaded: &Loaded,
    workloads: &[Workload],
    findings: &mut Findings,
) {
    let accounts: BTreeMap<&str, &Account> =
        workloads.iter().map(|workload| (workload.account.name(), &workload.account)).collect();
    for (name, account) in accounts {
        let what = format!("account {name}");
        let found = match preflight.account(name).await {
            Ok(found) => found,
            Err(error) => {
                findings.fail(&what, error, "");
                continue;
            }
        };
        match (account, found) {
            (Account::Existing { .. }, None) => {
                let hint = format!("kubectl create serviceaccount {name}");
                findings.fail(&what, "is not there, and a name without @ is never created", &hint);
            }
            (Account::Existing { .. }, Some(_)) => findings.pass(&what, "is there"),
            (Account::Google { .. }, None) => findings.pass(&what, "is created when first needed"),
            (Account::Google { email, .. }, Some(Some(found))) if found == *email => {
                findings.pass(&what, format!("is there, for {email}"));
            }
            (Account::Google { email, .. }, Some(Some(found))) => {
                let detail = format!("is annotated for {found}, not for {email}");
                findings.fail(
                    &what,
                    detail,
                    "its tasks are held: correct batch.yaml or the account",
                );
            }
            (Account::Google { .. }, Some(None)) if loaded.config.policy.strict => {
                findings.fail(&what, "is not annotated", "annotate it: policy.strict refuses it");
            }
            (Account::Google { .. }, Some(None)) => {
                findings.warn(&what, "is there, not annotated", "it has no Workload Identity");
            }
        }
    }
}

async fn dry_runs(
    preflight: &Preflight,
    loaded: &Loaded,
    backend: &BackendConfig,
    namespace: &str,
    workloads: &[Workload],
    findings: &mut Findings,
) {
    // What is wrong with templates is found without a cluster.
    let Ok(templates) = templates(backend) else { return };
    let target =
        Target { namespace: namespace.to_owned(), scheduler: loaded.config.scheduler.clone() };
    let policy = Policy { strict: loaded.config.policy.strict };
    for workload in workloads {
        let what = format!("dry run: {} ({})", workload.mapping, workload.key.command);
        let Ok(checked) = templates.check(workload, &target, &policy) else { continue };
        let Ok(input) = InputUrl::parse("https://storage.googleapis.com/katabatch-check/input")
        else {
            continue;
        };
        let task = Task::new(workload.key.clone(), input, "check", jiff::Timestamp::UNIX_EPOCH);
        let answer = match checked.fill(&task, Attempt::FIRST).typed() {
            Ok(job) => preflight.dry_run(&job).await,
            Err(error) => Err(error.to_string()),
        };
        match answer {
            Ok(()) => findings.pass(&what, "the API server would take it"),
            Err(error) => findings.fail(&what, error, "the API server refuses this Job"),
        }
    }
}
