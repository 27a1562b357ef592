//! The queue over a subscription that answers as told, on a paused clock.

mod leasing;
mod settling;

use std::time::Duration;

use super::PubSub;
use crate::queue::{Delivery, LeaseId, Queue};

const MINUTE: Duration = Duration::from_secs(60);
const WAIT: Duration = Duration::from_secs(2);

async fn lease(queue: &PubSub, n: usize) -> Vec<Delivery> {
    queue.lease(n, MINUTE, WAIT).await.expect("an answer")
}

fn ids(deliveries: &[Delivery]) -> Vec<LeaseId> {
    deliveries.iter().map(|delivery| delivery.lease.clone()).collect()
}
