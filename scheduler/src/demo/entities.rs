//! The demo's catalog: `Job`, `JobTemplate` and `OssFuzzProject` entities, with environment strings
//! of the form that OSS-Fuzz's project set-up writes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::JobType;

/// A job type whose disk size no one can read.
pub(super) const BAD_DISK: &str = "libfuzzer_asan_demo-bad-disk";
/// A job type of a platform for which the farm has no mapping.
pub(super) const ANDROID: &str = "libfuzzer_hwasan_demo-android";

const TEMPLATES: [(&str, &str); 8] = [
    ("libfuzzer", "APP_NAME = launcher.py\nUSE_MINIJAIL = True\nTEST_TIMEOUT = 30\n"),
    ("afl", "APP_NAME = launcher.py\nAFL_USE_ASAN = 1\n"),
    ("honggfuzz", "APP_NAME = launcher.py\n"),
    ("centipede", "APP_NAME = launcher.py\nUSE_EXTRA_SANITIZERS = True\n"),
    (
        "engine_asan",
        "LSAN = True\nADDITIONAL_ASAN_OPTIONS = quarantine_size_mb=64:strict_memcmp=1\n",
    ),
    ("engine_ubsan", "ADDITIONAL_UBSAN_OPTIONS = silence_unsigned_overflow=1\n"),
    ("engine_msan", "# no options\n"),
    ("prune", "CORPUS_PRUNE = True\n"),
];

/// All entities, one a line.
pub(super) fn jsonl(catalog: &[JobType]) -> String {
    let templates = TEMPLATES.map(|(name, environment)| {
        json!({"kind": "JobTemplate", "name": name, "environment_string": environment})
    });
    let mut projects: BTreeMap<&str, Option<&str>> = BTreeMap::new();
    for job_type in catalog {
        projects.insert(job_type.project, job_type.base_os_version);
    }
    let projects = projects.into_iter().map(|(name, version)| {
        let mut project = json!({"kind": "OssFuzzProject", "name": name});
        set(&mut project, "base_os_version", version);
        project
    });
    let jobs = catalog.iter().map(job).chain([bad_disk(), android()]);
    let mut lines = String::new();
    for entity in templates.into_iter().chain(projects).chain(jobs) {
        // Writing to a string can't fail.
        let _ = writeln!(lines, "{entity}");
    }
    lines
}

fn job(job_type: &JobType) -> Value {
    let JobType { name, project, engine, sanitizer, architecture, base_os_version } = *job_type;
    let mut templates = vec![engine.to_owned()];
    if TEMPLATES.iter().any(|(known, _)| known.strip_prefix("engine_") == Some(sanitizer)) {
        templates.push(format!("engine_{sanitizer}"));
    }
    if engine == "libfuzzer" && sanitizer == "asan" && architecture == "x86_64" {
        templates.push("prune".to_owned());
    }
    let mut job = json!({
        "kind": "Job",
        "name": name,
        "platform": "LINUX",
        "project": project,
        "templates": templates,
        "environment_string": environment(job_type, "None"),
    });
    set(&mut job, "base_os_version", base_os_version);
    job
}

fn environment(job_type: &JobType, disk: &str) -> String {
    let JobType { project, engine, sanitizer, architecture, .. } = *job_type;
    let folder = match architecture {
        "x86_64" => project.to_owned(),
        other => format!("{project}-{other}"),
    };
    format!(
        "RELEASE_BUILD_BUCKET_PATH = gs://demo-builds-{engine}/{folder}/{project}-{sanitizer}-([0-9]+).zip\n\
         PROJECT_NAME = {project}\n\
         SUMMARY_PREFIX = {project}\n\
         MANAGED = True\n\
         DISK_SIZE_GB = {disk}\n\
         REVISION_VARS_URL = https://storage.googleapis.com/demo-builds-{engine}/{folder}/{project}-{sanitizer}-%s.srcmap.json\n\
         FUZZ_LOGS_BUCKET = {project}-logs.demo\n\
         CORPUS_BUCKET = {project}-corpus.demo\n"
    )
}

fn bad_disk() -> Value {
    let job_type = JobType {
        name: BAD_DISK,
        project: "demo-bad-disk",
        engine: "libfuzzer",
        sanitizer: "asan",
        architecture: "x86_64",
        base_os_version: None,
    };
    let mut job = job(&job_type);
    set(&mut job, "environment_string", Some(&environment(&job_type, "200GB")));
    job
}

fn android() -> Value {
    json!({
        "kind": "Job",
        "name": ANDROID,
        "platform": "ANDROID",
        "project": "demo-android",
        "templates": ["libfuzzer"],
        "environment_string": "PROJECT_NAME = demo-android\nMANAGED = True\nDISK_SIZE_GB = None\n",
    })
}

fn set(entity: &mut Value, property: &str, value: Option<&str>) {
    if let (Some(object), Some(value)) = (entity.as_object_mut(), value) {
        object.insert(property.to_owned(), value.into());
    }
}
