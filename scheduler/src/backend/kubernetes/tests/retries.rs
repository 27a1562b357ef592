//! Failures are run again from their own Jobs: once each, within the room, over crashes.

use std::sync::Mutex;

use async_trait::async_trait;

use super::super::fake::{Fault, Verb};
use super::*;
use crate::backend::{EndObserver, MayRun, Retries};
use crate::domain::end::{End, RetryRule};
use crate::domain::input_url::InputUrl;
use crate::domain::name::{Attempt, JobName, TaskHash};

/// Tells nobody; what was told is known for ever if it says so.
struct Deaf {
    knows: bool,
}

impl EndObserver for Deaf {
    fn knows(&self, _: &TaskHash, _: Attempt) -> bool {
        self.knows
    }

    fn ended(&self, _: End) {}
}

/// Everything but success is tried three times, unless something else is said.
#[derive(Default)]
struct Thrice {
    answer: Mutex<Option<MayRun>>,
    inputs: Mutex<Vec<Option<String>>>,
}

#[async_trait]
impl Retries for Thrice {
    fn rule(&self, end: &End) -> RetryRule {
        let succeeded = end.verdict.kind == crate::domain::end::EndKind::Succeeded;
        let again = !succeeded && end.attempt.number() < 3;
        if again { RetryRule::Retry } else { RetryRule::Never }
    }

    async fn may_run(&self, _: &End, input: Option<&InputUrl>) -> MayRun {
        self.inputs.lock().unwrap().push(input.map(|input| input.reveal().to_owned()));
        self.answer.lock().unwrap().clone().unwrap_or(MayRun::Yes)
    }
}

fn attempt(n: u32) -> String {
    JobName::of(&task(0).hash, Attempt::new(n).expect("above zero")).to_string()
}

async fn farm(cluster: FakeCluster, settings: Settings, knows: bool) -> (Farm, Arc<Thrice>) {
    let retries = Arc::new(Thrice::default());
    let farm = Farm::begin_with(cluster, settings, |backend| {
        backend.tell_ends(Arc::new(Deaf { knows }));
        backend.retry_by(Arc::clone(&retries) as _);
    });
    farm.room(|_| true).await;
    (farm, retries)
}

async fn until_made(farm: &Farm, n: u32) {
    farm.until(|cluster| cluster.made(&attempt(n)) == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_run_again_as_often_as_it_may_and_its_chain_goes_as_a_whole() {
    let settings = Settings { retain_finished: Duration::from_secs(60), ..settings() };
    let (farm, retries) = farm(new_cluster(), settings, false).await;
    farm.submit_one(0).await;
    farm.backend.acked(&[task(0).hash]);
    for n in 1..=3 {
        until_made(&farm, n).await;
        assert_eq!(farm.cluster.jobs().len(), n as usize, "the ones before stay");
        farm.cluster.run_to_end(&attempt(n), 1);
    }
    farm.until(|cluster| cluster.jobs().is_empty()).await;
    assert_eq!(farm.cluster.made_in_all(), 3);
    let inputs = retries.inputs.lock().unwrap().clone();
    assert_eq!(inputs, vec![Some(task(0).input.reveal().to_owned()); 2]);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_comes_again_finds_its_first_job_while_a_later_attempt_runs() {
    let (farm, _) = farm(new_cluster(), settings(), false).await;
    farm.submit_one(0).await;
    farm.cluster.run_to_end(&attempt(1), 1);
    until_made(&farm, 2).await;
    assert_eq!(farm.submit_one(0).await, Outcome::Scheduled(Placed::AlreadyThere));
    farm.cluster.run_to_end(&attempt(2), 0);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(farm.cluster.made_in_all(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_crash_between_an_end_and_its_retry_loses_nothing_and_makes_nothing_twice() {
    for (told, lost) in [(false, false), (true, false), (true, true)] {
        let (first, _) = farm(new_cluster(), settings(), false).await;
        first.submit_one(0).await;
        let gone = ApiError::lost("gone");
        // The next attempt is never read for, or made and never heard of.
        let (verb, fault) = match lost {
            true => (Verb::CreateJob, Fault::DoneThen(gone.clone())),
            false => (Verb::ReadJob, Fault::Refuse(gone.clone())),
        };
        first.cluster.always(verb, Some(fault));
        first.cluster.always(Verb::GetJob, Some(Fault::Refuse(gone)));
        first.cluster.run_to_end(&attempt(1), 1);
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(first.cluster.made(&attempt(2)), usize::from(lost));
        let cluster = first.crash().await;
        cluster.always(verb, None);
        cluster.always(Verb::GetJob, None);
        let (second, _) = farm(cluster, settings(), told).await;
        until_made(&second, 2).await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(second.cluster.made_in_all(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_waits_for_room_and_its_job_stays_until_then() {
    let settings = Settings {
        pending_limit_default: 1,
        retain_finished: Duration::from_secs(1),
        ..settings()
    };
    let (farm, _) = farm(new_cluster(), settings, false).await;
    farm.submit_one(0).await;
    farm.backend.acked(&[task(0).hash]);
    farm.cluster.add_loose_pod("somebody-elses", true);
    farm.cluster.run_to_end(&attempt(1), 1);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!((farm.cluster.made_in_all(), farm.cluster.jobs().len()), (1, 1));
    assert_eq!(farm.cluster.most_pending(), 1);
    farm.backend.set_pending_limit(2);
    until_made(&farm, 2).await;
}

#[tokio::test(start_paused = true)]
async fn what_may_not_be_run_again_is_let_go_and_what_may_later_is_kept() {
    let settings = Settings { retain_finished: Duration::from_secs(1), ..settings() };
    let (farm, retries) = farm(new_cluster(), settings, false).await;
    farm.submit_one(0).await;
    farm.backend.acked(&[task(0).hash]);
    let say = |answer: MayRun| *retries.answer.lock().unwrap() = Some(answer);
    say(MayRun::Later("paused".into()));
    farm.cluster.run_to_end(&attempt(1), 1);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(farm.cluster.jobs().len(), 1);
    say(MayRun::No("its URL is dead".into()));
    farm.until(|cluster| cluster.jobs().is_empty()).await;
    assert_eq!(farm.cluster.made_in_all(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_end_that_the_watch_of_pods_does_not_show_is_asked_for_before_it_counts_as_unknown() {
    let cluster = new_cluster();
    cluster.always(Verb::ListWorkPods, Some(Fault::Refuse(ApiError::lost("no answer"))));
    let (farm, _) = farm(cluster, settings(), false).await;
    farm.submit_one(0).await;
    farm.cluster.always(Verb::ListPodsOf, Some(Fault::Refuse(ApiError::lost("no answer"))));
    farm.cluster.run_to_end(&attempt(1), 1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(farm.cluster.made_in_all(), 1, "nobody has said how it ended");
    farm.cluster.always(Verb::ListPodsOf, None);
    until_made(&farm, 2).await;
}
