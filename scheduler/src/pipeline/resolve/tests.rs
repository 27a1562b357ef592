//! What job types, mappings and flags make of a workload.

use std::path::Path;

use super::*;
use crate::catalog::file::Index;
use crate::config::batch_yaml::BatchYaml;
use crate::config::project_yaml::ProjectYaml;
use crate::domain::workload::Account;
use crate::flags::Flag;

const BATCH: &str = "\
mapping:
  LINUX-PREEMPTIBLE-UNPRIVILEGED: &linux
    docker_image: linux
    versioned_docker_images: {ubuntu-20-04: linux-20, ubuntu-24-04: linux-24}
    disk_size_gb: 110
    service_account_email: w@p.iam.gserviceaccount.com
  LINUX-NONPREEMPTIBLE-UNPRIVILEGED:
    <<: *linux
    docker_image: linux-slow
    is_kata: false
    clusterfuzz_release: candidate
    service_account_email: unpriv-sa
  CHROMEOS-PREEMPTIBLE-UNPRIVILEGED: {docker_image: 5}
";

fn farm(project_name: &str) -> Farm {
    let project = format!("env: {{PROJECT_NAME: {project_name}}}");
    let project = ProjectYaml::parse(Path::new("project.yaml"), &project).expect("a project");
    let batch = BatchYaml::parse(Path::new("batch.yaml"), BATCH).unwrap_or_else(|e| panic!("{e}"));
    Farm::of(project, batch, None)
}

fn job(platform: &str, environment: &str) -> Job {
    Job {
        name: "j".into(),
        platform: platform.into(),
        environment_string: environment.into(),
        ..Job::default()
    }
}

fn run(
    command: &str,
    farm: &Farm,
    entities: &JobEntities,
    flags: &FlagSet,
) -> Result<Resolved, Unresolved> {
    let key = WorkloadKey { command: command.into(), job_type: "j".into() };
    resolve(&key, entities, farm, &Profiles::default(), flags)
}

fn plain(command: &str, farm: &Farm, job: Job) -> Result<Resolved, Unresolved> {
    let entities = JobEntities { jobs: vec![job], ..JobEntities::default() };
    run(command, farm, &entities, &FlagSet::default())
}

fn kind(result: Result<Resolved, Unresolved>) -> Option<HoldKind> {
    result.err().map(|error| error.kind)
}

#[test]
fn the_command_chooses_mapping_account_and_isolation() {
    let farm = farm("mine");
    let fuzz = plain("fuzz", &farm, job("LINUX", "")).expect("resolved").workload;
    assert_eq!(fuzz.mapping, "LINUX-PREEMPTIBLE-UNPRIVILEGED");
    assert_eq!((fuzz.image.as_str(), fuzz.release.as_str()), ("linux", "prod"));
    assert_eq!((fuzz.isolation, fuzz.disk_gb), (Isolation::Kata, Some(110)));
    assert_eq!(fuzz.account.name(), "w");

    let other = plain("minimize", &farm, job("LINUX", "")).expect("resolved").workload;
    assert_eq!(other.mapping, "LINUX-NONPREEMPTIBLE-UNPRIVILEGED");
    assert_eq!((other.image.as_str(), other.release.as_str()), ("linux-slow", "candidate"));
    assert_eq!(other.isolation, Isolation::Standard);
    assert_eq!(other.account, Account::Existing { name: "unpriv-sa".into() });
}

#[test]
fn pruning_and_regression_have_a_day_and_fuzzing_six_hours() {
    let farm = farm("mine");
    for (command, seconds) in [("fuzz", 21_600), ("corpus_pruning", 86_400), ("regression", 86_400)]
    {
        let workload = plain(command, &farm, job("LINUX", "")).expect("resolved").workload;
        assert_eq!(workload.deadline().as_secs(), seconds, "{command}");
    }
}

#[test]
fn the_jobs_disk_size_beats_its_templates_and_falsy_ones_are_the_mappings() {
    let farm = farm("mine");
    let disk = |template: &str, own: &str| {
        let template = JobTemplate { name: "t".into(), environment_string: template.into() };
        let jobs = vec![Job { templates: vec!["t".into()], ..job("LINUX", own) }];
        let entities = JobEntities { jobs, templates: vec![template], ..JobEntities::default() };
        run("fuzz", &farm, &entities, &FlagSet::default()).map(|r| r.workload.disk_gb)
    };
    for (template, own, expect) in [
        ("DISK_SIZE_GB = 50", "DISK_SIZE_GB = 200", Some(200)),
        ("DISK_SIZE_GB = 50", "", Some(50)),
        ("DISK_SIZE_GB = 50", "DISK_SIZE_GB = None", Some(110)),
        ("", "DISK_SIZE_GB = 0", Some(110)),
        ("", "DISK_SIZE_GB =", Some(110)),
        ("", "DISK_SIZE_GB = \"200\" # c", Some(200)),
    ] {
        assert_eq!(disk(template, own), Ok(expect), "{template} / {own}");
    }
    let error = disk("", "DISK_SIZE_GB = 200GB").expect_err("no size");
    assert_eq!(error.kind, HoldKind::BadJobType);
    assert!(error.detail.contains("`200GB` is no disk size"), "{error}");
    assert_eq!(disk("DISK_SIZE_GB = 200GB", "DISK_SIZE_GB = 200"), Ok(Some(200)));
}

#[test]
fn an_android_job_never_gets_a_linux_image_but_on_oss_fuzz() {
    let error = plain("fuzz", &farm("mine"), job("ANDROID", "")).expect_err("no mapping");
    assert_eq!(error.kind, HoldKind::BadMapping);
    assert!(error.detail.contains("`ANDROID-PREEMPTIBLE-UNPRIVILEGED`"), "{error}");
    let resolved = plain("fuzz", &farm("oss-fuzz"), job("ANDROID", "")).expect("resolved");
    assert_eq!(resolved.workload.mapping, "LINUX-PREEMPTIBLE-UNPRIVILEGED");
    assert_eq!(kind(plain("fuzz", &farm("mine"), job("", ""))), Some(HoldKind::BadJobType));
    assert_eq!(kind(plain("fuzz", &farm("oss-fuzz"), job("", ""))), None);
}

#[test]
fn a_broken_mapping_holds_its_own_tasks_with_file_line_and_key() {
    let error = plain("fuzz", &farm("mine"), job("CHROMEOS", "")).expect_err("broken");
    assert_eq!(error.kind, HoldKind::BadMapping);
    let expect = "batch.yaml:13: mapping.CHROMEOS-PREEMPTIBLE-UNPRIVILEGED.docker_image";
    assert!(error.detail.contains(expect), "{error}");
    assert_eq!(kind(plain("fuzz", &farm("mine"), job("LINUX", ""))), None);
}

#[test]
fn the_projects_base_os_version_beats_the_jobs_on_oss_fuzz_alone() {
    let image = |farm: &Farm, job_version: Option<&str>, project_version: Option<&str>| {
        let project = OssFuzzProject {
            name: "p".into(),
            base_os_version: project_version.map(str::to_owned),
        };
        let jobs = vec![Job {
            base_os_version: job_version.map(str::to_owned),
            project: Some("p".into()),
            ..job("LINUX", "")
        }];
        let entities = JobEntities { jobs, projects: vec![project], ..JobEntities::default() };
        run("fuzz", farm, &entities, &FlagSet::default()).expect("resolved").workload.image
    };
    let (oss_fuzz, mine) = (farm("oss-fuzz"), farm("mine"));
    let (old, new) = (Some("ubuntu-20-04"), Some("ubuntu-24-04"));
    assert_eq!(image(&oss_fuzz, old, new), "linux-24");
    assert_eq!(image(&mine, old, new), "linux-20");
    assert_eq!(image(&oss_fuzz, old, None), "linux-20");
    assert_eq!(image(&oss_fuzz, None, None), "linux");
    assert_eq!(image(&mine, Some("ubuntu-9"), None), "linux");
}

#[test]
fn two_jobs_of_one_name_are_refused_where_they_differ_and_warned_about_where_not() {
    let both = |jobs| {
        let entities = JobEntities { jobs, ..JobEntities::default() };
        run("fuzz", &farm("mine"), &entities, &FlagSet::default())
    };
    for other in
        [job("ANDROID", ""), job("LINUX", "DISK_SIZE_GB = 7"), job("LINUX", "DISK_SIZE_GB = x")]
    {
        let error = both(vec![job("LINUX", ""), other.clone()]).expect_err("ambiguous");
        assert_eq!(error.kind, HoldKind::AmbiguousJobType);
        assert_eq!(both(vec![other, job("LINUX", "")]).expect_err("ambiguous"), error);
    }
    let alike = both(vec![job("LINUX", "A = 1"), job("LINUX", "A = 2")]).expect("resolved");
    assert!(alike.warnings.iter().any(|w| w.contains("2 like Jobs")), "{alike:?}");
}

#[test]
fn what_is_not_there_is_unknown_and_what_is_broken_is_not() {
    let farm = farm("mine");
    let none = FlagSet::default();
    let unknown = JobEntities::default();
    assert_eq!(kind(run("fuzz", &farm, &unknown, &none)), Some(HoldKind::UnknownJobType));
    let broken = JobEntities { faults: vec!["e.yaml:1: x".into()], ..JobEntities::default() };
    assert_eq!(kind(run("fuzz", &farm, &broken, &none)), Some(HoldKind::BadJobType));
}

#[test]
fn a_missing_template_is_skipped_with_a_warning() {
    let resolved = plain(
        "fuzz",
        &farm("mine"),
        Job { templates: vec!["gone".into()], ..job("LINUX", "DISK_SIZE_GB = 7") },
    )
    .expect("resolved");
    assert_eq!(resolved.warnings, ["there is no JobTemplate `gone`; it is skipped"]);
    assert_eq!(resolved.workload.disk_gb, Some(7));
}

#[test]
fn swarmings_job_types_are_held_while_its_flag_is_on() {
    let farm = farm("mine");
    let flag = |enabled| {
        let flag = Flag { enabled, ..Flag::default() };
        FlagSet([(SWARMING_FLAG.to_owned(), flag)].into())
    };
    for (environment, swarming) in [
        ("IS_SWARMING_JOB = True", true),
        ("IS_SWARMING_JOB = true", true),
        ("IS_SWARMING_JOB = False", false),
        ("IS_SWARMING_JOB =", false),
        ("SWARMING_DIMENSIONS = {'os': 'Mac'}", true),
        ("OTHER = 1", false),
    ] {
        let entities =
            JobEntities { jobs: vec![job("LINUX", environment)], ..JobEntities::default() };
        let held = swarming.then_some(HoldKind::Swarming);
        assert_eq!(kind(run("fuzz", &farm, &entities, &flag(true))), held, "{environment}");
        assert_eq!(kind(run("fuzz", &farm, &entities, &flag(false))), None, "{environment}");
    }
}

/// Environment strings as OSS-Fuzz's project set-up writes them.
#[test]
fn every_job_type_of_oss_fuzz_resolves() {
    let csv = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/oss-fuzz-job-types.csv"),
    )
    .expect("the job types");
    let mut text = String::from(
        "{\"kind\":\"JobTemplate\",\"name\":\"libfuzzer\",\"environment_string\":\"APP_NAME = \\nDISK_SIZE_GB = 50\\n\"}\n",
    );
    let mut names = Vec::new();
    for line in csv.lines().skip(1) {
        let fields: Vec<_> = line.split(',').collect();
        let [name, project, engine, sanitizer, _, _, version] = fields.as_slice() else {
            panic!("a row of seven: {line}")
        };
        let environment = format!(
            "RELEASE_BUILD_BUCKET_PATH = gs://clusterfuzz-builds/{project}/{project}-{sanitizer}-([0-9]+).zip\n\
             PROJECT_NAME = {project}\nSUMMARY_PREFIX = {project}\nMANAGED = True\n\
             DISK_SIZE_GB = None\nFILE_GITHUB_ISSUE = False\n"
        );
        let version = (!version.is_empty()).then_some(version);
        let job = serde_json::json!({
            "kind": "Job", "name": name, "platform": "LINUX", "project": project,
            "templates": [engine], "environment_string": environment, "base_os_version": version,
        });
        text.push_str(&format!("{job}\n"));
        names.push((*name).to_owned());
    }
    let mut index = Index::default();
    index.add(Path::new("e.jsonl"), &text).expect("entities");
    assert_eq!((names.len(), index.faults().len()), (3_489, 0));
    let farm = farm("oss-fuzz");
    for name in names {
        let entities = index.look_up(&name);
        let key = WorkloadKey { command: "fuzz".into(), job_type: name.into() };
        let resolved = resolve(&key, &entities, &farm, &Profiles::default(), &FlagSet::default());
        let workload = resolved.unwrap_or_else(|error| panic!("{key}: {error}")).workload;
        assert_eq!(workload.disk_gb, Some(110), "{key}");
        assert_eq!(workload.base_os_version.is_some(), workload.image != "linux", "{key}");
    }
}
