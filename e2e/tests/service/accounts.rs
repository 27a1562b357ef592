//! The accounts that work runs as (cases 63 and 64).

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ServiceAccount;
use katabatch::domain::outcome::HoldKind;
use katabatch_e2e::Case;
use katabatch_e2e::farm::{ACCOUNT, Plan};
use katabatch_e2e::proxy::{Action, Rule};
use katabatch_e2e::site::Site;
use kube::api::PostParams;
use serde_json::json;

use crate::{SOON, site};

const NAME: &str = "untrusted-worker";
const ANNOTATION: &str = "iam.gke.io/gcp-service-account";
const ANOTHER: &str = "another@katabatch-e2e.iam.gserviceaccount.com";

async fn make(site: &Site, email: Option<&str>) -> Result<()> {
    let annotations = email.map(|email| json!({ (ANNOTATION): email }));
    let account = json!({ "metadata": { "name": NAME, "annotations": annotations } });
    let account = serde_json::from_value(account)?;
    site.api::<ServiceAccount>().create(&PostParams::default(), &account).await?;
    Ok(())
}

/// The email that the account is annotated with.
async fn email(site: &Site) -> Result<Option<String>> {
    let account = site.api::<ServiceAccount>().get(NAME).await?;
    Ok(account.metadata.annotations.and_then(|mut of| of.remove(ANNOTATION)))
}

/// All goes well: Jobs are made that run as the account.
async fn used(site: &Site) -> Result<()> {
    site.farm.fill(3).await?;
    let scheduler = site.scheduler().await?;
    site.until_acked(SOON).await?;
    scheduler.stop().await?;
    let jobs = site.jobs().await?;
    let account = |job: &k8s_openapi::api::batch::v1::Job| {
        let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        pod.and_then(|pod| pod.service_account_name.clone())
    };
    ensure!(jobs.len() == 3 && jobs.iter().all(|job| account(job).as_deref() == Some(NAME)));
    Ok(())
}

/// No Job is made, and a person is told why.
async fn refused(site: &Site, kind: HoldKind, because: &str) -> Result<()> {
    site.farm.fill(3).await?;
    let scheduler = site.scheduler().await?;
    let detail = scheduler.until_held(kind, SOON).await?;
    ensure!(detail.contains(because), "{detail}");
    scheduler.stop().await?;
    ensure!(site.creates().is_empty() && site.jobs().await?.is_empty());
    ensure!(site.farm.counts().await?.ready == 3);
    Ok(())
}

pub async fn an_absent_account_is_made_with_its_annotation(case: Case) -> Result<()> {
    let site = site(&case, Plan::default()).await?;
    used(&site).await?;
    ensure!(email(&site).await?.as_deref() == Some(ACCOUNT));
    ensure!(site.proxy.count("create", "serviceaccounts") == 1);
    ensure!(site.proxy.count("get", "serviceaccounts") == 1, "it is asked for once");
    Ok(())
}

pub async fn an_account_without_annotation_is_used(case: Case) -> Result<()> {
    let site = site(&case, Plan::default()).await?;
    make(&site, None).await?;
    used(&site).await?;
    ensure!(email(&site).await?.is_none(), "it was changed");
    Ok(())
}

pub async fn an_account_of_another_is_refused(case: Case) -> Result<()> {
    let site = site(&case, Plan::default()).await?;
    make(&site, Some(ANOTHER)).await?;
    refused(&site, HoldKind::AccountRefused, ANOTHER).await?;
    ensure!(email(&site).await?.as_deref() == Some(ANOTHER), "it was changed");
    Ok(())
}

pub async fn the_default_account_is_refused(case: Case) -> Result<()> {
    let account = "default@katabatch-e2e.iam.gserviceaccount.com".into();
    let site = site(&case, Plan { account, ..Plan::default() }).await?;
    refused(&site, HoldKind::BadMapping, "`default`").await
}

// Case 65.
pub async fn a_bare_name_is_used_and_never_made(case: Case) -> Result<()> {
    let site = site(&case, Plan { account: NAME.into(), ..Plan::default() }).await?;
    refused(&site, HoldKind::AccountRefused, "is not there").await?;
    ensure!(site.proxy.count("create", "serviceaccounts") == 0);
    make(&site, None).await?;
    used(&site).await
}

/// The account is made by somebody else between our look and our create.
async fn raced(site: &Site, email: &str) -> Result<()> {
    make(site, Some(email)).await?;
    let absent = Action::answer(404, "NotFound", "serviceaccounts \"untrusted-worker\" not found");
    site.proxy.push(Rule::new(absent).on("get", "serviceaccounts").once());
    Ok(())
}

pub async fn an_account_made_in_between_is_read_again(case: Case) -> Result<()> {
    let site = site(&case, Plan::default()).await?;
    raced(&site, ACCOUNT).await?;
    used(&site).await?;
    let conflict = ("create".to_owned(), "serviceaccounts".to_owned(), Some(409));
    ensure!(site.proxy.counters().get(&conflict) == Some(&1), "{:?}", site.proxy.counters());
    Ok(())
}

pub async fn an_account_of_another_made_in_between_is_refused(case: Case) -> Result<()> {
    let site = site(&case, Plan::default()).await?;
    raced(&site, ANOTHER).await?;
    refused(&site, HoldKind::AccountRefused, ANOTHER).await
}
