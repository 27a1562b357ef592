//! The rules of the repository's documents: finished, with links that lead somewhere.

use std::path::{Component, Path, PathBuf};

/// What a repository of this kind has at its root and beside its parts.
const DOCUMENTS: &[&str] = &[
    "LICENSE",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "deny.toml",
    "docs/coming-from-clusterfuzz.md",
    "docs/moving-from-batch.md",
    "fuzz/README.md",
    "kata/README.md",
    "kata/runtimeclass.yaml",
    "templates/README.md",
    ".ci/run",
    ".github/workflows/ci.yml",
    ".github/workflows/kind-e2e.yml",
];
/// Where a path in backticks is taken for a path of this repository.
const OUR_FOLDERS: &[&str] =
    &["scheduler/", "e2e/", "kata/", "docs/", "fuzz/", "templates/", ".ci/", ".github/"];
/// Marks of what was put off.
const UNFINISHED: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME")];

/// Documents that are not there.
pub fn missing(exists: impl Fn(&str) -> bool) -> Vec<String> {
    let absent = DOCUMENTS.iter().filter(|path| !exists(path));
    absent.map(|path| format!("{path} is missing")).collect()
}

/// What is unfinished in one text, and, in Markdown, which of its links lead nowhere.
pub fn judge(path: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut faults = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let mut fault = |what: String| faults.push(format!("{path}:{}: {what}", at + 1));
        for mark in UNFINISHED.iter().filter(|mark| line.contains(**mark)) {
            fault(format!("`{mark}`: do it, or file it"));
        }
        if path.ends_with(".md") {
            let folder = Path::new(path).parent().unwrap_or(Path::new(""));
            for target in links(line).filter(|target| !exists(&plain(&folder.join(target)))) {
                fault(format!("the link to {target} leads nowhere"));
            }
            for named in paths(line).filter(|named| !exists(named)) {
                fault(format!("`{named}` is not there"));
            }
        }
    }
    faults
}

/// Modules that the architecture does not name in backticks.
pub fn unnamed(modules: &[String], architecture: &str) -> Vec<String> {
    let absent = modules.iter().filter(|module| {
        let named = [format!("`{module}`"), format!("`{module}/"), format!("`{module}.rs")];
        !named.iter().any(|name| architecture.contains(name))
    });
    absent.map(|module| format!("ARCHITECTURE.md does not name `{module}`")).collect()
}

/// The relative targets of a Markdown line's links, without their fragments.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets
        .filter(|target| !target.contains("://") && !target.starts_with('#'))
        .filter_map(|target| target.split('#').next())
}

/// The paths of this repository that a line names in backticks; patterns are left out.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let quoted = line.split('`').skip(1).step_by(2);
    quoted.filter(|text| {
        OUR_FOLDERS.iter().any(|folder| text.starts_with(folder))
            && !text.contains([' ', '*', '{', '<', '$'])
    })
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> String {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::Normal(name) => plain.push(name),
            _ => {}
        }
    }
    plain.display().to_string()
}

#[cfg(test)]
mod samples {
    use super::*;

    #[track_caller]
    fn check(path: &str, text: &str, expect: &[&str]) {
        let faults = judge(path, text, |p| ["docs/a.md", "README.md", "kata/x.yaml"].contains(&p));
        assert_eq!(faults.len(), expect.len(), "{faults:?}");
        for (fault, expect) in faults.iter().zip(expect) {
            assert!(fault.contains(expect), "{fault} lacks {expect}");
        }
    }

    #[test]
    fn unfinished_marks_and_dead_links_are_found() {
        let mark = UNFINISHED[0];
        check("a.rs", &format!("\n// {mark}: later"), &["a.rs:2: "]);
        check("README.md", "[a](docs/gone.md#x)", &["docs/gone.md leads nowhere"]);
        check("README.md", "see `kata/gone.yaml`", &["`kata/gone.yaml` is not there"]);
        check("README.md", "[a](docs/a.md#x) [b](#c) [d](https://e/f) `kata/x.yaml`", &[]);
        check("docs/a.md", "[up](../README.md) [here](a.md) `kata/*.yaml`", &[]);
    }

    #[test]
    fn missing_documents_and_unnamed_modules_are_found() {
        assert_eq!(missing(|path| path != "LICENSE"), ["LICENSE is missing"]);
        let modules = ["gate".to_owned(), "queue".to_owned(), "flags".to_owned()];
        assert_eq!(unnamed(&modules, "`gate` `queue.rs`").len(), 1);
    }
}
