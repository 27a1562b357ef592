//! What the answers to creates lead to.

use std::time::Duration;

use tokio::time::Instant;

use super::super::api::{ApiError, JobFacts};
use super::super::fake::{Fault, Verb};
use super::*;

#[tokio::test(start_paused = true)]
async fn two_messages_with_the_same_object_and_other_signatures_make_one_job() {
    let farm = Farm::fresh().await;
    let both = [task_signed(1, "seven"), task_signed(1, "eight")];
    let outcomes = farm.submit(&both).await;
    assert!(outcomes.iter().all(|o| matches!(o, Outcome::Scheduled(_))), "{outcomes:?}");
    assert_eq!((farm.cluster.jobs().len(), farm.cluster.made_in_all()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_two_of_three_and_a_redelivery_of_all_make_three_jobs() {
    let farm = Farm::fresh().await;
    assert_eq!(farm.submit(&tasks(2)).await, [CREATED, CREATED]);
    let farm = Farm::start(farm.crash().await, settings()).await;
    assert_eq!(farm.submit(&tasks(3)).await, [THERE, THERE, CREATED]);
    assert_eq!(farm.cluster.made_in_all(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_submission_dropped_at_any_await_leaves_what_the_next_one_finds() {
    for polls in 0..40 {
        let farm = Farm::fresh().await;
        let (workload, one) = (workload(), [task(1)]);
        {
            let mut submission = std::pin::pin!(farm.backend.submit(&workload, &one));
            for _ in 0..polls {
                if futures::poll!(submission.as_mut()).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        assert!(matches!(farm.submit_one(1).await, Outcome::Scheduled(_)), "{polls} polls");
        assert_eq!(farm.cluster.made(&name(1)), 1);
        farm.room(|room| (room.pending, room.live) == (1, 1)).await;
        farm.cluster.make_pods();
        farm.cluster.finish(&name(1));
        farm.room(|room| (room.pending, room.live) == (0, 0)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_definite_500_requeues_only_the_tasks_that_it_met() {
    let farm = Farm::fresh().await;
    let boom = || Fault::Refuse(error(500, "InternalError", "Internal error occurred: boom"));
    let pass = || Fault::Pass;
    farm.cluster.script(Verb::CreateJob, [pass(), pass(), boom(), boom(), boom()]);
    let mut outcomes = Vec::new();
    for n in 0..5 {
        outcomes.push(farm.submit_one(n).await);
    }
    assert_eq!(count(&outcomes, &CREATED), 4);
    check_deferred(&outcomes[2], Scope::Task, HoldKind::BackendFailed);
    farm.room(|room| room.pending == 4).await;
}

#[tokio::test(start_paused = true)]
async fn a_504_for_a_job_that_is_there_is_success_under_the_one_name() {
    let lost = [
        error(504, "Timeout", "request did not complete within the allotted timeout"),
        ApiError::lost("connection reset by peer"),
        error(201, "", "the answer can't be read: it is empty"),
        error(500, "InternalError", "etcdserver: request timed out"),
    ];
    for lost in lost {
        let farm = Farm::fresh().await;
        farm.cluster.script(Verb::CreateJob, [Fault::DoneThen(lost)]);
        assert_eq!(farm.submit_one(1).await, CREATED);
        assert_eq!((farm.cluster.jobs().len(), farm.cluster.calls(Verb::CreateJob)), (1, 1));
        assert_eq!(farm.cluster.calls(Verb::GetJob), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_a_create_that_was_not_made_is_tried_again_under_the_same_name() {
    let farm = Farm::fresh().await;
    farm.cluster.script(Verb::CreateJob, [Fault::Refuse(ApiError::lost("reset"))]);
    assert_eq!(farm.submit_one(1).await, CREATED);
    assert_eq!((farm.cluster.jobs().len(), farm.cluster.calls(Verb::CreateJob)), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_create_that_lands_after_all_was_given_up_stays_counted_and_is_found() {
    let farm =
        Farm::start(new_cluster(), Settings { pending_limit_default: 1, ..settings() }).await;
    farm.cluster.always(Verb::CreateJob, Some(Fault::Late(ApiError::lost("timed out"))));
    farm.cluster.always(Verb::GetJob, Some(Fault::Refuse(ApiError::lost("timed out"))));
    check_deferred(&farm.submit_one(1).await, Scope::Task, HoldKind::BackendFailed);
    // Nobody knows whether it is there: its room is still taken.
    check_deferred(&farm.submit_one(2).await, Scope::Backend, HoldKind::PendingLimit);
    farm.cluster.always(Verb::CreateJob, None);
    farm.cluster.land_late();
    farm.cluster.always(Verb::GetJob, None);
    assert_eq!(farm.submit_one(1).await, THERE);
    assert_eq!((farm.cluster.made_in_all(), farm.cluster.most_pending()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn the_room_of_a_lost_create_is_free_again_once_a_late_look_finds_nothing() {
    let farm =
        Farm::start(new_cluster(), Settings { pending_limit_default: 1, ..settings() }).await;
    farm.cluster.always(Verb::CreateJob, Some(Fault::Refuse(ApiError::lost("timed out"))));
    check_deferred(&farm.submit_one(1).await, Scope::Task, HoldKind::BackendFailed);
    assert_eq!(farm.room(|_| true).await.pending, 1);
    farm.room(|room| room.pending == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_429_holds_the_whole_backend_for_at_least_as_long_as_it_asks() {
    let farm = Farm::fresh().await;
    assert_eq!(count(&farm.submit(&tasks(40)).await, &CREATED), 40);
    let calls = farm.cluster.calls(Verb::CreateJob);
    let slow = error(429, "TooManyRequests", "slow down").with_retry_after(Duration::from_secs(7));
    farm.cluster.script(Verb::CreateJob, [Fault::Refuse(slow)]);
    let begin = Instant::now();
    let queued: Vec<Task> = (100..300).map(task).collect();
    let outcomes = farm.submit(&queued).await;
    // What was already under way beside it ends; nothing begins after it.
    let under_way = farm.cluster.calls(Verb::CreateJob) - calls;
    assert!(under_way <= 32, "{under_way}");
    let held: Vec<&Outcome> = outcomes.iter().filter(|o| **o != CREATED).collect();
    assert!(held.len() >= 168, "{}", held.len());
    for outcome in held {
        check_deferred(outcome, Scope::Backend, HoldKind::Throttled);
    }
    let before = farm.cluster.calls(Verb::CreateJob);
    while begin.elapsed() < Duration::from_secs(7) {
        let outcome = farm.submit_one(400).await;
        let wait = deferral(&outcome).retry_after;
        assert_eq!(farm.cluster.calls(Verb::CreateJob), before);
        tokio::time::sleep(wait).await;
    }
    assert_eq!(farm.submit_one(400).await, CREATED);
}

#[tokio::test(start_paused = true)]
async fn a_403_for_namespace_quota_or_rights_stops_after_one_call() {
    let cases = [
        (
            "unable to create new content in namespace farm because it is being terminated",
            HoldKind::NamespaceGone,
        ),
        ("jobs.batch \"j\" is forbidden: exceeded quota: q, requested: 1", HoldKind::Quota),
        ("User \"u\" cannot create resource \"jobs\" in API group \"batch\"", HoldKind::Forbidden),
    ];
    for (text, kind) in cases {
        let farm = Farm::fresh().await;
        let refuse = Fault::Refuse(error(403, "Forbidden", text));
        farm.cluster.always(Verb::CreateJob, Some(refuse));
        let outcomes = farm.submit(&tasks(50)).await;
        assert_eq!(farm.cluster.calls(Verb::CreateJob), 1, "{kind}");
        for outcome in &outcomes {
            check_deferred(outcome, Scope::Backend, kind);
        }
        assert_eq!(farm.room(|_| true).await.pending, 0);
        // Still one call as long as it is closed, and one more as a probe after.
        let wait = deferral(&farm.submit_one(60).await).retry_after;
        assert_eq!(farm.cluster.calls(Verb::CreateJob), 1, "{kind}");
        farm.cluster.always(Verb::CreateJob, None);
        tokio::time::sleep(wait).await;
        assert_eq!(farm.submit_one(60).await, CREATED);
    }
}

#[tokio::test(start_paused = true)]
async fn refused_credentials_stop_the_backend_and_are_tried_later() {
    let farm = Farm::fresh().await;
    farm.cluster.script(Verb::CreateJob, [Fault::Refuse(error(401, "Unauthorized", "no"))]);
    let outcome = farm.submit_one(1).await;
    check_deferred(&outcome, Scope::Backend, HoldKind::Unauthenticated);
    tokio::time::sleep(deferral(&outcome).retry_after).await;
    assert_eq!(farm.submit_one(1).await, CREATED);
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_fails_is_retried_under_the_same_name_and_then_requeued() {
    let failing =
        || Fault::Refuse(error(500, "InternalError", "failed calling webhook \"m\": EOF"));
    let farm = Farm::fresh().await;
    farm.cluster.script(Verb::CreateJob, [failing(), failing(), failing()]);
    check_deferred(&farm.submit_one(1).await, Scope::Task, HoldKind::WebhookFailed);
    assert_eq!(farm.cluster.calls(Verb::CreateJob), 3);
    farm.cluster.script(Verb::CreateJob, [failing()]);
    assert_eq!(farm.submit_one(1).await, CREATED);
    assert_eq!(farm.cluster.made_in_all(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_admission_refuses_is_its_workloads_and_the_backend_stays_open() {
    let farm = Farm::fresh().await;
    let text = "admission webhook \"v\" denied the request: image \
                https://h/x?X-Goog-Signature=SECRET is not allowed";
    farm.cluster.script(Verb::CreateJob, [Fault::Refuse(error(403, "Forbidden", text))]);
    let outcome = farm.submit_one(1).await;
    check_deferred(&outcome, Scope::Workload, HoldKind::JobRefused);
    assert!(!deferral(&outcome).detail.contains("SECRET"));
    assert_eq!(farm.submit_one(2).await, CREATED);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_being_deleted_or_not_ours_is_no_success() {
    let farm = Farm::fresh().await;
    assert_eq!(farm.submit_one(1).await, CREATED);
    farm.cluster.begin_deletion(&name(1));
    check_deferred(&farm.submit_one(1).await, Scope::Task, HoldKind::BeingDeleted);
    farm.cluster.remove(&name(1));
    assert_eq!(farm.submit_one(1).await, CREATED);

    let ours = farm.cluster.jobs().remove(0);
    farm.cluster.add_job(JobFacts {
        name: name(2),
        uid: "theirs".into(),
        task: Some(task(3).hash),
        farm: false,
        scheduler: None,
        ..ours
    });
    check_deferred(&farm.submit_one(2).await, Scope::Task, HoldKind::NameTaken);
}

/// The account of room forgets what has ended, and the watch has not shown it yet.
#[tokio::test(start_paused = true)]
async fn a_job_whose_answer_was_lost_and_that_has_ended_unseen_is_known_once_it_was_looked_for() {
    let farm = Farm::fresh().await;
    let lost = ApiError::lost("the connection closed");
    farm.cluster.script(Verb::CreateJob, [Fault::DoneThen(lost.clone())]);
    farm.cluster.always(Verb::GetJob, Some(Fault::Refuse(lost)));
    farm.cluster.mute_watches(true);
    let held = farm.submit_one(0).await;
    assert!(matches!(held, Outcome::Deferred(_)), "{held:?}");
    farm.cluster.run_to_end(&name(0), 0);
    assert_eq!(farm.backend.knows(&task(0)), None, "whether it is there is not known");
    farm.cluster.always(Verb::GetJob, None);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(farm.backend.knows(&task(0)), Some(true));
    assert_eq!(farm.submit_one(0).await, THERE);
}
