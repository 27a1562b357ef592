//! One call for many ids, within the API's limits: cut into chunks, and a chunk that is refused cut
//! in halves until the one bad id stands alone.

use std::future::Future;
use std::time::Duration;

use futures::stream::{self, StreamExt};

use super::fault::Fault;
use crate::queue::QueueError;

/// The most ids in a request. The API's documentation names no number, but refuses somewhat above
/// this.
const IDS: usize = 1_000;
/// The most bytes of ids in a request; the API takes 512 KiB, the rest is the request's own.
const BYTES: usize = 500 * 1024;
/// What an id takes besides its own bytes.
const FRAME: usize = 4;
/// The most requests of one call under way at once.
const AT_ONCE: usize = 4;
/// The wait before the second try; it doubles.
const PAUSE: Duration = Duration::from_millis(100);

/// Cuts `ids` into chunks that one request may carry.
pub(super) fn chunks(ids: &[String]) -> Vec<&[String]> {
    let mut chunks = Vec::new();
    let mut rest = ids;
    while !rest.is_empty() {
        let mut bytes = 0_usize;
        let fits = |id: &&String| {
            bytes += id.len() + FRAME;
            bytes <= BYTES
        };
        // An id that is too long by itself goes alone, to be refused by the server.
        let n = rest.iter().take(IDS).take_while(fits).count().max(1);
        let (chunk, after) = rest.split_at(n);
        chunks.push(chunk);
        rest = after;
    }
    chunks
}

/// Calls for all of `ids`, answers in their order. A passing fault is tried up to `tries` times.
///
/// An id that is refused alone is [`QueueError::LeaseLost`]: the server does not know it.
pub(super) async fn each<F, Fut>(ids: &[String], tries: u32, call: F) -> Vec<Result<(), QueueError>>
where
    F: Fn(Vec<String>) -> Fut + Sync,
    Fut: Future<Output = Result<(), Fault>> + Send,
{
    let mut calls = Vec::new();
    for chunk in chunks(ids) {
        calls.push(whole_or_halves(chunk.to_vec(), tries, &call));
    }
    let answers: Vec<_> = stream::iter(calls).buffered(AT_ONCE).collect().await;
    answers.into_iter().flatten().collect()
}

/// A chunk, and its halves one after the other once it was refused.
async fn whole_or_halves<F, Fut>(
    chunk: Vec<String>,
    tries: u32,
    call: &F,
) -> Vec<Result<(), QueueError>>
where
    F: Fn(Vec<String>) -> Fut + Sync,
    Fut: Future<Output = Result<(), Fault>> + Send,
{
    let mut answers = Vec::with_capacity(chunk.len());
    let mut todo = vec![chunk];
    // The last one pushed is the leftmost part not done yet, which keeps the order.
    while let Some(part) = todo.pop() {
        let n = part.len();
        match with_tries(tries, || call(part.clone())).await {
            Ok(()) => answers.extend(std::iter::repeat_n(Ok(()), n)),
            Err(Fault::Refused(_)) if n == 1 => answers.push(Err(QueueError::LeaseLost)),
            Err(Fault::Refused(_)) => {
                let mut left = part;
                let right = left.split_off(n / 2);
                todo.push(right);
                todo.push(left);
            }
            Err(fault) => answers.extend(std::iter::repeat_n(Err(fault.into()), n)),
        }
    }
    answers
}

/// Calls until it does not fail in passing, at most `tries` times, spaced out.
pub(super) async fn with_tries<T, F, Fut>(tries: u32, call: F) -> Result<T, Fault>
where
    F: Fn() -> Fut,
    Fut: Future<Output = Result<T, Fault>>,
{
    let mut pause = PAUSE;
    let mut left = tries;
    loop {
        left = left.saturating_sub(1);
        match call().await {
            Err(Fault::Passing(_)) if left > 0 => {}
            done => return done,
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn ids(n: usize, length: usize) -> Vec<String> {
        (0..n).map(|i| format!("{i:0length$}")).collect()
    }

    #[test]
    fn three_thousand_long_ids_fit_the_limits_of_the_api() {
        let ids = ids(3_000, 220);
        let chunks = chunks(&ids);
        assert_eq!(chunks.concat(), ids);
        for chunk in chunks {
            let bytes: usize = chunk.iter().map(|id| id.len() + FRAME).sum();
            assert!(chunk.len() <= 1_000 && bytes < 512 * 1024, "{} {bytes}", chunk.len());
        }
    }

    #[test]
    fn bytes_bound_a_chunk_where_numbers_do_not() {
        let ids = ids(1_000, 2_000);
        assert_eq!(chunks(&ids).iter().map(|c| c.len()).max(), Some(255));
        assert_eq!(chunks(&[]).len(), 0);
        assert_eq!(chunks(&["x".repeat(BYTES + 1), "y".into()]).len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn one_bad_id_harms_no_other() {
        let all = ids(3_000, 220);
        let calls = Mutex::new(Vec::new());
        let answers = each(&all, 3, |part| {
            calls.lock().expect("whole").push(part.len());
            let refused = part.iter().any(|id| *id == all[1_234]);
            async move { if refused { Err(Fault::Refused("id".into())) } else { Ok(()) } }
        })
        .await;
        let bad: Vec<_> = (0..3_000).filter(|&at| answers[at].is_err()).collect();
        assert_eq!(bad, [1_234]);
        assert_eq!(answers[1_234], Err(QueueError::LeaseLost));
        let calls = calls.into_inner().expect("whole");
        assert!(calls.len() < 30, "{calls:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_chunk_that_fails_in_passing_is_tried_again_alone_and_then_told() {
        let all = ids(3_000, 220);
        let calls = Mutex::new(Vec::new());
        let answers = each(&all, 3, |part| {
            let second = part.contains(&all[1_000]);
            calls.lock().expect("whole").push(second);
            async move { if second { Err(Fault::Passing("busy".into())) } else { Ok(()) } }
        })
        .await;
        let failed = answers.iter().filter(|a| matches!(a, Err(QueueError::Unavailable(_))));
        assert_eq!(failed.count(), 1_000);
        let calls = calls.into_inner().expect("whole");
        assert_eq!((calls.len(), calls.iter().filter(|second| **second).count()), (5, 3));
    }
}
