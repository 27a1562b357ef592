//! One thing that was looked at, and how it came out.

use serde::Serialize;

use crate::domain::redact::redact;

/// How a look came out, the worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As it should be.
    Pass,
    /// It could not be looked at; the detail says why.
    NotChecked,
    /// It works, but a person should know.
    Warn,
    /// `run` would not start, or would lose or hold tasks.
    Fail,
}

impl Verdict {
    /// The word in the table and in data.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::NotChecked => "not_checked",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How it came out.
    pub verdict: Verdict,
    /// What part of the set-up it is about: `queue`, `flags`, …
    pub area: &'static str,
    /// Which one of that part.
    pub subject: String,
    /// What was seen. Without credentials.
    pub detail: String,
    /// What to do about it; empty where there is nothing to do.
    pub hint: String,
}

/// The findings of one area, in the order in which they were made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Findings {
    area: &'static str,
    all: Vec<Finding>,
}

impl Findings {
    /// None yet, about `area`.
    pub fn about(area: &'static str) -> Self {
        Self { area, all: Vec::new() }
    }

    fn add(&mut self, verdict: Verdict, subject: &str, detail: impl ToString, hint: &str) {
        self.all.push(Finding {
            verdict,
            area: self.area,
            subject: subject.to_owned(),
            detail: redact(&detail.to_string()).into_owned(),
            hint: hint.to_owned(),
        });
    }

    /// It is as it should be.
    pub fn pass(&mut self, subject: &str, detail: impl ToString) {
        self.add(Verdict::Pass, subject, detail, "");
    }

    /// It works, but a person should know.
    pub fn warn(&mut self, subject: &str, detail: impl ToString, hint: &str) {
        self.add(Verdict::Warn, subject, detail, hint);
    }

    /// It must be mended.
    pub fn fail(&mut self, subject: &str, detail: impl ToString, hint: &str) {
        self.add(Verdict::Fail, subject, detail, hint);
    }

    /// It could not be looked at; `why` says why.
    pub fn not_checked(&mut self, subject: &str, why: impl ToString, hint: &str) {
        let why = format!("not checked: {}", why.to_string());
        self.add(Verdict::NotChecked, subject, why, hint);
    }

    /// Takes others in, whatever area they are about.
    pub fn extend(&mut self, others: Self) {
        self.all.extend(others.all);
    }

    /// All of them.
    pub fn all(&self) -> &[Finding] {
        &self.all
    }

    /// The worst verdict; `Pass` where there is none.
    pub fn worst(&self) -> Verdict {
        self.all.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Pass)
    }

    /// How many came out so.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.all.iter().filter(|finding| finding.verdict == verdict).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_counts_and_what_could_not_be_looked_at_is_no_failure() {
        let mut findings = Findings::about("queue");
        assert_eq!(findings.worst(), Verdict::Pass);
        findings.pass("a", "");
        findings.not_checked("b", "no permission", "");
        assert_eq!(findings.worst(), Verdict::NotChecked);
        findings.warn("c", "", "");
        assert_eq!(findings.worst(), Verdict::Warn);
        findings.fail("d", "https://h/o?X-Goog-Signature=5ec", "");
        assert_eq!(findings.worst(), Verdict::Fail);
        assert!(!format!("{:?}", findings.all()).contains("5ec"));
        assert_eq!(findings.all()[1].detail, "not checked: no permission");
    }
}
