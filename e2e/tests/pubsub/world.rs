//! An emulator with a topic, a subscription and a quarantine, and Google's clients to them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use gcloud_sdk::google::pubsub::v1::publisher_client::PublisherClient;
use gcloud_sdk::google::pubsub::v1::subscriber_client::SubscriberClient;
use gcloud_sdk::google::pubsub::v1::{PublishRequest, PubsubMessage, Subscription, Topic};
use katabatch::clock::SystemClock;
use katabatch::domain::pubsub::Names;
use katabatch::gcp::channel::{Channel, Endpoint};
use katabatch::queue::pubsub::PubSub;
use katabatch::queue::{Delivery, LeaseId, Queue};
use katabatch_e2e::emulator::PubSubEmulator;
use tokio::time::Instant;

/// How long what must happen may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// A lease that outlives its test.
pub const LEASE: Duration = Duration::from_secs(120);
const WAIT: Duration = Duration::from_secs(2);

pub struct World {
    pub emulator: PubSubEmulator,
    pub channel: Channel,
}

impl World {
    /// An emulator of the test's own, with `tasks` and `rejected`, a subscription of each.
    pub async fn new() -> Result<Self> {
        let emulator = PubSubEmulator::start().await?;
        let channel = Endpoint::choose(None, Some(&emulator.host()), "").open().await?;
        let world = Self { emulator, channel };
        world.furnish().await?;
        Ok(world)
    }

    /// Makes topics and subscriptions: an emulator that starts has none.
    pub async fn furnish(&self) -> Result<()> {
        for name in ["tasks", "rejected"] {
            let topic = Topic { name: topic(name), ..Topic::default() };
            self.publisher().create_topic(topic).await.context("create the topic")?;
            self.subscribe(Subscription {
                name: subscription(name),
                topic: self::topic(name),
                ..Subscription::default()
            })
            .await?;
        }
        Ok(())
    }

    pub async fn subscribe(&self, subscription: Subscription) -> Result<()> {
        let made = self.subscriber().create_subscription(subscription).await;
        made.map(drop).context("create the subscription")
    }

    pub fn publisher(&self) -> PublisherClient<Channel> {
        PublisherClient::new(self.channel.clone())
    }

    pub fn subscriber(&self) -> SubscriberClient<Channel> {
        SubscriberClient::new(self.channel.clone())
    }

    /// Publishes `n` tasks; task `i` has the input object `i`.
    pub async fn publish(&self, n: usize, more: &[(&str, &str)]) -> Result<()> {
        let all: Vec<PubsubMessage> = (0..n).map(|i| message(i, more)).collect();
        for part in all.chunks(500) {
            let request = PublishRequest { topic: topic("tasks"), messages: part.to_vec() };
            self.publisher().publish(request).await.context("publish")?;
        }
        Ok(())
    }

    /// The queue on `tasks`.
    pub fn queue(&self) -> Arc<PubSub> {
        self.queue_on("tasks")
    }

    pub fn queue_on(&self, name: &str) -> Arc<PubSub> {
        let clock = Arc::new(SystemClock);
        Arc::new(PubSub::new("q".into(), names(name), &self.channel, clock))
    }
}

pub fn topic(name: &str) -> String {
    format!("projects/p/topics/{name}")
}

pub fn subscription(name: &str) -> String {
    format!("projects/p/subscriptions/{name}")
}

pub fn names(name: &str) -> Names {
    Names {
        subscription: subscription(name),
        topic: None,
        quarantine_topic: topic("rejected"),
        quarantine_subscription: Some(subscription("rejected")),
    }
}

pub fn message(number: usize, more: &[(&str, &str)]) -> PubsubMessage {
    let argument = format!("https://storage.googleapis.com/inputs/{number}?X-Goog-Signature=5ec");
    let mut attributes = HashMap::from([
        ("command".to_owned(), "fuzz".to_owned()),
        ("job".to_owned(), "libfuzzer_asan_zlib".to_owned()),
        ("argument".to_owned(), argument),
    ]);
    attributes.extend(more.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
    PubsubMessage { attributes, ..PubsubMessage::default() }
}

/// Leases until there are `n`.
pub async fn lease(queue: &PubSub, n: usize, lease_for: Duration) -> Result<Vec<Delivery>> {
    let end = Instant::now() + PATIENCE;
    let mut taken = Vec::new();
    while taken.len() < n {
        if Instant::now() > end {
            bail!("{} of {n} messages came within {PATIENCE:?}", taken.len());
        }
        taken.extend(queue.lease(n - taken.len(), lease_for, WAIT).await?);
    }
    Ok(taken)
}

/// Whether nothing comes for `time`.
pub async fn nothing_comes(queue: &PubSub, time: Duration) -> Result<bool> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        if !queue.lease(10, LEASE, WAIT).await?.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

pub fn ids(deliveries: &[Delivery]) -> Vec<LeaseId> {
    deliveries.iter().map(|delivery| delivery.lease.clone()).collect()
}
