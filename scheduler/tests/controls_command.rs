//! `katabatch pause`, `resume`, `drain`, `backend` and `controls` as a person runs them, where no
//! backend is a cluster.
#![expect(clippy::expect_used, reason = "what fails here fails its test")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

fn farm() -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(path, text).expect("written");
    };
    write(
        "katabatch.yaml",
        "apiVersion: katabatch.dev/v1alpha1\nflags: {file: flags.yaml}\nbackends:\n\
         - {name: laptop, local: {command: [\"true\"]}}\n- {name: desk, local: {command: [\"true\"]}}\n",
    );
    write("clusterfuzz-config/project.yaml", "env: {PROJECT_NAME: x}\n");
    write("clusterfuzz-config/batch/batch.yaml", "mapping: {}\n");
    write("flags.yaml", "w: {enabled: true, value: 0.5}\n");
    dir
}

fn run(dir: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_katabatch"))
        .arg("--config")
        .arg(dir.join("katabatch.yaml"))
        .args(arguments)
        .env_remove("SUDO_USER")
        .stdin(std::process::Stdio::null())
        .output()
        .expect("it runs")
}

fn done(dir: &Path, arguments: &[&str]) -> String {
    let output = run(dir, arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn refused(dir: &Path, arguments: &[&str]) -> String {
    let output = run(dir, arguments);
    assert!(!output.status.success(), "{arguments:?} was done");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_pause_is_kept_with_who_why_and_until_and_every_change_is_in_the_audit_log() {
    let dir = farm();
    let dir = dir.path();
    done(dir, &["pause", "--job-type", "android-*", "--why", "bad image", "--for", "2h"]);
    done(dir, &["drain", "laptop", "--why", "new disk"]);
    let listed = done(dir, &["controls", "list", "-o", "json"]);
    let rows: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(rows[0]["target"], "job type android-*", "{listed}");
    assert_eq!((&rows[0]["why"], &rows[1]["until"]), (&"bad image".into(), &().into()), "{listed}");
    assert_eq!(rows[1]["target"], "backend laptop", "{listed}");
    assert!(rows[0]["who"].as_str().is_some_and(|who| !who.is_empty()), "{listed}");
    done(dir, &["resume", "--backend", "laptop"]);
    let why = refused(dir, &["resume", "--backend", "laptop"]);
    assert!(why.contains("hint: paused is job type android-*"), "{why}");
    done(dir, &["flags", "set", "w", "--value", "0.25"]);
    let audit = done(dir, &["controls", "audit"]);
    for what in ["pause job type android-*", "pause backend laptop", "resume backend laptop"] {
        assert!(audit.contains(what), "{audit}");
    }
    assert!(audit.contains("set flag w") && audit.contains("value=0.5"), "{audit}");
    let controls = fs::metadata(dir.join("state/controls.json")).expect("the file");
    assert_eq!(controls.permissions().mode() & 0o777, 0o600);
}

#[test]
fn what_is_not_meant_is_refused_with_what_would_be_right() {
    let dir = farm();
    let dir = dir.path();
    for (arguments, text) in [
        (&["drain", "gke", "--why", "x"][..], "there are laptop, desk"),
        (&["pause", "--why", "x"], "required"),
        (&["pause", "--all"], "--why"),
        (&["pause", "--all", "--why", " "], "say why"),
        (&["pause", "--all", "--why", "x", "--for", "soon"], "30m, 2h or 1d"),
        (&["backend", "declare-lost", "desk", "--why", "x"], "say --yes if that is meant"),
        (&["backend", "declare-found", "desk"], "is not declared lost"),
        (&["cancel", "--backend", "gke", "--why", "x"], "there are laptop, desk"),
    ] {
        let why = refused(dir, arguments);
        assert!(why.contains(text), "{arguments:?}: {why}");
    }
    assert_eq!(done(dir, &["controls", "list", "-o", "json"]).trim(), "[]");
}

#[test]
fn a_lost_backend_is_found_only_after_it_was_seen_to_be_clear() {
    let dir = farm();
    let dir = dir.path();
    done(dir, &["backend", "declare-lost", "desk", "--why", "burned", "--yes"]);
    let listed = done(dir, &["controls", "list"]);
    assert!(listed.contains("lost") && listed.contains("burned"), "{listed}");
    let why = refused(dir, &["backend", "declare-found", "desk"]);
    assert!(why.contains("lost, cleared"), "{why}");
    done(dir, &["backend", "declare-found", "desk", "--force"]);
    assert_eq!(done(dir, &["controls", "list", "-o", "json"]).trim(), "[]");
}
