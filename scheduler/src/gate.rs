//! The gate: which backend a task goes to. Pure.
//!
//! Weights come from feature flags and are filled up to a sum of 1 in the order of the backends, as
//! ClusterFuzz does. A task goes where weighted rendezvous hashing of its hash puts it, so that a
//! redelivery goes to the same place and a moved weight moves only its share. A sum below 1 leaves
//! that share of a task's time slots in the queue. Whether a backend has room is not asked here.

use std::time::Duration;

use jiff::Timestamp;
use sha2::{Digest, Sha256};

use crate::domain::name::{BackendName, TaskHash};
use crate::flags::{Flag, FlagSet};

/// How long one decision of the throttle holds for a task.
const SLOT: Duration = Duration::from_secs(60);

/// A backend and where its weight comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The configured name.
    pub name: BackendName,
    /// The flag that holds its weight, if one does.
    pub flag: Option<String>,
    /// The weight without a usable flag, 0 to 1.
    pub default_weight: f64,
}

/// One backend's part of all tasks.
#[derive(Debug, Clone, PartialEq)]
pub struct Share {
    /// The backend.
    pub name: BackendName,
    /// What it gets, after filling up to 1.
    pub weight: f64,
    /// Its flag exists and is off: it takes nothing, and its share goes back.
    pub off: bool,
}

/// The shares in force.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Weights {
    /// In the order of the configuration.
    pub shares: Vec<Share>,
    /// What a person should know: ignored flag values, starved backends.
    pub warnings: Vec<String>,
}

/// Where a task goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// To the backend at this position.
    To(usize),
    /// Back for this long: the weights leave this share of the tasks in the queue.
    Throttled(Duration),
    /// Nowhere: no backend has a weight above zero.
    Nowhere,
}

impl std::fmt::Display for Weights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.shares.is_empty() {
            return f.write_str("none");
        }
        for (at, share) in self.shares.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            let off = if share.off { " (off)" } else { "" };
            write!(f, "{comma}{} {}{off}", share.name, share.weight)?;
        }
        Ok(())
    }
}

impl Weights {
    /// Reads the weights of `candidates` from `flags`.
    ///
    /// A flag counts when it is enabled and holds a number in 0..=1; another number is ignored with
    /// a warning. What would go over a sum of 1 is cut, so that later backends starve.
    pub fn read(candidates: &[Candidate], flags: &FlagSet) -> Self {
        let mut weights = Self::default();
        let mut left = 1.0_f64;
        for candidate in candidates {
            let flag = candidate.flag.as_ref().and_then(|f| flags.0.get(f).map(|flag| (f, flag)));
            let (asked, off) = match flag {
                Some((_, Flag { enabled: false, .. })) => (candidate.default_weight, true),
                Some((name, Flag { value: Some(value), .. })) => {
                    if (0.0..=1.0).contains(value) {
                        (*value, false)
                    } else {
                        weights.warnings.push(format!(
                            "flag {name} is {value}, which is no weight in 0..1: the default {} is used",
                            candidate.default_weight
                        ));
                        (candidate.default_weight, false)
                    }
                }
                Some((_, Flag { value: None, .. })) | None => (candidate.default_weight, false),
            };
            let weight = asked.min(left);
            if weight < asked {
                weights.warnings.push(format!(
                    "backend {} gets {weight} of the {asked} asked for: the weights before it leave no more",
                    candidate.name
                ));
            }
            // Rounding must not leave a crumb of weight for what comes after a full 1.
            left = if left - weight < 1e-9 { 0.0 } else { left - weight };
            weights.shares.push(Share { name: candidate.name.clone(), weight, off });
        }
        weights
    }

    /// Where the task of this hash goes at `now`.
    pub fn route(&self, hash: &TaskHash, now: Timestamp) -> Route {
        let sum: f64 = self.shares.iter().map(|share| share.weight).sum();
        if !self.shares.iter().any(|share| share.weight > 0.0 && !share.off) {
            return Route::Nowhere;
        }
        if sum < 1.0 - 1e-9 {
            let slot = now.as_second().div_euclid(SLOT.as_secs().cast_signed());
            if unit(hash, &slot.to_be_bytes()) >= sum {
                return Route::Throttled(rest_of_slot(now));
            }
        }
        let best = self
            .shares
            .iter()
            .enumerate()
            .filter(|(_, share)| share.weight > 0.0)
            .map(|(at, share)| {
                (at, -share.weight / unit(hash, share.name.as_str().as_bytes()).ln())
            })
            .max_by(|a, b| a.1.total_cmp(&b.1));
        match best {
            Some((at, _)) if self.shares.get(at).is_some_and(|share| share.off) => {
                Route::Throttled(rest_of_slot(now))
            }
            Some((at, _)) => Route::To(at),
            None => Route::Nowhere,
        }
    }
}

fn rest_of_slot(now: Timestamp) -> Duration {
    let length = SLOT.as_millis().cast_signed();
    let into = i128::from(now.as_millisecond()).rem_euclid(length);
    Duration::from_millis(u64::try_from(length - into).unwrap_or(1)).max(Duration::from_millis(1))
}

/// A number in the open interval (0, 1), a function of the task and the salt.
fn unit(hash: &TaskHash, salt: &[u8]) -> f64 {
    let mut hasher = Sha256::new();
    hasher.update(hash.bytes());
    hasher.update(salt);
    let digest = hasher.finalize();
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest[..8]);
    // 53 bits are what a double holds; the half keeps it off 0 and 1.
    #[expect(clippy::cast_precision_loss)]
    let value = ((u64::from_be_bytes(bytes) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::name::Subject;
    use proptest::prelude::*;

    fn hash(n: usize) -> TaskHash {
        TaskHash::of(&"fuzz".into(), &"j".into(), &Subject::Message(n.to_string()))
    }

    fn weights(of: &[(&str, f64)]) -> Weights {
        let candidates: Vec<_> = of
            .iter()
            .map(|(name, weight)| Candidate {
                name: (*name).into(),
                flag: Some(format!("{name}_flag")),
                default_weight: *weight,
            })
            .collect();
        Weights::read(&candidates, &FlagSet::default())
    }

    fn counts(weights: &Weights, n: usize, now: Timestamp) -> Vec<usize> {
        let mut counts = vec![0; weights.shares.len() + 1];
        for task in 0..n {
            match weights.route(&hash(task), now) {
                Route::To(at) => counts[at] += 1,
                _ => counts[weights.shares.len()] += 1,
            }
        }
        counts
    }

    #[test]
    fn an_integer_weight_counts_and_no_weight_falls_to_the_default_with_a_warning() {
        let candidate =
            Candidate { name: "k8s".into(), flag: Some("f".into()), default_weight: 0.25 };
        let read = |value| {
            let flag = Flag { enabled: true, value, ..Flag::default() };
            let flags = FlagSet([("f".to_owned(), flag)].into());
            let weights = Weights::read(std::slice::from_ref(&candidate), &flags);
            (weights.shares[0].weight, weights.warnings.len())
        };
        assert_eq!(read(Some(1.0)), (1.0, 0));
        assert_eq!(read(Some(f64::NAN)), (0.25, 1));
        assert_eq!(read(Some(-1.0)), (0.25, 1));
        assert_eq!(read(None), (0.25, 0));
    }

    #[test]
    fn a_flag_that_is_off_sends_its_share_back() {
        let candidates = [
            Candidate { name: "a".into(), flag: Some("fa".into()), default_weight: 0.5 },
            Candidate { name: "b".into(), flag: None, default_weight: 0.5 },
        ];
        let off = Flag { value: Some(1.0), ..Flag::default() };
        let weights = Weights::read(&candidates, &FlagSet([("fa".to_owned(), off)].into()));
        let counts = counts(&weights, 1000, Timestamp::UNIX_EPOCH);
        assert_eq!(counts[0], 0);
        assert!((400..600).contains(&counts[1]) && (400..600).contains(&counts[2]), "{counts:?}");
    }

    #[test]
    fn weights_fill_up_to_one_in_order() {
        let weights = weights(&[("a", 0.7), ("b", 0.7), ("c", 1.0)]);
        let shares: Vec<f64> = weights.shares.iter().map(|s| s.weight).collect();
        assert!((shares[1] - 0.3).abs() < 1e-9 && shares[2] == 0.0, "{shares:?}");
        assert_eq!(weights.warnings.len(), 2);
    }

    #[test]
    fn weight_zero_is_never_chosen_and_all_zero_is_nowhere() {
        let tiny = weights(&[("k8s", 0.0), ("batch", 0.9995)]);
        assert_eq!(counts(&tiny, 3000, Timestamp::UNIX_EPOCH)[0], 0);
        assert_eq!(weights(&[("k8s", 0.0)]).route(&hash(1), Timestamp::UNIX_EPOCH), Route::Nowhere);
    }

    #[test]
    fn a_throttled_task_gets_its_turn_in_another_slot() {
        let weights = weights(&[("a", 0.1)]);
        for task in 0..20 {
            let turn = (0..200).any(|slot| {
                let now = Timestamp::from_second(slot * 60).expect("a time");
                weights.route(&hash(task), now) == Route::To(0)
            });
            assert!(turn, "task {task} starves");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn shares_come_out_as_asked_and_only_the_moved_share_moves(
            a in 0.05_f64..0.6, moved in 0.0_f64..0.3
        ) {
            let n = 4000;
            let before = weights(&[("a", a), ("b", 1.0 - a)]);
            let after = weights(&[("a", a + moved), ("b", 1.0 - a - moved)]);
            let share = counts(&before, n, Timestamp::UNIX_EPOCH)[0] as f64 / n as f64;
            prop_assert!((share - a).abs() < 0.04, "{share} for {a}");
            let at = |w: &Weights, t| w.route(&hash(t), Timestamp::UNIX_EPOCH);
            let back = (0..n).filter(|&t| at(&before, t) == Route::To(0) && at(&after, t) != Route::To(0));
            prop_assert_eq!(back.count(), 0);
        }
    }
}
