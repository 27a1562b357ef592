//! Tokens over time, from a source that does as it is told.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;

use super::super::source::{Fetched, Source};
use super::*;

/// One answer of the source: a token and how long it lives, or a failure.
type Say = Result<(&'static str, u64), TokenError>;

struct Told {
    begin: Instant,
    says: Mutex<VecDeque<Say>>,
    last: Mutex<Say>,
    /// When it was asked, in milliseconds.
    asked: Mutex<Vec<u128>>,
}

#[async_trait]
impl Source for Told {
    async fn fetch(&self) -> Result<Fetched, TokenError> {
        self.asked.lock().expect("asked").push(self.begin.elapsed().as_millis());
        tokio::time::sleep(Duration::from_millis(20)).await;
        let mut last = self.last.lock().expect("last");
        if let Some(say) = self.says.lock().expect("says").pop_front() {
            *last = say;
        }
        let (token, lives) = last.clone()?;
        Ok(Fetched { bearer: Bearer::new(token), lives: Duration::from_secs(lives) })
    }
}

fn later() -> Say {
    Err(TokenError::Later("refused".into()))
}

/// A keeper over a source that says these things, the last one for ever.
fn keeper(says: &[Say]) -> (Keeper, Arc<Told>) {
    let source = Arc::new(Told {
        begin: Instant::now(),
        last: Mutex::new(says.last().expect("an answer").clone()),
        says: Mutex::new(says.iter().cloned().collect()),
        asked: Mutex::default(),
    });
    (Keeper::new(Arc::clone(&source) as Arc<dyn Source>, 7), source)
}

fn asked(source: &Told) -> Vec<u128> {
    source.asked.lock().expect("asked").clone()
}

#[tokio::test(start_paused = true)]
async fn a_metadata_server_that_refuses_for_eight_seconds_is_waited_for() {
    let mut says = vec![later(); 5];
    says.push(Ok(("t", 3_600)));
    let (keeper, source) = keeper(&says);
    let got = keeper.bearer().await.expect("a token");
    assert_eq!(got, Bearer::new("t"));
    let waited = source.begin.elapsed();
    assert!(waited > Duration::from_secs(5) && waited < PATIENCE, "{waited:?}");
    assert_eq!(asked(&source).len(), 6);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_longer_than_half_a_minute_and_the_reason_is_told() {
    let (keeper, source) = keeper(&[later()]);
    assert_eq!(keeper.bearer().await, Err(TokenError::Later("refused".into())));
    assert_eq!(source.begin.elapsed(), PATIENCE);
    let asked = asked(&source).len();
    assert!((8..=14).contains(&asked), "{asked} tries in half a minute");
}

#[tokio::test(start_paused = true)]
async fn credentials_that_stay_unusable_are_told_at_once_and_asked_for_at_a_distance() {
    let (keeper, source) = keeper(&[Err(TokenError::Unusable("gone".into()))]);
    for _ in 0..100 {
        assert!(matches!(keeper.bearer().await, Err(TokenError::Unusable(_))));
    }
    assert_eq!((asked(&source).len(), source.begin.elapsed().as_millis()), (1, 20));
}

#[tokio::test(start_paused = true)]
async fn the_same_token_with_seventy_seconds_left_is_used_on_and_asked_for_spaced() {
    let (keeper, source) = keeper(&[Ok(("t", 70)), Ok(("t", 65)), Ok(("u", 3_600))]);
    assert_eq!(keeper.bearer().await, Ok(Bearer::new("t")));
    while asked(&source).len() < 3 {
        assert_eq!(keeper.bearer().await, Ok(Bearer::new("t")), "used on meanwhile");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let times = asked(&source);
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 4_000), "{times:?}");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(keeper.bearer().await, Ok(Bearer::new("u")));
}

#[tokio::test(start_paused = true)]
async fn a_token_is_replaced_ahead_of_its_end_without_anybody_waiting() {
    let (keeper, source) = keeper(&[Ok(("t", 3_600)), Ok(("u", 3_600))]);
    keeper.bearer().await.expect("a token");
    tokio::time::sleep(Duration::from_secs(3_600 - 150)).await;
    let before = source.begin.elapsed();
    assert_eq!(keeper.bearer().await, Ok(Bearer::new("u")));
    assert_eq!(source.begin.elapsed(), before, "it was there already");
    let times = asked(&source);
    let ahead = 3_600_000 - times[1];
    assert!((180_000..=270_000).contains(&ahead), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn failures_to_renew_matter_to_nobody_until_the_token_is_at_its_end_and_then_it_is_not_used()
{
    let (keeper, source) = keeper(&[Ok(("t", 600)), later()]);
    keeper.bearer().await.expect("a token");
    let mut used = 0;
    while keeper.bearer().await.is_ok() {
        used = source.begin.elapsed().as_secs();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!((585..=590).contains(&used), "used until {used} s of 600");
    let calm = asked(&source).iter().filter(|at| **at < 590_000).count();
    assert!((8..=30).contains(&calm), "{calm} tries");
}

#[tokio::test(start_paused = true)]
async fn many_refusals_at_once_renew_once() {
    let (keeper, source) = keeper(&[Ok(("t", 3_600)), Ok(("u", 3_600))]);
    let token = keeper.bearer().await.expect("a token");
    tokio::time::sleep(Duration::from_secs(120)).await;
    let renewed = futures::future::join_all((0..50).map(|_| keeper.renew(&token))).await;
    assert!(renewed.iter().all(|new| *new == Ok(Bearer::new("u"))), "{renewed:?}");
    assert_eq!(keeper.renew(&token).await, Ok(Bearer::new("u")), "one that comes late");
    assert_eq!(asked(&source).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_every_token_makes_no_hot_circle() {
    let says: Vec<Say> = ["a", "b", "c", "d", "e", "f"].iter().map(|t| Ok((*t, 3_600))).collect();
    let (keeper, source) = keeper(&says);
    let mut token = keeper.bearer().await.expect("a token");
    for _ in 0..5 {
        token = keeper.renew(&token).await.expect("another");
    }
    let took = source.begin.elapsed().as_secs();
    assert!(took >= 1 + 2 + 4 + 8 + 16, "{took} s for five");
}

#[tokio::test(start_paused = true)]
async fn a_refused_token_that_cannot_be_replaced_says_why() {
    let (keeper, _) = keeper(&[Ok(("t", 3_600)), later()]);
    let token = keeper.bearer().await.expect("a token");
    assert_eq!(keeper.renew(&token).await, Err(TokenError::Later("refused".into())));
    assert_eq!(keeper.bearer().await, Ok(token), "the server may have been wrong");
}
