//! What `check` asks Pub/Sub: subscriptions, topics, and who is on them. Reads only.

use std::time::Duration;

use gcloud_sdk::google::pubsub::v1::publisher_client::PublisherClient;
use gcloud_sdk::google::pubsub::v1::subscriber_client::SubscriberClient;
use gcloud_sdk::google::pubsub::v1::{
    GetSubscriptionRequest, GetTopicRequest, ListTopicSubscriptionsRequest, Subscription as Answer,
};
use gcloud_sdk::tonic::{Code, Request, Status};

use super::fault::{Fault, is_of_credentials};
use crate::domain::subscription::{DeadLetter, Subscription};
use crate::gcp::channel::Channel;

/// The longest that one request may take.
const CALL_WITHIN: Duration = Duration::from_secs(8);
/// Pub/Sub's own default where a dead-letter policy says 0
/// (<https://cloud.google.com/pubsub/docs/reference/rest/v1/projects.subscriptions#DeadLetterPolicy>).
const ATTEMPTS_DEFAULT: u32 = 5;
/// More pages than any topic's 10,000 subscriptions take.
const MOST_PAGES: usize = 1_000;

/// What came of looking something up. The texts are safe to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Looked<T> {
    /// It is there.
    Found(T),
    /// It is not there.
    Missing,
    /// Whoever asks may not know.
    Forbidden(String),
    /// No answer came: the endpoint is away, or nobody is there.
    Unreachable(String),
    /// There was an answer that says neither.
    Failed(String),
}

/// Asks about subscriptions and topics.
#[derive(Clone)]
pub struct Admin {
    subscriber: SubscriberClient<Channel>,
    publisher: PublisherClient<Channel>,
}

impl Admin {
    /// Over `channel`.
    pub fn new(channel: &Channel) -> Self {
        Self {
            subscriber: SubscriberClient::new(channel.clone()),
            publisher: PublisherClient::new(channel.clone()),
        }
    }

    /// A subscription's settings, by its full name (`pubsub.subscriptions.get`).
    pub async fn subscription(&self, name: &str) -> Looked<Subscription> {
        let request = timed(GetSubscriptionRequest { subscription: name.to_owned() });
        match self.subscriber.clone().get_subscription(request).await {
            Ok(answer) => Looked::Found(read(answer.into_inner())),
            Err(status) => refused(&status, name),
        }
    }

    /// The full names of all subscriptions of a topic, in order; `Missing`: there is no such topic
    /// (`pubsub.topics.get`).
    pub async fn subscriptions_of(&self, topic: &str) -> Looked<Vec<String>> {
        // The list does not tell: the emulator has an empty one for a topic that is not there.
        let request = timed(GetTopicRequest { topic: topic.to_owned() });
        if let Err(status) = self.publisher.clone().get_topic(request).await {
            return refused(&status, topic);
        }
        let mut all = Vec::new();
        let mut page_token = String::new();
        for _ in 0..MOST_PAGES {
            let request = ListTopicSubscriptionsRequest {
                topic: topic.to_owned(),
                page_size: 1_000,
                page_token,
            };
            match self.publisher.clone().list_topic_subscriptions(timed(request)).await {
                Ok(answer) => {
                    let page = answer.into_inner();
                    all.extend(page.subscriptions);
                    page_token = page.next_page_token;
                }
                Err(status) => return refused(&status, topic),
            }
            if page_token.is_empty() {
                all.sort();
                all.dedup();
                return Looked::Found(all);
            }
        }
        Looked::Failed(format!("{topic}: its list of subscriptions does not end"))
    }
}

fn timed<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(CALL_WITHIN);
    request
}

fn refused<T>(status: &Status, resource: &str) -> Looked<T> {
    let (Fault::Refused(said) | Fault::Passing(said) | Fault::Lasting(said)) =
        Fault::of(status, resource);
    match status.code() {
        Code::NotFound => Looked::Missing,
        Code::PermissionDenied => Looked::Forbidden(said),
        // A connection that breaks shows as the latter two.
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => Looked::Unreachable(said),
        Code::Unknown if !is_of_credentials(&said) => Looked::Unreachable(said),
        _ => Looked::Failed(said),
    }
}

fn read(answer: Answer) -> Subscription {
    let pushed = answer.push_config.is_some_and(|push| !push.push_endpoint.is_empty())
        || answer.bigquery_config.is_some()
        || answer.cloud_storage_config.is_some()
        || answer.bigtable_config.is_some();
    let seconds = |seconds: i64| u64::try_from(seconds).ok().map(Duration::from_secs);
    Subscription {
        name: answer.name,
        topic: answer.topic,
        ack_deadline: u32::try_from(answer.ack_deadline_seconds).unwrap_or(0),
        retention: answer.message_retention_duration.and_then(|d| seconds(d.seconds)),
        expires_after: answer
            .expiration_policy
            .and_then(|policy| policy.ttl)
            .and_then(|ttl| seconds(ttl.seconds))
            .filter(|ttl| !ttl.is_zero()),
        dead_letter: answer.dead_letter_policy.filter(|p| !p.dead_letter_topic.is_empty()).map(
            |policy| DeadLetter {
                topic: policy.dead_letter_topic,
                attempts: u32::try_from(policy.max_delivery_attempts)
                    .ok()
                    .filter(|attempts| *attempts > 0)
                    .unwrap_or(ATTEMPTS_DEFAULT),
            },
        ),
        filter: answer.filter,
        ordered: answer.enable_message_ordering,
        exactly_once: answer.enable_exactly_once_delivery,
        detached: answer.detached,
        pushed,
    }
}

#[cfg(test)]
mod tests {
    use gcloud_sdk::google::pubsub::v1::{DeadLetterPolicy, PushConfig};

    use super::*;

    #[test]
    fn what_the_api_leaves_out_has_its_meaning() {
        let plain = read(Answer { push_config: Some(PushConfig::default()), ..Answer::default() });
        assert_eq!(plain, Subscription::default(), "an empty push configuration is none");
        let policy =
            DeadLetterPolicy { dead_letter_topic: "t".into(), ..DeadLetterPolicy::default() };
        let dead = read(Answer { dead_letter_policy: Some(policy), ..Answer::default() });
        assert_eq!(dead.dead_letter, Some(DeadLetter { topic: "t".into(), attempts: 5 }));
        let push_endpoint = "https://x".to_owned();
        let push = PushConfig { push_endpoint, ..PushConfig::default() };
        assert!(read(Answer { push_config: Some(push), ..Answer::default() }).pushed);
    }

    #[test]
    fn a_missing_right_is_told_from_a_missing_thing() {
        let look = |code| refused::<()>(&Status::new(code, "m"), "s");
        assert_eq!(look(Code::NotFound), Looked::Missing);
        assert!(matches!(look(Code::PermissionDenied), Looked::Forbidden(_)));
        assert!(matches!(look(Code::InvalidArgument), Looked::Failed(_)));
    }
    #[test]
    fn no_answer_is_told_from_an_answer_that_helps_nobody() {
        for (status, unreachable) in [
            (Status::unavailable("h:1: tcp connect error"), true),
            (Status::deadline_exceeded("h:1: Timeout expired"), true),
            (Status::unknown("h:1: transport error"), true),
            (Status::unknown("credentials error: no token"), false),
            (Status::unauthenticated("no"), false),
        ] {
            let looked = refused::<()>(&status, "s");
            assert_eq!(matches!(looked, Looked::Unreachable(_)), unreachable, "{looked:?}");
        }
    }
}
