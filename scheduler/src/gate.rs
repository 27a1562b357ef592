//! The gate: which backend a task goes to. Pure.
//!
//! Weights come from feature flags and are filled up to a sum of 1 in the order of the backends, as
//! ClusterFuzz does. A task goes where weighted rendezvous hashing of its hash puts it, so that a
//! redelivery goes to the same place and a moved weight moves only its share. A sum below 1 leaves
//! that share of a task's time slots in the queue. Whether a backend has room is not asked here.
//!
//! [`routes`] bind job types to backends before any weight; [`epochs`] keep what is needed to know
//! where a task may be already when the weights have changed.

pub mod epochs;
pub mod routes;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;
use sha2::{Digest, Sha256};

use crate::domain::name::{BackendName, TaskHash};
use crate::flags::{Flag, FlagSet};

/// How long one decision of the throttle holds for a task.
const SLOT: Duration = Duration::from_secs(60);

/// Weights that differ by less are the same: 0.3 + 0.4 + 0.2 + 0.1 is not quite 1 in a double.
const CRUMB: f64 = 1e-9;

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
    /// What its flag or its default asks for.
    pub configured: f64,
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
            // Nor may it take one from what asks for exactly the rest.
            let weight = if asked - left < CRUMB { asked } else { left };
            if weight < asked {
                weights.warnings.push(format!(
                    "backend {} gets {weight} of the {asked} asked for: the weights before it leave no more",
                    candidate.name
                ));
            }
            // Rounding must not leave a crumb of weight for what comes after a full 1.
            left = if left - weight < CRUMB { 0.0 } else { left - weight };
            let name = candidate.name.clone();
            weights.shares.push(Share { name, weight, configured: asked, off });
        }
        weights
    }

    /// Where the task of this hash goes at `now`, of the backends that it `may` go to.
    pub fn route(&self, hash: &TaskHash, now: Timestamp, may: impl Fn(usize) -> bool) -> Route {
        let sum: f64 = self.shares.iter().map(|share| share.weight).sum();
        let takes = |(at, share): (usize, &Share)| may(at) && share.weight > 0.0 && !share.off;
        if !self.shares.iter().enumerate().any(takes) {
            return Route::Nowhere;
        }
        if sum < 1.0 - CRUMB {
            let slot = now.as_second().div_euclid(SLOT.as_secs().cast_signed());
            if unit(hash, &slot.to_be_bytes()) >= sum {
                return Route::Throttled(rest_of_slot(now));
            }
        }
        match self.best(hash, may) {
            Some(at) if self.shares.get(at).is_some_and(|share| share.off) => {
                Route::Throttled(rest_of_slot(now))
            }
            Some(at) => Route::To(at),
            None => Route::Nowhere,
        }
    }

    /// The backend that weighted rendezvous hashing picks of those with a weight that it `may` go
    /// to, one whose flag is off included.
    pub fn best(&self, hash: &TaskHash, may: impl Fn(usize) -> bool) -> Option<usize> {
        self.shares
            .iter()
            .enumerate()
            .filter(|(at, share)| share.weight > 0.0 && may(*at))
            .map(|(at, share)| {
                (at, -share.weight / unit(hash, share.name.as_str().as_bytes()).ln())
            })
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(at, _)| at)
    }

    /// Whether the backend at this position has a weight and takes tasks by it.
    pub fn takes(&self, at: usize) -> bool {
        self.shares.get(at).is_some_and(|share| share.weight > 0.0 && !share.off)
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
