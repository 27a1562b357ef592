//! Every Job's end is told once, with its reason and the end of its log, over all that watches do.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use super::super::api::ApiError;
use super::super::facts::{ContainerStory, Ended, Phase, PodStory, Running, Said};
use super::super::fake::{Fault, Verb, story};
use super::super::successive::Successive;
use super::*;
use crate::backend::EndObserver;
use crate::domain::end::{End, EndKind};
use crate::domain::log_tail::LogTail;
use crate::domain::name::{Attempt, TaskHash};

/// Remembers all ends, over restarts if it is given on.
#[derive(Default)]
struct Ends(Mutex<Vec<End>>);

impl Ends {
    fn all(&self) -> Vec<End> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn kinds(&self) -> Vec<EndKind> {
        self.all().iter().map(|end| end.verdict.kind).collect()
    }
}

impl EndObserver for Ends {
    fn knows(&self, task: &TaskHash, attempt: Attempt) -> bool {
        self.all().iter().any(|end| end.task == *task && end.attempt == attempt)
    }

    fn ended(&self, end: End) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(end);
    }
}

async fn start(cluster: FakeCluster, ends: &Arc<Ends>) -> Farm {
    let settings = Settings { retain_finished: Duration::from_secs(1), ..settings() };
    let farm = Farm::begin_telling(cluster, settings, Some(Arc::clone(ends) as _));
    farm.room(|_| true).await;
    farm
}

/// A scheduler with so many Jobs, whose ends are told.
async fn farm(jobs: u32) -> (Farm, Arc<Ends>) {
    let ends = Arc::new(Ends::default());
    let farm = start(new_cluster(), &ends).await;
    farm.submit(&tasks(jobs)).await;
    (farm, ends)
}

async fn until_told(farm: &Farm, ends: &Ends, count: usize) -> Vec<End> {
    farm.until(|_| ends.all().len() >= count).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let all = ends.all();
    assert_eq!(all.len(), count, "each is told once: {all:?}");
    all
}

#[tokio::test(start_paused = true)]
async fn an_end_is_told_with_its_exit_code_run_time_and_log() {
    let (farm, ends) = farm(2).await;
    farm.cluster.set_log(&name(0), LogTail::Text("the last words".into()));
    farm.cluster.run_to_end(&name(0), 3);
    farm.cluster.run_to_end(&name(1), 0);
    let all = until_told(&farm, &ends, 2).await;
    let of = |n: u32| all.iter().find(|end| end.task == task(n).hash).expect("an end");
    let failed = of(0);
    assert_eq!((failed.verdict.kind, failed.verdict.exit_code), (EndKind::TaskFailure, Some(3)));
    assert_eq!(failed.tail.text(), Some("the last words"));
    assert_eq!((failed.key.clone(), failed.attempt), (task(0).key, Attempt::FIRST));
    assert!(failed.started_at.is_some());
    assert_eq!((of(1).verdict.kind, &of(1).tail), (EndKind::Succeeded, &LogTail::Nothing));
}

#[tokio::test(start_paused = true)]
async fn over_a_410_a_finished_job_is_told_once_and_a_vanished_one_is_unknown_and_not_made_again() {
    let (farm, ends) = farm(2).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    farm.cluster.mute_watches(true);
    farm.cluster.run_to_end(&name(0), 0);
    farm.cluster.remove(&name(1));
    farm.cluster.expire_watches();
    farm.cluster.mute_watches(false);
    let all = until_told(&farm, &ends, 2).await;
    let of = |n: u32| all.iter().find(|end| end.task == task(n).hash).expect("an end").verdict.kind;
    assert_eq!((of(0), of(1)), (EndKind::Succeeded, EndKind::Unknown));
    assert_eq!(farm.cluster.made(&name(1)), 1);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_somebody_deletes_is_told_so() {
    let (farm, ends) = farm(1).await;
    let running = ContainerStory { running: Some(Running::default()), ..ContainerStory::default() };
    farm.cluster.set_pod(&name(0), story(Phase::Running, running));
    tokio::time::sleep(Duration::from_secs(5)).await;
    farm.cluster.remove(&name(0));
    until_told(&farm, &ends, 1).await;
    assert_eq!(ends.kinds(), [EndKind::Deleted]);
}

#[tokio::test(start_paused = true)]
async fn a_restarted_scheduler_tells_what_it_missed_and_nothing_again() {
    let (farm, ends) = farm(2).await;
    farm.cluster.run_to_end(&name(0), 0);
    farm.until(|_| ends.all().len() == 1).await;
    let cluster = farm.crash().await;
    cluster.run_to_end(&name(1), 1);
    let farm = start(cluster, &ends).await;
    until_told(&farm, &ends, 2).await;
    assert_eq!(ends.kinds(), [EndKind::Succeeded, EndKind::TaskFailure]);
    let tasks: BTreeSet<TaskHash> = ends.all().iter().map(|end| end.task).collect();
    assert_eq!(tasks.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_log_is_read_before_the_pod_goes_and_its_job_is_not_deleted_before() {
    let (farm, ends) = farm(1).await;
    farm.backend.acked(&[task(0).hash]);
    farm.cluster.set_log(&name(0), LogTail::Text("words".into()));
    farm.cluster.always(Verb::PodLog, Some(Fault::Slow(Duration::from_secs(10))));
    farm.cluster.run_to_end(&name(0), 1);
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(farm.cluster.jobs().len(), 1, "its log is being read");
    farm.until(|cluster| cluster.jobs().is_empty()).await;
    assert_eq!(ends.all()[0].tail.text(), Some("words"));
}

#[tokio::test(start_paused = true)]
async fn a_log_that_never_comes_keeps_its_job_for_half_a_minute_at_most() {
    let (farm, ends) = farm(1).await;
    farm.backend.acked(&[task(0).hash]);
    farm.cluster.always(Verb::PodLog, Some(Fault::Slow(Duration::from_secs(3600))));
    farm.cluster.run_to_end(&name(0), 1);
    tokio::time::sleep(Duration::from_secs(35)).await;
    assert_eq!(farm.cluster.jobs().len(), 0);
    let tail = &ends.all()[0].tail;
    assert!(matches!(tail, LogTail::Unavailable(why) if why.contains("in time")), "{tail:?}");
}

#[tokio::test(start_paused = true)]
async fn a_restarting_container_whose_job_fails_and_loses_its_pod_keeps_the_tail_read_earlier() {
    let (farm, ends) = farm(2).await;
    farm.cluster.set_log(&name(0), LogTail::Text("before the restart".into()));
    farm.cluster.set_log(&name(1), LogTail::Text("unread".into()));
    let ended = Ended { exit_code: 1, started_at: Some(Timestamp::UNIX_EPOCH), ..Ended::default() };
    let again = ContainerStory {
        waiting: Some(Said::new("CrashLoopBackOff", "")),
        before: Some(ended),
        restarts: 1,
        ..ContainerStory::default()
    };
    farm.cluster.set_pod(&name(0), story(Phase::Running, again.clone()));
    tokio::time::sleep(Duration::from_secs(5)).await;
    farm.cluster.set_pod(&name(1), story(Phase::Running, again));
    for n in [0, 1] {
        farm.cluster.remove_pod(&name(n));
        farm.cluster.end(&name(n), false, "BackoffLimitExceeded", "");
    }
    let all = until_told(&farm, &ends, 2).await;
    let of = |n: u32| all.iter().find(|end| end.task == task(n).hash).expect("an end");
    assert_eq!(of(0).tail.text(), Some("before the restart"));
    assert_eq!(of(1).tail, LogTail::unavailable("its pod was deleted"));
    assert!(all.iter().all(|end| end.verdict.kind == EndKind::TaskFailure), "{all:?}");
}

#[tokio::test(start_paused = true)]
async fn an_account_that_is_refused_its_token_is_told_by_the_log() {
    let (farm, ends) = farm(20).await;
    for n in 0..20 {
        let log = "Permission 'iam.serviceAccounts.getAccessToken' denied on resource";
        farm.cluster.set_log(&name(n), LogTail::Text(log.into()));
        farm.cluster.run_to_end(&name(n), 1);
    }
    until_told(&farm, &ends, 20).await;
    assert!(ends.kinds().iter().all(|kind| *kind == EndKind::IdentityDenied));
}

#[tokio::test(start_paused = true)]
async fn a_job_without_pods_is_asked_about_and_told_as_badly_configured() {
    let (farm, ends) = farm(1).await;
    let uid = farm.cluster.jobs()[0].uid.clone();
    farm.cluster.add_event(&uid, "FailedCreate", "pods \"x\" is forbidden: exceeded quota: q");
    farm.until(|_| farm.backend.now().values().any(|now| !now.stuck.is_empty())).await;
    let now = farm.backend.now().remove(&task(0).key).expect("a workload");
    assert_eq!((now.pending, now.running), (1, 0));
    assert!(now.stuck[&EndKind::BadConfiguration].detail.contains("exceeded quota"));
    farm.cluster.end(&name(0), false, "DeadlineExceeded", "too long");
    until_told(&farm, &ends, 1).await;
    assert_eq!(ends.kinds(), [EndKind::BadConfiguration]);
}

#[tokio::test(start_paused = true)]
async fn a_killed_container_is_asked_about_and_its_hook_was_it() {
    let (farm, ends) = farm(1).await;
    let uid = format!("pod-of-{}", farm.cluster.jobs()[0].uid);
    farm.cluster.add_event(&uid, "FailedPostStartHook", "exited with 1");
    let at = Some(Timestamp::UNIX_EPOCH);
    let ended =
        Ended { exit_code: 137, reason: "Error".into(), started_at: at, ..Ended::default() };
    let ended = ContainerStory { ended: Some(ended), ..ContainerStory::default() };
    farm.cluster.set_pod(&name(0), story(Phase::Failed, ended));
    farm.cluster.end(&name(0), false, "BackoffLimitExceeded", "");
    until_told(&farm, &ends, 1).await;
    assert_eq!(ends.kinds(), [EndKind::HookFailure]);
}

#[tokio::test(start_paused = true)]
async fn jobs_that_wait_run_or_are_stuck_are_counted_by_workload() {
    let (farm, _ends) = farm(4).await;
    let pulls = ContainerStory {
        waiting: Some(Said::new("ImagePullBackOff", "Back-off pulling image")),
        ..ContainerStory::default()
    };
    farm.cluster.set_pod(&name(0), story(Phase::Pending, pulls));
    let nowhere = PodStory { unscheduled: Some("0/5 nodes".into()), ..PodStory::default() };
    farm.cluster.set_pod(&name(1), nowhere);
    let running = ContainerStory { running: Some(Running::default()), ..ContainerStory::default() };
    farm.cluster.set_pod(&name(2), story(Phase::Running, running));
    tokio::time::sleep(Duration::from_secs(5)).await;
    let now = farm.backend.now().remove(&task(0).key).expect("a workload");
    assert_eq!((now.pending, now.running), (3, 1));
    let stuck: Vec<EndKind> = now.stuck.keys().copied().collect();
    assert_eq!(stuck, [EndKind::NeverStarted, EndKind::ImagePull]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_work_that_fails_takes_no_room() {
    let cluster = new_cluster();
    let forbidden = ApiError::answered(403, "Forbidden", "pods is forbidden");
    cluster.always(Verb::ListWorkPods, Some(Fault::Refuse(forbidden)));
    let ends = Arc::new(Ends::default());
    let farm = start(cluster, &ends).await;
    assert_eq!(farm.submit_one(0).await, CREATED);
    farm.cluster.run_to_end(&name(0), 0);
    until_told(&farm, &ends, 1).await;
    assert_eq!(ends.kinds(), [EndKind::Succeeded]);
}

#[tokio::test(start_paused = true)]
async fn each_end_is_told_once_over_the_terms_of_a_namespace_beside_home() {
    let home = Farm::fresh().await;
    let other = new_cluster();
    let epoch: Timestamp = "2026-11-30T10:00:00Z".parse().expect("a date");
    let settings = Settings { home: Some(home.backend.leadership()), ..settings() };
    let clock = Arc::new(PacedClock::starting_at(epoch));
    let beside = Successive::new(Arc::new(other.clone()), clock, settings);
    let ends = Arc::new(Ends::default());
    beside.tell_ends(Arc::clone(&ends) as _);
    let (running, stop) = (Arc::clone(&beside), CancellationToken::new());
    let until = stop.clone();
    let running = tokio::spawn(async move { running.run(until).await });
    let known = async || {
        let mut room = beside.room();
        let wait = room.wait_for(|room| matches!(room, Room::Known(_)));
        timeout(DEADLINE, wait).await.expect("in time").expect("a sender").clone()
    };
    known().await;
    assert_eq!(beside.submit(&workload(), &tasks(3)).await, [CREATED; 3]);
    other.run_to_end(&name(0), 0);
    tokio::time::sleep(Duration::from_secs(30)).await;
    let lost = Some(Fault::Refuse(ApiError::lost("nobody is there")));
    for verb in [Verb::GetLease, Verb::PutLease] {
        other.always(verb, lost.clone());
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    other.run_to_end(&name(1), 3);
    for verb in [Verb::GetLease, Verb::PutLease] {
        other.always(verb, None);
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    known().await;
    other.run_to_end(&name(2), 0);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let told: Vec<_> = ends.all().iter().map(|end| (end.task, end.verdict.kind)).collect();
    let kinds = [EndKind::Succeeded, EndKind::TaskFailure, EndKind::Succeeded];
    let expected: Vec<_> = (0..3).map(|n| task(n).hash).zip(kinds).collect();
    assert_eq!(told, expected);
    stop.cancel();
    running.await.expect("no panic").expect("a clean end");
}
