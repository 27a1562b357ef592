//! What can be wrong with a rendered Job, by what a person has to mend: the template or the
//! workload's settings, or something that the isolation policy refuses.

use std::fmt;

use crate::domain::outcome::HoldKind;
use crate::domain::redact::redact;

/// Why a workload has no checked Job. Never a task's own fault: the workload is held.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// The template, or a setting that it inserts, does not make a Job.
    #[error("template `{template}`{at}: {problem}", at = At(*line))]
    Template {
        /// The template's file name.
        template: String,
        /// The line of the template, where it could be told.
        line: Option<usize>,
        /// What is wrong and what would be right, credentials taken out.
        problem: String,
    },
    /// The Job is well formed, and the isolation policy refuses it.
    #[error("template `{template}` makes a Job that the isolation policy refuses: {}", refusals.join("; "))]
    Policy {
        /// The template's file name.
        template: String,
        /// Every rule that it breaks, with what would be right.
        refusals: Vec<String>,
    },
}

impl RenderError {
    /// A fault of the template; `problem` is redacted here.
    pub(super) fn template(
        template: &str,
        line: Option<usize>,
        problem: impl fmt::Display,
    ) -> Self {
        let problem = redact(&problem.to_string()).into_owned();
        Self::Template { template: template.to_owned(), line, problem }
    }

    /// How the tasks of the workload are held.
    pub fn kind(&self) -> HoldKind {
        match self {
            Self::Template { .. } => HoldKind::BadTemplate,
            Self::Policy { .. } => HoldKind::PolicyRefused,
        }
    }
}

struct At(Option<usize>);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(line) => write!(f, ", line {line}"),
            None => Ok(()),
        }
    }
}
