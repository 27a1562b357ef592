//! The scheduler's records beside the watermark, and a namespace that is not home.

use super::super::fake::{Fault, Verb};
use super::*;
use crate::records::RecordError;

fn set(key: &str, value: &str) -> (String, Option<String>) {
    (key.to_owned(), Some(value.to_owned()))
}

async fn key(farm: &Farm, key: &str) -> Option<String> {
    farm.backend.records().all().await.expect("read").remove(key)
}

#[tokio::test(start_paused = true)]
async fn records_are_there_for_the_next_process_and_stand_beside_the_watermark() {
    let farm = Farm::fresh().await;
    farm.backend.records().write(&[set("a", "1"), set("b", "2")]).await.expect("written");
    farm.backend.records().write(&[("a".to_owned(), None)]).await.expect("written");
    assert_eq!(farm.submit_one(1).await, CREATED);
    farm.backend.acked(&[task(1).hash]);
    let cluster = farm.shut_down().await;
    let next = Farm::start(cluster, settings()).await;
    assert_eq!((key(&next, "a").await, key(&next, "b").await), (None, Some("2".to_owned())));
    assert!(key(&next, "settled").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_write_that_meets_another_is_made_again_and_a_lost_answer_is_said() {
    let farm = Farm::fresh().await;
    let conflict = error(409, "Conflict", "changed meanwhile");
    farm.cluster
        .script(Verb::PutConfigMap, [Fault::Refuse(conflict.clone()), Fault::Refuse(conflict)]);
    farm.backend.records().write(&[set("a", "1")]).await.expect("written");
    farm.cluster.script(Verb::PutConfigMap, [Fault::DoneThen(ApiError::lost("timed out"))]);
    let lost = farm.backend.records().write(&[set("a", "2")]).await;
    assert!(matches!(lost, Err(RecordError::Unavailable(_))), "{lost:?}");
    farm.backend.records().write(&[set("a", "2")]).await.expect("again is harmless");
    assert_eq!(key(&farm, "a").await.as_deref(), Some("2"));
    farm.cluster.script(Verb::PutConfigMap, [Fault::Refuse(error(403, "Forbidden", "may not"))]);
    let refused = farm.backend.records().write(&[set("a", "3")]).await;
    assert!(matches!(refused, Err(RecordError::Refused(_))), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn who_does_not_lead_writes_nothing() {
    let first = Farm::fresh().await;
    let second = Farm::begin(first.cluster.clone(), settings());
    tokio::time::sleep(Duration::from_secs(30)).await;
    let written = second.backend.records().write(&[set("a", "1")]).await;
    assert!(matches!(written, Err(RecordError::Overtaken(_))), "{written:?}");
    assert!(second.backend.records().all().await.is_err());
    assert_eq!(key(&first, "a").await, None);
}

#[tokio::test(start_paused = true)]
async fn what_is_there_is_known_without_asking_and_not_said_without_leading() {
    let farm = Farm::fresh().await;
    assert_eq!(farm.submit_one(1).await, CREATED);
    let known = |n| farm.backend.knows(&task(n));
    assert_eq!((known(1), known(2)), (Some(true), Some(false)));
    farm.cluster.script(Verb::CreateJob, [Fault::DoneThen(ApiError::lost("timed out"))]);
    let down = error(503, "ServiceUnavailable", "not now");
    farm.cluster.script(Verb::GetJob, [0, 1, 2].map(|_| Fault::Refuse(down.clone())));
    deferral(&farm.submit_one(3).await);
    assert_eq!(known(3), None, "what became of it is not known");
    let second = Farm::begin(farm.cluster.clone(), settings());
    assert_eq!(second.backend.knows(&task(2)), None);
    assert_eq!(second.backend.has(&task(1)).await, Ok(true));
    assert!(second.backend.has(&task(2)).await.is_err(), "the other process may be making it");
    assert_eq!(farm.backend.has(&task(2)).await, Ok(false));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_beside_home_is_led_again_after_its_cluster_was_away() {
    let home = Farm::fresh().await;
    let other = new_cluster();
    let beside = Beside::begin(&home, &other, |_| {});
    beside.known().await;
    let created = beside.backend.submit(&workload(), &tasks(1)).await;
    assert_eq!(created, [CREATED]);
    let down = Some(Fault::Refuse(ApiError::lost("nobody is there")));
    for verb in [Verb::GetLease, Verb::PutLease, Verb::GetJob] {
        other.always(verb, down.clone());
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!beside.running.is_finished(), "it ends nothing");
    assert_eq!(beside.backend.knows(&task(0)), None);
    for verb in [Verb::GetLease, Verb::PutLease, Verb::GetJob] {
        other.always(verb, None);
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
    beside.known().await;
    assert_eq!(beside.backend.knows(&task(0)), Some(true));
    assert_eq!(beside.backend.submit(&workload(), &tasks(2)).await, [THERE, CREATED]);
    assert_eq!(other.made(&name(0)), 1);
    assert_eq!(beside.backend.clear().await, Ok(2));
    beside.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_beside_home_waits_for_the_home_lease() {
    let home = Farm::fresh().await;
    let second = Farm::begin(home.cluster.clone(), settings());
    let settings = Settings { home: Some(second.backend.leadership()), ..settings() };
    let beside = Farm::begin(new_cluster(), settings);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let why = beside.room_unknown().await;
    assert!(why.contains("the home Lease"), "{why}");
    assert!(beside.cluster.lease("katabatch-s1").is_none(), "it took what it can't use");
    assert!(second.backend.leadership().since().is_none());
    home.shut_down().await;
    beside.room(|_| true).await;
    assert!(second.backend.leadership().since().is_some());
}
