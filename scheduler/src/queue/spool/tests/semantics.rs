//! What each method of the trait promises.

use super::*;
use crate::domain::outcome::{RejectKind, Rejection};
use crate::queue::spool::record::{Counts, PutCount, Selection, State};
use crate::queue::{Delivery, Queue, QueueError};

const MINUTE: Duration = Duration::from_secs(60);
const NOW: Duration = Duration::ZERO;

async fn filled(ids: &[&str]) -> (Arc<TestClock>, TempDir, Spool) {
    let clock = TestClock::new();
    let (folder, spool) = spool(&clock);
    spool.put(ids.iter().map(|id| message(id)).collect()).await.expect("put");
    (clock, folder, spool)
}

async fn lease(spool: &Spool, n: usize) -> Vec<Delivery> {
    spool.lease(n, MINUTE, NOW).await.expect("a lease")
}

async fn lease_one(spool: &Spool) -> Delivery {
    lease(spool, 1).await.pop().expect("a delivery")
}

fn ids(deliveries: &[Delivery]) -> Vec<&str> {
    deliveries.iter().map(|d| d.message_id.as_str()).collect()
}

#[tokio::test]
async fn a_lease_that_lapses_delivers_again_and_makes_the_old_lease_stale() {
    let (clock, _folder, spool) = filled(&["a"]).await;
    let first = lease_one(&spool).await;
    assert_eq!((first.deliveries, first.attributes.len()), (Some(1), 1));
    clock.pass(MINUTE - Duration::from_secs(1));
    assert!(lease(&spool, 1).await.is_empty());
    clock.pass(Duration::from_secs(1));
    let second = lease_one(&spool).await;
    assert_eq!((&second.message_id, second.deliveries), (&first.message_id, Some(2)));
    let old = [first.lease.clone()];
    let lost = vec![Err(QueueError::LeaseLost)];
    assert_eq!(spool.ack(&old).await, lost);
    assert_eq!(spool.extend(&old, MINUTE).await, lost);
    assert_eq!(spool.release(&old, NOW).await, lost);
    let rejection = Rejection::new(RejectKind::BadUrl, "x");
    assert_eq!(spool.quarantine(&first.lease, &rejection).await, Err(QueueError::LeaseLost));
    assert_eq!(spool.ack(&[second.lease]).await, [Ok(())]);
    assert_eq!(spool.counts().await.expect("counts"), Counts::default());
}

#[tokio::test]
async fn a_late_ack_counts_until_another_holds_the_message() {
    let (clock, _folder, spool) = filled(&["a"]).await;
    let late = lease_one(&spool).await;
    clock.pass(MINUTE * 2);
    assert_eq!(spool.ack(std::slice::from_ref(&late.lease)).await, [Ok(())]);
    assert_eq!(spool.ack(&[late.lease]).await, [Err(QueueError::LeaseLost)]);
}

#[tokio::test]
async fn answers_come_in_the_order_asked_and_a_stale_lease_harms_no_other() {
    let (_clock, _folder, spool) = filled(&["a", "b"]).await;
    let got = lease(&spool, 2).await;
    let leases = [
        got[0].lease.clone(),
        crate::queue::LeaseId("no lease".into()),
        got[1].lease.clone(),
        got[0].lease.clone(),
    ];
    let answers = spool.ack(&leases).await;
    let lost = Err(QueueError::LeaseLost);
    assert_eq!(answers, [Ok(()), lost.clone(), Ok(()), lost]);
}

#[tokio::test]
async fn an_extended_lease_lasts() {
    let (clock, _folder, spool) = filled(&["a"]).await;
    let held = lease_one(&spool).await;
    clock.pass(MINUTE / 2);
    assert_eq!(spool.extend(std::slice::from_ref(&held.lease), MINUTE).await, [Ok(())]);
    clock.pass(MINUTE - Duration::from_secs(1));
    assert!(lease(&spool, 1).await.is_empty());
    assert_eq!(spool.ack(&[held.lease]).await, [Ok(())]);
}

#[tokio::test]
async fn a_released_message_comes_back_after_its_delay() {
    let (clock, _folder, spool) = filled(&["a", "b"]).await;
    let held = lease_one(&spool).await;
    assert_eq!(spool.release(&[held.lease], MINUTE).await, [Ok(())]);
    assert_eq!(spool.counts().await.expect("counts").delayed, 1);
    assert_eq!(ids(&lease(&spool, 9).await), ["b"]);
    clock.pass(MINUTE);
    assert_eq!(ids(&lease(&spool, 9).await), ["a", "b"]);
}

#[tokio::test]
async fn the_message_due_first_comes_first() {
    let (clock, _folder, spool) = filled(&["a", "b"]).await;
    let later = NewMessage { not_before: Some(clock.wall() + MINUTE), ..message("later") };
    let past = NewMessage { not_before: Some(clock.wall() - MINUTE), ..message("past") };
    spool.put(vec![later, past]).await.expect("put");
    clock.pass(MINUTE / 2);
    spool.put(vec![message("c")]).await.expect("put");
    let states: Vec<_> =
        spool.list(9).await.expect("list").into_iter().map(|e| (e.id, e.state)).collect();
    let ready = |id: &str| (id.to_owned(), State::Ready);
    let delayed = ("later".to_owned(), State::Delayed);
    assert_eq!(states, [ready("a"), ready("b"), ready("past"), ready("c"), delayed]);
    assert_eq!(ids(&lease(&spool, 9).await), ["a", "b", "past", "c"]);
    clock.pass(MINUTE / 2);
    assert_eq!(ids(&lease(&spool, 9).await), ["later"]);
}

#[tokio::test]
async fn a_put_of_an_id_that_is_there_changes_nothing() {
    let (_clock, _folder, spool) = filled(&["a", "b"]).await;
    let got = lease(&spool, 1).await;
    let rejection = Rejection::new(RejectKind::BadUrl, "x");
    spool.quarantine(&got[0].lease, &rejection).await.expect("quarantined");
    let other = NewMessage { attributes: BTreeMap::new(), ..message("b") };
    let put = spool.put(vec![message("a"), other, message("c"), message("c")]).await;
    assert_eq!(put, Ok(PutCount { put: 1, already_there: 3 }));
    let left = lease(&spool, 9).await;
    assert_eq!(ids(&left), ["b", "c"]);
    assert_eq!(left[0].attributes, message("b").attributes);
}

#[tokio::test]
async fn messages_without_id_get_ids_of_their_own() {
    let (_clock, _folder, spool) = filled(&[]).await;
    let bare = NewMessage { timeout: Some(MINUTE), ..NewMessage::default() };
    let put = spool.put_many(vec![bare; 5_001], |_| {}).await.expect("put");
    assert_eq!(put.put, 5_001);
    let one = lease_one(&spool).await;
    assert_eq!(one.attributes.get("timeout").map(String::as_str), Some("60"));
}

#[tokio::test]
async fn quarantined_messages_come_back_by_reason_and_time() {
    let (clock, _folder, spool) = filled(&["a", "b", "c"]).await;
    let start = clock.wall();
    for kind in [RejectKind::BadUrl, RejectKind::DeadUrl, RejectKind::BadUrl] {
        let held = lease_one(&spool).await;
        let rejection = Rejection::new(kind, "https://h/o?X-Goog-Signature=SECRET is bad");
        spool.quarantine(&held.lease, &rejection).await.expect("quarantined");
        clock.pass(MINUTE);
    }
    let records = spool.quarantined(Selection::default(), 9).await.expect("records");
    assert_eq!(records.iter().map(|r| r.id.as_str()).collect::<Vec<_>>(), ["c", "b", "a"]);
    assert_eq!(records[0].reason, "bad_url");
    assert!(records.iter().all(|r| !r.detail.contains("SECRET")));
    assert_eq!(spool.counts().await.expect("counts").quarantined, 3);

    let reason = Some("bad_url".to_owned());
    let until = Some(start + MINUTE);
    let select = Selection { reason: reason.clone(), until, since: None };
    assert_eq!(spool.retry(select).await, Ok(1));
    let back = lease_one(&spool).await;
    assert_eq!((back.message_id.as_str(), back.deliveries), ("a", Some(1)));
    assert_eq!(back.published_at, start);
    let select = Selection { since: Some(start + MINUTE), reason, until: None };
    assert_eq!(spool.retry(select).await, Ok(1));
    assert_eq!(spool.retry(Selection::default()).await, Ok(1));
    assert_eq!(ids(&lease(&spool, 9).await), ["c", "b"]);
}

#[tokio::test]
async fn failures_use_up_attempts_and_neither_crashes_nor_releases_do() {
    let (clock, _folder, spool) = filled(&[]).await;
    spool.put(vec![NewMessage { attempts: Some(2), ..message("a") }]).await.expect("put");
    for _ in 0..5 {
        lease_one(&spool).await;
        clock.pass(MINUTE);
    }
    for _ in 0..5 {
        let held = lease_one(&spool).await;
        assert_eq!(spool.release(&[held.lease], NOW).await, [Ok(())]);
    }
    for left in [1, 0] {
        let held = lease_one(&spool).await;
        let why = "task_failure (exit code 3)\nGET https://h/o?X-Goog-Signature=SECRET";
        assert_eq!(spool.fail(&held.lease, why).await, Ok(()));
        assert_eq!(spool.fail(&held.lease, why).await, Err(QueueError::LeaseLost));
        assert_eq!(spool.counts().await.expect("counts").delayed, left, "it comes a bit later");
        clock.pass(MINUTE);
    }
    let records = spool.quarantined(Selection::default(), 9).await.expect("records");
    assert_eq!(records[0].reason, RejectKind::AttemptsUsedUp.label());
    assert_eq!(records[0].deliveries, 12);
    assert!(records[0].detail.starts_with("task_failure (exit code 3)\n"));
    assert!(!records[0].detail.contains("SECRET"));
    spool.retry(Selection::default()).await.expect("retried");
    assert_eq!(spool.list(1).await.expect("list")[0].attempts, 0);
}

#[tokio::test]
async fn a_row_that_is_no_message_stops_none_behind_it() {
    let (_clock, folder, spool) = filled(&["a", "b"]).await;
    let other = rusqlite::Connection::open(folder.path().join("spool.sqlite")).expect("opened");
    other.execute("UPDATE message SET attributes = '[1' WHERE id = 'a'", []).expect("damaged");
    assert_eq!(ids(&lease(&spool, 1).await), Vec::<&str>::new());
    assert_eq!(ids(&lease(&spool, 1).await), ["b"]);
    let records = spool.quarantined(Selection::default(), 9).await.expect("records");
    assert_eq!((records[0].id.as_str(), records[0].reason.as_str()), ("a", "bad_message"));
}
