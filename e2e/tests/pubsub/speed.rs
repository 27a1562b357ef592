//! How soon a message is leased, and how fast many are: measured, with bounds that only a fault
//! goes over on a busy machine.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use katabatch::queue::Queue;
use tokio::time::Instant;

use crate::world::{LEASE, World, ids, lease};

const WAITING: usize = 3_000;
const SINGLE: usize = 100;

pub async fn measured() -> Result<()> {
    let world = World::new().await?;
    let queue = world.queue();
    let mut took = Vec::with_capacity(SINGLE);
    for _ in 0..SINGLE {
        let (waiting, start) = tokio::join!(lease(&queue, 1, LEASE), async {
            // The pull is at the server by then.
            tokio::task::yield_now().await;
            let start = Instant::now();
            world.publish(1, &[]).await.map(|()| start)
        });
        let (taken, start) = (waiting?, start?);
        took.push(start.elapsed());
        ensure!(queue.ack(&ids(&taken)).await == [Ok(())]);
    }
    took.sort_unstable();
    let at = |share: usize| took.get(SINGLE * share / 100).copied().context("a figure");
    let (p50, p99) = (at(50)?, at(99)?);

    world.publish(WAITING, &[]).await?;
    let start = Instant::now();
    let mut left = WAITING;
    while left > 0 {
        let taken = lease(&queue, left.min(500), LEASE).await?;
        left -= taken.len();
        ensure!(queue.ack(&ids(&taken)).await.iter().all(Result::is_ok));
    }
    let rate = WAITING as f64 / start.elapsed().as_secs_f64();
    eprintln!("published to leased: p50 {p50:?}, p99 {p99:?}; drained: {rate:.0} messages/s");
    ensure!(p50 < Duration::from_millis(200), "p50 {p50:?}");
    ensure!(rate > 150.0, "{rate:.0} messages/s");
    Ok(())
}
