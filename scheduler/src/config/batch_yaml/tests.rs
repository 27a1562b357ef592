//! batch.yaml as farms write it, well and badly.

use super::*;

fn parse(text: &str) -> Result<BatchYaml, ConfigErrors> {
    BatchYaml::parse(Path::new("batch.yaml"), text)
}

fn good(text: &str) -> BatchYaml {
    parse(text).unwrap_or_else(|errors| panic!("{errors}"))
}

const MAPPING: &str =
    "docker_image: gcr.io/p/i, service_account_email: w@p.iam.gserviceaccount.com";

/// The problem of the one mapping `M` with these keys more.
fn broken(keys: &str) -> String {
    let batch = good(&format!("mapping:\n  M: {{{keys}}}\n  N: {{{MAPPING}}}\n"));
    assert!(batch.mapping.get("N").is_some_and(Result::is_ok), "the other mapping goes on");
    match batch.mapping.get("M") {
        Some(Err(errors)) => errors.to_string(),
        other => panic!("{keys}: {other:?}"),
    }
}

#[test]
fn a_whole_file_is_read_as_the_farm_wrote_it() {
    let batch = good(
        "project: 'p'\n\
         project-number: '0123'\n\
         queue_check_regions: [us-central1]\n\
         subconfigs:\n  \
           a: {region: us-central1, network: n, subnetwork: s}\n\
         mapping:\n  \
           LINUX-PREEMPTIBLE-UNPRIVILEGED:\n    \
             docker_image: gcr.io/p/base\n    \
             versioned_docker_images: {ubuntu-24-04: gcr.io/p/base:24, 20.04: gcr.io/p/base:20}\n    \
             disk_size_gb: 110\n    \
             disk_type: pd-standard\n    \
             service_account_email: w@p.iam.gserviceaccount.com\n    \
             preemptible: true\n    \
             machine_type: n2-standard-1\n    \
             user_data: file://init.yaml\n    \
             retry: no\n    \
             is_kata: off\n    \
             subconfigs: [{name: a, weight: 1}]\n",
    );
    assert_eq!(batch.warnings, Vec::<String>::new());
    assert_eq!(batch.project_number.as_deref(), Some("0123"));
    let mapping = batch.mapping.values().next().and_then(|m| m.clone().ok()).expect("a mapping");
    assert_eq!((mapping.retry, mapping.is_kata, mapping.preemptible), (false, false, true));
    assert_eq!(mapping.clusterfuzz_release, "prod");
    assert_eq!(mapping.disk_size_gb, Some(110));
    let image = mapping.versioned_docker_images.get("20.04").map(String::as_str);
    assert_eq!(image, Some("gcr.io/p/base:20"));
}

#[test]
fn an_unquoted_project_number_is_digits_as_text_and_an_absent_one_none() {
    for (text, expect) in [
        ("project-number: 123456789012\n", Some("123456789012")),
        ("project-number: '123456789012'\n", Some("123456789012")),
        ("project-number: 0123\n", Some("0123")),
        ("project-number:\n", None),
        ("", None),
    ] {
        let batch = good(&format!("{text}mapping: {{}}\n"));
        assert_eq!(batch.project_number.as_deref(), expect, "{text}");
    }
    for text in ["project-number: abc", "project-number: 1.5", "project-number: -1"] {
        let error = parse(&format!("{text}\nmapping: {{}}\n")).expect_err(text).to_string();
        assert!(error.contains("batch.yaml:1: project-number:"), "{error}");
    }
}

#[test]
fn unknown_keys_are_warned_about_with_their_line() {
    let batch = good(&format!("mapping:\n  M: {{{MAPPING}, mine: 1}}\nours: x\n"));
    assert!(batch.mapping.values().all(Result::is_ok));
    assert_eq!(
        batch.warnings,
        [
            "batch.yaml:2: mapping.M.mine: is not a known key; it counts for nothing",
            "batch.yaml:3: ours: is not a known key; it counts for nothing",
        ]
    );
}

#[test]
fn a_wrong_type_in_a_mapping_is_that_mappings_fault_with_line_and_key() {
    for (keys, expect) in [
        (
            format!("{MAPPING}, disk_size_gb: '110'"),
            "batch.yaml:2: mapping.M.disk_size_gb: is the text `110`",
        ),
        (format!("{MAPPING}, disk_size_gb: -1"), "mapping.M.disk_size_gb: is the number -1"),
        (
            format!("{MAPPING}, is_kata: 'no'"),
            "mapping.M.is_kata: is the text `no`; write true or false",
        ),
        (format!("{MAPPING}, is_kata: 0"), "mapping.M.is_kata: is the number 0"),
        (
            format!("{MAPPING}, versioned_docker_images: [a]"),
            "mapping.M.versioned_docker_images: is a list",
        ),
        (format!("{MAPPING}, retry: 1, retry: 2"), "mapping.M.retry: is written twice"),
        (
            "docker_image: 5, service_account_email: a".into(),
            "mapping.M.docker_image: is the number 5",
        ),
        ("docker_image: 'a # b', service_account_email: a".into(), "contains white space"),
        ("docker_image: a".into(), "mapping.M: has no `service_account_email`"),
        ("service_account_email: a".into(), "mapping.M: has no `docker_image`"),
        (
            "docker_image: a, service_account_email: Fuzz_Worker@x".into(),
            "mapping.M.service_account_email: `Fuzz_Worker` can't be the name of a ServiceAccount",
        ),
        (
            "docker_image: a, service_account_email: default".into(),
            "mapping.M.service_account_email: `default` is the account",
        ),
    ] {
        let error = broken(&keys);
        assert!(error.contains(expect), "{keys}: {error}");
    }
}

#[test]
fn an_empty_is_kata_stays_kata() {
    let batch = good(&format!("mapping:\n  M: {{{MAPPING}, is_kata: }}\n"));
    assert!(batch.mapping.values().flatten().all(|mapping| mapping.is_kata));
}

#[test]
fn two_emails_that_would_share_an_account_are_an_error_of_both_mappings() {
    let batch = good(
        "mapping:\n  \
           A: {docker_image: i, service_account_email: w@p.iam.gserviceaccount.com}\n  \
           B: {docker_image: i, service_account_email: w@q.iam.gserviceaccount.com}\n  \
           C: {docker_image: i, service_account_email: v@q.iam.gserviceaccount.com}\n  \
           D: {docker_image: i, service_account_email: v@q.iam.gserviceaccount.com}\n",
    );
    let works: Vec<_> = batch.mapping.values().map(Result::is_ok).collect();
    assert_eq!(works, [false, false, true, true]);
    let problems = batch.broken_mappings();
    assert_eq!(problems.iter().map(|p| p.line).collect::<Vec<_>>(), [2, 3]);
    assert!(problems.iter().all(|p| p.problem.contains("would share the ServiceAccount `w`")));
}

#[test]
fn the_projects_default_compute_account_is_valid_and_warned_about() {
    let batch = good(
        "mapping:\n  M: {docker_image: i, service_account_email: 123456-compute@developer.gserviceaccount.com}\n",
    );
    let name = batch.mapping.values().flatten().map(|m| m.account.name()).next();
    assert_eq!(name, Some("123456-compute"));
    assert!(batch.warnings.iter().any(|w| w.contains("default compute account")));
}

#[test]
fn a_mapping_that_is_there_twice_is_broken_and_a_wrong_file_is_refused_whole() {
    let batch =
        good(&format!("mapping:\n  M: {{{MAPPING}}}\n  M: {{{MAPPING}}}\n  N: {{{MAPPING}}}\n"));
    assert!(batch.mapping.get("M").is_some_and(Result::is_err));
    assert!(batch.mapping.get("N").is_some_and(Result::is_ok));
    for (text, expect) in [
        ("mapping: [a]", "mapping: is a list"),
        ("project: p", "has no `mapping`"),
        ("project: 5\nmapping: {}", "batch.yaml:1: project: is the number 5"),
        ("subconfigs: {a: {}}\nmapping: {}", "subconfigs.a: has no `region`"),
        ("- a", "is a list"),
        ("a: b: c", "is not valid YAML"),
    ] {
        let error = parse(text).expect_err(text).to_string();
        assert!(error.contains(expect), "{text}: {error}");
    }
}

proptest::proptest! {
    #[test]
    fn no_text_panics_the_reader(text in "(mapping|project|: |\\n|  |- |\\[|\\]|\\{|\\}|&a|\\*a|<<|'|\"|#|\\||>|!!int|.){0,40}") {
        let _ = parse(&text);
    }
}
