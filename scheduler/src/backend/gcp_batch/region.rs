//! Which region the next jobs go to: by weight, or by chance among those whose queue is not full.
//!
//! As upstream but for three things: a weight of zero is never chosen; where jobs can't be counted
//! by state they are counted by listing; and where that fails too the region counts as full, where
//! upstream takes an error for an empty queue.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::time::Instant;

use super::answer::State;
use super::api::Api;
use super::spec::Form;
use crate::clock::Clock;
use crate::domain::machines::Region;

/// A region with so many queued jobs is full (upstream).
const FULL: u64 = 100;
/// How long a count is used (upstream).
const FRESH: Duration = Duration::from_secs(60);
/// How long a region that could not be asked counts as full.
const FAILED_FRESH: Duration = Duration::from_secs(10);
/// The most pages that are listed for one count: queued jobs are among the latest.
const PAGES: usize = 10;

/// Chooses regions, and remembers how full they are.
pub struct Regions {
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    chance: Mutex<ChaCha8Rng>,
    /// One call counts; the others use its answer.
    counted: tokio::sync::Mutex<BTreeMap<String, (Instant, Option<u64>)>>,
}

/// No region takes jobs now, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllFull(pub String);

impl Regions {
    /// Chooses by chance from `seed` on.
    pub fn new(api: Arc<dyn Api>, clock: Arc<dyn Clock>, seed: u64) -> Self {
        let chance = Mutex::new(ChaCha8Rng::seed_from_u64(seed));
        Self { api, clock, chance, counted: tokio::sync::Mutex::default() }
    }

    /// A region for jobs of this form.
    ///
    /// # Errors
    /// When each that has a weight is full.
    pub async fn choose<'a>(&self, form: &Form<'a>) -> Result<&'a Region, AllFull> {
        let machines = form.machines();
        let mut open = Vec::new();
        let mut full = Vec::new();
        for region in machines.regions.iter().filter(|region| region.weight > 0.0) {
            match machines.checked.contains(&region.name) {
                true => match self.queued(form, &region.name).await {
                    Some(queued) if queued < FULL => open.push(region),
                    Some(queued) => full.push(format!("{} has {queued} queued jobs", region.name)),
                    None => full.push(format!("{} can't be asked", region.name)),
                },
                false => open.push(region),
            }
        }
        let at = self.chance.lock().unwrap_or_else(PoisonError::into_inner).random::<f64>();
        // With a check all are alike (upstream), without one weights count.
        let weights: Vec<f64> =
            open.iter().map(|r| if machines.checked.is_empty() { r.weight } else { 1.0 }).collect();
        let chosen = pick(&weights, at).and_then(|at| open.get(at).copied());
        chosen.ok_or_else(|| AllFull(full.join(", ")))
    }

    async fn queued(&self, form: &Form<'_>, region: &str) -> Option<u64> {
        let mut counted = self.counted.lock().await;
        let key = format!("{}/{region}", form.project());
        if let Some((at, count)) = counted.get(&key) {
            let fresh = if count.is_some() { FRESH } else { FAILED_FRESH };
            if self.clock.mono().duration_since(*at) < fresh {
                return *count;
            }
        }
        let count = match self.api.count_queued(form.project(), region).await {
            Ok(count) => Some(count),
            Err(error) => {
                tracing::debug!(region, %error, "queued jobs can't be counted by state; listing");
                self.list_queued(&form.parent_of(region)).await
            }
        };
        counted.insert(key, (self.clock.mono(), count));
        count
    }

    /// Counts by listing, up to what is full anyway.
    async fn list_queued(&self, parent: &str) -> Option<u64> {
        let (mut queued, mut page) = (0, None);
        for _ in 0..PAGES {
            let jobs = match self.api.list(parent, page.as_deref()).await {
                Ok(jobs) if jobs.unreachable.is_empty() => jobs,
                Ok(_) => return None,
                Err(error) => {
                    tracing::warn!(parent, %error, "a region's queue can't be told: it counts as full");
                    return None;
                }
            };
            let waiting = jobs.jobs.iter().filter(|job| job.status.state == State::Queued);
            queued += waiting.count() as u64;
            if queued >= FULL || jobs.next_page_token.is_empty() {
                return Some(queued);
            }
            page = Some(jobs.next_page_token);
        }
        Some(queued)
    }
}

/// The position that `at`, a number from 0 up to 1, falls to by these weights.
fn pick(weights: &[f64], at: f64) -> Option<usize> {
    let sum: f64 = weights.iter().sum();
    let mut left = at * sum;
    for (index, weight) in weights.iter().enumerate() {
        if left < *weight {
            return Some(index);
        }
        left -= weight;
    }
    // Rounding may leave a crumb.
    weights.iter().rposition(|weight| *weight > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_shares_and_zero_is_never_chosen() {
        for (weights, at, expect) in [
            (&[0.2, 0.8][..], 0.0, Some(0)),
            (&[0.2, 0.8], 0.19, Some(0)),
            (&[0.2, 0.8], 0.21, Some(1)),
            (&[0.2, 0.8], 0.999_999, Some(1)),
            (&[0.0, 3.0, 0.0], 0.0, Some(1)),
            (&[0.0, 3.0, 0.0], 1.0, Some(1)),
            (&[0.0], 0.5, None),
            (&[], 0.5, None),
        ] {
            assert_eq!(pick(weights, at), expect, "{weights:?} at {at}");
        }
    }
}
