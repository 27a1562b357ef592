//! Which Jobs may go, and where the watermark stands.

use super::super::api::Progress;
use super::super::facts::JobStory;
use super::*;
use crate::domain::name::Subject;

fn hash(n: u32) -> TaskHash {
    TaskHash::of(&"fuzz".into(), &"j".into(), &Subject::Message(n.to_string()))
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).expect("a date")
}

fn job(n: u32, created: i64, finished: bool) -> JobFacts {
    JobFacts {
        name: JobName::of(&hash(n), Attempt::FIRST).to_string(),
        uid: format!("uid-{n}"),
        resource_version: "1".into(),
        created: at(created),
        deleting: false,
        farm: true,
        task: Some(hash(n)),
        scheduler: Some("s".into()),
        progress: Progress { finished, ..Progress::default() },
        story: None,
    }
}

fn due(acks: &Acks, now: Instant) -> usize {
    acks.due(now, Duration::from_secs(600), 100, |_| true).len()
}

#[test]
fn a_finished_job_goes_ten_minutes_after_its_end_once_its_ack_is_known() {
    let start = Instant::now();
    let mut acks = Acks::new("s");
    acks.listed(Moment(0), &[], start, Moment(1));
    acks.placed(&job(1, 0, false), start, Moment(2));
    acks.seen(&job(1, 0, true), start, Moment(3));
    let later = start + Duration::from_secs(600);
    assert_eq!(due(&acks, later), 0, "its ack is not known");
    acks.acked(&[hash(1)]);
    assert_eq!(due(&acks, later - Duration::from_secs(1)), 0);
    assert_eq!(due(&acks, later), 1);
}

#[test]
fn a_chain_goes_when_all_of_it_may_and_the_lowest_attempt_first() {
    let start = Instant::now();
    let mut acks = Acks::new("s");
    let attempt = |n: u32, finished| {
        let attempt = Attempt::new(n).expect("above zero");
        let story = JobStory { attempt: Some(attempt), ..JobStory::default() };
        let name = JobName::of(&hash(1), attempt).to_string();
        let uid = format!("attempt-{n}");
        JobFacts { name, uid, story: Some(Box::new(story)), ..job(1, 0, finished) }
    };
    acks.listed(Moment(0), &[attempt(1, true), attempt(2, true)], start, Moment(1));
    acks.seen(&attempt(3, false), start, Moment(2));
    acks.acked(&[hash(1)]);
    assert_eq!(acks.watermark(), Some(at(-10)), "no ack of a later attempt is waited for");
    let later = start + Duration::from_secs(600);
    assert_eq!(due(&acks, later), 0, "the third attempt runs");
    acks.seen(&attempt(3, true), start, Moment(3));
    for n in 1..=3 {
        let found = acks.due(later, Duration::from_secs(600), 100, |_| true);
        assert_eq!(found, [(attempt(n, true).name, format!("attempt-{n}"))]);
        acks.gone(&found[0].0, &found[0].1);
    }
    assert_eq!(due(&acks, later), 0);
    assert!(acks.later.is_empty());
}

#[test]
fn after_a_restart_the_watermark_tells_whose_ack_is_known() {
    let start = Instant::now();
    let mut acks = Acks::new("s");
    acks.resume(Some(at(50)));
    let theirs = JobFacts { scheduler: Some("other".into()), ..job(3, 0, true) };
    let jobs = [job(1, 49, true), job(2, 50, true), theirs];
    acks.listed(Moment(0), &jobs, start, Moment(1));
    let ten = Duration::from_secs(600);
    assert!(acks.due(start + ten, ten, 100, |_| false).is_empty(), "their end is not told");
    let due = acks.due(start + ten, ten, 100, |_| true);
    assert_eq!(due.into_iter().map(|(_, uid)| uid).collect::<Vec<_>>(), ["uid-1"]);
    // Found late, below the watermark: nobody has said that it was acked.
    acks.seen(&job(4, 10, true), start, Moment(2));
    assert_eq!(self::due(&acks, start + Duration::from_secs(600)), 1);
}

#[test]
fn the_watermark_stands_before_the_oldest_unacked_job_and_the_creates_under_way() {
    let now = Instant::now();
    let mut acks = Acks::new("s");
    acks.placed(&job(1, 100, false), now, Moment(1));
    assert_eq!(acks.watermark(), None, "not listed yet");
    acks.listed(Moment(0), &[job(1, 100, false)], now, Moment(2));
    acks.placed(&job(2, 130, false), now, Moment(3));
    assert_eq!(acks.watermark(), Some(at(100)));
    acks.acked(&[hash(1)]);
    let floor = acks.create_begins();
    assert_eq!(floor, at(120));
    acks.placed(&job(3, 200, false), now, Moment(4));
    acks.acked(&[hash(2), hash(3)]);
    assert_eq!(acks.watermark(), Some(at(120)));
    acks.create_ended(floor);
    assert_eq!(acks.watermark(), Some(at(190)));
    acks.stored(at(190));
    assert_eq!(acks.watermark(), None, "it would not move");
}

#[test]
fn a_job_that_vanished_holds_nothing_and_one_confirmed_during_the_list_stays() {
    let now = Instant::now();
    let mut acks = Acks::new("s");
    acks.placed(&job(1, 100, false), now, Moment(1));
    acks.placed(&job(2, 150, false), now, Moment(5));
    acks.listed(Moment(3), &[], now, Moment(6));
    assert!(!acks.knows(&job(1, 0, false).name) && acks.knows(&job(2, 0, false).name));
    acks.gone(&job(2, 0, false).name, "another uid");
    assert!(acks.knows(&job(2, 0, false).name));
    acks.gone(&job(2, 0, false).name, "uid-2");
    assert_eq!(acks.watermark(), Some(at(140)));
}
