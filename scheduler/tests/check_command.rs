//! `katabatch check` as a person runs it, without a cluster and without Google.
#![expect(clippy::expect_used, reason = "what fails here fails its test")]

use std::fs;
use std::net::TcpListener;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

const MAPPING: &str = "{docker_image: i, service_account_email: w@p.iam.gserviceaccount.com, \
                       preemptible: true, disk_size_gb: 10, disk_type: pd-standard, \
                       machine_type: m, user_data: u, subconfigs: []}";

fn farm(config: &str, entities: &str, flags: &str) -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let batch = format!(
        "mapping:\n  LINUX-PREEMPTIBLE-UNPRIVILEGED: {MAPPING}\n  \
         LINUX-NONPREEMPTIBLE-UNPRIVILEGED: {MAPPING}\n"
    );
    for (name, text) in [
        ("katabatch.yaml", format!("apiVersion: katabatch.dev/v1alpha1\n{config}").as_str()),
        ("clusterfuzz-config/project.yaml", "env: {PROJECT_NAME: x, APPLICATION_ID: p}\n"),
        ("clusterfuzz-config/batch/batch.yaml", &batch),
        ("entities.yaml", entities),
        ("flags.yaml", flags),
    ] {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(path, text).expect("written");
    }
    dir
}

/// Runs it with an emulator at `host`; gives the rows and all else.
fn check(dir: &TempDir, host: &str, arguments: &[&str]) -> (Vec<Value>, Output) {
    let output = Command::new(env!("CARGO_BIN_EXE_katabatch"))
        .arg("--config")
        .arg(dir.path().join("katabatch.yaml"))
        .args(["check", "-o", "json"])
        .args(arguments)
        .env("PUBSUB_EMULATOR_HOST", host)
        .env("DATASTORE_EMULATOR_HOST", host)
        .env("KUBECONFIG", dir.path().join("no-kubeconfig"))
        .env_remove("KUBERNETES_SERVICE_HOST")
        .output()
        .expect("it runs");
    let rows = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    (rows, output)
}

/// The verdicts and details of an area.
fn area(rows: &[Value], area: &str) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of = rows.iter().filter(|row| row["area"] == json!(area));
    of.map(|row| (text(&row["verdict"]), text(&row["detail"]))).collect()
}

const GOOGLE: &str = "queues:\n- {name: q, pubsub: {subscription: utask_main, quarantine_topic: rejected}}\n\
                      catalog: {datastore: {}}\nflags: {datastore: {}}\n";

#[test]
fn offline_asks_nobody_and_says_so() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("set");
    let host = listener.local_addr().expect("an address").to_string();
    let dir = farm(GOOGLE, "", "");
    let (rows, output) = check(&dir, &host, &["--offline"]);
    assert!(listener.accept().is_err(), "it has asked");
    assert!(output.status.success(), "{rows:#?}");
    for of in ["flags", "catalog", "queue", "cluster"] {
        let said = area(&rows, of);
        assert!(said.iter().all(|(verdict, _)| verdict == "not_checked"), "{of}: {said:?}");
        assert!(said.iter().all(|(_, detail)| detail.starts_with("not checked: ")), "{said:?}");
    }
    assert_eq!(area(&rows, "templates").len(), 2, "{rows:#?}");
}

#[test]
fn what_does_not_answer_fails_alone() {
    // Bound but never listened on: refused at once.
    let dir = farm(GOOGLE, "", "");
    let (rows, output) = check(&dir, "127.0.0.1:1", &[]);
    assert_eq!(output.status.code(), Some(1));
    for of in ["flags", "catalog", "queue", "cluster"] {
        let said = area(&rows, of);
        assert!(said.iter().any(|(verdict, _)| verdict == "fail"), "{of}: {said:?}");
    }
    let hints = rows.iter().filter(|row| row["verdict"] == json!("fail"));
    assert!(hints.clone().all(|row| row["hint"] != json!("")), "{rows:#?}");
    for row in hints.filter(|row| row["area"] != json!("cluster")) {
        let text = |member: &str| row[member].as_str().unwrap_or_default().to_owned();
        assert!(text("detail").contains("127.0.0.1:1: "), "no address: {row}");
        assert!(!text("hint").contains("permission") && text("hint").contains("reach"), "{row}");
    }
    let templates = area(&rows, "templates");
    assert!(templates.len() == 2 && templates.iter().all(|(v, _)| v == "pass"), "{templates:?}");
}

#[test]
fn job_types_that_would_be_held_or_run_oddly_are_named() {
    let job = |name: &str, more: &str| format!("- {{kind: Job, name: {name}, {more}}}\n");
    let entities = [
        job("good", "platform: LINUX"),
        job("disk", r#"platform: LINUX, environment_string: "DISK_SIZE_GB = 200GB""#),
        job("twice", "platform: LINUX"),
        job("twice", "platform: ANDROID"),
        job("swarm", r#"platform: LINUX, environment_string: "IS_SWARMING_JOB = True""#),
        job("templated", "platform: LINUX, templates: [gone]"),
        "- {kind: Job, platform: LINUX}\n".to_owned(),
    ]
    .concat();
    let flags = "swarming_remote_execution: {enabled: true}\n\
                 k8s_jobs_frequency: {enabled: true, value: 1}\n\
                 k8s_jobs_pending_limit: {enabled: true, value: 0}\n";
    let dir = farm("flags: {file: flags.yaml}\n", &entities, flags);
    let (rows, output) = check(&dir, "", &["--offline"]);
    assert_eq!(output.status.code(), Some(1));
    let all = [area(&rows, "catalog"), area(&rows, "flags")].concat();
    for (verdict, words) in [
        ("fail", "disk: DISK_SIZE_GB"),
        ("fail", "2 Jobs named `twice` that differ"),
        ("fail", "gives this job type to Swarming"),
        ("fail", "has no `name`"),
        ("warn", "there is no JobTemplate `gone`"),
        ("pass", "2 of 5 job types"),
        ("warn", "which ClusterFuzz takes for unset"),
        ("warn", "flag k8s_jobs_pending_limit is 0: nothing is created"),
    ] {
        let said = all.iter().any(|(v, detail)| v == verdict && detail.contains(words));
        assert!(said, "{verdict} {words}: {all:#?}");
    }
}

#[test]
fn what_batch_needs_and_a_mapping_lacks_is_told_where_tasks_may_come_there() {
    let backends = |weight: &str, routes: &str| {
        format!(
            "flags: {{file: flags.yaml}}\nbackends:\n- {{name: here, local: {{command: [\"true\"]}}}}\n\
             - {{name: batch, gcp_batch: {{project: p}}, weight: {weight}}}\n{routes}"
        )
    };
    let said = |weight, routes| {
        let dir = farm(&backends(weight, routes), "", "");
        let (rows, _) = check(&dir, "", &["--offline"]);
        area(&rows, "batch")
    };
    let warned = said("{default: 0.5}", "");
    let both = ["LINUX-PREEMPTIBLE", "LINUX-NONPREEMPTIBLE"];
    for mapping in both {
        let words = format!("mapping.{mapping}-UNPRIVILEGED of batch.yaml has no subconfig");
        let found = warned.iter().any(|(v, detail)| v == "warn" && detail.contains(&words));
        assert!(found, "{mapping}: {warned:?}");
    }
    assert_eq!(said("{default: 0}", "").len(), 2, "a flag may set its weight");
    let none = said("{default: 0, flag: null}", "");
    assert!(none.len() == 1 && none[0].0 == "pass", "{none:?}");
    let bound = said("{default: 0.5}", "routes: [{platforms: LINUX, backends: here}]\n");
    assert!(bound.len() == 1 && bound[0].0 == "pass", "{bound:?}");
}
