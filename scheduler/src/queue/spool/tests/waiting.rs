//! Waiting callers, callers that go away, and many callers at once.

use futures::future::join_all;
use tokio::time::timeout;

use super::*;
use crate::queue::Queue;

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn an_empty_spool_answers_when_the_wait_is_over() {
    let (_folder, spool) = spool(&TestClock::new());
    let start = Instant::now();
    assert!(spool.lease(1, MINUTE, MINUTE).await.expect("a lease").is_empty());
    assert_eq!(start.elapsed(), MINUTE);
}

#[tokio::test(start_paused = true)]
async fn a_put_wakes_who_waits_at_once() {
    let (_folder, spool) = spool(&TestClock::new());
    let start = Instant::now();
    let lease = spool.lease(1, MINUTE, MINUTE);
    let put = async {
        tokio::time::sleep(Duration::from_millis(3_210)).await;
        spool.put(vec![message("a")]).await
    };
    let (got, put) = tokio::join!(lease, put);
    assert!(put.is_ok() && got.is_ok_and(|got| got.len() == 1));
    assert_eq!(start.elapsed(), Duration::from_millis(3_210));
}

#[tokio::test(start_paused = true)]
async fn what_another_process_puts_is_found_within_half_a_second() {
    let clock = TestClock::new();
    let (folder, spool) = spool(&clock);
    let other = open(&folder, &clock, 8);
    let start = Instant::now();
    let put = async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        other.put(vec![message("a")]).await
    };
    let (got, put) = tokio::join!(spool.lease(1, MINUTE, MINUTE), put);
    assert!(put.is_ok() && got.is_ok_and(|got| got.len() == 1));
    let late = start.elapsed() - Duration::from_secs(20);
    assert!(late <= Duration::from_millis(501), "{late:?}");
}

#[tokio::test]
async fn a_lease_that_nobody_waits_for_any_more_is_taken_back() {
    let (_folder, spool) = spool(&TestClock::new());
    spool.put(vec![message("a")]).await.expect("put");
    let mut lease = Box::pin(spool.lease(1, MINUTE, Duration::ZERO));
    // Polled once, so that it is on its way; then dropped.
    assert!(futures::poll!(&mut lease).is_pending());
    drop(lease);
    let got = timeout(MINUTE, spool.lease(1, MINUTE, MINUTE)).await.expect("in time");
    assert_eq!(got.expect("a lease")[0].deliveries, Some(1));
}

/// Thousands of single acks a second are what a scheduler at full speed asks for.
#[tokio::test(flavor = "multi_thread")]
async fn single_acks_at_once_share_their_transactions() {
    const MESSAGES: usize = 2_000;
    let clock = TestClock::new();
    let (_folder, spool) = spool(&clock);
    spool.put((0..MESSAGES).map(|i| message(&i.to_string())).collect()).await.expect("put");
    let start = std::time::Instant::now();
    let before = clock.reads();
    for _ in 0..MESSAGES / 100 {
        let got = spool.lease(100, MINUTE, Duration::ZERO).await.expect("a lease");
        let leases: Vec<_> = got.into_iter().map(|d| [d.lease]).collect();
        let acked = join_all(leases.iter().map(|lease| spool.ack(lease))).await;
        assert!(acked.iter().flatten().all(Result::is_ok));
    }
    let transactions = clock.reads() - before;
    // Figures of a busy machine vary: the rate is told, the transactions are held.
    let rate = MESSAGES as f64 / start.elapsed().as_secs_f64();
    eprintln!("lease 100, ack singly at once: {rate:.0} acks/s, {transactions} transactions");
    assert!(transactions < MESSAGES / 4, "{transactions} transactions for {MESSAGES} acks");
    assert_eq!(spool.counts().await.expect("counts"), Default::default());
}
