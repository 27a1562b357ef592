//! Leases as the emulator keeps them.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use gcloud_sdk::google::pubsub::v1::{DeadLetterPolicy, Subscription};
use katabatch::queue::pubsub::Fault;
use katabatch::queue::pubsub::wire::{Grpc, Wire};
use katabatch::queue::{Queue, QueueError};
use tokio::time::Instant;

use crate::world::{LEASE, World, ids, lease, nothing_comes, subscription, topic};

/// The shortest lease that is asked for; the emulator takes any.
const BRIEF: Duration = Duration::from_secs(3);

pub async fn acked_is_gone() -> Result<()> {
    let world = World::new().await?;
    world.publish(3, &[("base_os_version", "ubuntu-24-04")]).await?;
    let queue = world.queue();
    let taken = lease(&queue, 3, BRIEF).await?;
    for delivery in &taken {
        ensure!(delivery.attributes["base_os_version"] == "ubuntu-24-04");
        ensure!(!delivery.message_id.is_empty() && delivery.deliveries.is_none());
        let age = jiff::Timestamp::now().duration_since(delivery.published_at);
        ensure!(age.as_secs().abs() < 60, "published {age:?} ago");
    }
    let acked = queue.ack(&ids(&taken)).await;
    ensure!(acked.iter().all(Result::is_ok), "{acked:?}");
    ensure!(nothing_comes(&queue, BRIEF * 2).await?);
    Ok(())
}

pub async fn lapsed_comes_again() -> Result<()> {
    let world = World::new().await?;
    world.publish(1, &[]).await?;
    let queue = world.queue();
    let first = lease(&queue, 1, BRIEF).await?;
    let start = Instant::now();
    let again = lease(&queue, 1, BRIEF).await?;
    ensure!(first[0].message_id == again[0].message_id);
    ensure!(start.elapsed() > BRIEF / 2, "after {:?}", start.elapsed());
    // The server itself would say OK to this.
    ensure!(queue.ack(&ids(&first)).await == [Err(QueueError::LeaseLost)]);
    ensure!(queue.ack(&ids(&again)).await == [Ok(())]);
    Ok(())
}

pub async fn extended_stays() -> Result<()> {
    let world = World::new().await?;
    world.publish(1, &[]).await?;
    let queue = world.queue();
    let taken = ids(&lease(&queue, 1, BRIEF).await?);
    ensure!(queue.extend(&taken, LEASE).await == [Ok(())]);
    ensure!(nothing_comes(&queue, BRIEF * 2).await?);
    ensure!(queue.ack(&taken).await == [Ok(())]);
    Ok(())
}

pub async fn released_comes() -> Result<()> {
    let world = World::new().await?;
    world.publish(1, &[]).await?;
    let queue = world.queue();
    let taken = lease(&queue, 1, LEASE).await?;
    ensure!(queue.release(&ids(&taken), Duration::ZERO).await == [Ok(())]);
    let start = Instant::now();
    let again = lease(&queue, 1, LEASE).await?;
    ensure!(start.elapsed() < Duration::from_secs(2), "after {:?}", start.elapsed());
    ensure!(again[0].message_id == taken[0].message_id);

    ensure!(queue.release(&ids(&again), BRIEF).await == [Ok(())]);
    let start = Instant::now();
    let third = lease(&queue, 1, LEASE).await?;
    ensure!(start.elapsed() > BRIEF / 2, "after {:?}", start.elapsed());
    ensure!(queue.ack(&ids(&third)).await == [Ok(())]);
    Ok(())
}

pub async fn three_thousand() -> Result<()> {
    let world = World::new().await?;
    world.publish(3_000, &[]).await?;
    let queue = world.queue();
    let taken = lease(&queue, 3_000, LEASE).await?;
    let distinct: BTreeSet<_> = taken.iter().map(|d| &d.message_id).collect();
    ensure!(distinct.len() == 3_000, "{} messages", distinct.len());
    let extended = queue.extend(&ids(&taken), LEASE).await;
    ensure!(extended.len() == 3_000 && extended.iter().all(Result::is_ok));
    let acked = queue.ack(&ids(&taken)).await;
    ensure!(acked.len() == 3_000 && acked.iter().all(Result::is_ok));
    ensure!(nothing_comes(&queue, BRIEF).await?);
    Ok(())
}

/// What the split of a refused request relies on: the whole of it is refused.
pub async fn garbage() -> Result<()> {
    let world = World::new().await?;
    world.publish(1, &[]).await?;
    let wire = Grpc::new(&world.channel, subscription("tasks"));
    let good = loop {
        if let Some(message) =
            wire.pull(1, Duration::from_secs(3)).await.ok().and_then(|mut m| m.pop())
        {
            break message.ack_id;
        }
    };
    let both = wire.acknowledge(&[good.clone(), "garbage".into()]).await;
    ensure!(matches!(both, Err(Fault::Refused(_))), "{both:?}");
    let alone = wire.acknowledge(&["garbage".into()]).await;
    ensure!(matches!(alone, Err(Fault::Refused(_))), "{alone:?}");
    ensure!(wire.acknowledge(&[good]).await == Ok(()));
    Ok(())
}

pub async fn gone_caller() -> Result<()> {
    let world = World::new().await?;
    let queue = world.queue();
    let gone = queue.lease(10, LEASE, Duration::from_secs(2));
    ensure!(tokio::time::timeout(Duration::from_millis(200), gone).await.is_err());
    world.publish(5, &[]).await?;
    // Far less than the subscription's ack deadline of 10 s: nothing was given to nobody.
    let start = Instant::now();
    let taken = lease(&queue, 5, LEASE).await?;
    ensure!(start.elapsed() < Duration::from_secs(5), "after {:?}", start.elapsed());
    let acked = queue.ack(&ids(&taken)).await;
    ensure!(acked.iter().all(Result::is_ok), "{acked:?}");
    Ok(())
}

pub async fn closing() -> Result<()> {
    let world = World::new().await?;
    let queue = world.queue();
    let gone = queue.lease(10, LEASE, Duration::from_secs(2));
    ensure!(tokio::time::timeout(Duration::from_millis(200), gone).await.is_err());
    world.publish(5, &[]).await?;
    queue.close().await;
    let start = Instant::now();
    let taken = lease(&world.queue(), 5, LEASE).await?;
    ensure!(taken.len() == 5 && start.elapsed() < Duration::from_secs(5));
    Ok(())
}

pub async fn deliveries() -> Result<()> {
    let world = World::new().await?;
    let policy =
        DeadLetterPolicy { dead_letter_topic: topic("rejected"), max_delivery_attempts: 9 };
    world
        .subscribe(Subscription {
            name: subscription("counted"),
            topic: topic("tasks"),
            dead_letter_policy: Some(policy),
            ..Subscription::default()
        })
        .await?;
    world.publish(1, &[]).await?;
    let queue = world.queue_on("counted");
    let first = lease(&queue, 1, LEASE).await?;
    queue.release(&ids(&first), Duration::ZERO).await;
    let second = lease(&queue, 1, LEASE).await?;
    ensure!(
        (first[0].deliveries, second[0].deliveries) == (Some(1), Some(2)),
        "{:?} {:?}",
        first[0].deliveries,
        second[0].deliveries
    );
    Ok(())
}
