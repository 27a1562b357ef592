//! What a farm on Google Cloud has, on this machine: Pub/Sub with the topics and subscriptions of
//! ClusterFuzz's names, and Datastore, by Google's emulators. The farm's folder is [`farm`]; the
//! cluster is the control plane's.

pub mod farm;

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use gcloud_sdk::google::datastore::v1::Entity;
use gcloud_sdk::google::pubsub::v1::publisher_client::PublisherClient;
use gcloud_sdk::google::pubsub::v1::subscriber_client::SubscriberClient;
use gcloud_sdk::google::pubsub::v1::{
    ModifyAckDeadlineRequest, PublishRequest, PubsubMessage, PullRequest, ReceivedMessage,
    Subscription, Topic,
};
use gcloud_sdk::tonic::{Code, Request};
use katabatch::gcp::channel::{Channel, Endpoint};

use crate::datastore_emulator::{DatastoreEmulator, Flavour};
use crate::emulator::PubSubEmulator;
use crate::ndb;

/// The topic of tasks, and its subscription.
pub const TASKS: &str = "utask_main";
/// The topic of rejected messages, and its subscription.
pub const QUARANTINE: &str = "katabatch-quarantine";
/// The most messages of one publish (Pub/Sub's limit is 1,000).
const PUBLISH_MOST: usize = 500;
/// How long a pull waits: the emulator answers an empty one a second earlier.
const PULL_FOR: std::time::Duration = std::time::Duration::from_secs(2);

/// Both emulators, furnished. They end with this value.
pub struct Google {
    /// Pub/Sub.
    pub pubsub: PubSubEmulator,
    /// Datastore, as it is today.
    pub datastore: DatastoreEmulator,
    channel: Channel,
}

impl Google {
    /// Starts both, and makes topics and subscriptions.
    ///
    /// # Errors
    /// [`Unavailable`](crate::Unavailable) when the machine lacks what it takes; otherwise why one
    /// did not start.
    pub async fn start() -> Result<Self> {
        let (pubsub, datastore) = tokio::try_join!(
            PubSubEmulator::start(),
            DatastoreEmulator::start(Flavour::Firestore)
        )?;
        let channel = Endpoint::choose(None, Some(&pubsub.host()), "").open().await?;
        let google = Self { pubsub, datastore, channel };
        google.subscribe(TASKS).await?;
        google.subscribe(QUARANTINE).await?;
        Ok(google)
    }

    /// The variables by which Google's clients and katabatch find the emulators.
    pub fn environment(&self) -> [(&'static str, String); 2] {
        [
            ("PUBSUB_EMULATOR_HOST", self.pubsub.host()),
            ("DATASTORE_EMULATOR_HOST", self.datastore.host()),
        ]
    }

    /// Makes a topic and a subscription of the same name.
    async fn subscribe(&self, name: &str) -> Result<()> {
        let (name, topic) = (subscription(name), topic(name));
        let made = Topic { name: topic.clone(), ..Topic::default() };
        self.publisher().create_topic(made).await.context("create the topic")?;
        let made = Subscription { name, topic, ..Subscription::default() };
        self.subscriber().create_subscription(made).await.context("create the subscription")?;
        Ok(())
    }

    /// Publishes tasks, given by their attributes.
    ///
    /// # Errors
    /// When the emulator does not take them.
    pub async fn publish(&self, tasks: Vec<BTreeMap<String, String>>) -> Result<()> {
        let message = |attributes: &BTreeMap<String, String>| PubsubMessage {
            attributes: attributes.clone().into_iter().collect(),
            ..PubsubMessage::default()
        };
        for some in tasks.chunks(PUBLISH_MOST) {
            let messages = some.iter().map(message).collect();
            let request = PublishRequest { topic: topic(TASKS), messages };
            self.publisher().publish(request).await.context("publish")?;
        }
        Ok(())
    }

    /// Puts entities into Datastore.
    ///
    /// # Errors
    /// When the emulator does not take them.
    pub async fn put(&self, entities: &[Entity]) -> Result<()> {
        ndb::put(&self.datastore.host(), entities).await
    }

    /// What one pull of the subscription brings; given back at once.
    ///
    /// # Errors
    /// When the emulator does not answer.
    pub async fn peek(&self, name: &str) -> Result<Vec<ReceivedMessage>> {
        let request = PullRequest {
            subscription: subscription(name),
            max_messages: 1_000,
            ..PullRequest::default()
        };
        let mut request = Request::new(request);
        request.set_timeout(PULL_FOR);
        let messages = match self.subscriber().pull(request).await {
            Ok(answer) => answer.into_inner().received_messages,
            Err(status) if status.code() == Code::DeadlineExceeded => Vec::new(),
            Err(status) => return Err(status).context("pull"),
        };
        if !messages.is_empty() {
            let back = ModifyAckDeadlineRequest {
                subscription: subscription(name),
                ack_ids: messages.iter().map(|message| message.ack_id.clone()).collect(),
                ack_deadline_seconds: 0,
            };
            self.subscriber().modify_ack_deadline(back).await.context("give back")?;
        }
        Ok(messages)
    }

    fn publisher(&self) -> PublisherClient<Channel> {
        PublisherClient::new(self.channel.clone())
    }

    fn subscriber(&self) -> SubscriberClient<Channel> {
        SubscriberClient::new(self.channel.clone())
    }
}

fn topic(name: &str) -> String {
    format!("projects/{}/topics/{name}", ndb::PROJECT)
}

fn subscription(name: &str) -> String {
    format!("projects/{}/subscriptions/{name}", ndb::PROJECT)
}
