//! The right sentence for each state.

use std::collections::BTreeMap;

use super::super::Source;
use super::*;
use crate::domain::log_tail::LogTail;
use crate::domain::workload_now::{Stuck, WorkloadNow};
use crate::ledger::record::Record;

fn at() -> jiff::Timestamp {
    "2026-11-30T10:00:00Z".parse().expect("a date")
}

fn end(kind: EndKind, detail: &str) -> EndRecord {
    EndRecord {
        task: "00".repeat(32),
        attempt: 1,
        job: "cf-job-1".into(),
        backend: "gke".into(),
        kind,
        exit_code: None,
        resource: None,
        detail: detail.into(),
        tail: LogTail::Nothing,
        started_at: None,
        ended_at: at(),
        run_seconds: 0.0,
    }
}

fn answer(catalog: InCatalog, record: Option<Record>, ends: Vec<EndRecord>) -> Vec<Sentence> {
    let about = record.map(|record| About { command: "fuzz".into(), record, ends, breaker: None });
    let workloads = about.into_iter().collect();
    Answer::new("asan_x", (at(), Source::Scheduler), catalog, Vec::new(), workloads).sentences
}

/// The first sentence has this state and these words, and its advice those.
#[track_caller]
fn check(sentences: &[Sentence], state: &str, text: &str, change: &str) {
    let first = sentences.first().expect("a sentence");
    assert_eq!(first.state, state, "{sentences:?}");
    assert!(first.text.contains(text), "{} lacks {text}", first.text);
    let advice = first.change.as_deref().unwrap_or_default();
    assert!(advice.contains(change), "{advice} lacks {change}");
}

fn held(kind: HoldKind, detail: &str) -> Record {
    let held = Held { tasks: 2, detail: detail.into(), since: Some(at()) };
    Record { held: BTreeMap::from([(kind.label().to_owned(), held)]), ..Record::default() }
}

fn stuck(kind: EndKind, detail: &str) -> Record {
    let stuck =
        BTreeMap::from([(kind, Stuck { jobs: 3, detail: detail.into(), own: 3, since: None })]);
    let now = WorkloadNow { pending: 3, running: 0, stuck };
    Record { scheduled: 3, now, ..Record::default() }
}

#[test]
fn an_unknown_job_type() {
    check(
        &answer(InCatalog::Unknown, None, vec![]),
        "unknown_job_type",
        "no job type asan_x",
        "Job entity",
    );
    let waits = held(HoldKind::UnknownJobType, "no entity");
    check(
        &answer(InCatalog::Known, Some(waits), vec![]),
        "unknown_job_type",
        "2 tasks are held, the first since 2026-11-30T10:00:00Z",
        "30 minutes",
    );
}

#[test]
fn a_job_type_of_which_nothing_came() {
    check(
        &answer(InCatalog::Known, None, vec![]),
        "unseen",
        "no task of asan_x has been seen",
        "queues",
    );
    let unread = answer(InCatalog::Unread("no connection".into()), None, vec![]);
    check(&unread, "catalog_unread", "no connection", "");
}

#[test]
fn each_reason_of_a_hold() {
    for (kind, text, change) in [
        (
            HoldKind::PendingLimit,
            "the pending limit is reached (1000 of 1000)",
            "k8s_jobs_pending_limit",
        ),
        (HoldKind::NoBackend, "no backend has a weight above zero", "flags set"),
        (HoldKind::WeightThrottle, "less than 1", "weight flag"),
        (HoldKind::Forbidden, "may not do", "deploy/rbac.yaml"),
        (HoldKind::BadMapping, "batch.yaml", "mend the mapping"),
    ] {
        let sentences = answer(InCatalog::Known, Some(held(kind, "1000 of 1000")), vec![]);
        check(&sentences, kind.label(), text, change);
        assert_eq!(sentences.len(), 1, "{sentences:?}");
    }
    for kind in HoldKind::ALL {
        assert_ne!(hold(*kind).0, "they wait", "{kind} has no words");
    }
}

#[test]
fn jobs_that_dont_start() {
    let pull = stuck(EndKind::ImagePull, "ImagePullBackOff: Back-off pulling image \"x\"");
    check(
        &answer(InCatalog::Known, Some(pull), vec![]),
        "image_pull",
        "3 Jobs can't pull the image (ImagePullBackOff",
        "push the image",
    );
    let full = stuck(EndKind::NeverStarted, "unschedulable: 0/5 nodes are available");
    let sentences = answer(InCatalog::Known, Some(full), vec![]);
    check(&sentences, "never_started", "0/5 nodes are available", "add nodes");
    assert_eq!(sentences.len(), 1, "those that wait are said once: {sentences:?}");
}

#[test]
fn expired_urls() {
    let dead = Rejected { count: 1, detail: "dead since 5 min".into(), last: Some(at()) };
    let rejected = BTreeMap::from([(RejectKind::DeadUrl.label().to_owned(), dead)]);
    let record = Record { rejected, ..Record::default() };
    check(
        &answer(InCatalog::Known, Some(record), vec![]),
        "dead_url",
        "1 message was rejected as dead_url",
        "sooner",
    );
}

#[test]
fn ends_that_are_all_alike_and_one_that_is_not() {
    let ends = vec![
        end(EndKind::Succeeded, ""),
        end(EndKind::OutOfMemory, "137"),
        end(EndKind::OutOfMemory, "137"),
        end(EndKind::OutOfMemory, "137"),
    ];
    let sentences = answer(InCatalog::Known, Some(Record::default()), ends.clone());
    check(
        &sentences,
        "out_of_memory",
        "the last 3 Jobs all ended as out_of_memory (137)",
        "more memory",
    );
    let sentences = answer(InCatalog::Known, Some(Record::default()), ends[..2].to_vec());
    check(&sentences, "well", "the last one ended at 2026-11-30T10:00:00Z: out_of_memory", "");
}

#[test]
fn all_is_well() {
    let now = WorkloadNow { pending: 1, running: 2, ..WorkloadNow::default() };
    let record = Record { scheduled: 5, now, ..Record::default() };
    let sentences = answer(InCatalog::Known, Some(record), vec![end(EndKind::Succeeded, "")]);
    check(&sentences, "well", "all is well: 5 tasks have got a Job", "");
    let states: Vec<&str> = sentences.iter().map(|one| one.state.as_str()).collect();
    assert_eq!(states, ["well", "running", "waiting"]);
}

#[test]
fn what_stops_everything_comes_after_what_is_its_own() {
    let about =
        About { command: "fuzz".into(), record: Record::default(), ends: vec![], breaker: None };
    let stopped = vec![Stop {
        state: HoldKind::PendingLimit.label().to_owned(),
        detail: "backend gke: 10 of 10 Jobs wait to start".to_owned(),
    }];
    let answer =
        Answer::new("x", (at(), Source::Scheduler), InCatalog::Known, stopped, vec![about]);
    check(
        &answer.sentences,
        "pending_limit",
        "nothing new is created now: the pending limit is reached (backend gke",
        "k8s_jobs_pending_limit",
    );
    assert!(answer.sentences.iter().all(|one| one.state != "well"));
    let pull = stuck(EndKind::ImagePull, "Back-off");
    let about = About { command: "fuzz".into(), record: pull, ends: vec![], breaker: None };
    let at = (at(), Source::Scheduler);
    let both = Answer::new("x", at, InCatalog::Known, answer.stopped.clone(), vec![about]);
    let states: Vec<&str> = both.sentences.iter().map(|one| one.state.as_str()).collect();
    assert_eq!(states, ["image_pull", "pending_limit"]);
    let unseen = Answer::new("x", at, InCatalog::Known, answer.stopped, vec![]);
    check(&unseen.sentences, "pending_limit", "10 of 10 Jobs wait", "");
}
