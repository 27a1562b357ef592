//! What is done about an end: a farm's own rules, over what each kind of end asks for by itself.
//! Pure.
//!
//! How a retry is made is a backend's, and how a workload is held the pipeline's (its breaker).

use std::collections::BTreeMap;

use super::end::{End, EndKind, Resource, RetryRule};

/// The rules of a farm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryRules {
    /// The most attempts at a task, the first one included.
    pub attempts: u32,
    /// For every command that says nothing of its own.
    pub all: BTreeMap<EndKind, RetryRule>,
    /// For one command.
    pub commands: BTreeMap<String, BTreeMap<EndKind, RetryRule>>,
}

impl Default for RetryRules {
    fn default() -> Self {
        Self { attempts: 3, all: BTreeMap::new(), commands: BTreeMap::new() }
    }
}

impl RetryRules {
    /// What is done about this end, whichever attempt it was.
    pub fn rule(&self, end: &End) -> RetryRule {
        let kind = end.verdict.kind;
        let own = self.commands.get(end.key.command.as_str()).and_then(|rules| rules.get(&kind));
        own.or_else(|| self.all.get(&kind)).copied().unwrap_or_else(|| by_itself(end))
    }

    /// The same; a task that has used up its attempts is not run again.
    pub fn rule_now(&self, end: &End) -> RetryRule {
        match self.rule(end) {
            RetryRule::Retry if end.attempt.number() >= self.attempts => RetryRule::Never,
            rule => rule,
        }
    }
}

/// The kinds that a rule can be written for. What succeeded is done; what somebody deleted is not
/// wanted; and what nobody saw may have done its work.
pub fn has_rule(kind: EndKind) -> bool {
    !matches!(kind, EndKind::Succeeded | EndKind::Deleted | EndKind::Unknown)
}

/// A machine's fault is not the task's. Work that failed by itself would most likely fail again,
/// and fuzzing takes hours; for every other command ClusterFuzz has the container started again
/// (`restartPolicy: OnFailure`), which is a further attempt here. A task that outgrew a volume of
/// its own would do so again.
fn by_itself(end: &End) -> RetryRule {
    let restarted_upstream = end.key.command.as_str() != "fuzz";
    match end.verdict.kind {
        EndKind::Evicted if end.verdict.resource == Some(Resource::Volume) => RetryRule::Never,
        EndKind::Evicted
        | EndKind::Preempted
        | EndKind::NodeLost
        | EndKind::NeverStarted
        | EndKind::HookFailure => RetryRule::Retry,
        EndKind::TaskFailure | EndKind::OutOfMemory if restarted_upstream => RetryRule::Retry,
        EndKind::ImagePull | EndKind::BadConfiguration | EndKind::IdentityDenied => RetryRule::Hold,
        EndKind::Succeeded
        | EndKind::TaskFailure
        | EndKind::OutOfMemory
        | EndKind::Deadline
        | EndKind::Deleted
        | EndKind::Unknown => RetryRule::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::super::end::sample;
    use super::super::name::Attempt;
    use super::*;

    fn end(command: &str, kind: EndKind, attempt: u32) -> End {
        End { attempt: Attempt::new(attempt).expect("above zero"), ..sample(command, kind) }
    }

    #[test]
    fn a_machines_fault_is_tried_again_and_the_works_own_only_where_upstream_restarts() {
        let rules = RetryRules::default();
        for (command, kind, expect) in [
            ("fuzz", EndKind::Succeeded, RetryRule::Never),
            ("fuzz", EndKind::TaskFailure, RetryRule::Never),
            ("minimize", EndKind::TaskFailure, RetryRule::Retry),
            ("minimize", EndKind::OutOfMemory, RetryRule::Retry),
            ("minimize", EndKind::Deadline, RetryRule::Never),
            ("fuzz", EndKind::NodeLost, RetryRule::Retry),
            ("fuzz", EndKind::Unknown, RetryRule::Never),
            ("minimize", EndKind::Deleted, RetryRule::Never),
            ("fuzz", EndKind::IdentityDenied, RetryRule::Hold),
        ] {
            assert_eq!(rules.rule(&end(command, kind, 1)), expect, "{command} {kind}");
        }
        let mut shm = end("fuzz", EndKind::Evicted, 1);
        assert_eq!(rules.rule(&shm), RetryRule::Retry);
        shm.verdict.resource = Some(Resource::Volume);
        assert_eq!(rules.rule(&shm), RetryRule::Never);
    }

    #[test]
    fn a_commands_own_rule_beats_the_one_for_all_and_attempts_run_out() {
        let rules = RetryRules {
            attempts: 2,
            all: [(EndKind::Deadline, RetryRule::Retry)].into(),
            commands: [("fuzz".to_owned(), [(EndKind::Deadline, RetryRule::Hold)].into())].into(),
        };
        assert_eq!(rules.rule_now(&end("minimize", EndKind::Deadline, 1)), RetryRule::Retry);
        assert_eq!(rules.rule_now(&end("minimize", EndKind::Deadline, 2)), RetryRule::Never);
        assert_eq!(rules.rule_now(&end("fuzz", EndKind::Deadline, 2)), RetryRule::Hold);
    }
}
