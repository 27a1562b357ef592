//! The accounts that work runs as.

use super::super::api::ApiError;
use super::super::fake::{Fault, Verb};
use super::*;

async fn submit_as(farm: &Farm, account: Account) -> Outcome {
    let outcomes = farm.backend.submit(&workload_for(account), &[task(1)]).await;
    outcomes.into_iter().next().expect("one outcome")
}

fn google(name: &str) -> Account {
    Account::Google { name: name.into(), email: format!("{name}@p.iam") }
}

#[tokio::test(start_paused = true)]
async fn an_account_of_another_identity_or_default_is_refused_and_a_bare_one_used() {
    let farm = Farm::fresh().await;
    farm.cluster.add_account("worker", Some("other@p.iam"));
    farm.cluster.add_account("default", Some("default@p.iam"));
    farm.cluster.add_account("bare", None);
    for name in ["worker", "default"] {
        let outcome = submit_as(&farm, google(name)).await;
        check_deferred(&outcome, Scope::Workload, HoldKind::AccountRefused);
    }
    assert_eq!(farm.cluster.calls(Verb::CreateJob), 0);
    assert_eq!(submit_as(&farm, google("bare")).await, CREATED);
    assert_eq!(farm.cluster.account("bare").expect("it").email, None, "it is left as it was");
}

#[tokio::test(start_paused = true)]
async fn a_bare_account_is_refused_under_the_strict_policy() {
    let settings = Settings { policy: Policy { strict: true }, ..settings() };
    let farm = Farm::start(new_cluster(), settings).await;
    farm.cluster.add_account("bare", None);
    let outcome = submit_as(&farm, google("bare")).await;
    check_deferred(&outcome, Scope::Workload, HoldKind::AccountRefused);
}

#[tokio::test(start_paused = true)]
async fn an_account_made_by_another_in_between_is_read_again_and_verified() {
    let raced = || ApiError::answered(409, "AlreadyExists", "serviceaccounts \"worker\"");
    let farm = Farm::fresh().await;
    farm.cluster.script(Verb::CreateAccount, [Fault::DoneThen(raced())]);
    assert_eq!(submit_as(&farm, google("worker")).await, CREATED);
    assert_eq!(farm.cluster.calls(Verb::GetAccount), 2);

    let farm = Farm::fresh().await;
    farm.cluster.add_account("worker", Some("other@p.iam"));
    let hidden = Fault::Refuse(ApiError::answered(500, "InternalError", "boom"));
    farm.cluster.script(Verb::GetAccount, [hidden]);
    let outcome = submit_as(&farm, google("worker")).await;
    check_deferred(&outcome, Scope::Workload, HoldKind::BackendFailed);
    let outcome = submit_as(&farm, google("worker")).await;
    check_deferred(&outcome, Scope::Workload, HoldKind::AccountRefused);
}

#[tokio::test(start_paused = true)]
async fn a_name_without_an_email_is_an_existing_account_and_never_made() {
    let farm = Farm::fresh().await;
    let account = Account::Existing { name: "unpriv-sa".into() };
    let outcome = submit_as(&farm, account.clone()).await;
    check_deferred(&outcome, Scope::Workload, HoldKind::AccountRefused);
    assert!(deferral(&outcome).detail.contains("create serviceaccount unpriv-sa"));
    farm.cluster.add_account("unpriv-sa", None);
    assert_eq!(submit_as(&farm, account).await, CREATED);
    assert_eq!(farm.cluster.calls(Verb::CreateAccount), 0);
}

#[tokio::test(start_paused = true)]
async fn an_account_is_made_with_its_annotation_and_asked_for_once_a_workload() {
    let farm = Farm::fresh().await;
    let account = google("123456-compute");
    let workload = workload_for(account);
    for n in 0..20 {
        farm.backend.submit(&workload, &[task(n), task(100 + n)]).await;
    }
    let made = farm.cluster.account("123456-compute").expect("it was made");
    assert_eq!(made.email.as_deref(), Some("123456-compute@p.iam"));
    assert_eq!(farm.cluster.calls(Verb::GetAccount), 1);
    assert_eq!(farm.cluster.calls(Verb::CreateAccount), 1);
}

#[tokio::test(start_paused = true)]
async fn a_create_that_misses_its_account_makes_the_next_one_look_again() {
    let farm = Farm::fresh().await;
    assert_eq!(submit_as(&farm, google("worker")).await, CREATED);
    let text = "error looking up service account farm/worker: serviceaccount \"worker\" not found";
    let missing = ApiError::answered(403, "Forbidden", text);
    farm.cluster.script(Verb::CreateJob, [Fault::Refuse(missing)]);
    let workload = workload_for(google("worker"));
    let outcome = farm.backend.submit(&workload, &[task(2)]).await.remove(0);
    check_deferred(&outcome, Scope::Workload, HoldKind::AccountRefused);
    assert_eq!(farm.backend.submit(&workload, &[task(2)]).await, [CREATED]);
    assert_eq!(farm.cluster.calls(Verb::GetAccount), 2);
}
