//! Messages that wait for the end of their task's Job.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use katabatch::backend::{Finish, Finished};
use katabatch::domain::name::{Attempt, TaskHash};
use katabatch::domain::outcome::*;
use tokio::sync::mpsc;

use crate::world::{FakeBackend, Kept, World, backend, posted, world_of};

/// A world whose queue waits for ends. The backend makes a further attempt with each submission.
struct Waiting {
    kept: Kept,
    tell: mpsc::UnboundedSender<Finished>,
    backend: Arc<FakeBackend>,
}

impl Waiting {
    fn new() -> Self {
        let running = |_: &str, nth| Outcome::Running(Attempt::new(nth).unwrap(), Placed::Created);
        Self::with(Box::new(running), mpsc::unbounded_channel())
    }

    fn with(
        answer: crate::world::Answer,
        (tell, ends): (mpsc::UnboundedSender<Finished>, mpsc::UnboundedReceiver<Finished>),
    ) -> Self {
        let kept = Kept { ends: Mutex::new(Some(ends)), ..Kept::default() };
        kept.flags.weigh("fake", 1.0);
        Self { kept, tell, backend: backend("fake", answer, 0, 1_000) }
    }

    fn world(&self) -> World {
        let world = world_of(&self.kept, vec![self.backend.clone()], false);
        world.put("a", "1");
        world
    }

    /// Tells an end of the task, some time from now.
    fn ends(&self, after: u64, attempt: u32, how: Finish) {
        let (tell, finished) = (self.tell.clone(), finished(attempt, how));
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(after)).await;
            tell.send(finished).unwrap();
        });
    }
}

fn task() -> TaskHash {
    posted("a", "1", "https://storage.googleapis.com/in/1", []).hash
}

fn finished(attempt: u32, how: Finish) -> Finished {
    let attempt = Attempt::new(attempt).unwrap();
    Finished { task: task(), attempt, backend: "fake".into(), how }
}

fn failed() -> Finish {
    Finish::Failed("exit code 1".into())
}

#[tokio::test(start_paused = true)]
async fn a_message_is_acked_by_the_attempt_that_is_complete_and_not_before() {
    let waiting = Waiting::new();
    let mut world = waiting.world();
    waiting.ends(300, 1, failed());
    // It was told before, and says nothing of the second attempt.
    waiting.ends(400, 1, Finish::Completed);
    waiting.ends(600, 2, Finish::Completed);
    let counts = world.run_for(Duration::from_secs(1_000)).await;
    assert_eq!((counts.created, counts.failed, counts.acked), (2, 1, 1));
    assert!(world.queue.is_empty());
    assert_eq!(*world.backend.acked.lock().unwrap(), [task()]);
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_job_runs_keeps_its_lease_and_goes_back_at_a_shutdown() {
    let waiting = Waiting::new();
    let mut world = waiting.world();
    let counts = world.run_for(Duration::from_secs(7_200)).await;
    assert_eq!((counts.created, counts.acked, counts.released), (1, 0, 1));
    assert_eq!(world.calls(), ["1"], "it came once in two hours");
    assert_eq!(world.queue.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_end_that_is_told_before_the_create_is_answered_counts() {
    let (tell, ends) = mpsc::unbounded_channel();
    let early = tell.clone();
    let answer = move |_: &str, _| {
        early.send(finished(1, Finish::Completed)).unwrap();
        Outcome::Running(Attempt::FIRST, Placed::Created)
    };
    let waiting = Waiting::with(Box::new(answer), (tell, ends));
    let counts = waiting.world().run_for(Duration::from_secs(10)).await;
    assert_eq!((counts.created, counts.acked), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn attempts_that_are_used_up_end_in_quarantine_with_the_reason() {
    let waiting = Waiting::new();
    waiting.kept.queue.allow_attempts(2);
    let mut world = waiting.world();
    waiting.ends(10, 1, failed());
    waiting.ends(20, 2, failed());
    let counts = world.run_for(Duration::from_secs(60)).await;
    assert_eq!((counts.created, counts.failed, counts.acked), (2, 2, 0));
    let why = world.queue.quarantined().remove("1").unwrap();
    assert_eq!((why.kind, why.detail.as_str()), (RejectKind::AttemptsUsedUp, "exit code 1"));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_somebody_deletes_is_not_made_again() {
    let waiting = Waiting::new();
    let mut world = waiting.world();
    waiting.ends(10, 1, Finish::Cancelled("deleted by someone".into()));
    let counts = world.run_for(Duration::from_secs(60)).await;
    assert_eq!((counts.created, counts.rejected.len()), (1, 1), "{counts:?}");
    assert_eq!(world.queue.quarantined().remove("1").unwrap().kind, RejectKind::Cancelled);
    assert_eq!(*world.backend.acked.lock().unwrap(), [task()], "its Job may go");
}

#[tokio::test(start_paused = true)]
async fn a_sender_that_waits_for_no_end_is_answered_at_once() {
    let waiting = Waiting::new();
    let mut world = waiting.world();
    let mut told = world.post("a", "1");
    waiting.ends(30, 1, Finish::Completed);
    let counts = world.run_for(Duration::from_secs(20)).await;
    assert_eq!(counts.created, 1);
    let told = told.try_recv().unwrap();
    assert_eq!(told, katabatch::queue::push::Answer::Scheduled);
    assert_eq!(world.queue.len(), 1, "the queue's own message waits");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_gone_without_a_word_is_asked_for_again() {
    let waiting = Waiting::new();
    *waiting.backend.knows.lock().unwrap() = Some(false);
    let mut world = waiting.world();
    world.run_for(Duration::from_secs(120)).await;
    assert_eq!(world.calls(), ["1"], "ends take a while to be told");
    let waiting = Waiting::new();
    *waiting.backend.knows.lock().unwrap() = Some(false);
    let mut world = waiting.world();
    world.run_for(Duration::from_secs(300)).await;
    assert_eq!(world.calls(), ["1", "1"]);
}
