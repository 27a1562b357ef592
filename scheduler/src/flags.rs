//! The flags trait: a farm's feature flags (`FeatureFlag` entities).
//!
//! A flag that can't be read is not an absent flag: a source that fails gives an error, never an
//! empty set, and how old a set may be is the caller's to judge.

pub mod change;
pub mod datastore;
pub mod file;
pub mod store;

use std::collections::BTreeMap;

use async_trait::async_trait;

/// One flag, as stored.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Flag {
    /// Whether it counts at all.
    pub enabled: bool,
    /// Its number. An integer in the store is a number here too.
    pub value: Option<f64>,
    /// Its number stands in the store as an integer, which ClusterFuzz takes for no weight.
    pub integer: bool,
    /// Its text.
    pub string_value: Option<String>,
    /// What it is for, in its owner's words.
    pub description: Option<String>,
}

/// All flags at one moment, by name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FlagSet(pub BTreeMap<String, Flag>);

impl FlagSet {
    /// A limit: the flag's whole number when it is enabled and has one that is 0 or more, else
    /// `default`. 0 is 0 (upstream takes it for "unset"); `0.9` is 0 as upstream.
    pub fn limit(&self, name: &str, default: usize) -> usize {
        match self.0.get(name) {
            Some(Flag { enabled: true, value: Some(value), .. })
                if *value >= 0.0 && value.is_finite() =>
            {
                // `as` saturates, which is what a huge limit means.
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                let limit = *value as usize;
                limit
            }
            _ => default,
        }
    }
}

/// Why flags can't be read: nothing may be created on flags never read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the flags can't be read: {0}")]
pub struct FlagsError(pub String);

/// Where flags come from.
#[async_trait]
pub trait FlagSource: Send + Sync {
    /// Reads all flags anew.
    async fn read(&self) -> Result<FlagSet, FlagsError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_zero_is_zero_and_an_unset_or_disabled_one_is_the_default() {
        let limit = |enabled, value| {
            let flag = Flag { enabled, value, ..Flag::default() };
            FlagSet([("f".to_owned(), flag)].into()).limit("f", 1000)
        };
        assert_eq!(limit(true, Some(0.0)), 0);
        assert_eq!(limit(true, None), 1000);
        assert_eq!(limit(false, Some(5.0)), 1000);
        assert_eq!(limit(true, Some(0.9)), 0);
        assert_eq!(limit(true, Some(f64::NAN)), 1000);
        assert_eq!(limit(true, Some(-1.0)), 1000);
        assert_eq!(FlagSet::default().limit("f", 1000), 1000);
    }
}
