//! Weight epochs: since when which backends get tasks, and until when others got some. Pure.
//!
//! A task that was published while a backend had a weight may have been created there, by this
//! process or one before it. So before new weights are used their epoch is on record, and a task
//! that is older than that is looked for on the backends that it may be on. Bounded: of each backend
//! only the last time is kept, and no longer than a queue keeps a message.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::Weights;
use crate::domain::name::BackendName;

/// The record's key.
pub const KEY: &str = "weights";
/// How long the last weight of a backend is remembered: the longest that Pub/Sub keeps a message.
const KEPT: SignedDuration = SignedDuration::from_hours(31 * 24);
/// How far the clocks of a queue, of this machine and of one that led before may be apart, and how
/// long after its publication a message may be published again by a publisher that got no answer.
pub const SKEW: Duration = Duration::from_secs(60);

/// The weights in force, and what the past left.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Epochs {
    /// Counts the changes.
    pub number: u64,
    /// When these weights came into force.
    pub since: Timestamp,
    /// When the first record was made: of what was before nothing is known.
    pub first: Timestamp,
    /// What each backend gets; a flag that is off counts as 0.
    pub weights: BTreeMap<String, f64>,
    /// What else decides where a task goes (rules, lost backends), in a form that differs where they
    /// do.
    pub routes: String,
    /// When a backend that has no weight now had one last.
    pub had: BTreeMap<String, Timestamp>,
}

fn effective(weights: &Weights) -> BTreeMap<String, f64> {
    let of =
        |share: &super::Share| (share.name.to_string(), if share.off { 0.0 } else { share.weight });
    weights.shares.iter().map(of).collect()
}

impl Epochs {
    /// The first epoch of all.
    pub fn first(weights: &Weights, routes: &str, now: Timestamp) -> Self {
        Self {
            number: 1,
            since: now,
            first: now,
            weights: effective(weights),
            routes: routes.to_owned(),
            had: BTreeMap::new(),
        }
    }

    /// Whether these weights and routes are the ones in force.
    pub fn is(&self, weights: &Weights, routes: &str) -> bool {
        self.weights == effective(weights) && self.routes == routes
    }

    /// The epoch that begins with these weights.
    #[must_use]
    pub fn next(&self, weights: &Weights, routes: &str, now: Timestamp) -> Self {
        // A clock that was set back must not make an epoch begin before the one before it.
        let now = now.max(self.since);
        let weights = effective(weights);
        let has = |name: &String| weights.get(name).is_some_and(|weight| *weight > 0.0);
        let recent = |at: &Timestamp| now.duration_since(*at) < KEPT;
        let mut had: BTreeMap<String, Timestamp> =
            self.had.iter().map(|(name, at)| (name.clone(), *at)).collect();
        for (name, weight) in &self.weights {
            if *weight > 0.0 {
                had.insert(name.clone(), now);
            }
        }
        had.retain(|name, at| !has(name) && recent(at));
        let routes = routes.to_owned();
        Self { number: self.number + 1, since: now, first: self.first, weights, routes, had }
    }

    /// Whether a task published at `published` can have been created on this backend, as far as
    /// weights say.
    pub fn may_have(&self, backend: &BackendName, published: Timestamp) -> bool {
        let name = backend.as_str();
        let before = |at: Timestamp| older(published, at);
        self.weights.get(name).is_some_and(|weight| *weight > 0.0)
            || self.had.get(name).copied().is_some_and(before)
            || before(self.first)
    }

    /// The backends that had a weight once and are not among `configured`, on which a task
    /// published at `published` may be.
    pub fn gone<'a>(
        &'a self,
        configured: &'a [BackendName],
        published: Timestamp,
    ) -> impl Iterator<Item = BackendName> + 'a {
        let names = self.had.iter().filter(move |(_, at)| older(published, **at));
        let names = names.map(|(name, _)| BackendName::from(name.as_str()));
        names.filter(|name| !configured.contains(name))
    }

    /// Whether a task published at `published` has only ever been routed by these weights.
    pub fn is_newer(&self, published: Timestamp) -> bool {
        !older(published, self.since)
    }

    /// The record's text.
    ///
    /// # Errors
    /// None is expected: numbers are finite and keys are texts.
    pub fn to_text(&self) -> Result<String, String> {
        serde_json::to_string(self).map_err(|error| error.to_string())
    }

    /// Reads the record's text.
    ///
    /// # Errors
    /// It is damaged, or of another version.
    pub fn parse(text: &str) -> Result<Self, String> {
        serde_json::from_str(text)
            .map_err(|error| format!("the record `{KEY}` can't be read: {error}"))
    }
}

/// Whether something published at `published` was there before `at`, whatever the clocks do.
pub fn older(published: Timestamp, at: Timestamp) -> bool {
    published <= at.checked_add(SKEW).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::Share;

    fn weights(of: &[(&str, f64)]) -> Weights {
        let share = |(name, weight): &(&str, f64)| Share {
            name: (*name).into(),
            weight: *weight,
            configured: *weight,
            off: false,
        };
        Weights { shares: of.iter().map(share).collect(), warnings: Vec::new() }
    }

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(minute * 60).expect("a time")
    }

    #[test]
    fn a_task_is_looked_for_where_a_weight_was_since_it_was_published() {
        let first = Epochs::first(&weights(&[("a", 1.0), ("b", 0.0)]), "", at(100));
        let moved = first.next(&weights(&[("a", 0.0), ("b", 1.0)]), "", at(200));
        let may = |epochs: &Epochs, name: &str, minute| epochs.may_have(&name.into(), at(minute));
        // Of the time before the first record nothing is known.
        assert!(may(&first, "b", 99) && !may(&first, "b", 102) && may(&first, "a", 102));
        assert!(may(&moved, "a", 150) && !may(&moved, "a", 202) && may(&moved, "b", 202));
        assert!(moved.is_newer(at(202)) && !moved.is_newer(at(200)));
        assert_eq!((moved.number, moved.is(&weights(&[("a", 0.0), ("b", 1.0)]), "")), (2, true));
        assert!(!moved.is(&weights(&[("a", 0.0), ("b", 1.0)]), "another rule"));
        let back = moved.next(&weights(&[("a", 0.5), ("b", 0.5)]), "", at(300));
        assert!(back.had.is_empty());
    }

    #[test]
    fn a_backend_that_left_the_configuration_is_remembered_as_long_as_a_message_lives() {
        let first = Epochs::first(&weights(&[("a", 0.5), ("b", 0.5)]), "", at(0));
        let without = first.next(&weights(&[("b", 1.0)]), "", at(10));
        let gone = |epochs: &Epochs, minute| {
            epochs.gone(&["b".into()], at(minute)).map(|name| name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(gone(&without, 5), ["a"]);
        assert!(gone(&without, 12).is_empty());
        let later = without.next(&weights(&[("b", 0.9)]), "", at(32 * 24 * 60));
        assert!(gone(&later, 5).is_empty());
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_damage_is_an_error() {
        let epochs = Epochs::first(&weights(&[("a", 0.1)]), "r", at(1)).next(
            &weights(&[("a", 0.0)]),
            "r",
            at(2),
        );
        assert_eq!(Epochs::parse(&epochs.to_text().expect("text")), Ok(epochs));
        assert!(Epochs::parse("{}").is_err());
    }
}
