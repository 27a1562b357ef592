//! Whose namespace it is, what is deleted when, and how it ends.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt as _;

use super::super::api::ApiError;
use super::super::fake::{Fault, Verb};
use super::*;

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_finished_job_is_deleted_ten_minutes_after_its_end_once_its_ack_is_known() {
    let farm = Farm::fresh().await;
    farm.submit(&tasks(3)).await;
    farm.backend.acked(&[task(0).hash, task(1).hash]);
    for n in [0, 2] {
        farm.cluster.finish(&name(n));
    }
    tokio::time::sleep(9 * MINUTE).await;
    assert_eq!(farm.cluster.jobs().len(), 3);
    tokio::time::sleep(2 * MINUTE).await;
    // 1 still runs; nobody acked 2.
    let left: Vec<String> = farm.cluster.jobs().into_iter().map(|job| job.name).collect();
    assert!(!left.contains(&name(0)) && left.len() == 2, "{left:?}");
    // A redelivery of 2 finds its finished Job, and then it may go.
    assert_eq!(farm.submit_one(2).await, THERE);
    farm.backend.acked(&[task(2).hash]);
    farm.until(|cluster| cluster.jobs().len() == 1).await;
    assert_eq!(farm.cluster.made_in_all(), 3);
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_the_stored_watermark_tells_whose_ack_is_known() {
    let farm = Farm::fresh().await;
    farm.submit_one(0).await;
    farm.backend.acked(&[task(0).hash]);
    tokio::time::sleep(MINUTE).await;
    farm.submit_one(1).await;
    let cluster = farm.shut_down().await;
    cluster.finish(&name(0));
    cluster.finish(&name(1));
    let farm = Farm::start(cluster, settings()).await;
    tokio::time::sleep(11 * MINUTE).await;
    let left: Vec<String> = farm.cluster.jobs().into_iter().map(|job| job.name).collect();
    assert_eq!(left, [name(1)]);
    // The redelivery of the one that was never acked.
    assert_eq!(farm.submit_one(1).await, THERE);
    farm.backend.acked(&[task(1).hash]);
    farm.until(|cluster| cluster.jobs().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn the_watermark_is_stored_as_it_moves_and_other_keys_stay() {
    let cluster = new_cluster();
    cluster.set_config_map("katabatch-s1", "plans", "kept");
    let farm = Farm::start(cluster, settings()).await;
    farm.submit_one(0).await;
    farm.backend.acked(&[task(0).hash]);
    tokio::time::sleep(MINUTE).await;
    farm.submit_one(1).await;
    let settled = |cluster: &FakeCluster| {
        cluster.config_map("katabatch-s1").and_then(|map| map.data.get("settled").cloned())
    };
    farm.until(|cluster| settled(cluster).is_some_and(|at| at.starts_with("2026-11-30T10:00:5")))
        .await;
    let map = farm.cluster.config_map("katabatch-s1").expect("a ConfigMap");
    assert_eq!(map.data.get("plans").map(String::as_str), Some("kept"));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_of_another_scheduler_is_refused() {
    let farm = Farm::fresh().await;
    let cluster = farm.shut_down().await;
    let again = Farm::start(cluster, settings()).await;
    let cluster = again.shut_down().await;
    let other = Farm::begin(cluster, Settings { scheduler: "s2".into(), ..settings() });
    let fatal = other.running.await.expect("no panic").expect_err("it is not ours");
    assert!(matches!(&fatal, Fatal::OwnedByAnother { owner, .. } if owner == "s1"), "{fatal}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_down_at_the_start_is_waited_for() {
    let cluster = new_cluster();
    let down = Fault::Refuse(ApiError::unsent("connection refused"));
    cluster.always(Verb::GetConfigMap, Some(down));
    let farm = Farm::begin(cluster, settings());
    farm.until(|cluster| cluster.calls(Verb::GetConfigMap) > 3).await;
    check_deferred(&farm.submit_one(1).await, Scope::Backend, HoldKind::RoomUnknown);
    farm.cluster.always(Verb::GetConfigMap, None);
    farm.room(|_| true).await;
    assert_eq!(farm.submit_one(1).await, CREATED);
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_the_policy_refuses_is_held_alone_and_judged_anew_when_it_changes() {
    let farm = Farm::fresh().await;
    let mut refused = (*workload()).clone();
    refused.profile.host_network = true;
    let outcome = farm.backend.submit(&Arc::new(refused), &[task(1)]).await.remove(0);
    check_deferred(&outcome, Scope::Workload, HoldKind::PolicyRefused);
    assert_eq!(farm.cluster.calls(Verb::CreateJob), 0);
    assert_eq!(farm.submit_one(1).await, CREATED);
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_a_task_is_filled_in_gives_its_room_back() {
    let farm = Farm::fresh().await;
    let body = || panic!("a template went wrong");
    let name = name(1);
    let submission = farm.backend.submitter.submit(&name, task(1).hash, body);
    assert!(AssertUnwindSafe(submission).catch_unwind().await.is_err());
    assert_eq!(farm.room(|_| true).await.pending, 0);
    assert_eq!(farm.submit_one(1).await, CREATED);
}
