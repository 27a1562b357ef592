//! What Pub/Sub says of a subscription, as far as losing no message depends on it.

use std::time::Duration;

/// What stands in the place of a topic that was deleted
/// (<https://cloud.google.com/pubsub/docs/reference/rest/v1/projects.subscriptions>).
pub const DELETED_TOPIC: &str = "_deleted-topic_";

/// A subscription's settings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subscription {
    /// Its full name.
    pub name: String,
    /// The full name of its topic, or [`DELETED_TOPIC`].
    pub topic: String,
    /// How long a message is leased for by its pull alone, in seconds.
    pub ack_deadline: u32,
    /// How long a message that nobody acks stays.
    pub retention: Option<Duration>,
    /// After so long without a consumer it is deleted itself; `None` is never.
    pub expires_after: Option<Duration>,
    /// Where messages go that were delivered too often.
    pub dead_letter: Option<DeadLetter>,
    /// Only messages that it matches come; empty is all.
    pub filter: String,
    /// Messages of one ordering key come one after the other.
    pub ordered: bool,
    /// Exactly-once delivery is on.
    pub exactly_once: bool,
    /// It was cut off its topic: nothing comes any more.
    pub detached: bool,
    /// Messages are pushed or written elsewhere, and can't be pulled.
    pub pushed: bool,
}

/// A dead-letter policy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeadLetter {
    /// The full name of the topic that takes them, or [`DELETED_TOPIC`].
    pub topic: String,
    /// After so many deliveries.
    pub attempts: u32,
}

/// The last part of a full name.
pub fn id(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}
