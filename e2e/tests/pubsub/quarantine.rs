//! Rejected messages: their records, and the way back.

use std::time::Duration;

use anyhow::{Result, ensure};
use gcloud_sdk::google::pubsub::v1::DeleteTopicRequest;
use katabatch::domain::outcome::{RejectKind, Rejection};
use katabatch::queue::pubsub::quarantine::{PutBack, list, put_back};
use katabatch::queue::pubsub::wire::{Grpc, Wire};
use katabatch::queue::{Queue, QueueError};

use crate::world::{LEASE, World, ids, lease, nothing_comes, subscription, topic};

pub async fn round_trip() -> Result<()> {
    let world = World::new().await?;
    world.publish(2, &[]).await?;
    let queue = world.queue();
    let taken = lease(&queue, 2, LEASE).await?;
    for (delivery, kind) in taken.iter().zip([RejectKind::BadUrl, RejectKind::DeadUrl]) {
        let why = Rejection::new(kind, "see https://h/o?X-Goog-Signature=5ec");
        ensure!(queue.quarantine(&delivery.lease, &why).await == Ok(()));
    }
    ensure!(nothing_comes(&queue, Duration::from_secs(3)).await?);

    let records = Grpc::new(&world.channel, subscription("rejected"));
    for _ in 0..2 {
        let listed = list(&records).await?;
        ensure!(listed.len() == 2, "{} records", listed.len());
        ensure!(listed.iter().all(|r| !r.about.detail.contains("5ec")));
        ensure!(listed[0].about.rejected_at >= listed[1].about.rejected_at);
        ensure!(listed[0].about.subscription == subscription("tasks"));
    }
    let tasks = Grpc::new(&world.channel, subscription("tasks")).topic().await;
    ensure!(tasks == Ok(topic("tasks")), "{tasks:?}");
    let done = put_back(&records, &topic("tasks"), None, |r| r.about.reason == "bad_url").await?;
    ensure!(done == PutBack { put_back: 1, left: 0, empty: 0 }, "{done:?}");

    let back = lease(&queue, 1, LEASE).await?;
    ensure!(back[0].attributes == taken[0].attributes, "the message is as it was");
    let left = list(&records).await?;
    ensure!(left.len() == 1 && left[0].about.reason == "dead_url");
    ensure!(queue.ack(&ids(&back)).await == [Ok(())]);
    Ok(())
}

pub async fn no_topic() -> Result<()> {
    let world = World::new().await?;
    let gone = DeleteTopicRequest { topic: topic("rejected") };
    world.publisher().delete_topic(gone).await?;
    world.publish(1, &[]).await?;
    let queue = world.queue();
    let taken = lease(&queue, 1, LEASE).await?;
    let why = Rejection::new(RejectKind::BadUrl, "x");
    let refused = queue.quarantine(&taken[0].lease, &why).await;
    let Err(QueueError::Unusable(said)) = refused else { anyhow::bail!("{refused:?}") };
    ensure!(said.contains(&topic("rejected")) && said.contains("create it"), "{said}");
    queue.release(&ids(&taken), Duration::ZERO).await;
    ensure!(lease(&queue, 1, LEASE).await?.len() == 1, "it was not acked");
    Ok(())
}
