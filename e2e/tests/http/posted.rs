//! Posted tasks: once each, answered truly, and only for whom it is allowed.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use katabatch_e2e::eventually::{Seen, throughout};
use katabatch_e2e::farm::{JOB_TYPE, Plan, SIGNATURE, input, signed};
use katabatch_e2e::http_client::Endpoint;
use katabatch_e2e::proxy::{Action, Rule};
use katabatch_e2e::site::{ACCOUNT, Site};
use katabatch_e2e::{Behaviour, Case, eventually};
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::seen::until_health;
use crate::{SOON, served};

fn inputs(count: usize) -> Vec<String> {
    (0..count).map(input).collect()
}

fn all(outcomes: &[Value], kind: &str) -> bool {
    outcomes.iter().all(|outcome| outcome["outcome"] == json!(kind))
}

pub async fn a_hundred_posted_tasks_make_a_hundred_jobs_and_again_none_more(
    case: Case,
) -> Result<()> {
    let (site, endpoint) = served(&case, Plan::default(), json!({})).await?;
    let scheduler = site.scheduler().await?;
    until_health(&endpoint, 200, "ok").await?;
    let first = endpoint.post(JOB_TYPE, &inputs(100)).await?.outcomes()?;
    ensure!(first.len() == 100 && all(&first, "scheduled"), "{first:?}");
    let mut jobs: Vec<_> =
        site.jobs().await?.into_iter().filter_map(|job| job.metadata.name).map(Some).collect();
    let mut said: Vec<_> = first.iter().map(|o| o["job"].as_str().map(str::to_owned)).collect();
    jobs.sort();
    said.sort();
    ensure!(jobs == said, "{} Jobs, and other names were said", jobs.len());

    // The same inputs, signed anew.
    let object = |n| signed(&format!("uworker-input/{n:05}"), &format!("{SIGNATURE}{n}"));
    let again: Vec<_> = (0..100).map(object).collect();
    let again = endpoint.post(JOB_TYPE, &again).await?.outcomes()?;
    ensure!(all(&again, "scheduled"), "{again:?}");
    ensure!(site.jobs().await?.len() == 100);
    let counts = scheduler.stop().await?;
    ensure!((counts.created, counts.already_there) == (100, 100), "{counts:?}");
    Ok(())
}

pub async fn labels_are_found_on_the_job_and_its_pods(case: Case) -> Result<()> {
    let (site, endpoint) = served(&case, Plan::default(), json!({})).await?;
    let scheduler = site.scheduler().await?;
    until_health(&endpoint, 200, "ok").await?;
    let labels = json!({ "team": "blue", "campaign": "spring-1" });
    let outcomes = endpoint.post_labelled(JOB_TYPE, &input(0), &labels).await?.outcomes()?;
    ensure!(all(&outcomes, "scheduled"), "{outcomes:?}");
    endpoint.post(JOB_TYPE, &inputs(2)).await?;
    let key = "task.katabatch.dev/team";
    let has = |labels: Option<&std::collections::BTreeMap<String, String>>| {
        labels.and_then(|labels| labels.get(key)).is_some_and(|team| team == "blue")
    };
    let jobs = site.jobs().await?;
    let found: Vec<_> = jobs.iter().filter(|job| has(job.metadata.labels.as_ref())).collect();
    ensure!(jobs.len() == 2 && found.len() == 1, "{jobs:?}");
    ensure!(found[0].metadata.name.as_deref() == outcomes[0]["job"].as_str(), "{found:?}");
    let pod = found[0].spec.as_ref().and_then(|spec| spec.template.metadata.as_ref());
    ensure!(has(pod.and_then(|metadata| metadata.labels.as_ref())), "{found:?}");
    let bad = endpoint.post_labelled(JOB_TYPE, &input(3), &json!({ "team": "x\"}" })).await?;
    ensure!(bad.status == 422 && site.jobs().await?.len() == 2, "{bad:?}");
    scheduler.stop().await?;
    Ok(())
}

pub async fn at_the_limit_posted_tasks_are_deferred_and_never_created(case: Case) -> Result<()> {
    let plan = Plan { pending: 0, ..Plan::default() };
    let (site, endpoint) = served(&case, plan, json!({})).await?;
    let scheduler = site.scheduler().await?;
    until_health(&endpoint, 200, "ok").await?;
    let outcomes = endpoint.post(JOB_TYPE, &inputs(5)).await?.outcomes()?;
    ensure!(all(&outcomes, "deferred"), "{outcomes:?}");
    for outcome in &outcomes {
        ensure!(outcome["reason"] == json!("pending_limit"), "{outcome}");
        ensure!(outcome["maybe_created"] == json!(false), "{outcome}");
    }
    site.farm.set_pending(1_000)?;
    eventually("there is room", SOON, || async {
        let status = endpoint.json("/v1/status").await?;
        let open = status["backends"][0]["state"] == json!("open");
        Ok(Seen::when(open, || status.to_string()))
    })
    .await?;
    throughout(std::time::Duration::from_secs(2), || async {
        ensure!(site.jobs().await?.is_empty(), "a deferred task was created");
        Ok(())
    })
    .await?;
    let now = endpoint.post(JOB_TYPE, &inputs(5)).await?.outcomes()?;
    ensure!(all(&now, "scheduled"), "{now:?}");
    scheduler.stop().await?;
    Ok(())
}

pub async fn posted_tasks_go_through_lost_answers_once(case: Case) -> Result<()> {
    let (site, endpoint) = served(&case, Plan::default(), json!({})).await?;
    let scheduler = site.scheduler().await?;
    until_health(&endpoint, 200, "ok").await?;
    for action in [Action::DropAfter, Action::DropBefore] {
        site.proxy.push(Rule::new(action).on("create", "jobs").once());
    }
    let outcomes = endpoint.post(JOB_TYPE, &inputs(10)).await?.outcomes()?;
    ensure!(all(&outcomes, "scheduled"), "{outcomes:?}");
    ensure!(site.jobs().await?.len() == 10);
    scheduler.stop().await?;
    Ok(())
}

pub async fn a_standby_is_ready_and_says_when_to_come_again(case: Case) -> Result<()> {
    let plan = Plan { behaviour: Behaviour::Default, ..Plan::default() };
    let (site, endpoint) = served(&case, plan, json!({})).await?;
    // The leader is another process of the same scheduler, without an endpoint.
    let leader = Site::new(&case.plane, &case.namespace, Plan::default()).await?;
    let leading = leader.scheduler().await?;
    leader.farm.fill(1).await?;
    leader.until_acked(SOON).await?;

    let standby = site.scheduler().await?;
    until_health(&endpoint, 503, "another process of this scheduler leads").await?;
    let ready = endpoint.get("/readyz").await?;
    ensure!(ready.status == 200, "{ready:?}");
    let answer = endpoint.post(JOB_TYPE, &inputs(1)).await?;
    ensure!(answer.status == 503, "{answer:?}");
    ensure!(answer.headers.contains_key("retry-after"), "{answer:?}");
    let kind = answer.headers.get("content-type").context("a type")?;
    ensure!(kind == "application/problem+json", "{answer:?}");

    leading.stop().await?;
    until_health(&endpoint, 200, "ok").await?;
    let outcomes = endpoint.post(JOB_TYPE, &inputs(1)).await?.outcomes()?;
    ensure!(all(&outcomes, "scheduled"), "{outcomes:?}");
    standby.stop().await?;
    Ok(())
}

/// A token of an account of this namespace, for an audience.
async fn token(site: &Site, account: &str, audience: &str) -> Result<String> {
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: vec![audience.to_owned()],
            expiration_seconds: Some(3600),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let accounts = site.api::<ServiceAccount>();
    let object = serde_json::from_value(json!({ "metadata": { "name": account } }))?;
    // It may be there.
    let parameters = PostParams::default();
    let _ = accounts.create(&parameters, &object).await;
    let made = accounts.create_subresource::<TokenRequest, TokenRequest>(
        "token",
        account,
        &parameters,
        &request,
    );
    Ok(made.await?.status.context("no token")?.token)
}

pub async fn a_service_account_that_is_listed_may_post_and_no_other(case: Case) -> Result<()> {
    let namespace = case.namespace.name();
    let bot = format!("{namespace}/bot");
    let tasks = json!({ "token_review": { "audience": "katabatch-e2e", "accounts": bot } });
    let (site, endpoint) = served(&case, Plan::default(), tasks).await?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": { "name": format!("{namespace}-reviews") },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "system:auth-delegator",
        },
        "subjects": [{ "kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace }],
    });
    case.plane.apply_yaml(&binding.to_string()).await?;
    let scheduler = site.scheduler().await?;
    until_health(&endpoint, 200, "ok").await?;
    let good = endpoint.with_token(&token(&site, "bot", "katabatch-e2e").await?);
    eventually("the binding counts", SOON, || async {
        let answer = good.post(JOB_TYPE, &inputs(1)).await?;
        Ok(Seen::when(answer.status == 200, || format!("{answer:?}")))
    })
    .await?;
    let asked = async |endpoint: &Endpoint| -> Result<u16> {
        Ok(endpoint.post(JOB_TYPE, &inputs(1)).await?.status)
    };
    ensure!(asked(&endpoint).await? == 401, "without a token");
    let other = endpoint.with_token(&token(&site, "other", "katabatch-e2e").await?);
    ensure!(asked(&other).await? == 403, "an account that is not listed");
    let api = endpoint.with_token(&token(&site, "bot", "https://elsewhere.test").await?);
    ensure!(asked(&api).await? == 401, "a token for another audience");
    ensure!(asked(&endpoint.with_token("made-up")).await? == 401, "no token of anybody");
    scheduler.stop().await?;
    Ok(())
}
