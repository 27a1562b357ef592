//! How much of a backend's pending limit one workload may hold. Pure.
//!
//! Others that wait find room: while they do, a workload goes no further than its share. Alone it may
//! use all of it, once its first Jobs have been seen to start or have waited a moment without a
//! fault of their own: a hundred pods that can't start must not fill the limit before that is seen.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::work::Present;
use crate::domain::task::WorkloadKey;
use crate::domain::workload_now::WorkloadNow;

/// How long a workload alone waits at its share for news of its first Jobs: longer than a kubelet
/// takes to find that an image is not there.
pub const PROBATION: Duration = Duration::from_secs(10);

/// What each workload holds of each backend.
#[derive(Debug, Default)]
pub struct Shares {
    seen: Present,
    /// What was given since it was last looked, or is on its way: it may be counted twice, never not.
    given: BTreeMap<(usize, WorkloadKey), Given>,
    /// Since when a workload has been at its share.
    at_share: BTreeMap<(usize, WorkloadKey), Instant>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Given {
    under_way: usize,
    scheduled: usize,
}

impl Shares {
    /// What is there now.
    pub fn looked(&mut self, seen: Present) {
        self.seen = seen;
        self.given.retain(|_, given| {
            given.scheduled = 0;
            given.under_way > 0
        });
    }

    /// Tasks are given to a backend.
    pub fn gives(&mut self, at: usize, key: &WorkloadKey) {
        self.given.entry((at, key.clone())).or_default().under_way += 1;
    }

    /// They have an answer; `scheduled` of them have a Job.
    pub fn answered(&mut self, at: usize, key: &WorkloadKey, scheduled: bool) {
        let given = self.given.entry((at, key.clone())).or_default();
        given.under_way = given.under_way.saturating_sub(1);
        given.scheduled += usize::from(scheduled);
    }

    fn there(&self, at: usize, key: &WorkloadKey) -> Option<&WorkloadNow> {
        self.seen.get(at)?.as_ref()?.get(key)
    }

    /// How many Jobs of a workload wait to start on a backend, those on their way included.
    pub fn holds(&self, at: usize, key: &WorkloadKey) -> usize {
        let given = self.given.get(&(at, key.clone())).copied().unwrap_or_default();
        self.there(at, key).map_or(0, |now| now.pending) + given.under_way + given.scheduled
    }

    /// Whether one more may go, where the share is `most`. `others`: tasks of others wait that could
    /// go there. `mended`: one of its Jobs has done well since what is stuck was made.
    pub fn may(
        &mut self,
        at: usize,
        key: &WorkloadKey,
        most: usize,
        (others, mended): (impl FnOnce() -> bool, bool),
        now: Instant,
    ) -> bool {
        let can_tell = self.seen.get(at).is_some_and(Option::is_some);
        if !can_tell || self.holds(at, key) < most {
            self.at_share.remove(&(at, key.clone()));
            return true;
        }
        let since = *self.at_share.entry((at, key.clone())).or_insert(now);
        if others() {
            return false;
        }
        let there = self.there(at, key);
        let running = there.is_some_and(|there| there.running > 0);
        let stuck = there.is_some_and(|there| there.stuck.values().any(|stuck| stuck.own > 0));
        running || mended || (!stuck && now.saturating_duration_since(since) >= PROBATION)
    }
}

/// The share of a limit; never nothing.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
pub fn share_of(limit: usize, share: f64) -> usize {
    ((limit as f64 * share) as usize).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::end::EndKind;
    use crate::domain::workload_now::Stuck;
    use proptest::prelude::*;

    fn key(n: usize) -> WorkloadKey {
        WorkloadKey { command: "fuzz".into(), job_type: format!("j{n}").into() }
    }

    fn seen(pending: usize, running: usize, own: usize) -> Present {
        let stuck = Stuck { jobs: own, own, ..Stuck::default() };
        let now = WorkloadNow { pending, running, stuck: [(EndKind::ImagePull, stuck)].into() };
        vec![Some([(key(0), now)].into())]
    }

    #[test]
    fn beyond_its_share_a_workload_goes_alone_and_once_it_is_seen_to_start() {
        let begin = Instant::now();
        let much = begin + PROBATION;
        for (pending, running, own, others, at, expect) in [
            (4, 0, 0, true, begin, true),
            (5, 9, 0, true, much, false),
            (5, 9, 0, false, begin, true),
            (5, 0, 0, false, begin, false),
            (5, 0, 0, false, much, true),
            (5, 0, 1, false, much, false),
        ] {
            let mut shares = Shares::default();
            shares.looked(seen(pending, running, own));
            shares.may(0, &key(0), 5, (|| others, false), begin);
            let may = shares.may(0, &key(0), 5, (|| others, false), at);
            assert_eq!(shares.may(0, &key(0), 5, (|| others, true), at), expect || !others);
            assert_eq!(may, expect, "{pending} {running} {own} {others}");
        }
    }

    #[test]
    fn where_nothing_is_seen_nothing_is_bounded() {
        let mut shares = Shares::default();
        shares.looked(vec![None]);
        (0..9).for_each(|_| shares.gives(0, &key(0)));
        assert!(shares.may(0, &key(0), 5, (|| true, false), Instant::now()));
    }

    #[test]
    fn a_share_is_at_least_one() {
        for (limit, share, expect) in [(10, 0.5, 5), (1, 0.5, 1), (0, 0.5, 1), (7, 1.0, 7)] {
            assert_eq!(share_of(limit, share), expect);
        }
    }

    proptest! {
        /// While others wait, no workload ever has more waiting Jobs than its share, whatever the
        /// order of answers and looks.
        #[test]
        fn no_workload_goes_over_its_share_while_others_wait(
            steps in prop::collection::vec((0_usize..4, 0_usize..3), 1..300), most in 1_usize..6
        ) {
            let (mut shares, now) = (Shares::default(), Instant::now());
            shares.looked(vec![Some(BTreeMap::new())]);
            let (mut flying, mut pending) = ([0_usize; 3], [0_usize; 3]);
            for (what, n) in steps {
                match what {
                    0 if shares.may(0, &key(n), most, (|| true, false), now) => {
                        shares.gives(0, &key(n));
                        flying[n] += 1;
                    }
                    1 if flying[n] > 0 => {
                        shares.answered(0, &key(n), true);
                        (flying[n], pending[n]) = (flying[n] - 1, pending[n] + 1);
                    }
                    2 => pending[n] = pending[n].saturating_sub(1),
                    3 => {
                        let now = |n: usize| WorkloadNow { pending: pending[n], ..WorkloadNow::default() };
                        shares.looked(vec![Some((0..3).map(|n| (key(n), now(n))).collect())]);
                    }
                    _ => {}
                }
                for n in 0..3 {
                    prop_assert!(flying[n] + pending[n] <= most);
                    prop_assert!(shares.holds(0, &key(n)) >= flying[n] + pending[n]);
                }
            }
        }
    }
}
