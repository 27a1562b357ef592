//! When a breaker opens, what is tried meanwhile, and when it closes.

use proptest::prelude::*;

use super::*;
use crate::domain::name::Subject;
use crate::domain::task::WorkloadKey;

const PATIENCE: Patience =
    Patience { stuck_after: Duration::from_secs(600), probe_after: Duration::from_secs(60) };

fn start() -> Now {
    Now { mono: Instant::now(), wall: "2026-11-30T10:00:00Z".parse().expect("a date") }
}

fn after(now: Now, seconds: u64) -> Now {
    let time = Duration::from_secs(seconds);
    Now { mono: now.mono + time, wall: now.wall.checked_add(time).expect("a date") }
}

fn key() -> WorkloadKey {
    WorkloadKey { command: "fuzz".into(), job_type: "j".into() }
}

fn task(n: usize) -> TaskHash {
    TaskHash::of(&key().command, &key().job_type, &Subject::Message(n.to_string()))
}

fn end(n: usize, kind: EndKind, rule: RetryRule, ran: u64, at: Now) -> Fared {
    let ran = Duration::from_secs(ran);
    Fared {
        task: task(n),
        key: key(),
        kind,
        detail: format!("{kind} said so"),
        rule,
        started_at: at.wall.checked_sub(ran).ok(),
        ended_at: at.wall,
        ran,
    }
}

fn stuck(kind: EndKind, own: usize, running: usize, waited: Option<u64>, at: Now) -> WorkloadNow {
    let since = waited.map(|s| at.wall.checked_sub(Duration::from_secs(s)).expect("a date"));
    let stuck = Stuck { jobs: own, own, since, detail: "why".into() };
    WorkloadNow { pending: own, running, stuck: [(kind, stuck)].into() }
}

fn cause(breaker: &Breaker, now: Now) -> Option<Cause> {
    breaker.open(now).map(|open| open.cause)
}

/// One that is open for image pulls.
fn opened(now: Now) -> Breaker {
    let mut breaker = Breaker::default();
    breaker.looked(&stuck(EndKind::ImagePull, 1, 0, None, now), now, PATIENCE);
    assert!(breaker.refuses(now).is_some());
    breaker
}

#[test]
fn what_is_stuck_by_itself_opens_it_and_one_bad_node_or_a_full_cluster_does_not() {
    use EndKind::{BadConfiguration, ImagePull, NeverStarted};
    let now = start();
    for (kind, own, running, waited, expect) in [
        (ImagePull, 1, 0, None, Some(Cause::ImagePull)),
        (ImagePull, 2, 100, None, None),
        (ImagePull, 3, 100, None, Some(Cause::ImagePull)),
        (BadConfiguration, 1, 0, None, Some(Cause::BadConfiguration)),
        (NeverStarted, 5, 0, Some(599), None),
        (NeverStarted, 5, 0, Some(600), Some(Cause::PendingTooLong)),
        (NeverStarted, 5, 0, None, None),
        // Stuck, but not by itself: the cluster is full.
        (NeverStarted, 0, 0, Some(9_000), None),
    ] {
        let mut breaker = Breaker::default();
        breaker.looked(&stuck(kind, own, running, waited, now), now, PATIENCE);
        assert_eq!(cause(&breaker, now), expect, "{kind} {own} {running} {waited:?}");
    }
}

// Case 66, of one workload.
#[test]
fn five_tasks_that_fail_quickly_in_a_row_open_it_and_so_does_a_rule_that_holds() {
    use EndKind::{IdentityDenied, NodeLost, Succeeded, TaskFailure};
    let now = start();
    let never = RetryRule::Never;
    let run = |ends: &[(usize, EndKind, RetryRule, u64)]| {
        let mut breaker = Breaker::default();
        for (n, kind, rule, ran) in ends {
            breaker.ended(&end(*n, *kind, *rule, *ran, now), now, PATIENCE);
        }
        cause(&breaker, now)
    };
    let quick = |n| (n, TaskFailure, never, 10);
    assert_eq!(run(&[1, 2, 3, 4].map(quick)), None);
    assert_eq!(run(&[1, 2, 3, 4, 5].map(quick)), Some(Cause::QuickFailures));
    // The attempts of one task are that task's fault.
    assert_eq!(run(&[1, 1, 1, 2, 2, 2].map(quick)), None);
    let but = |one| [quick(1), quick(2), quick(3), quick(4), one, quick(5)];
    assert_eq!(run(&but((9, Succeeded, never, 10))), None);
    assert_eq!(run(&but((9, TaskFailure, never, 120))), None);
    assert_eq!(run(&but((9, NodeLost, RetryRule::Retry, 10))), Some(Cause::QuickFailures));
    assert_eq!(run(&[(1, IdentityDenied, RetryRule::Hold, 20)]), Some(Cause::IdentityDenied));
    assert_eq!(run(&[(1, EndKind::Deadline, RetryRule::Hold, 9_999)]), Some(Cause::HeldByRule));
}

#[test]
fn an_end_of_long_ago_is_history() {
    let now = start();
    let mut breaker = Breaker::default();
    let old = end(1, EndKind::ImagePull, RetryRule::Hold, 0, now);
    breaker.ended(&old, after(now, 700), PATIENCE);
    assert_eq!(cause(&breaker, now), None);
}

#[test]
fn one_probe_goes_after_a_pause_that_doubles_up_to_half_an_hour() {
    let mut now = start();
    let mut breaker = opened(now);
    let mut pauses = Vec::new();
    for n in 0..8 {
        let at = breaker.probe_at().expect("a probe is due");
        let pause = (at - now.mono).as_secs();
        pauses.push(pause);
        assert!(breaker.refuses(after(now, pause - 1)).is_some());
        now = after(now, pause);
        assert!(breaker.refuses(now).is_none());
        breaker.goes(task(n), now);
        assert!(breaker.refuses(after(now, 9_999)).is_some(), "one at a time");
        breaker.probe_fares(Some(&Faring::Stuck("still not there".into())), now, PATIENCE);
    }
    assert_eq!(pauses, [60, 120, 240, 480, 960, 1800, 1800, 1800]);
    assert_eq!(
        breaker.open(now).map(|open| (open.detail, open.times)),
        Some(("still not there".into(), 9))
    );
}

#[test]
fn a_probe_that_does_well_closes_it_and_one_of_which_nothing_is_learned_makes_way() {
    let begin = start();
    let now = after(begin, 60);
    let probing = || {
        let mut breaker = opened(begin);
        breaker.goes(task(1), now);
        breaker
    };
    let ended = |kind, rule, ran| {
        let (mut breaker, at) = (probing(), after(now, ran));
        breaker.ended(&end(1, kind, rule, ran, at), at, PATIENCE);
        (breaker.open(at).is_some(), breaker.refuses(at).is_some())
    };
    assert_eq!(ended(EndKind::Succeeded, RetryRule::Never, 5), (false, false));
    assert_eq!(ended(EndKind::TaskFailure, RetryRule::Retry, 200), (false, false));
    assert_eq!(ended(EndKind::TaskFailure, RetryRule::Retry, 5), (true, true));
    assert_eq!(ended(EndKind::IdentityDenied, RetryRule::Hold, 5), (true, true));
    assert_eq!(ended(EndKind::NodeLost, RetryRule::Retry, 5), (true, false));
    let mut breaker = probing();
    let runs = Faring::Runs(Some(now.wall));
    breaker.probe_fares(Some(&runs), after(now, 119), PATIENCE);
    assert!(breaker.open(now).is_some());
    breaker.probe_fares(Some(&runs), after(now, 120), PATIENCE);
    assert!(breaker.open(now).is_none());
    let mut breaker = probing();
    breaker.came_back(task(1), now);
    assert!(breaker.refuses(now).is_none(), "no Job was made: the next task is the probe");
    let mut breaker = probing();
    breaker.probe_fares(Some(&Faring::Waits), after(now, 9_000), PATIENCE);
    breaker.probe_fares(None, after(now, 9_100), PATIENCE);
    assert!(breaker.refuses(after(now, 9_100)).is_some(), "it waits for a machine");
    breaker.probe_fares(None, after(now, 9_600), PATIENCE);
    assert!(breaker.refuses(after(now, 9_600)).is_none(), "it is given up");
}

#[test]
fn what_was_stuck_before_it_closed_opens_it_no_more_and_what_starts_by_itself_closes_it() {
    let begin = start();
    let now = after(begin, 60);
    let mut breaker = opened(begin);
    breaker.goes(task(1), now);
    breaker.ended(&end(1, EndKind::Succeeded, RetryRule::Never, 5, now), now, PATIENCE);
    let look = |breaker: &mut Breaker, own| {
        breaker.looked(&stuck(EndKind::ImagePull, own, 0, None, now), now, PATIENCE);
        cause(breaker, now)
    };
    assert_eq!(look(&mut breaker, 3), None);
    assert_eq!(look(&mut breaker, 2), None);
    assert_eq!(look(&mut breaker, 3), Some(Cause::ImagePull));
    let times = breaker.open(now).map(|open| open.times);
    assert_eq!(times, Some(2), "soon after it closed it opens for longer");
    breaker.looked(&stuck(EndKind::ImagePull, 0, 2, None, now), now, PATIENCE);
    assert_eq!(cause(&breaker, now), None);
}

proptest! {
    #[test]
    fn while_it_is_open_no_more_than_one_task_goes_at_a_time(
        steps in prop::collection::vec((0_u8..7, 0_u64..200), 1..200)
    ) {
        let mut now = start();
        let mut breaker = opened(now);
        let mut probe: Option<usize> = None;
        for (n, (what, wait)) in steps.into_iter().enumerate() {
            now = after(now, wait);
            if breaker.open(now).is_none() {
                break;
            }
            prop_assert!(probe.is_none() || breaker.refuses(now).is_some());
            match (what, probe) {
                (0 | 1, None) if breaker.refuses(now).is_none() => {
                    breaker.goes(task(n), now);
                    probe = Some(n);
                }
                (2, Some(of)) => {
                    breaker.ended(&end(of, EndKind::TaskFailure, RetryRule::Never, 1, now), now, PATIENCE);
                    probe = None;
                }
                (3, Some(of)) => {
                    breaker.came_back(task(of), now);
                    probe = None;
                }
                (4, _) => breaker.looked(&stuck(EndKind::ImagePull, n % 5 + 1, 0, None, now), now, PATIENCE),
                (5, _) => breaker.probe_fares(Some(&Faring::Waits), now, PATIENCE),
                (6, _) => breaker.ended(&end(n + 1_000, EndKind::TaskFailure, RetryRule::Never, 1, now), now, PATIENCE),
                _ => {}
            }
        }
    }
}
