//! `policy` and `expected_run`: what is refused, and how long tasks are expected to run.

use std::collections::BTreeMap;
use std::time::Duration;

use super::above_zero;
use crate::domain::name::Command;
use crate::domain::task::WorkloadKey;
use crate::located::reading::Field;

/// What is refused beyond the isolation policy's own rules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// Refuse work that is not isolated, and accounts that are not annotated.
    pub strict: bool,
    /// The workloads that may combine host networking with Kata or Workload Identity.
    pub host_network_exceptions: Vec<WorkloadPattern>,
}

/// Workloads by `COMMAND JOB_TYPE`, where `*` stands for any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadPattern {
    command: Option<String>,
    job_type: Option<String>,
}

impl WorkloadPattern {
    /// Reads `COMMAND JOB_TYPE`; either may be `*`.
    pub fn parse(text: &str) -> Option<Self> {
        let (command, job_type) = text.split_once(' ')?;
        let part = |text: &str| {
            (!text.is_empty() && text.trim() == text)
                .then(|| (text != "*").then(|| text.to_owned()))
        };
        Some(Self { command: part(command)?, job_type: part(job_type)? })
    }

    /// Whether it names this workload.
    pub fn matches(&self, key: &WorkloadKey) -> bool {
        self.command.as_deref().is_none_or(|command| command == key.command.as_str())
            && self.job_type.as_deref().is_none_or(|job_type| job_type == key.job_type.as_str())
    }
}

impl Policy {
    pub(super) fn read(field: &Field<'_>) -> Option<Self> {
        let section = field.section()?;
        let exceptions = section.get("host_network_exceptions").and_then(|f| f.list());
        let policy = Self {
            strict: section.get("strict").and_then(|f| f.boolean()).unwrap_or(false),
            host_network_exceptions: exceptions
                .unwrap_or_default()
                .iter()
                .filter_map(|item| {
                    item.read(|text| {
                        WorkloadPattern::parse(text).ok_or_else(|| {
                            let hint = "write `COMMAND JOB_TYPE`, such as `fuzz *`";
                            (format!("`{text}` names no workloads"), hint.to_owned())
                        })
                    })
                })
                .collect(),
        };
        section.finish();
        Some(policy)
    }
}

/// How long a command's tasks are expected to run: a task must start this long before its output
/// URL dies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedRun {
    commands: BTreeMap<String, Duration>,
    default: Duration,
}

impl Default for ExpectedRun {
    fn default() -> Self {
        Self {
            commands: [("fuzz".to_owned(), Duration::from_secs(6 * 3_600))].into(),
            default: Duration::from_secs(2 * 3_600),
        }
    }
}

impl ExpectedRun {
    /// The expected run of `command`.
    pub fn of(&self, command: &Command) -> Duration {
        self.commands.get(command.as_str()).copied().unwrap_or(self.default)
    }

    /// A command's own value; `default` stands for all others.
    pub(super) fn read(field: Option<Field<'_>>) -> Self {
        let mut runs = Self::default();
        for (command, field) in field.and_then(|f| f.entries()).unwrap_or_default() {
            let Some(duration) = above_zero(&field) else { continue };
            if command == "default" {
                runs.default = duration;
            } else {
                runs.commands.insert(command.to_owned(), duration);
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_names_workloads_by_either_part() {
        let key = WorkloadKey { command: "fuzz".into(), job_type: "a b".into() };
        for (pattern, expect) in [
            ("fuzz a b", Some(true)),
            ("fuzz *", Some(true)),
            ("* a b", Some(true)),
            ("* *", Some(true)),
            ("minimize *", Some(false)),
            ("fuzz a", Some(false)),
            ("fuzz", None),
            ("fuzz ", None),
            (" x", None),
        ] {
            assert_eq!(
                WorkloadPattern::parse(pattern).map(|p| p.matches(&key)),
                expect,
                "{pattern}"
            );
        }
    }
}
