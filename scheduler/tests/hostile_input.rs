//! Runs what the fuzz targets hold over their seeds and random changes of them, wherever tests run.
//!
//! Short and wide: that nothing is found here is the least. Fuzzing for hours is cargo-fuzz's, on the
//! same properties (fuzz/README.md).

#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../fuzz/src/lib.rs"]
mod properties;

use std::fmt;
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

/// How many changed inputs each target gets for each case that proptest is asked for: 2,048, or
/// `PROPTEST_CASES` times this.
const EACH: u32 = 8;
/// What readers of text stumble over.
const PIECES: &[&str] = &[
    "\0",
    "\n",
    "\r\n",
    "\t",
    " ",
    "\"",
    "'",
    "\\",
    "{{",
    "}}",
    "{%",
    "$(HOST_UID)",
    "$$",
    "%00",
    "%2F",
    "?",
    "#",
    "@",
    "://",
    "&",
    "*",
    "<<: ",
    "- ",
    ": ",
    "|\n",
    ">\n",
    "!!str ",
    "---\n",
    "...\n",
    "~",
    "null",
    "no",
    "007",
    "1e3",
    ".inf",
    "0x",
    "-1",
    "9223372036854775808",
    "\u{7f}",
    "\u{85}",
    "\u{2028}",
    "\u{feff}",
    "\u{fffe}",
    "\u{e000}",
    "\u{1f600}",
    "X-Goog-Signature=",
    "Bearer ",
    "key=",
    "signature%3D",
];

fn hold(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds").join(target);
    let files = fs::read_dir(&folder).expect("a folder of seeds").flatten();
    let mut paths: Vec<_> = files.map(|file| file.path()).collect();
    paths.sort();
    let seeds: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).expect("a seed")).collect();
    assert!(!seeds.is_empty(), "no seeds in {}", folder.display());
    for seed in &seeds {
        check(seed);
    }
    let asked = ProptestConfig::default();
    let cases = asked.cases.saturating_mul(EACH);
    let config = ProptestConfig { cases, failure_persistence: None, ..asked };
    // The same inputs on each run: what fails here fails for whoever looks into it.
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let changed = (prop::sample::select(seeds), prop::collection::vec(change(), 0..6))
        .prop_map(|(seed, changes)| Input(changes.iter().fold(seed, |input, c| c.make(input))));
    let result = TestRunner::new_with_rng(config, rng).run(&changed, |input| {
        check(&input.0);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{target}: {error}");
    }
}

/// What a check gets, shown as text.
struct Input(Vec<u8>);

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// One change: at a place, take so many bytes out and put others in.
#[derive(Debug, Clone)]
struct Change {
    at: prop::sample::Index,
    out: usize,
    put: Vec<u8>,
}

fn change() -> impl Strategy<Value = Change> {
    let piece = prop::sample::select(PIECES).prop_map(|piece| piece.as_bytes().to_vec());
    let bytes = prop::collection::vec(any::<u8>(), 0..8);
    let put = prop_oneof![4 => piece, 1 => bytes, 1 => Just(Vec::new())];
    let out = prop_oneof![3 => Just(0_usize), 2 => 0_usize..12];
    (any::<prop::sample::Index>(), out, put).prop_map(|(at, out, put)| Change { at, out, put })
}

impl Change {
    fn make(&self, mut input: Vec<u8>) -> Vec<u8> {
        let at = self.at.index(input.len() + 1);
        let end = (at + self.out).min(input.len());
        input.splice(at..end, self.put.iter().copied());
        input
    }
}

#[test]
fn a_message_is_a_task_or_a_fault_of_its_own() {
    hold("message", properties::message::check);
}

#[test]
fn an_input_url_never_shows_its_query() {
    hold("signed_url", properties::signed_url::check);
}

#[test]
fn redacting_takes_every_signature_out_in_one_go() {
    hold("redact", properties::redact::check);
}

#[test]
fn a_quantity_is_worth_what_it_says() {
    hold("quantity", properties::quantity::check);
}

#[test]
fn a_broken_mapping_breaks_no_other() {
    hold("batch_yaml", properties::batch_yaml::check);
}

#[test]
fn an_environment_string_gives_clean_names_and_values() {
    hold("environment", properties::environment::check);
}

#[test]
fn a_rendered_text_is_the_job_that_it_says_or_an_error() {
    hold("rendered_job", properties::rendered_job::check);
}
