//! The rules that one Rust file is held to: shape, determinism, nothing unfinished.

use super::source::Source;

/// The most lines of a Rust file.
const LONGEST: usize = 400;
/// Files that may be longer, up to so many lines, and why.
const LONGER: &[(&str, usize, &str)] = &[];
/// Parts of file names that say nothing of what is inside.
const EMPTY_NAMES: &[&str] = &["util", "helper", "manager", "misc", "common"];

/// Where a seed must replay a run: no clock, order or chance but a given one.
const DETERMINISTIC: &[&str] = &[
    "scheduler/src/domain",
    "scheduler/src/gate",
    "scheduler/src/pipeline",
    "scheduler/src/render",
    "scheduler/src/backend/kubernetes",
    "scheduler/src/backend/gcp_batch",
];
/// Files among those that are the machine's side of a trait.
const MACHINE_SIDE: &[&str] = &[
    "scheduler/src/backend/kubernetes/client",
    "scheduler/src/backend/kubernetes/connect",
    "scheduler/src/backend/gcp_batch/client",
];
/// What would make one run differ from the next. Tokio's `Instant` follows the paused clock.
const CHANCE: &[&str] = &[
    "HashMap",
    "HashSet",
    "SystemTime",
    "Timestamp::now",
    "Zoned::now",
    "time::Instant::now",
    "SystemClock",
    "thread_rng",
    "rand::rng(",
    "rand::random",
    "ThreadRng",
    "OsRng",
    "Uuid::new_v4",
];

fn fault(source: &Source, line: usize, what: impl std::fmt::Display) -> String {
    format!("{}:{line}: {what}", source.path)
}

fn under(path: &str, roots: &[&str]) -> bool {
    let below = |root: &&str| path.strip_prefix(*root).is_some_and(|r| r.starts_with(['/', '.']));
    roots.iter().any(below)
}

/// Length, name and opening of a file.
pub fn shape(source: &Source) -> Vec<String> {
    let mut faults = Vec::new();
    let lines = source.text.lines().count();
    let longest = LONGER.iter().find(|(path, ..)| *path == source.path).map_or(LONGEST, |l| l.1);
    if lines > longest {
        faults.push(format!("{}: {lines} lines; the most is {longest}: split it", source.path));
    }
    let mut parts = source.path.split(['/', '_', '.']);
    if let Some(name) = parts.find(|p| EMPTY_NAMES.contains(&p.trim_end_matches('s'))) {
        faults.push(format!("{}: `{name}` says nothing of what is inside", source.path));
    }
    let first = source.text.lines().find(|line| !line.starts_with("#![") && !line.is_empty());
    if !first.is_some_and(|line| line.starts_with("//!")) {
        faults.push(fault(source, 1, "does not open with a `//!` that says what it is for"));
    }
    faults
}

/// Exceptions that are no longer needed.
pub fn stale_exceptions(sources: &[Source]) -> Vec<String> {
    let needed =
        |path: &str| sources.iter().any(|s| s.path == path && s.text.lines().count() > LONGEST);
    LONGER
        .iter()
        .filter(|(path, ..)| !needed(path))
        .map(|(path, _, why)| format!("{path} is short or gone: drop its exception ({why})"))
        .collect()
}

/// Clocks, orders and chance only where they are given; every `select!` in a fixed order.
pub fn determinism(source: &Source) -> Vec<String> {
    let mut faults = Vec::new();
    if under(&source.path, DETERMINISTIC) && !under(&source.path, MACHINE_SIDE) {
        for (line, word) in source.lines_with(&source.shipped, CHANCE) {
            faults.push(fault(source, line, format!("`{word}`: take it from what is given")));
        }
        if source.shipped.contains("std::time::Instant") || imports_std_instant(&source.shipped) {
            faults.push(fault(source, 1, "std's `Instant` does not follow the given clock"));
        }
    }
    if under(&source.path, &["scheduler/src/pipeline"]) {
        for (line, word) in source.lines_with(&source.shipped, &["spawn", "spawn_blocking"]) {
            faults.push(fault(source, line, format!("`{word}`: only the service spawns")));
        }
    }
    if under(&source.path, &["scheduler/src", "scheduler/tests"]) {
        faults.extend(unbiased(source));
    }
    faults
}

/// Whether a `use std::time::{…}` takes `Instant`.
fn imports_std_instant(code: &str) -> bool {
    code.split("use std::time::{").skip(1).any(|rest| {
        rest.split('}').next().is_some_and(|names| names.split(',').any(|n| n.trim() == "Instant"))
    })
}

/// Every `select!` that does not say `biased` first: tokio else picks a branch by chance.
fn unbiased(source: &Source) -> Vec<String> {
    let code = &source.code;
    code.match_indices("select!")
        .filter(|(at, _)| !code[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
        .filter(|(at, word)| {
            let inside = code[at + word.len()..].trim_start().strip_prefix(['{', '(']);
            !inside.is_some_and(|inside| inside.trim_start().starts_with("biased;"))
        })
        .map(|(at, _)| {
            let line = code[..at].lines().count().max(1);
            fault(source, line, "a `select!` that is not `biased`")
        })
        .collect()
}

/// Nothing unsafe, unfinished or left over from looking for a fault; no test that sleeps.
///
/// `all` says whether the clock is paused by another file of the same tests.
pub fn finished(source: &Source, all: &[Source]) -> Vec<String> {
    let never = ["unsafe", "todo!", "unimplemented!", "dbg!"];
    let mut faults: Vec<_> = source
        .lines_with(&source.code, &never)
        .into_iter()
        .map(|(line, word)| fault(source, line, format!("`{word}`")))
        .collect();
    let together =
        |other: &&Source| source.test_root.is_some() && other.test_root == source.test_root;
    let paused = |source: &Source| {
        source.code.contains("start_paused") || source.code.contains("time::pause()")
    };
    let paused = paused(source) || all.iter().filter(together).any(paused);
    let shipped: Vec<&str> = source.shipped.lines().collect();
    for (line, word) in source.lines_with(&source.code, &["thread::sleep", "sleep("]) {
        let in_test = shipped.get(line - 1).is_none_or(|l| !l.contains("sleep"));
        if in_test && (word == "thread::sleep" || !paused) {
            let what =
                "a test that sleeps: wait for a condition with a deadline, or pause the clock";
            faults.push(fault(source, line, what));
        }
    }
    faults
}

#[cfg(test)]
mod samples {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source::new(path, text)
    }

    #[track_caller]
    fn check(faults: &[String], expect: &[&str]) {
        assert_eq!(faults.len(), expect.len(), "{faults:?}");
        for (fault, expect) in faults.iter().zip(expect) {
            assert!(fault.contains(expect), "{fault} lacks {expect}");
        }
    }

    #[test]
    fn long_nameless_and_silent_files_are_found() {
        let long = format!("//! Good.\n{}", "// x\n".repeat(LONGEST));
        check(&shape(&source("scheduler/src/a.rs", &long)), &["401 lines; the most is 400"]);
        let name = "scheduler/src/queue_helpers.rs";
        check(&shape(&source(name, "//! Good.\n")), &["`helpers` says nothing"]);
        check(&shape(&source("scheduler/src/a.rs", "use x;\n")), &["a.rs:1: does not open"]);
        check(&shape(&source("fuzz/a.rs", "#![no_main]\n//! Good.\n")), &[]);
    }

    #[test]
    fn clocks_orders_and_chance_are_found_where_a_seed_must_replay_a_run() {
        for bad in [
            "use std::collections::HashMap;",
            "let x = Timestamp::now();",
            "let x = std::time::Instant::now();",
            "let x = rand::rng();",
            "let x = SystemTime::now();",
        ] {
            let faults = determinism(&source("scheduler/src/domain/a.rs", bad));
            assert!(!faults.is_empty(), "{bad}");
        }
        let import = "use std::time::{Duration, Instant};";
        check(&determinism(&source("scheduler/src/gate.rs", import)), &["std's `Instant`"]);
        let spawn = "\ntokio::spawn(async {});";
        check(&determinism(&source("scheduler/src/pipeline.rs", spawn)), &[":2: `spawn`"]);
        for fine in [
            ("scheduler/src/clock.rs", "Timestamp::now()"),
            ("scheduler/src/backend/kubernetes/client.rs", "HashMap"),
            ("scheduler/src/domain/a.rs", "// HashMap\n#[cfg(test)]\nmod t { use HashMap; }"),
            ("scheduler/src/domain/a.rs", "use std::time::{Duration}; use tokio::time::Instant;"),
        ] {
            check(&determinism(&source(fine.0, fine.1)), &[]);
        }
    }

    #[test]
    fn a_select_in_no_fixed_order_is_found() {
        let bad = "//! x\n\ntokio::select! {\n  x = y => {}\n}";
        check(&determinism(&source("scheduler/src/a.rs", bad)), &["a.rs:3: a `select!`"]);
        let good = "tokio::select! {\n  // why\n  biased;\n  x = y => {}\n}";
        check(&determinism(&source("scheduler/src/a.rs", good)), &[]);
    }

    #[test]
    fn leftovers_and_sleeping_tests_are_found() {
        let at = |text: &str| finished(&source("scheduler/src/a.rs", text), &[]);
        for bad in ["unsafe { x }", "todo!()", "unimplemented!()", "dbg!(x)"] {
            assert_eq!(at(bad).len(), 1, "{bad}");
        }
        let sleeping = "#[cfg(test)]\nmod tests { fn f() { tokio::time::sleep(x).await } }";
        check(&at(sleeping), &["a.rs:2: a test that sleeps"]);
        check(&at(&format!("{sleeping}\n#[tokio::test(start_paused = true)]")), &[]);
        check(&at("fn f() { tokio::time::sleep(x).await }"), &[]);
        let thread = "std::thread::sleep(x); // start_paused";
        check(&finished(&source("e2e/tests/a.rs", thread), &[]), &["a test that sleeps"]);
        let part = source("e2e/tests/a/part.rs", "tokio::time::sleep(x)");
        let of = |name| [source(name, "#[tokio::test(start_paused = true)]")];
        check(&finished(&part, &of("e2e/tests/a.rs")), &[]);
        check(&finished(&part, &of("e2e/tests/b.rs")), &["a test that sleeps"]);
    }
}
