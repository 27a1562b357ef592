//! A change of one flag by a person, and who that is.
//!
//! Which store it is made in is the stores' business; the rules that both keep are here.

use super::{Flag, FlagSet, FlagsError};
use crate::located::problem::nearest;

/// What to change; what is `None` stays as it is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Change {
    /// Whether the flag counts.
    pub enabled: Option<bool>,
    /// Its number; `Some(None)` takes it away.
    pub value: Option<Option<f64>>,
    /// Its text.
    pub string_value: Option<String>,
}

impl Change {
    /// The flag as it is after the change. One that does not exist is only made where it is said
    /// whether it counts: else a misspelt name would change nothing, unseen.
    ///
    /// # Errors
    /// There is no such flag, and the change doesn't say `enabled`.
    pub fn apply(&self, name: &str, before: Option<&Flag>) -> Result<Flag, ChangeError> {
        if before.is_none() && self.enabled.is_none() {
            return Err(ChangeError::Absent { name: name.to_owned(), near: None });
        }
        let mut flag = before.cloned().unwrap_or_default();
        flag.enabled = self.enabled.unwrap_or(flag.enabled);
        if let Some(value) = self.value {
            // Every store writes a number as a float, which ClusterFuzz wants.
            (flag.value, flag.integer) = (value, false);
        }
        if let Some(text) = &self.string_value {
            flag.string_value = Some(text.clone());
        }
        Ok(flag)
    }
}

/// Why a flag wasn't changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// There is no such flag.
    #[error(
        "there is no flag `{name}`{}",
        near.as_ref().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
    )]
    Absent {
        /// The name that was given.
        name: String,
        /// The name of a flag that there is, and that is like it.
        near: Option<String>,
    },
    /// The store can't be read, or what it holds makes no sense.
    #[error("{0}")]
    Read(#[from] FlagsError),
    /// The store can't be written, or not without harm to what else is in it.
    #[error("the flag can't be written: {0}")]
    Write(String),
}

impl ChangeError {
    /// With the name of a flag that is like the one that isn't there.
    #[must_use]
    pub fn with_near(self, flags: &FlagSet) -> Self {
        match self {
            Self::Absent { name, .. } => {
                let near = nearest(&name, flags.0.keys().map(String::as_str)).map(str::to_owned);
                Self::Absent { name, near }
            }
            other => other,
        }
    }
}
