//! Refusals that every create would meet (case 33): a used-up quota, a missing right, a namespace
//! that ends. One create finds out, then all wait; when it is lifted, they go on.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace as NamespaceObject, ResourceQuota, ServiceAccount};
use katabatch::domain::outcome::HoldKind;
use katabatch_e2e::eventually::{Seen, throughout};
use katabatch_e2e::farm::{Plan, input, message};
use katabatch_e2e::site::{ACCOUNT, Site, rbac};
use katabatch_e2e::{Case, ControlPlane, Options, eventually};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

use crate::role::without;
use crate::{SOON, site};

/// The shortest period for which such a refusal closes the backend.
const PERIOD: Duration = Duration::from_millis(4_500);

/// Nothing was sent within a period after any refusal, and nothing was acked without its Job.
fn one_create_a_period(site: &Site) -> Result<usize> {
    let creates = site.creates();
    let refused = creates.iter().filter(|seen| seen.status == Some(403)).count();
    for pair in creates.windows(2) {
        let gap = pair[1].at - pair[0].at;
        ensure!(pair[0].status != Some(403) || gap >= PERIOD, "{gap:?} after a refusal");
    }
    Ok(refused)
}

async fn until_creates(site: &Site, count: usize) -> Result<()> {
    eventually(&format!("{count} creates"), SOON, || async {
        let seen = site.creates().len();
        Ok(Seen::when(seen >= count, || format!("{seen}")))
    })
    .await
}

pub async fn a_used_up_quota_costs_one_create_a_period(case: Case) -> Result<()> {
    let site = site(&case, Plan::default()).await?;
    let quotas = site.api::<ResourceQuota>();
    let quota = serde_json::from_value(json!({
        "metadata": { "name": "none" },
        "spec": { "hard": { "count/jobs.batch": "0" } },
    }))?;
    quotas.create(&PostParams::default(), &quota).await?;
    eventually("the quota counts", SOON, || async {
        let status = quotas.get("none").await?.status.and_then(|status| status.hard);
        Ok(Seen::when(status.is_some_and(|hard| !hard.is_empty()), || "no status".into()))
    })
    .await?;

    site.farm.fill(5).await?;
    let scheduler = site.scheduler().await?;
    let detail = scheduler.until_held(HoldKind::Quota, SOON).await?;
    ensure!(detail.contains("exceeded quota"), "{detail}");
    until_creates(&site, 2).await?;
    ensure!(site.jobs().await?.is_empty());
    ensure!(scheduler.counts().acked == 0);

    quotas.delete("none", &DeleteParams::default()).await?;
    site.until_acked(SOON).await?;
    ensure!(site.jobs().await?.len() == 5);
    ensure!(one_create_a_period(&site)? >= 2);
    let counts = scheduler.stop().await?;
    ensure!((counts.leased, counts.created) == (5, 5), "{counts:?}");
    Ok(())
}

/// Waits until the API server decides by the Role as it now is.
async fn until_decided(site: &Site, plane: &ControlPlane, allowed: bool) -> Result<()> {
    let namespace = site.namespace.name();
    let review: SubjectAccessReview = serde_json::from_value(json!({
        "metadata": {},
        "spec": {
            "user": format!("system:serviceaccount:{namespace}:{ACCOUNT}"),
            "resourceAttributes": {
                "namespace": namespace, "verb": "create", "group": "batch", "resource": "jobs",
            },
        },
    }))?;
    let reviews: Api<SubjectAccessReview> = Api::all(plane.admin_client());
    eventually("the Role counts", SOON, || async {
        let answer = reviews.create(&PostParams::default(), &review).await?;
        let is = answer.status.is_some_and(|status| status.allowed);
        Ok(Seen::when(is == allowed, || format!("allowed: {is}")))
    })
    .await
}

pub async fn a_missing_right_costs_one_create_a_period(case: Case) -> Result<()> {
    let site = site(&case, Plan::default()).await?;
    let namespace = site.namespace.name();
    case.plane.apply_yaml_in(namespace, &without("create", "jobs")?).await?;
    until_decided(&site, &case.plane, false).await?;

    site.farm.fill(5).await?;
    let scheduler = site.scheduler().await?;
    let detail = scheduler.until_held(HoldKind::Forbidden, SOON).await?;
    ensure!(detail.contains("cannot create resource \"jobs\""), "{detail}");
    case.plane.apply_yaml_in(namespace, &rbac()?).await?;
    until_decided(&site, &case.plane, true).await?;
    site.until_acked(SOON).await?;
    ensure!(site.jobs().await?.len() == 5);
    ensure!(one_create_a_period(&site)? >= 1);
    scheduler.stop().await?;
    Ok(())
}

/// Whoever runs `katabatch run` in a terminal must be told why nothing is made.
pub async fn a_missing_right_is_said_in_the_log(case: Case) -> Result<()> {
    let site = site(&case, Plan::default()).await?;
    let process = site.run("run")?;
    eventually("it is at work", SOON, || async {
        let watches = site.proxy.count("watch", "pods");
        Ok(Seen::when(watches > 0, || "it doesn't watch yet".into()))
    })
    .await?;
    // Taken away only now: without it, it would not have started.
    case.plane.apply_yaml_in(site.namespace.name(), &without("create", "jobs")?).await?;
    until_decided(&site, &case.plane, false).await?;
    site.farm.fill(2).await?;
    until_creates(&site, 2).await?;
    process.terminate()?;
    let ended = process.end(SOON).await?;
    ensure!(ended.code == Some(0), "{ended:?}");
    let said = ended.stderr.contains("cannot create resource");
    ensure!(said, "nothing is said of it: {}", ended.stderr);
    Ok(())
}

/// Forbids Jobs of the job type `denied` in one namespace, in words that sound like a quota's.
fn policy(namespace: &str) -> String {
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": namespace },
        "spec": {
            "matchConstraints": {
                "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } },
                "resourceRules": [{
                    "apiGroups": ["batch"],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["jobs"],
                }],
            },
            "validations": [{
                "expression": "object.metadata.?labels['job_name'].orValue('') != 'denied'",
                "message": "exceeded quota of patience",
            }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": namespace },
        "spec": { "policyName": namespace, "validationActions": ["Deny"] },
    });
    format!("{policy}\n---\n{binding}")
}

pub async fn what_admission_denies_holds_its_workload_alone(case: Case) -> Result<()> {
    let job_types = ["denied", "allowed"].map(String::from).into();
    let site = site(&case, Plan { job_types, ..Plan::default() }).await?;
    let namespace = site.namespace.name();
    case.plane.apply_yaml(&policy(namespace)).await?;
    let of = |n: usize| {
        let job_type = if n.is_multiple_of(2) { "denied" } else { "allowed" };
        message("fuzz", job_type, &input(n))
    };
    let job = serde_json::from_value(json!({
        "metadata": { "name": "trial", "labels": { "job_name": "denied" } },
        "spec": { "template": { "spec": {
            "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }],
        }}},
    }))?;
    let try_it = PostParams { dry_run: true, ..PostParams::default() };
    eventually("the policy counts", SOON, || async {
        let denied = site.api::<Job>().create(&try_it, &job).await.is_err();
        Ok(Seen::when(denied, || "it was let through".into()))
    })
    .await?;

    site.farm.put((0..40).map(of).collect()).await?;
    let scheduler = site.scheduler().await?;
    scheduler.until("the others go on", SOON, |counts| counts.acked == 20).await?;
    let detail = scheduler.until_held(HoldKind::JobRefused, SOON).await?;
    ensure!(detail.contains("exceeded quota of patience"), "{detail}");
    let counts = scheduler.stop().await?;
    ensure!((counts.created, site.jobs().await?.len()) == (20, 20), "{counts:?}");
    let left = site.farm.counts().await?;
    ensure!((left.ready, left.quarantined) == (20, 0), "{left:?}");
    for (group, kind) in [("Policy", "policies"), ("PolicyBinding", "policybindings")] {
        let path = "/apis/admissionregistration.k8s.io/v1/validatingadmission";
        let request = http::Request::delete(format!("{path}{kind}/{namespace}"));
        let gone = case.plane.admin_client().request_text(request.body(Vec::new())?).await;
        gone.with_context(|| format!("delete the ValidatingAdmission{group}"))?;
    }
    Ok(())
}

/// On an API server alone: nobody empties the namespace, so that it stays as it is.
pub async fn a_terminating_namespace_costs_one_create_a_period(case: Case) -> Result<()> {
    case.plane.require_local("a namespace that nobody empties")?;
    let plane = ControlPlane::start(Options { controllers: false, ..Options::default() }).await?;
    let namespace = plane.namespace("ending").await?;
    // One at a time, so that none is on its way beside the one that finds out.
    let site = Site::new(&plane, &namespace, Plan { window: 1, ..Plan::default() }).await?;
    // What would be made beside the Jobs is there before.
    let account = serde_json::from_value(json!({ "metadata": { "name": "untrusted-worker" } }))?;
    site.api::<ServiceAccount>().create(&PostParams::default(), &account).await?;
    let scheduler = site.scheduler().await?;
    site.farm.fill(1).await?;
    site.until_acked(SOON).await?;

    namespace.delete().await?;
    let ending = Api::<NamespaceObject>::all(plane.admin_client()).get(namespace.name()).await?;
    ensure!(ending.metadata.deletion_timestamp.is_some(), "it isn't terminating");
    site.farm.fill(5).await?;
    let detail = scheduler.until_held(HoldKind::NamespaceGone, SOON).await?;
    ensure!(detail.contains("is being terminated"), "{detail}");
    let creates = site.creates().len();
    throughout(Duration::from_secs(3), || async {
        ensure!(site.creates().len() == creates, "it goes on calling");
        Ok(())
    })
    .await?;
    ensure!(one_create_a_period(&site)? >= 1);
    let counts = scheduler.stop().await?;
    let left = site.farm.counts().await?;
    ensure!((counts.created, left.ready) == (1, 4), "{counts:?}, {left:?}");
    Ok(())
}
