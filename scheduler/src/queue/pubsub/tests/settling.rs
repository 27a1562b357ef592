//! Acks, extensions, releases and the quarantine.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::fake::{Asked, Fake};
use super::super::fault::Fault;
use super::super::quarantine::{PutBack, put_back};
use super::{MINUTE, ids, lease};
use crate::domain::outcome::{RejectKind, Rejection};
use crate::pipeline::leases::Leases;
use crate::queue::{LeaseId, Queue, QueueError};

fn busy() -> Fault {
    Fault::Passing("s: Unavailable: busy".into())
}

fn rejection() -> Rejection {
    Rejection::new(RejectKind::BadUrl, "not a URL")
}

#[tokio::test(start_paused = true)]
async fn an_ack_of_a_lease_that_lapsed_is_lost_although_the_server_would_take_it() {
    let fake = Fake::with(&[2]);
    let queue = fake.queue();
    let leases = ids(&lease(&queue, 2).await);
    let (early, late) = leases.split_at(1);
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert_eq!(queue.ack(early).await, [Ok(())]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(queue.ack(late).await, [Err(QueueError::LeaseLost)]);
    assert_eq!(fake.acks(), ["ack-0"]);
}

#[tokio::test(start_paused = true)]
async fn an_ack_that_was_answered_after_the_leases_end_is_lost() {
    let fake = Fake::with(&[1]);
    let queue = fake.queue();
    let leases = ids(&lease(&queue, 1).await);
    tokio::time::sleep(Duration::from_secs(58)).await;
    fake.state().ack_takes = Duration::from_secs(3);
    assert_eq!(queue.ack(&leases).await, [Err(QueueError::LeaseLost)]);
}

#[tokio::test(start_paused = true)]
async fn an_extended_lease_lives_on() {
    let fake = Fake::with(&[1]);
    let queue = fake.queue();
    let leases = ids(&lease(&queue, 1).await);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(queue.extend(&leases, MINUTE).await, [Ok(())]);
    tokio::time::sleep(Duration::from_secs(45)).await;
    assert_eq!(queue.ack(&leases).await, [Ok(())]);
    assert_eq!(queue.ack(&leases).await, [Err(QueueError::LeaseLost)]);
}

#[tokio::test(start_paused = true)]
async fn an_ack_that_is_refused_alone_is_not_counted_as_acked() {
    let fake = Fake::with(&[100, 100]);
    let queue = fake.queue();
    let leases = ids(&lease(&queue, 100).await);
    fake.state().unknown = vec!["ack-17".into()];
    let answers = queue.ack(&leases).await;
    let refused: Vec<_> = (0..100).filter(|&at| answers[at].is_err()).collect();
    assert_eq!((refused.as_slice(), answers[17].clone()), (&[17][..], Err(QueueError::LeaseLost)));
    let stranger = LeaseId("never-given".into());
    assert_eq!(queue.ack(&[stranger]).await, [Err(QueueError::LeaseLost)]);
}

#[tokio::test(start_paused = true)]
async fn an_ack_that_fails_in_passing_is_tried_again_and_then_left_to_the_caller() {
    let fake = Fake::with(&[1]);
    let queue = fake.queue();
    let leases = ids(&lease(&queue, 1).await);
    fake.state().ack_faults = [busy(), busy()].into();
    assert_eq!(queue.ack(&leases).await, [Ok(())]);

    let fake = Fake::with(&[1]);
    let queue = fake.queue();
    let leases = ids(&lease(&queue, 1).await);
    fake.state().ack_faults = [busy(), busy(), busy()].into();
    assert!(matches!(queue.ack(&leases).await.as_slice(), [Err(QueueError::Unavailable(_))]));
    assert_eq!(fake.acks().len(), 3);
    assert_eq!(queue.ack(&leases).await, [Ok(())]);
}

#[tokio::test(start_paused = true)]
async fn a_release_sets_the_time_once_and_the_lease_is_gone() {
    let fake = Fake::with(&[2]);
    let queue = fake.queue();
    let leases = ids(&lease(&queue, 2).await);
    let (now, later) = leases.split_at(1);
    assert_eq!(queue.release(now, Duration::ZERO).await, [Ok(())]);
    assert_eq!(queue.release(later, Duration::from_secs(900)).await, [Ok(())]);
    let asked = fake.asked(|asked| match asked {
        Asked::Modify(ids, seconds) if *seconds != 60 => Some((ids[0].clone(), *seconds)),
        _ => None,
    });
    assert_eq!(asked, [("ack-0".to_owned(), 0), ("ack-1".to_owned(), 600)]);
    assert_eq!(queue.extend(&leases, MINUTE).await, vec![Err(QueueError::LeaseLost); 2]);
}

/// With a lease of 600 s: asked for no more than that, renewed by half, spaced out on failures.
#[tokio::test(start_paused = true)]
async fn renewals_that_fail_twice_are_spaced_out_and_the_lease_lives() {
    let fake = Fake::with(&[1]);
    let queue = Arc::new(fake.queue());
    let keeper = Leases::new(Arc::clone(&queue) as Arc<dyn Queue>, Duration::from_secs(600));
    let start = Instant::now();
    let taken = queue.lease(1, Duration::from_secs(600), MINUTE).await.expect("a message");
    keeper.keep(ids(&taken), start);
    fake.state().modify_faults = [busy(), busy()].into();
    let running = tokio::spawn(Arc::clone(&keeper).run());
    tokio::time::sleep(Duration::from_secs(620)).await;
    assert!(keeper.alive(&taken[0].lease, Instant::now()));
    running.abort();
    let state = fake.state();
    let asked: Vec<(u64, u16)> = state
        .asked
        .iter()
        .filter_map(|(at, asked)| match asked {
            Asked::Modify(_, seconds) => Some(((*at - start).as_secs(), *seconds)),
            _ => None,
        })
        .collect();
    assert_eq!(asked, [(0, 600), (300, 600), (301, 600), (303, 600), (603, 600)]);
}

#[tokio::test(start_paused = true)]
async fn a_message_is_acked_only_once_its_record_is_published() {
    let fake = Fake::with(&[1]);
    let queue = fake.queue();
    let lease = lease(&queue, 1).await.remove(0).lease;
    fake.state().publish_faults = [busy(), busy(), busy()].into();
    let failed = queue.quarantine(&lease, &rejection()).await;
    assert!(matches!(failed, Err(QueueError::Unavailable(_))), "{failed:?}");
    assert!(fake.acks().is_empty());

    fake.state().ack_faults = [busy(), busy(), busy()].into();
    let failed = queue.quarantine(&lease, &rejection()).await;
    assert!(matches!(failed, Err(QueueError::Unavailable(_))), "{failed:?}");
    assert_eq!(queue.quarantine(&lease, &rejection()).await, Ok(()));
    let published = fake.state().published.clone();
    assert_eq!(published.len(), 1, "the record is published once");
    let attribute = |name: &str| published[0].attributes.get(name).cloned().unwrap_or_default();
    assert_eq!(attribute("job"), "job-0");
    assert_eq!(attribute("katabatch-reason"), "bad_url");
    assert_eq!(queue.quarantine(&lease, &rejection()).await, Err(QueueError::LeaseLost));
}

#[tokio::test(start_paused = true)]
async fn what_is_no_record_stays_in_quarantine_and_nothing_is_published() {
    let fake = Fake::with(&[3]);
    let done = put_back(&*fake, "projects/p/topics/t", None, |_| true).await;
    assert_eq!(done, Ok(PutBack::default()));
    assert!(fake.acks().is_empty() && fake.state().published.is_empty());
    assert_eq!(fake.given_back().len(), 3);
}
