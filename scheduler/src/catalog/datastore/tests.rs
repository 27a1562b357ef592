//! ndb's entities as the catalog's, and whose fault a bad one is.

use gcloud_sdk::google::datastore::v1::ArrayValue;
use gcloud_sdk::google::datastore::v1::value::ValueType;
use gcloud_sdk::tonic::Code;

use super::*;
use crate::gcp::datastore::fake::{Fake, entity, s};
use crate::gcp::datastore::properties::text;

fn texts(items: &[&str]) -> ValueType {
    ValueType::ArrayValue(ArrayValue { values: items.iter().map(|item| text(*item)).collect() })
}

const NULL: ValueType = ValueType::NullValue(0);

async fn look_up(fake: &Fake, names: &[&str]) -> BTreeMap<JobType, JobEntities> {
    let names: Vec<JobType> = names.iter().map(|name| JobType::from(*name)).collect();
    let catalog = DatastoreCatalog::new(fake.datastore());
    catalog.look_up(&names, Freshness::Fresh).await.expect("an answer")
}

#[tokio::test]
async fn a_job_comes_with_its_templates_and_its_project() {
    let fake = Fake::holding(vec![
        entity(
            "Job",
            5_634_601_401_712_640,
            &[
                ("name", s("libfuzzer_asan_x")),
                ("platform", s("LINUX")),
                ("environment_string", s("A = 1\n")),
                ("templates", texts(&["libfuzzer", "gone"])),
                ("project", s("x")),
                ("base_os_version", NULL),
                ("description", s("not ours")),
            ],
        ),
        entity("JobTemplate", 1, &[("name", s("libfuzzer")), ("environment_string", s("B = 2"))]),
        entity("JobTemplate", 2, &[("name", s("other"))]),
        entity("OssFuzzProject", 3, &[("name", s("x")), ("base_os_version", s("ubuntu-24-04"))]),
    ]);
    let found = look_up(&fake, &["libfuzzer_asan_x", "ghost"]).await;
    let expect = JobEntities {
        jobs: vec![Job {
            name: "libfuzzer_asan_x".into(),
            platform: "LINUX".into(),
            base_os_version: None,
            environment_string: "A = 1\n".into(),
            templates: vec!["libfuzzer".into(), "gone".into()],
            project: Some("x".into()),
        }],
        templates: vec![JobTemplate {
            name: "libfuzzer".into(),
            environment_string: "B = 2".into(),
        }],
        projects: vec![OssFuzzProject {
            name: "x".into(),
            base_os_version: Some("ubuntu-24-04".into()),
        }],
        faults: Vec::new(),
    };
    assert_eq!(found[&JobType::from("libfuzzer_asan_x")], expect);
    assert_eq!(found[&JobType::from("ghost")], JobEntities::default());
}

#[tokio::test]
async fn two_jobs_of_one_name_are_both_there() {
    let twin = |id, platform| entity("Job", id, &[("name", s("x")), ("platform", s(platform))]);
    let fake = Fake::holding(vec![twin(2, "ANDROID"), twin(1, "LINUX")]);
    let found = look_up(&fake, &["x"]).await;
    let platforms: Vec<_> = found[&"x".into()].jobs.iter().map(|j| j.platform.as_str()).collect();
    assert_eq!(platforms, ["LINUX", "ANDROID"]);
}

#[tokio::test]
async fn a_bad_property_is_the_fault_of_the_job_types_that_it_is_part_of() {
    let job = |id, name: &str, template: &str| {
        entity("Job", id, &[("name", s(name)), ("templates", texts(&[template]))])
    };
    let fake = Fake::holding(vec![
        entity("Job", 1, &[("name", s("a")), ("platform", ValueType::BooleanValue(true))]),
        job(2, "b", "bad"),
        job(3, "c", "good"),
        entity("Job", 4, &[("name", texts(&["d", "e"]))]),
        entity("JobTemplate", 5, &[("name", s("bad")), ("environment_string", texts(&[]))]),
        entity("JobTemplate", 6, &[("name", s("good"))]),
    ]);
    let found = look_up(&fake, &["a", "b", "c", "d"]).await;
    let faults = |name: &str| found[&name.into()].faults.clone();
    assert_eq!(faults("a"), ["Job 1: `platform` is true or false, text is wanted"]);
    assert_eq!(faults("b"), ["JobTemplate 5: `environment_string` is a list, text is wanted"]);
    assert_eq!(faults("c"), Vec::<String>::new());
    assert_eq!(faults("d"), ["Job 4: `name` is a list, text is wanted"]);
    assert!(found[&"a".into()].jobs.is_empty(), "a job type with a fault is not unknown");
}

#[tokio::test]
async fn older_ways_to_write_a_value_are_read_as_ndb_reads_them() {
    let fake = Fake::holding(vec![entity(
        "Job",
        1,
        &[
            ("name", s("x")),
            ("templates", s("one")),
            ("environment_string", ValueType::BlobValue(b"A = 1".to_vec())),
            ("base_os_version", s("")),
        ],
    )]);
    let found = look_up(&fake, &["x"]).await;
    let job = &found[&"x".into()].jobs[0];
    assert_eq!(
        (job.templates.as_slice(), job.environment_string.as_str()),
        (&["one".to_owned()][..], "A = 1")
    );
    assert_eq!(job.base_os_version, None);
}

#[tokio::test]
async fn a_failed_query_for_templates_is_no_answer_at_all() {
    let job = entity("Job", 1, &[("name", s("x")), ("templates", texts(&["t"]))]);
    let fake = Fake::holding(vec![job]);
    fake.with(|state| state.failures = [None, Some(Code::PermissionDenied)].into());
    let catalog = DatastoreCatalog::new(fake.datastore());
    let error = catalog.look_up(&["x".into()], Freshness::Fresh).await.expect_err("no answer");
    assert!(error.to_string().contains("PermissionDenied"), "{error}");
}
