//! No value is code: whatever a URL, image, job type or setting holds, the Job has the same fields,
//! and the process sees the value byte for byte.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::Value;

use super::super::expansion::tests::kubelet;
use super::super::*;
use super::{LENIENT, env, filled, task};
use crate::domain::name::{Attempt, is_label_value};
use crate::domain::quantity::Quantity;

/// What the process sees in each variable.
fn seen(job: &Value) -> BTreeMap<String, String> {
    let mut defined = BTreeMap::new();
    for (name, value) in env(job) {
        let value = kubelet(&value, &defined);
        defined.insert(name, value);
    }
    defined
}

/// The paths of all values, with the kind of each.
fn paths(value: &Value) -> BTreeSet<String> {
    fn walk(value: &Value, path: &str, out: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                members
                    .iter()
                    .for_each(|(key, member)| walk(member, &format!("{path}/{key}"), out));
            }
            Value::Array(items) => items
                .iter()
                .enumerate()
                .for_each(|(index, item)| walk(item, &format!("{path}/{index}"), out)),
            Value::String(_) => drop(out.insert(format!("{path} string"))),
            other => drop(out.insert(format!("{path} {other}"))),
        }
    }
    let mut out = BTreeSet::new();
    walk(value, "", &mut out);
    // Which of the full names is written depends on whether it is a label as it is.
    out.retain(|path| !path.contains("annotations/katabatch.dev/job-type"));
    out
}

#[test]
fn a_url_reaches_the_worker_byte_for_byte() {
    for url in [
        "https://h/a/b?x=1&y=%2F&z=<'\">",
        "https://h/$(HOST_UID)?$$=$$$(UWORKER)$",
        "https://h/\"\n- name: X\n  value: y",
        "https://h/{{ image }}{% if %}\\n\\u0041 # c",
        "https://h/\u{1F600}\u{10FFFF}\u{FFFE}\u{FEFF}\u{2028}\u{85}\u{7f}\u{1}\u{E000}",
    ] {
        for isolation in [Isolation::Kata, Isolation::Standard] {
            let workload = sample::upstream("fuzz", isolation).expect("a sample");
            let job = filled(&workload, url);
            assert_eq!(seen(&job)["UWORKER_INPUT_DOWNLOAD_URL"], url);
            assert_eq!(paths(&job), paths(&filled(&workload, super::URL)));
        }
    }
}

#[test]
fn look_alikes_of_other_types_stay_strings() {
    for text in ["no", "007", "1e3", "null", "true", "0x1F", "1_000", "12:30:45", "2026-01-01"] {
        let mut workload = sample::upstream("fuzz", Isolation::Kata).expect("a sample");
        workload.key.job_type = text.into();
        workload.profile.env = [("SETTING".to_owned(), text.to_owned())].into();
        let job = filled(&workload, super::URL);
        if is_label_value(text) {
            assert_eq!(job["metadata"]["labels"]["job_name"], text);
        }
        assert_eq!(seen(&job)["SETTING"], text);
        assert_eq!(seen(&job)["IS_K8S_ENV"], "true");
    }
    let mut workload = sample::upstream("fuzz", Isolation::Kata).expect("a sample");
    workload.key.job_type = "~".into();
    let job = filled(&workload, super::URL);
    assert_eq!(job["metadata"]["annotations"]["katabatch.dev/job-type"], "~");
}

#[test]
fn odd_job_types_get_valid_distinct_labels_and_their_name_in_an_annotation() {
    let shared = "x".repeat(63);
    let mut labels = BTreeSet::new();
    let names = [format!("_{}-", "a".repeat(70)), format!("{shared}1"), format!("{shared}2")];
    for name in &names {
        let mut workload = sample::upstream("corpus_pruning", Isolation::Kata).expect("a sample");
        workload.key.job_type = name.as_str().into();
        let job = filled(&workload, super::URL);
        let label = job["metadata"]["labels"]["job_name"].as_str().expect("a label");
        assert!(is_label_value(label), "{label}");
        labels.insert(label.to_owned());
        assert_eq!(job["metadata"]["annotations"]["katabatch.dev/job-type"], name.as_str());
        assert_eq!(job["metadata"]["annotations"]["katabatch.dev/command"], Value::Null);
        assert_eq!(job["metadata"]["labels"]["task_name"], "corpus_pruning");
        assert!(!job["metadata"]["name"].as_str().expect("a name").contains('_'));
    }
    assert_eq!(labels.len(), names.len());
}

#[test]
fn a_size_in_another_spelling_is_the_same_size() {
    let workload = sample::upstream("fuzz", Isolation::Kata).expect("a sample");
    let job = filled(&workload, super::URL);
    let size = &job["spec"]["template"]["spec"]["volumes"][0]["emptyDir"]["sizeLimit"];
    let rendered = Quantity::parse(size.as_str().expect("text")).expect("a quantity");
    assert_eq!(rendered, Quantity::parse("2040109465600m").expect("a quantity"));
}

/// Text with a liking for what means something to Tera, YAML, JSON or Kubernetes.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        any::<char>().prop_map(String::from),
        "[ -~]{0,8}",
        prop::sample::select(vec![
            "\"",
            "'",
            "\\",
            "\n",
            "\r\n",
            "\n- ",
            ": ",
            " # ",
            "{{",
            "}}",
            "{% if %}",
            "{#",
            "$(HOST_UID)",
            "$(X)",
            "$$",
            "$",
            "$(",
            "\\u0041",
            "null",
            "no",
            "---\n",
            "&a ",
            "*a",
            "!!int ",
            "| safe",
            "\t",
            "\u{7f}",
            "\u{85}",
            "\u{2028}",
            "\u{FEFF}",
            "\u{FFFF}",
            "\u{E000}",
            "\u{E001}",
            "\u{E002}a",
            "\u{1F600}",
            "katabatch-url-",
        ])
        .prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat().replace('\0', ""))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn no_value_adds_moves_or_retypes_a_field(
        tail in text(), image in text(), job_type in text(), value in text(), release in text(),
        kata in any::<bool>(),
    ) {
        let isolation = if kata { Isolation::Kata } else { Isolation::Standard };
        let mut plain = sample::full("fuzz", isolation).expect("a sample");
        plain.profile.env = [("SETTING".to_owned(), "x".to_owned())].into();
        let mut workload = plain.clone();
        workload.image = image.clone();
        workload.release = release.clone();
        workload.key.job_type = job_type.as_str().into();
        workload.profile.env = [("SETTING".to_owned(), value.clone())].into();
        let url = format!("https://h/{tail}");

        static TEMPLATES: LazyLock<Templates> =
            LazyLock::new(|| Templates::embedded().expect("templates"));
        let job = |workload: &Workload, url: &str| {
            let checked = TEMPLATES
                .check(workload, &sample::target(), &LENIENT)
                .unwrap_or_else(|error| panic!("{error}"));
            let job = checked.fill(&task(workload, url), Attempt::FIRST);
            let body: Value = serde_json::from_slice(&job.to_body()).expect("JSON");
            assert_eq!(&body, job.value());
            body
        };
        let filled = job(&workload, &url);
        prop_assert_eq!(paths(&filled), paths(&job(&plain, "https://h/")));
        let container = &filled["spec"]["template"]["spec"]["containers"][0];
        prop_assert_eq!(&container["image"], &Value::from(image));
        let seen = seen(&filled);
        prop_assert_eq!(&seen["UWORKER_INPUT_DOWNLOAD_URL"], &url);
        prop_assert_eq!(&seen["SETTING"], &value);
        prop_assert_eq!(&seen["CLUSTERFUZZ_RELEASE"], &release);
        let label = filled["metadata"]["labels"]["job_name"].as_str().expect("a label");
        prop_assert!(is_label_value(label));
        let full = &filled["metadata"]["annotations"]["katabatch.dev/job-type"];
        prop_assert!(label == job_type || full == &Value::from(job_type));
    }

    #[test]
    fn any_text_is_parsed_or_refused(text in text()) {
        let _ = parse_strict(&text);
        let _ = parse_strict(&format!("apiVersion: batch/v1\nkind: Job\nspec:\n  {text}"));
    }
}
