//! `katabatch check` on subscriptions that lose messages, and on ones that don't.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use gcloud_sdk::google::pubsub::v1::{DeadLetterPolicy, DeleteTopicRequest, Subscription, Topic};
use katabatch_e2e::process::Process;
use serde_json::{Value, json};

use crate::world::{World, subscription, topic};

/// A farm with one queue on `tasks`; its one job type wants another base OS version.
fn write_farm(dir: &Path, host: &str, more: &str) -> Result<()> {
    let config = format!(
        "apiVersion: katabatch.dev/v1alpha1\nclusterfuzz: {{config_dir: farm}}\nqueues:\n\
         - name: plain\n  pubsub: {{subscription: tasks, quarantine_topic: rejected{more}, \
         endpoint: \"http://{host}\"}}\n\
         backends: [{{name: here, local: {{command: [\"true\"]}}}}]\n"
    );
    let mapping = "{docker_image: i, service_account_email: w@p.iam.gserviceaccount.com, \
                   preemptible: true, disk_size_gb: 10, disk_type: d, machine_type: m, \
                   user_data: u, subconfigs: []}";
    let batch = format!(
        "mapping:\n  LINUX-PREEMPTIBLE-UNPRIVILEGED: {mapping}\n  \
                         LINUX-NONPREEMPTIBLE-UNPRIVILEGED: {mapping}\n"
    );
    std::fs::create_dir_all(dir.join("farm/batch"))?;
    for (name, text) in [
        ("katabatch.yaml", config.as_str()),
        ("farm/project.yaml", "env: {PROJECT_NAME: test, APPLICATION_ID: p}\n"),
        ("farm/batch/batch.yaml", &batch),
        (
            "entities.yaml",
            "- {kind: Job, name: j, platform: LINUX, base_os_version: ubuntu-24-04}\n",
        ),
    ] {
        std::fs::write(dir.join(name), text).with_context(|| format!("write {name}"))?;
    }
    Ok(())
}

async fn rows(dir: &Path) -> Result<Vec<Value>> {
    let output = Process::run(dir, "check", &["check", "-o", "json"]).await?;
    serde_json::from_str(&output.stdout).with_context(|| format!("{output:?}"))
}

fn has(rows: &[Value], verdict: &str, words: &str) -> Result<()> {
    let found = rows
        .iter()
        .any(|row| row["verdict"] == json!(verdict) && row["detail"].to_string().contains(words));
    ensure!(found, "{verdict} {words:?} is not in {rows:#?}");
    Ok(())
}

/// Case 3, and what loses messages.
pub async fn losses() -> Result<()> {
    let world = World::new().await?;
    let dir = tempfile::tempdir().context("a folder")?;
    let host = world.emulator.host();
    write_farm(dir.path(), &host, ", quarantine_subscription: rejected")?;
    let before = rows(dir.path()).await?;
    has(&before, "pass", "is on projects/p/topics/tasks")?;
    has(&before, "pass", "is read by rejected")?;
    has(&before, "fail", "nobody reads version ubuntu-24-04")?;
    has(&before, "pass", "all 1 subscriptions are read")?;

    let dead = Topic { name: topic("dead"), ..Topic::default() };
    world.publisher().create_topic(dead).await.context("create the topic")?;
    let policy = DeadLetterPolicy { dead_letter_topic: topic("dead"), max_delivery_attempts: 5 };
    world
        .subscribe(Subscription {
            name: subscription("tasks-ubuntu-24-04"),
            topic: topic("tasks"),
            dead_letter_policy: Some(policy),
            ..Subscription::default()
        })
        .await?;
    let after = rows(dir.path()).await?;
    has(&after, "warn", "no queue here reads its subscriptions tasks-ubuntu-24-04")?;
    has(&after, "warn", "version ubuntu-24-04 (1 job types, such as j) is left to the reader of")?;

    let config = dir.path().join("katabatch.yaml");
    let text = std::fs::read_to_string(&config)?;
    std::fs::write(
        &config,
        text.replace("subscription: tasks,", "subscription: tasks-ubuntu-24-04,"),
    )?;
    let other = rows(dir.path()).await?;
    has(&other, "warn", "takes a message away after 5 deliveries")?;
    has(&other, "fail", "has no subscription: what is published to it is lost")?;
    has(&other, "not_checked", "whether Pub/Sub may publish there")?;
    has(&other, "fail", "it drops the messages of ubuntu-24-04")?;
    Ok(())
}

pub async fn absences() -> Result<()> {
    let world = World::new().await?;
    let dir = tempfile::tempdir().context("a folder")?;
    let host = world.emulator.host();
    write_farm(dir.path(), &host, "")?;
    has(&rows(dir.path()).await?, "warn", "`queue quarantine` can't read it")?;
    let config = dir.path().join("katabatch.yaml");
    let text = std::fs::read_to_string(&config)?;
    let gone = text.replace("subscription: tasks", "subscription: none-such");
    std::fs::write(
        &config,
        gone.replace("quarantine_topic: rejected", "quarantine_topic: no-such"),
    )?;
    let absent = rows(dir.path()).await?;
    has(&absent, "fail", "subscriptions/none-such is not there")?;
    has(&absent, "fail", "the topic is not there")?;
    Ok(())
}

/// A subscription outlives its topic; what is published to that topic is lost all the same.
pub async fn quarantine_topic() -> Result<()> {
    let world = World::new().await?;
    let dir = tempfile::tempdir().context("a folder")?;
    write_farm(dir.path(), &world.emulator.host(), ", quarantine_subscription: rejected")?;
    let gone = DeleteTopicRequest { topic: topic("rejected") };
    world.publisher().delete_topic(gone).await.context("delete the topic")?;
    let output = Process::run(dir.path(), "check", &["check", "-o", "json"]).await?;
    ensure!(output.code == Some(1), "{output:?}");
    let rows: Vec<Value> = serde_json::from_str(&output.stdout)?;
    let of_topic = rows.iter().find(|row| row["area"] == json!("quarantine"));
    let row = of_topic.context("nothing is said of the topic")?;
    ensure!(row["verdict"] == json!("fail"), "{row}");
    ensure!(row["detail"] == json!("the topic is not there"), "{row}");
    let create = format!("gcloud pubsub topics create {}", topic("rejected"));
    ensure!(row["hint"] == json!(create), "{row}");
    Ok(())
}

/// An endpoint that is away is named, and nobody is sent to look for rights.
pub async fn away() -> Result<()> {
    let world = World::new().await?;
    let dir = tempfile::tempdir().context("a folder")?;
    let host = world.emulator.host();
    write_farm(dir.path(), &host, "")?;
    drop(world);
    let rows = rows(dir.path()).await?;
    has(&rows, "fail", &format!("projects/p/subscriptions/tasks: Unavailable: {host}: "))?;
    has(&rows, "fail", &format!("projects/p/topics/rejected: Unavailable: {host}: "))?;
    let about = |row: &&Value| row["area"] == json!("queue") && row["verdict"] == json!("fail");
    for row in rows.iter().filter(about) {
        let hint = row["hint"].as_str().unwrap_or_default();
        ensure!(hint.contains("reach it") && !hint.contains("roles/"), "{row}");
    }
    Ok(())
}
