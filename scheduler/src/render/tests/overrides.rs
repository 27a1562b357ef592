//! What a farm's own template may do, and how each fault of one is told: with its line.

use super::super::*;
use super::{LENIENT, filled, task};
use crate::domain::name::Attempt;
use crate::domain::outcome::HoldKind;

const SOURCE: &str = include_str!("../../../../templates/kata.yaml.tera");

fn load(source: &str) -> Result<Templates, RenderError> {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join(KATA), source).expect("written");
    Templates::from_dir(dir.path())
}

/// The embedded template with `from` (on one line of it) changed; and that line's number.
#[track_caller]
fn changed(from: &str, to: &str) -> (String, usize) {
    let at = SOURCE.find(from).unwrap_or_else(|| panic!("no {from}"));
    (SOURCE.replacen(from, to, 1), SOURCE[..at].matches('\n').count() + 1)
}

#[track_caller]
fn refused(from: &str, to: &str, because: &str) {
    let (source, expect) = changed(from, to);
    let error = load(&source).err().unwrap_or_else(|| panic!("`{to}` is taken"));
    let RenderError::Template { template, line, problem } = &error else { panic!("{error}") };
    assert_eq!(template, KATA);
    assert!(problem.contains(because), "{error}");
    assert_eq!(*line, Some(expect), "{error}");
    assert_eq!(error.kind(), HoldKind::BadTemplate);
}

#[test]
fn a_value_that_is_not_a_whole_scalar_is_refused_with_its_line() {
    for to in [
        "image: gcr.io/{{ image }}",
        "image: \"{{ image }}\"",
        "image: '{{ image }}'",
        "image: {{ image }}:latest",
        "image: {{ image }}{{ release }}",
        "image: |-\n            {{ image }}",
    ] {
        refused("image: {{ image }}", to, "not the whole of one scalar");
    }
    refused("value: {{ task.url }}", "value: x{{ task.url }}", "not the whole of one scalar");
    refused("value: {{ task.url }}", "value: {{ task.url | upper }}", "once");
    refused("image: {{ image }}", "image: {{ image | safe }}", "`safe`");
}

#[test]
fn a_number_can_not_be_a_task_s_value() {
    let to = "backoffLimit: {{ task.attempt }}";
    refused("backoffLimit: {{ backoff_limit }}", to, "wrong type");
}

#[test]
fn what_the_type_does_not_know_is_refused_with_a_suggestion() {
    for (from, to, because) in [
        ("runtimeClassName:", "runtimeClasName:", "did you mean `runtimeClassName`?"),
        ("backoffLimit:", "backofLimit:", "spec.backofLimit"),
        ("mountPath: /dev/shm", "mountPth: /dev/shm", "volumeMounts[0].mountPth"),
    ] {
        refused(from, to, because);
    }
    refused("restartPolicy: {{ restart_policy }}", "restartPolicy: [Never]", "wrong type");
    refused("value: \"1337\"", "value: 1337", "env[].value has the wrong type");
    refused("podReplacementPolicy: Failed", "suspend: no", "spec.suspend has the wrong type");
    refused("ttlSecondsAfterFinished: {{", "ttlSecondsAfterFinished: 1h # {{", "wrong type");
}

#[test]
fn yaml_faults_and_template_faults_have_their_line() {
    refused("kind: Job", "kind: Job: x", "YAML");
    refused("namespace: {{ namespace }}", "name: again", "uplicate");
    refused("image: {{ image }}", "image: {{ imag }}", "imag");
    refused("image: {{ image }}", "image: {{ image ! }}", "");
    refused("kind: Job", "kind: CronJob", "`kind` must be Job");
}

#[test]
fn several_documents_are_not_one_job() {
    let (source, _) = changed("kind: Job", "kind: Job\n---\nkind: Job");
    assert!(load(&source).is_err());
    assert!(parse_strict("a: b\n---\nc: d\n").is_err());
    assert!(parse_strict("").is_err());
}

#[test]
fn what_the_contract_needs_can_not_be_left_out() {
    for (from, to, because) in [
        (
            "    - name: UWORKER_INPUT_DOWNLOAD_URL\n              value: {{ task.url }}",
            "",
            "no input",
        ),
        ("- name: {{ task.name }}", "- name: worker", "container"),
        ("katabatch.dev/task: {{ task.hash }}\n", "x: z\n", "katabatch.dev/task"),
        ("katabatch.dev/attempt: {{ task.attempt }}", "x: z", "katabatch.dev/attempt"),
        ("labels: *labels", "labels: {x: z}", "pod template"),
        ("katabatch.dev/published-at: {{ task.published_at }}", "x: {{ task.url }}", "credential"),
        ("podReplacementPolicy: Failed", "parallelism: 2", "parallelism"),
        ("podReplacementPolicy: Failed", "suspend: true", "suspend"),
        ("activeDeadlineSeconds: {{ deadline_seconds }}", "{}", ""),
    ] {
        let (source, _) = changed(from, to);
        let error = load(&source).err().unwrap_or_else(|| panic!("`{to}` is taken"));
        assert!(error.to_string().contains(because), "{error}");
    }
}

#[test]
fn the_input_may_go_into_args_and_more_containers_beside_it() {
    let from = "- name: UWORKER_INPUT_DOWNLOAD_URL\n              value: {{ task.url }}";
    let (source, _) = changed(from, "- name: SOMETHING\n              value: {{ image ~ '/x' }}");
    let source = source.replacen(
        "imagePullPolicy: IfNotPresent",
        "args: [--input, {{ task.url }}]\n          imagePullPolicy: IfNotPresent",
        1,
    );
    let workload = sample::upstream("fuzz", Isolation::Kata).expect("a sample");
    let templates = load(&source).unwrap_or_else(|error| panic!("{error}"));
    let checked = templates.check(&workload, &sample::target(), &LENIENT).expect("a Job");
    let job = checked.fill(&task(&workload, "https://h/$(HOST_UID)"), Attempt::FIRST);
    let container = &job.value()["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["args"][1], "https://h/$$(HOST_UID)");
    assert_eq!(container["env"][5]["value"], format!("{}/x", workload.image));
}

#[test]
fn a_missing_override_is_the_embedded_template() {
    let dir = tempfile::tempdir().expect("a folder");
    assert!(Templates::from_dir(dir.path()).is_ok());
    std::fs::create_dir(dir.path().join(STANDARD)).expect("made");
    assert!(Templates::from_dir(dir.path()).is_err(), "unreadable is not absent");
}

#[test]
fn a_setting_replaces_the_template_s_variable_and_can_not_take_the_input_s_or_our_labels() {
    let mut workload = sample::upstream("fuzz", Isolation::Kata).expect("a sample");
    let set = |name: &str, value: &str| [(name.to_owned(), value.to_owned())].into();
    workload.profile.env = set("UPDATE_WEB_TESTS", "True");
    let job = filled(&workload, super::URL);
    let values: Vec<_> =
        super::env(&job).into_iter().filter(|(name, _)| name == "UPDATE_WEB_TESTS").collect();
    assert_eq!(values, [("UPDATE_WEB_TESTS".to_owned(), "True".to_owned())]);

    let templates = Templates::embedded().expect("templates");
    let refused = |workload: &Workload, because: &str| {
        let error = templates.check(workload, &sample::target(), &LENIENT).expect_err("refused");
        assert!(error.to_string().contains(because), "{error}");
    };
    workload.profile.env = set("UWORKER_INPUT_DOWNLOAD_URL", "x");
    refused(&workload, "only the template may set it");
    workload.profile.env = set("X", "a\0b");
    refused(&workload, "NUL");
    workload.profile.env.clear();
    workload.profile.labels = set("task_name", "x");
    refused(&workload, "set twice");
    workload.profile.labels = set("team", "not valid!");
    refused(&workload, "no value for the label team");
}
