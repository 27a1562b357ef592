//! Taking messages: pulls, what they bring, and who gets it.

use std::time::Duration;

use tokio::time::Instant;

use super::super::fake::{Answer, Asked, Fake};
use super::super::fault::Fault;
use super::{MINUTE, WAIT, lease};
use crate::queue::{Queue, QueueError};

const SOON: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn what_comes_is_leased_before_it_is_handed_out() {
    let fake = Fake::with(&[2]);
    let queue = fake.queue();
    let start = Instant::now();
    let taken = lease(&queue, 10).await;
    assert_eq!(taken.len(), 2);
    assert!(start.elapsed() < Duration::from_millis(5), "{:?}", start.elapsed());
    let modified = fake.asked(|asked| match asked {
        Asked::Modify(ids, seconds) => Some((ids.len(), *seconds)),
        _ => None,
    });
    assert_eq!(modified, [(2, 60)]);
}

#[tokio::test(start_paused = true)]
async fn an_empty_answer_is_not_an_empty_queue() {
    let fake = Fake::with(&[40, 0, 960]);
    let queue = fake.queue();
    let mut got = 0;
    let start = Instant::now();
    while got < 1_000 && start.elapsed() < MINUTE {
        got += lease(&queue, 1_000 - got).await.len();
    }
    assert_eq!(got, 1_000);
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert!(fake.pulls() < 12, "{}", fake.pulls());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_at_once_with_nothing_is_not_asked_without_end() {
    let fake = Fake::new((0..1_000).map(|_| Answer(Duration::ZERO, Ok(0))));
    let queue = fake.queue();
    let start = Instant::now();
    while start.elapsed() < MINUTE {
        assert!(lease(&queue, 10).await.is_empty());
    }
    assert!(fake.pulls() < 80, "{}", fake.pulls());
}

#[tokio::test(start_paused = true)]
async fn an_idle_queue_is_waited_on_by_one_pull_at_a_time() {
    let fake = Fake::with(&[]);
    let queue = fake.queue();
    let start = Instant::now();
    while start.elapsed() < MINUTE {
        assert!(lease(&queue, 500).await.is_empty());
    }
    assert!(fake.pulls() <= 20, "{}", fake.pulls());
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_does_not_wait_still_gets_what_is_there() {
    let fake = Fake::new([Answer(Duration::from_millis(300), Ok(3))]);
    let queue = fake.queue();
    assert_eq!(queue.lease(10, MINUTE, Duration::ZERO).await.map(|d| d.len()), Ok(3));
    let start = Instant::now();
    assert_eq!(queue.lease(10, MINUTE, Duration::ZERO).await.map(|d| d.len()), Ok(0));
    assert!(start.elapsed() <= Duration::from_secs(3), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_deep_queue_is_pulled_side_by_side_and_never_beyond_what_is_wanted() {
    let fake = Fake::new((0..60).map(|_| Answer(Duration::from_millis(20), Ok(100))));
    let queue = fake.queue();
    let (mut got, mut most) = (0, 0);
    let start = Instant::now();
    while got < 3_000 {
        let wanted = (3_000 - got).min(500);
        got += lease(&queue, wanted).await.len();
        most = most.max(fake.state().pulling);
    }
    assert!(most > 2, "{most} pulls side by side");
    assert!(start.elapsed() < Duration::from_millis(400), "{:?}", start.elapsed());
    assert_eq!((got, fake.state().delivered), (3_000, 3_000));
    assert!(fake.given_back().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pull_outlives_its_caller_and_the_next_one_gets_its_messages() {
    let fake = Fake::new([Answer(Duration::from_secs(1), Ok(5))]);
    let queue = fake.queue();
    let gone = tokio::time::timeout(Duration::from_millis(10), lease(&queue, 10)).await;
    assert!(gone.is_err());
    tokio::time::sleep(Duration::from_secs(2)).await;
    let asked_at = Instant::now();
    let taken = lease(&queue, 10).await;
    assert_eq!(taken.len(), 5);
    assert!(fake.given_back().is_empty());
    // It was leased anew for this caller, whose keeper counts from its own call.
    let anew =
        |(at, asked): &&(Instant, Asked)| *at >= asked_at && matches!(asked, Asked::Modify(..));
    assert_eq!(fake.state().asked.iter().filter(anew).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_nobody_takes_goes_back() {
    let fake = Fake::new([Answer(Duration::from_secs(1), Ok(2))]);
    let queue = fake.queue();
    let gone = tokio::time::timeout(Duration::from_millis(10), lease(&queue, 10)).await;
    assert!(gone.is_err());
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(fake.given_back(), ["ack-0", "ack-1"]);
}

#[tokio::test(start_paused = true)]
async fn closing_gives_back_what_is_here_and_what_still_comes() {
    let fake = Fake::new([Answer(SOON, Ok(2)), Answer(Duration::from_secs(3), Ok(1))]);
    let queue = fake.queue();
    let one = queue.lease(1, MINUTE, WAIT).await.expect("an answer");
    assert_eq!(one.len(), 1);
    let gone = tokio::time::timeout(Duration::from_millis(10), lease(&queue, 10)).await;
    assert!(gone.is_err());
    let start = Instant::now();
    queue.close().await;
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    assert_eq!(fake.given_back(), ["ack-1"]);
    assert_eq!(lease(&queue, 10).await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_leased_is_not_handed_out() {
    let fake = Fake::with(&[100]);
    fake.state().unknown = vec!["ack-17".into()];
    let taken = lease(&fake.queue(), 100).await;
    assert_eq!(taken.len(), 99);
    assert!(taken.iter().all(|delivery| delivery.lease.0 != "ack-17"));
}

#[tokio::test(start_paused = true)]
async fn a_failing_pull_tells_what_to_do_and_the_next_call_pulls_again() {
    let fake = Fake::new([
        Answer(SOON, Err(Fault::Lasting("s: NotFound: create it".into()))),
        Answer(SOON, Err(Fault::Passing("s: Unavailable: gone".into()))),
        Answer(SOON, Err(Fault::Passing("s: DeadlineExceeded: slow".into()))),
        Answer(SOON, Ok(1)),
    ]);
    let queue = fake.queue();
    let failed = queue.lease(1, MINUTE, WAIT).await;
    assert!(matches!(&failed, Err(QueueError::Unusable(said)) if said.contains("create it")));
    let failed = queue.lease(1, MINUTE, WAIT).await;
    assert!(matches!(failed, Err(QueueError::Unavailable(_))), "{failed:?}");
    assert_eq!(lease(&queue, 1).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn two_callers_at_once_share_what_comes() {
    let fake = Fake::with(&[1, 1]);
    let queue = fake.queue();
    let (a, b) = tokio::join!(lease(&queue, 1), lease(&queue, 1));
    assert_eq!((a.len(), b.len()), (1, 1));
    assert_ne!(a, b);
}
