//! What is wrong with a file: where, which key, what, and what would be right.

use std::fmt;
use std::path::PathBuf;

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1; 0 when it is the file as a whole.
    pub line: u32,
    /// The key, from the top: `backends[0].limits.window`; empty for the file as a whole.
    pub key: String,
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    pub hint: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if self.line > 0 {
            write!(f, "{}:", self.line)?;
        }
        if !self.key.is_empty() {
            write!(f, " {}:", self.key)?;
        }
        write!(f, " {}", self.problem)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

/// All problems of the files that were read, in the order of their lines; never empty.
///
/// `Display` puts each on a line: `file:line: key: problem; hint`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<Problem>);

impl ConfigErrors {
    /// The one problem that a file can't be used at all.
    pub fn of_file(file: impl Into<PathBuf>, problem: impl Into<String>, hint: &str) -> Self {
        Self(vec![Problem {
            file: file.into(),
            line: 0,
            key: String::new(),
            problem: problem.into(),
            hint: (!hint.is_empty()).then(|| hint.to_owned()),
        }])
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// The known word that `word` most probably means, if it is near enough to one.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace(['-', '_'], "");
    let wanted = plain(word);
    known
        .into_iter()
        .map(|candidate| (distance(&wanted, &plain(candidate)), candidate))
        .filter(|(distance, candidate)| *distance <= candidate.chars().count().div_ceil(3))
        .min()
        .map(|(_, candidate)| candidate)
}

/// How many characters must be put in, taken out or changed (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().take(64).enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        let mut next = vec![left];
        for (cb, &above) in b.iter().zip(row.iter().skip(1)) {
            left = (diagonal + usize::from(ca != *cb)).min(above + 1).min(left + 1);
            next.push(left);
            diagonal = above;
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_key_finds_its_neighbour_and_an_alien_one_none() {
        let known = ["kubernetes", "namespace", "retain_finished", "ack"];
        for (word, expect) in [
            ("kubernets", Some("kubernetes")),
            ("nameSpace", Some("namespace")),
            ("retain-finished", Some("retain_finished")),
            ("akc", None),
            ("acks", Some("ack")),
            ("zebra", None),
        ] {
            assert_eq!(nearest(word, known), expect, "{word}");
        }
    }

    #[test]
    fn a_problem_is_one_line_with_file_line_key_and_hint() {
        let problem = Problem {
            file: "katabatch.yaml".into(),
            line: 7,
            key: "backends[0].limits.window".into(),
            problem: "is 0".into(),
            hint: Some("write a whole number above 0".into()),
        };
        assert_eq!(
            problem.to_string(),
            "katabatch.yaml:7: backends[0].limits.window: is 0; write a whole number above 0"
        );
    }
}
