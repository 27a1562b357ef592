//! Routing rules: which backends a job type may go to at all, before any weight. Pure.

use std::collections::BTreeMap;

use crate::domain::glob::Glob;
use crate::domain::labels::{PREFIX, TaskLabels};
use crate::domain::name::BackendName;
use crate::domain::workload::Workload;

/// One rule. It is about a task whose workload fits each kind of selector that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Job types, any of them.
    pub job_types: Vec<Glob>,
    /// Platforms as the catalog has them (`LINUX`, `ANDROID`, …), any of them.
    pub platforms: Vec<Glob>,
    /// Labels, all of them: of the workload's profile, or of the task itself where the key begins
    /// with the prefix of such.
    pub labels: BTreeMap<String, Glob>,
    /// Where such tasks may go; never empty.
    pub backends: Vec<BackendName>,
}

impl Rule {
    /// Whether it is about some tasks of a workload and not about others.
    pub fn reads_tasks(&self) -> bool {
        self.labels.keys().any(|label| label.starts_with(PREFIX))
    }

    fn is_about(&self, workload: &Workload, task: &TaskLabels) -> bool {
        let any = |globs: &[Glob], name: &str| {
            globs.is_empty() || globs.iter().any(|glob| glob.matches(name))
        };
        any(&self.job_types, workload.key.job_type.as_str())
            && any(&self.platforms, &workload.platform)
            && self.labels.iter().all(|(label, glob)| {
                let value = match label.starts_with(PREFIX) {
                    true => task.get(label),
                    false => workload.profile.labels.get(label).map(String::as_str),
                };
                value.is_some_and(|value| glob.matches(value))
            })
    }
}

/// All rules; the first that is about a task decides.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Routes(pub Vec<Rule>);

impl Routes {
    /// The rule that decides about a task of this workload with these labels; `None`: it may go
    /// anywhere.
    pub fn rule(&self, workload: &Workload, task: &TaskLabels) -> Option<&Rule> {
        self.0.iter().find(|rule| rule.is_about(workload, task))
    }

    /// Whether two tasks of one workload, or one task posted twice, may be bound to different
    /// backends.
    pub fn read_tasks(&self) -> bool {
        self.0.iter().any(Rule::reads_tasks)
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
