//! `katabatch flags` as a person runs it, on flags in files.
#![expect(clippy::expect_used, reason = "what fails here fails its test")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

const FLAGS: &str = "# the farm's weights\n\
                     k8s_jobs_frequency: {enabled: true, value: 1} # all of it\n\
                     k8s_jobs_pending_limit: {enabled: true, value: 1000}\n";

fn farm(flags: &str) -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(path, text).expect("written");
    };
    write("katabatch.yaml", "apiVersion: katabatch.dev/v1alpha1\nflags: {file: flags.yaml}\n");
    write("clusterfuzz-config/project.yaml", "env: {PROJECT_NAME: x}\n");
    write("clusterfuzz-config/batch/batch.yaml", "mapping: {}\n");
    write("flags.yaml", flags);
    dir
}

fn run(dir: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_katabatch"))
        .arg("--config")
        .arg(dir.join("katabatch.yaml"))
        .arg("flags")
        .args(arguments)
        .env_remove("SUDO_USER")
        .output()
        .expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_flag_is_set_in_place_with_what_was_before_and_who_did_it() {
    let dir = farm(FLAGS);
    let file = dir.path().join("flags.yaml");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("a mode");
    let set = run(dir.path(), &["set", "k8s_jobs_frequency", "--value", "0.25", "-o", "json"]);
    let (out, err) = (text(&set.stdout), text(&set.stderr));
    assert!(set.status.success(), "{err}");
    let rows: serde_json::Value = serde_json::from_str(&out).expect("JSON and nothing else");
    assert_eq!(rows[1]["before"], "1", "{out}");
    assert_eq!(rows[1]["after"], "0.25", "{out}");
    assert!(err.contains("audit: ") && err.contains("set flag \"k8s_jobs_frequency\""), "{err}");
    let expect = FLAGS.replace("value: 1}", "value: 0.25}");
    assert_eq!(fs::read_to_string(&file).expect("the file"), expect);
    let mode = fs::metadata(&file).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    let left = fs::read_dir(dir.path()).expect("the directory").count();
    assert_eq!(left, 3, "nothing is left beside it");

    let list = run(dir.path(), &["list", "-o", "json"]);
    let rows: serde_json::Value = serde_json::from_slice(&list.stdout).expect("JSON");
    assert_eq!(rows[0]["value"], 0.25, "{rows}");
    assert_eq!(rows.as_array().map(Vec::len), Some(2));
}

#[test]
fn a_linked_file_stays_a_link() {
    let dir = farm(FLAGS);
    let (file, real) = (dir.path().join("flags.yaml"), dir.path().join("real.yaml"));
    fs::rename(&file, &real).expect("moved");
    std::os::unix::fs::symlink("real.yaml", &file).expect("a link");
    assert!(run(dir.path(), &["set", "k8s_jobs_frequency", "--enabled", "false"]).status.success());
    assert!(fs::symlink_metadata(&file).expect("the link").is_symlink());
    assert!(fs::read_to_string(&real).expect("the file").contains("{enabled: false, value: 1}"));
}

#[test]
fn what_cannot_be_done_is_refused_with_what_would_be_right_and_changes_nothing() {
    let dir = farm(FLAGS);
    for (arguments, code, expect) in [
        (&["set", "k8s_job_frequency", "--value", "0"][..], 1, "did you mean `k8s_jobs_frequency`"),
        (&["set", "new", "--value", "0"], 1, "hint: to make it, say --enabled"),
        (&["set", "k8s_jobs_frequency"], 2, "--value"),
        (&["set", "k8s_jobs_frequency", "--value", "nan"], 2, "write a number"),
        (&["set", "k8s_jobs_frequency", "--value", "1", "--unset"], 2, "cannot be used with"),
    ] {
        let output = run(dir.path(), arguments);
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {err}");
        assert!(err.contains(expect), "{arguments:?}: {err}");
    }
    assert_eq!(fs::read_to_string(dir.path().join("flags.yaml")).expect("the file"), FLAGS);
}

#[test]
fn a_value_of_a_flag_that_is_off_is_set_with_a_warning() {
    let dir = farm("w: {enabled: false, value: 1}\n");
    let set = run(dir.path(), &["set", "w", "--unset"]);
    assert!(set.status.success());
    assert!(text(&set.stderr).contains("warning: the flag is off"));
    let list = text(&run(dir.path(), &["list"]).stdout);
    assert!(list.contains("FLAG") && list.lines().count() == 2, "{list}");
}
