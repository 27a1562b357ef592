//! The audit log: who changed which control or flag, when and why.
//!
//! An entry is a record beside the controls, written together with the change. The last
//! [`KEPT`] are kept there; the scheduler logs each one when it first sees it, so that whoever
//! collects its log has them all.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

const AUDIT: &str = "audit.";
/// How many entries are kept: a few hundred kilobytes at most.
pub const KEPT: usize = 500;

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Entry {
    /// When.
    pub at: Timestamp,
    /// The person, as far as the machine knows.
    pub who: String,
    /// What was done, such as `pause backend gke`.
    pub what: String,
    /// Why, or what was before and after.
    pub detail: String,
}

impl Entry {
    /// Its key: sorted by time, and another one for another change of the same moment.
    fn key(&self) -> String {
        let at = self.at.strftime("%Y%m%dT%H%M%S.%6f");
        let digest = Sha256::digest(format!("{self:?}"));
        format!("{AUDIT}{at}Z-{}", hex::encode(&digest[..4]))
    }

    /// The changes that put it on record, the oldest of `records` going where there are too many.
    ///
    /// # Errors
    /// None is expected.
    pub fn record(
        &self,
        records: &BTreeMap<String, String>,
    ) -> Result<Vec<(String, Option<String>)>, String> {
        let text = serde_json::to_string(self).map_err(|error| error.to_string())?;
        let keys: Vec<&String> = records.keys().filter(|key| key.starts_with(AUDIT)).collect();
        let over = (keys.len() + 1).saturating_sub(KEPT);
        let mut changes: Vec<_> =
            keys.into_iter().take(over).map(|key| (key.clone(), None)).collect();
        changes.push((self.key(), Some(text)));
        Ok(changes)
    }
}

/// The entries on record, the oldest first. One that can't be read is left out: nothing depends
/// on it.
pub fn entries(records: &BTreeMap<String, String>) -> Vec<(&str, Entry)> {
    records
        .iter()
        .filter(|(key, _)| key.starts_with(AUDIT))
        .filter_map(|(key, text)| Some((key.as_str(), serde_json::from_str(text).ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::apply;

    #[test]
    fn the_last_entries_are_kept_in_order_and_no_two_share_a_key() {
        let mut records = BTreeMap::new();
        for n in 0..KEPT + 20 {
            let entry = Entry {
                at: Timestamp::from_second(i64::try_from(n / 2).expect("small")).expect("a time"),
                who: "ann".into(),
                what: format!("pause {n}"),
                detail: "why\nnot".into(),
            };
            let changes = entry.record(&records).expect("a record");
            apply(&mut records, &changes);
        }
        let kept = entries(&records);
        assert_eq!(kept.len(), KEPT);
        assert!(kept.windows(2).all(|two| two[0].1.at <= two[1].1.at));
        assert!(kept.iter().any(|(_, entry)| entry.what == format!("pause {}", KEPT + 19)));
        let fits = |key: &str| key.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
        assert!(records.keys().all(|key| fits(key)));
    }
}
