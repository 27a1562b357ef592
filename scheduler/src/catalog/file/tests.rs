//! File catalogs: faults stay where they belong, several jobs of a name are all there, and the
//! real size of a farm is no problem.

use std::time::{Duration, Instant};

use super::*;

fn index(text: &str) -> Index {
    let mut index = Index::default();
    index.add(Path::new("e.yaml"), text).expect("entities");
    index
}

#[test]
fn a_job_type_comes_with_its_templates_and_project() {
    let index = index(
        "- {kind: Job, name: a, platform: LINUX, templates: [t, missing], project: p, base_os_version: ''}\n\
         - {kind: JobTemplate, name: t, environment_string: 'A = 1'}\n\
         - {kind: JobTemplate, name: other}\n\
         - {kind: OssFuzzProject, name: p, base_os_version: ubuntu-24-04, high_end: true}\n\
         - {kind: Testcase, name: [odd]}\n",
    );
    let entities = index.look_up("a");
    assert_eq!(entities.jobs.first().and_then(|job| job.base_os_version.clone()), None);
    assert_eq!(entities.templates.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["t"]);
    let version = entities.projects.first().and_then(|p| p.base_os_version.as_deref());
    assert_eq!(version, Some("ubuntu-24-04"));
    assert_eq!(entities.faults, Vec::<String>::new());
    assert_eq!(index.look_up("ghost"), JobEntities::default());
}

#[test]
fn two_jobs_of_one_name_are_both_there() {
    let index = index(
        "- {kind: Job, name: x, platform: LINUX}\n- {kind: Job, name: x, platform: ANDROID}\n",
    );
    let platforms: Vec<_> = index.look_up("x").jobs.into_iter().map(|job| job.platform).collect();
    assert_eq!(platforms, ["LINUX", "ANDROID"]);
}

#[test]
fn a_bad_entity_is_its_own_fault_and_never_looks_unknown() {
    let index = index(
        "- {kind: Job, name: good, platform: LINUX}\n\
         - {kind: Job, name: bad, platform: [LINUX]}\n\
         - {kind: Job, name: uses, platform: LINUX, templates: [t], project: p}\n\
         - {kind: JobTemplate, name: t, environment_string: 5.5}\n\
         - {kind: JobTemplate, name: t2, environment_string: [x]}\n\
         - {kind: Job, name: uses2, platform: LINUX, templates: [t2]}\n",
    );
    let faults = |name: &str| index.look_up(name).faults;
    assert_eq!(faults("good"), Vec::<String>::new());
    assert_eq!(faults("bad"), ["e.yaml:2: `platform` is a list, text is wanted"]);
    assert_eq!(faults("uses"), Vec::<String>::new());
    assert_eq!(faults("uses2"), ["e.yaml:5: `environment_string` is a list, text is wanted"]);
    assert_eq!(faults("ghost"), Vec::<String>::new());
    assert_eq!(index.faults().len(), 2);
}

#[test]
fn what_may_be_the_missing_one_keeps_it_from_looking_unknown() {
    let index = index(
        "- {kind: Job, name: good, platform: LINUX}\n- {kind: Job, platform: LINUX}\n- {name: z}\n",
    );
    assert_eq!(index.look_up("good").faults, Vec::<String>::new());
    let ghost = index.look_up("ghost");
    assert_eq!(ghost.jobs, []);
    assert_eq!(ghost.faults.len(), 2, "{ghost:?}");
    assert!(ghost.faults.iter().any(|f| f.starts_with("e.yaml:2: has no `name`")), "{ghost:?}");
}

#[tokio::test]
async fn a_fresh_look_reads_changed_files_and_never_answers_from_old_ones() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("e.yaml");
    std::fs::write(&file, "- {kind: Job, name: a}\n").expect("written");
    let catalog = FileCatalog::open(vec![file.clone()]).expect("a catalog");
    let names = [JobType::from("a"), JobType::from("b")];
    let known = async |freshness| {
        let found = catalog.look_up(&names, freshness).await?;
        Ok::<_, CatalogError>(found.values().map(|e| e.jobs.len()).collect::<Vec<_>>())
    };
    assert_eq!(known(Freshness::Cached).await, Ok(vec![1, 0]));
    std::fs::write(&file, "- {kind: Job, name: b}\n").expect("written");
    assert_eq!(known(Freshness::Cached).await, Ok(vec![1, 0]));
    assert_eq!(known(Freshness::Fresh).await, Ok(vec![0, 1]));
    std::fs::write(&file, "- {kind: Job, name: c}\n- [\n").expect("written");
    let error = known(Freshness::Fresh).await.expect_err("broken");
    assert!(error.0.contains("e.yaml:") && error.0.contains("not valid YAML"), "{error}");
    assert_eq!(known(Freshness::Cached).await, Ok(vec![0, 1]));
    std::fs::remove_file(&file).expect("removed");
    assert!(known(Freshness::Fresh).await.is_err());
    assert_eq!(known(Freshness::Cached).await, Ok(vec![0, 1]));
    assert!(FileCatalog::open(vec![file]).is_err());
}

/// The real size: 3,489 job types, as YAML and as the JSON lines of an export.
#[test]
fn a_whole_farm_is_indexed_at_once() {
    let csv = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/oss-fuzz-job-types.csv"),
    )
    .expect("the job types");
    let names: Vec<_> = csv.lines().skip(1).filter_map(|line| line.split(',').next()).collect();
    let yaml: String = names
        .iter()
        .map(|name| {
            format!(
                "- kind: Job\n  name: {name}\n  platform: LINUX\n  templates: [libfuzzer]\n  \
                 environment_string: |\n    RELEASE_BUILD_BUCKET_PATH = gs://b/{name}.zip\n    \
                 DISK_SIZE_GB = None\n    MANAGED = True\n"
            )
        })
        .collect();
    let json: String = names
        .iter()
        .map(|name| {
            format!(
                "{{\"kind\":\"Job\",\"properties\":{{\"name\":{{\"stringValue\":\"{name}\"}},\
                 \"environment_string\":{{\"stringValue\":\"DISK_SIZE_GB = None\\n\"}}}}}}\n"
            )
        })
        .collect();
    for (file, text) in [("e.yaml", yaml), ("e.jsonl", json)] {
        let start = Instant::now();
        let mut index = Index::default();
        index.add(Path::new(file), &text).expect("entities");
        let took = start.elapsed();
        assert_eq!((index.job_types().count(), index.faults().len()), (3_489, 0), "{file}");
        // An unoptimized YAML reader takes more than ten times as long, and machines are busy.
        let limit = if cfg!(debug_assertions) { 30 } else { 1 };
        assert!(took < Duration::from_secs(limit), "{file} took {took:?}");
    }
}
