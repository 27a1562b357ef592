//! Tests of the whole way from a workload to a filled Job, by what they show.

mod golden;
mod overrides;
mod upstream;
mod values;

use serde_json::Value;

use super::*;
use crate::domain::input_url::InputUrl;
use crate::domain::name::Attempt;
use crate::domain::task::Task;

pub(super) const LENIENT: Policy = Policy { strict: false };

pub(super) fn task(workload: &Workload, url: &str) -> Task {
    Task::new(
        workload.key.clone(),
        InputUrl::parse(url).expect("a URL"),
        "1",
        "2026-03-01T00:00:00Z".parse().expect("a time"),
    )
}

pub(super) const URL: &str =
    "https://storage.googleapis.com/uworker-input/in%2F1?X-Goog-Expires=86400&X-Goog-Signature=ab";

pub(super) fn filled(workload: &Workload, url: &str) -> Value {
    let checked = Templates::embedded()
        .and_then(|templates| templates.check(workload, &sample::target(), &LENIENT))
        .unwrap_or_else(|error| panic!("{error}"));
    let job = checked.fill(&task(workload, url), Attempt::FIRST);
    let value: Value = serde_json::from_slice(&job.to_body()).expect("JSON");
    assert_eq!(&value, job.value(), "body and value are the same Job");
    assert_eq!(serde_json::to_value(job.typed().expect("a Job")).expect("JSON"), value);
    value
}

/// The environment of the (first) container.
pub(super) fn env(job: &Value) -> Vec<(String, String)> {
    let all = job.pointer("/spec/template/spec/containers/0/env").and_then(Value::as_array);
    let text = |v: &Value, key: &str| v[key].as_str().expect("a string").to_owned();
    all.expect("variables").iter().map(|v| (text(v, "name"), text(v, "value"))).collect()
}

#[test]
fn filling_takes_microseconds_and_shows_no_url() {
    let workload = sample::upstream("fuzz", Isolation::Kata).expect("a sample");
    let checked = Templates::embedded()
        .and_then(|t| t.check(&workload, &sample::target(), &LENIENT))
        .expect("a Job");
    let task = task(&workload, URL);
    let start = std::time::Instant::now();
    let rounds = 1_000;
    let bytes: usize =
        (0..rounds).map(|_| checked.fill(&task, Attempt::FIRST).to_body().len()).sum();
    let each = start.elapsed() / rounds;
    eprintln!("fill and body: {each:?} each, {} bytes", bytes / rounds as usize);
    // A machine busy with other builds is slow; parsing instead of filling would be slower still.
    assert!(each < std::time::Duration::from_millis(2), "{each:?}");
    let job = checked.fill(&task, Attempt::FIRST);
    assert!(!format!("{job:?} {checked:?}").contains("Signature"));
}

#[test]
fn an_attempt_has_its_own_name_and_says_which_it_is() {
    let workload = sample::upstream("fuzz", Isolation::Kata).expect("a sample");
    let checked = Templates::embedded()
        .and_then(|t| t.check(&workload, &sample::target(), &LENIENT))
        .expect("a Job");
    let task = task(&workload, URL);
    let second = checked.fill(&task, Attempt::new(2).expect("above zero"));
    assert_ne!(second.name, task.job_name());
    let job = second.value();
    let hash = task.hash.to_string();
    assert_eq!(job["metadata"]["name"], second.name.as_str());
    assert_eq!(job["spec"]["template"]["spec"]["containers"][0]["name"], second.name.as_str());
    assert_eq!(job["metadata"]["annotations"][labels::TASK], hash.as_str());
    for labels in [&job["metadata"]["labels"], &job["spec"]["template"]["metadata"]["labels"]] {
        assert_eq!(labels[labels::ATTEMPT], "2");
        assert_eq!(labels[labels::TASK], &hash[..labels::HASH_LABEL_LEN]);
    }
}

#[test]
fn a_senders_labels_stand_on_job_and_pod_and_replace_none() {
    let mut workload = sample::upstream("fuzz", Isolation::Kata).expect("a sample");
    workload.profile.labels.insert("task.katabatch.dev/team".into(), "of-the-profile".into());
    let templates = Templates::embedded().expect("templates");
    let checked = templates.check(&workload, &sample::target(), &LENIENT).expect("a Job");
    let plain = task(&workload, URL);
    let attributes = ["team", "campaign"]
        .map(|name| (format!("{}{name}", crate::domain::labels::PREFIX), "of-the-task".to_owned()));
    let labels = crate::domain::labels::TaskLabels::of(&attributes.into());
    let labelled = checked.fill(&Task { labels, ..plain.clone() }, Attempt::FIRST);
    let value: Value = serde_json::from_slice(&labelled.to_body()).expect("JSON");
    assert_eq!(&value, labelled.value());
    let mut expect = checked.fill(&plain, Attempt::FIRST).value().clone();
    for labels in ["/metadata/labels", "/spec/template/metadata/labels"] {
        let labels = expect.pointer_mut(labels).expect("labels");
        assert_eq!(labels["task.katabatch.dev/team"], "of-the-profile");
        labels["task.katabatch.dev/campaign"] = "of-the-task".into();
    }
    assert_eq!(value, expect, "and nothing else is another");
}

#[test]
fn the_spec_digest_changes_with_the_spec_alone() {
    let templates = Templates::embedded().expect("templates");
    let digest = |workload: &Workload| {
        let checked = templates.check(workload, &sample::target(), &LENIENT).expect("a Job");
        let job = checked.fill(&task(workload, URL), Attempt::FIRST);
        assert_eq!(job.value()["metadata"]["annotations"][labels::SPEC], checked.spec_hash());
        checked.spec_hash().to_owned()
    };
    let workload = sample::upstream("fuzz", Isolation::Kata).expect("a sample");
    let mut other = workload.clone();
    other.image.push('2');
    let mut unused = workload.clone();
    unused.project = None;
    assert_eq!(digest(&workload), digest(&unused));
    assert_ne!(digest(&workload), digest(&other));
}
