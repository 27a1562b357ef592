//! A server that goes away, comes back empty, or never had the subscription.

use std::time::Duration;

use anyhow::{Result, ensure};
use katabatch::queue::{Queue, QueueError};
use katabatch_e2e::eventually;
use katabatch_e2e::eventually::Seen;

use crate::world::{LEASE, PATIENCE, World, ids, lease};

const WAIT: Duration = Duration::from_secs(2);

pub async fn killed() -> Result<()> {
    let mut world = World::new().await?;
    world.publish(50, &[]).await?;
    let queue = world.queue();
    let taken = lease(&queue, 50, LEASE).await?;
    let (before, after) = taken.split_at(20);
    ensure!(queue.ack(&ids(before)).await.iter().all(Result::is_ok));
    world.emulator.kill()?;
    for answer in queue.ack(&ids(after)).await {
        ensure!(matches!(answer, Err(QueueError::Unavailable(_))), "{answer:?}");
    }
    let leased = queue.lease(1, LEASE, WAIT).await;
    ensure!(matches!(leased, Err(QueueError::Unavailable(_))), "{leased:?}");

    world.emulator.start_again().await?;
    // The emulator has forgotten the subscription. It worked before, so that is waited for.
    let leased = queue.lease(1, LEASE, WAIT).await;
    ensure!(matches!(leased, Err(QueueError::Unavailable(_))), "{leased:?}");
    eventually("the emulator is furnished again", PATIENCE, || async {
        world.furnish().await.map(Seen::Done)
    })
    .await?;
    world.publish(10, &[]).await?;
    let queue = &queue;
    let back = eventually("messages come again", PATIENCE, || async move {
        Ok(Seen::Done(lease(queue, 10, LEASE).await?))
    })
    .await?;
    ensure!(queue.ack(&ids(&back)).await.iter().all(Result::is_ok));
    Ok(())
}

pub async fn missing() -> Result<()> {
    let world = World::new().await?;
    let leased = world.queue_on("nowhere").lease(1, LEASE, WAIT).await;
    let Err(QueueError::Unusable(said)) = leased else { anyhow::bail!("{leased:?}") };
    ensure!(said.contains("subscriptions/nowhere") && said.contains("create it"), "{said}");
    Ok(())
}
