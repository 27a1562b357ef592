//! Routing rules: which backends a job type may go to at all, before any weight. Pure.

use std::collections::BTreeMap;

use crate::domain::glob::Glob;
use crate::domain::name::BackendName;
use crate::domain::workload::Workload;

/// One rule. It is about a task whose workload fits each kind of selector that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Job types, any of them.
    pub job_types: Vec<Glob>,
    /// Platforms as the catalog has them (`LINUX`, `ANDROID`, …), any of them.
    pub platforms: Vec<Glob>,
    /// Labels of the workload's profile, all of them.
    pub labels: BTreeMap<String, Glob>,
    /// Where such tasks may go; never empty.
    pub backends: Vec<BackendName>,
}

impl Rule {
    fn is_about(&self, workload: &Workload) -> bool {
        let any = |globs: &[Glob], name: &str| {
            globs.is_empty() || globs.iter().any(|glob| glob.matches(name))
        };
        any(&self.job_types, workload.key.job_type.as_str())
            && any(&self.platforms, &workload.platform)
            && self.labels.iter().all(|(label, glob)| {
                workload.profile.labels.get(label).is_some_and(|value| glob.matches(value))
            })
    }
}

/// All rules; the first that is about a task decides.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Routes(pub Vec<Rule>);

impl Routes {
    /// The backends that this workload's tasks are bound to; `None`: they may go anywhere.
    pub fn bound(&self, workload: &Workload) -> Option<&[BackendName]> {
        let rule = self.0.iter().find(|rule| rule.is_about(workload))?;
        Some(&rule.backends)
    }

    /// A text that differs where the rules do, for the record of an epoch.
    pub fn fingerprint(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        use sha2::{Digest, Sha256};
        hex::encode(&Sha256::digest(format!("{:?}", self.0))[..8])
    }
}
