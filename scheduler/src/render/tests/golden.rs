//! Rendered Jobs, as they stand in `tests/golden/`: a changed one shows in review.
//!
//! `UPDATE_GOLDEN=1 cargo test` rewrites them.

use std::path::PathBuf;

use super::super::*;
use super::{URL, filled};

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.yaml"))
}

#[track_caller]
fn check(name: &str, workload: &Workload) {
    let job = filled(workload, URL);
    let yaml = serde_saphyr::to_string(&job).expect("YAML");
    if std::env::var_os("UPDATE_GOLDEN").is_some_and(|set| set == "1") {
        std::fs::write(path(name), &yaml).expect("written");
    }
    let golden = std::fs::read_to_string(path(name)).unwrap_or_default();
    assert_eq!(yaml, golden, "{name}.yaml differs; UPDATE_GOLDEN=1 rewrites it");
    // The file is what a person would apply: it reads back as the same Job.
    let read = parse_strict(&golden).expect("a Job");
    assert_eq!(serde_json::to_value(&read).expect("JSON"), job);
}

#[test]
fn rendered_jobs_are_the_golden_ones() {
    for (name, isolation) in [("standard", Isolation::Standard), ("kata", Isolation::Kata)] {
        for command in ["fuzz", "corpus_pruning"] {
            let workload = sample::upstream(command, isolation).expect("a sample");
            check(&format!("{name}-{command}"), &workload);
        }
        let workload = sample::full("fuzz", isolation).expect("a sample");
        check(&format!("{name}-every-setting"), &workload);
    }
}
