//! Holds what no compiler holds: the walls between modules, the determinism rules, the length of
//! files, and that the repository's texts speak of what is there.
//!
//! It reads the sources as text. `tidy/source.rs` finds the files and blanks comments and
//! literals, `tidy/walls.rs` says who may use whom, `tidy/rules.rs` holds the rules of single files,
//! `tidy/texts.rs` those of documents. Each rule is shown to fail on a small bad sample.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

#[path = "tidy/rules.rs"]
mod rules;
#[path = "tidy/source.rs"]
mod source;
#[path = "tidy/texts.rs"]
mod texts;
#[path = "tidy/walls.rs"]
mod walls;

use source::Tree;

#[track_caller]
fn none(faults: &[String]) {
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn modules_use_only_what_the_table_of_walls_allows() {
    let tree = Tree::get();
    let dependencies = walls::dependencies(&tree.text("scheduler/Cargo.toml"));
    none(&walls::judge(&tree.sources, &dependencies));
}

#[test]
fn files_are_short_and_say_what_they_are_for() {
    let tree = Tree::get();
    none(&tree.sources.iter().flat_map(rules::shape).collect::<Vec<_>>());
    none(&rules::stale_exceptions(&tree.sources));
}

#[test]
fn decisions_depend_on_given_clocks_and_orders_only() {
    let tree = Tree::get();
    none(&tree.sources.iter().flat_map(rules::determinism).collect::<Vec<_>>());
}

#[test]
fn sources_hold_nothing_unfinished_unsafe_or_slept_for() {
    let tree = Tree::get();
    none(&tree.sources.iter().flat_map(|s| rules::finished(s, &tree.sources)).collect::<Vec<_>>());
}

#[test]
fn texts_are_finished_and_their_links_lead_somewhere() {
    let tree = Tree::get();
    let exists = |path: &str| tree.root.join(path).exists();
    none(
        &tree.texts.iter().flat_map(|(p, text)| texts::judge(p, text, exists)).collect::<Vec<_>>(),
    );
    none(&texts::missing(exists));
}

#[test]
fn the_architecture_names_every_module_of_the_library() {
    let tree = Tree::get();
    let modules = source::modules(&tree.text("scheduler/src/lib.rs"));
    assert!(!modules.is_empty(), "no module found in lib.rs");
    none(&texts::unnamed(&modules, &tree.text("ARCHITECTURE.md")));
}
