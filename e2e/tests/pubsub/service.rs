//! The whole service on two subscriptions of one topic, as a farm with two base OS versions has.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use gcloud_sdk::google::pubsub::v1::Subscription;
use katabatch::pipeline::Ended;
use katabatch::pipeline::tally::{Decision, Observer, Verdict};
use katabatch::service::{Options, Service, load};
use katabatch_e2e::eventually;
use katabatch_e2e::eventually::Seen;
use tokio_util::sync::CancellationToken;

use crate::world::{PATIENCE, World, subscription, topic};

const VERSION: &str = "ubuntu-24-04";

#[derive(Default)]
struct Verdicts(Mutex<BTreeMap<&'static str, usize>>);

impl Observer for Verdicts {
    fn decided(&self, decision: &Decision) {
        let what = match decision.verdict {
            Verdict::Scheduled(_) => "scheduled",
            Verdict::Acked => "acked",
            Verdict::NotOurs => "not ours",
            Verdict::Rejected(..) => "rejected",
            _ => "other",
        };
        if let Ok(mut counts) = self.0.lock() {
            *counts.entry(what).or_default() += 1;
        }
    }
}

pub async fn versions() -> Result<()> {
    let world = World::new().await?;
    world
        .subscribe(Subscription {
            name: subscription("tasks-24-04"),
            topic: topic("tasks"),
            ..Subscription::default()
        })
        .await?;
    world.publish(5, &[("base_os_version", VERSION)]).await?;
    let dir = tempfile::tempdir().context("a folder")?;
    write_farm(dir.path(), &world.emulator.host())?;
    let verdicts = Arc::new(Verdicts::default());
    let options = Options { observer: Some(verdicts.clone()), ..Options::default() };
    let service = Service::build(load(&dir.path().join("k.yaml"))?, options).await?;
    let stop = CancellationToken::new();
    let running = tokio::spawn(service.run(stop.clone()));
    let seen = || verdicts.0.lock().map(|counts| counts.clone()).unwrap_or_default();
    // Each subscription has all five: one takes them, the other acks them without a Job.
    let expect = BTreeMap::from([("scheduled", 5), ("acked", 5), ("not ours", 5)]);
    let settled = eventually("all are settled", PATIENCE, || async {
        Ok(Seen::when(seen() == expect, || format!("{:?}", seen())))
    })
    .await;
    stop.cancel();
    let ended = running.await.context("the service ends")??;
    settled?;
    ensure!(ended == Ended::Stopped && seen() == expect, "{ended:?} {:?}", seen());
    Ok(())
}

fn write_farm(dir: &Path, host: &str) -> Result<()> {
    let queue = |name: &str, subscription: &str, version: &str| {
        format!(
            "- name: {name}\n  pubsub: {{subscription: {subscription}, quarantine_topic: rejected, \
             endpoint: \"http://{host}\"}}\n{version}"
        )
    };
    let plain = queue("plain", "tasks", "");
    let versioned = queue("versioned", "tasks-24-04", &format!("  base_os_version: {VERSION}\n"));
    let config = format!(
        "apiVersion: katabatch.dev/v1alpha1\nclusterfuzz: {{config_dir: farm}}\n\
         queues:\n{plain}{versioned}backends:\n\
         - name: here\n  local: {{command: [\"true\"], dir: work, jobs: 2}}\n\
         catalog: {{file: entities.yaml}}\n"
    );
    let batch = "mapping:\n  LINUX-PREEMPTIBLE-UNPRIVILEGED: {docker_image: i, \
                 service_account_email: w@p.iam.gserviceaccount.com, preemptible: true, \
                 disk_size_gb: 10, disk_type: pd-standard, machine_type: m, user_data: u, \
                 subconfigs: []}\n";
    let project = "env:\n  PROJECT_NAME: test\n  APPLICATION_ID: s~p\n";
    let entities = "- {kind: Job, name: libfuzzer_asan_zlib, platform: LINUX}\n";
    std::fs::create_dir_all(dir.join("farm/batch"))?;
    for (name, text) in [
        ("k.yaml", config.as_str()),
        ("farm/project.yaml", project),
        ("farm/batch/batch.yaml", batch),
        ("entities.yaml", entities),
    ] {
        std::fs::write(dir.join(name), text).with_context(|| format!("write {name}"))?;
    }
    Ok(())
}
