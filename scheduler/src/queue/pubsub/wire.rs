//! What the queue needs of Pub/Sub, as a trait, and that over gRPC.
//!
//! One call here is one request: no retries, no chunks, no bookkeeping. The server's deadline is set
//! with each request, so that a call ends on both sides at once.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use gcloud_sdk::google::pubsub::v1::publisher_client::PublisherClient;
use gcloud_sdk::google::pubsub::v1::subscriber_client::SubscriberClient;
use gcloud_sdk::google::pubsub::v1::{
    AcknowledgeRequest, GetSubscriptionRequest, ModifyAckDeadlineRequest, PublishRequest,
    PubsubMessage, PullRequest, ReceivedMessage,
};
use gcloud_sdk::tonic::Request;
use jiff::Timestamp;

use super::fault::Fault;
use crate::gcp::channel::Channel;

/// The most bytes of one answer: 1,000 messages of up to 10 MB is what the API could give, but a
/// task's message has a few KB.
const ANSWER_MOST: usize = 64 << 20;
/// The longest that a call other than a pull may take. Short against the shortest ack deadline
/// (10 s), so that there is time for another try.
const CALL_WITHIN: Duration = Duration::from_secs(5);

/// A message as it came. Its attributes hold a signed URL: no `Debug`.
#[derive(Clone)]
pub struct Received {
    /// The id of this delivery.
    pub ack_id: String,
    /// The id of the message, the same over all its deliveries.
    pub message_id: String,
    /// All that it says.
    pub attributes: BTreeMap<String, String>,
    /// What its data is; nothing, with ClusterFuzz.
    pub data: Vec<u8>,
    /// When it was published, by the server's clock.
    pub published_at: Option<Timestamp>,
    /// Which delivery this is; known only where the subscription has a dead-letter policy.
    pub deliveries: Option<u32>,
}

/// A message to publish. No `Debug`, as for [`Received`].
#[derive(Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// All that it says.
    pub attributes: BTreeMap<String, String>,
    /// Its data.
    pub data: Vec<u8>,
}

/// One subscription, and topics to publish to.
#[async_trait]
pub trait Wire: Send + Sync {
    /// Waits up to `within` for up to `max` messages. The future must be run to its end: the server
    /// goes on giving messages to a call whose caller is gone.
    async fn pull(&self, max: usize, within: Duration) -> Result<Vec<Received>, Fault>;

    /// Lets the deliveries' deadlines be `seconds` from now (0 to 600); 0 gives them back at once.
    async fn modify(&self, ids: &[String], seconds: u16) -> Result<(), Fault>;

    /// Acknowledges deliveries.
    async fn acknowledge(&self, ids: &[String]) -> Result<(), Fault>;

    /// Publishes; `Ok` when all of them are durable.
    async fn publish(&self, topic: &str, messages: Vec<Outgoing>) -> Result<(), Fault>;

    /// The topic that the subscription is on.
    async fn topic(&self) -> Result<String, Fault>;
}

/// A subscription over gRPC.
pub struct Grpc {
    subscription: String,
    subscriber: SubscriberClient<Channel>,
    publisher: PublisherClient<Channel>,
}

impl Grpc {
    /// Over `channel`; `subscription` is its full resource name.
    pub fn new(channel: &Channel, subscription: String) -> Self {
        let subscriber =
            SubscriberClient::new(channel.clone()).max_decoding_message_size(ANSWER_MOST);
        Self { subscription, subscriber, publisher: PublisherClient::new(channel.clone()) }
    }

    fn fault(&self, status: &gcloud_sdk::tonic::Status) -> Fault {
        Fault::of(status, &self.subscription)
    }
}

fn timed<T>(message: T, within: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(within);
    request
}

#[async_trait]
impl Wire for Grpc {
    async fn pull(&self, max: usize, within: Duration) -> Result<Vec<Received>, Fault> {
        let max_messages = i32::try_from(max).unwrap_or(i32::MAX);
        let subscription = self.subscription.clone();
        let request = PullRequest { subscription, max_messages, ..PullRequest::default() };
        let answer = self.subscriber.clone().pull(timed(request, within)).await;
        let messages = answer.map_err(|s| self.fault(&s))?.into_inner().received_messages;
        Ok(messages.into_iter().filter_map(received).collect())
    }

    async fn modify(&self, ids: &[String], seconds: u16) -> Result<(), Fault> {
        let request = ModifyAckDeadlineRequest {
            subscription: self.subscription.clone(),
            ack_ids: ids.to_vec(),
            ack_deadline_seconds: i32::from(seconds),
        };
        let answer = self.subscriber.clone().modify_ack_deadline(timed(request, CALL_WITHIN)).await;
        answer.map(drop).map_err(|s| self.fault(&s))
    }

    async fn acknowledge(&self, ids: &[String]) -> Result<(), Fault> {
        let request =
            AcknowledgeRequest { subscription: self.subscription.clone(), ack_ids: ids.to_vec() };
        let answer = self.subscriber.clone().acknowledge(timed(request, CALL_WITHIN)).await;
        answer.map(drop).map_err(|s| self.fault(&s))
    }

    async fn publish(&self, topic: &str, messages: Vec<Outgoing>) -> Result<(), Fault> {
        let asked = messages.len();
        let message = |m: Outgoing| PubsubMessage {
            data: m.data,
            attributes: m.attributes.into_iter().collect(),
            ..PubsubMessage::default()
        };
        let messages = messages.into_iter().map(message).collect();
        let request = PublishRequest { topic: topic.to_owned(), messages };
        let answer = self.publisher.clone().publish(timed(request, CALL_WITHIN)).await;
        let ids = answer.map_err(|s| Fault::of(&s, topic))?.into_inner().message_ids.len();
        // The ids are the confirmation: without one for each, nothing may be acked on this.
        if ids == asked {
            Ok(())
        } else {
            Err(Fault::Passing(format!("{topic}: {ids} of {asked} messages were confirmed")))
        }
    }

    async fn topic(&self) -> Result<String, Fault> {
        let request = GetSubscriptionRequest { subscription: self.subscription.clone() };
        let answer = self.subscriber.clone().get_subscription(timed(request, CALL_WITHIN)).await;
        Ok(answer.map_err(|s| self.fault(&s))?.into_inner().topic)
    }
}

fn received(message: ReceivedMessage) -> Option<Received> {
    let ReceivedMessage { ack_id, message, delivery_attempt } = message;
    let PubsubMessage { data, attributes, message_id, publish_time, .. } = message?;
    Some(Received {
        ack_id,
        message_id,
        attributes: attributes.into_iter().collect(),
        data,
        published_at: publish_time.and_then(|t| Timestamp::new(t.seconds, t.nanos).ok()),
        deliveries: u32::try_from(delivery_attempt).ok().filter(|&n| n > 0),
    })
}
