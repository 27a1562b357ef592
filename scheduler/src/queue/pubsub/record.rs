//! The record of a rejected message, as a message.
//!
//! Its attributes are the message's own, so that it can be put back as it was, and ours, which begin
//! with `katabatch-`; its data is the rest as JSON, without any of the message's content: whoever
//! reads the data sees no signed URL.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::wire::{Outgoing, Received};
use crate::domain::outcome::Rejection;

/// What our own attributes begin with.
const OURS: &str = "katabatch-";
/// What Pub/Sub keeps for itself: publishing an attribute of such a name is refused.
const GOOGLES: &str = "goog";
/// The longest value of an attribute, in bytes, and the most attributes.
const VALUE_MOST: usize = 1_024;
const ATTRIBUTES_MOST: usize = 100;

/// A rejected message. Its attributes hold a signed URL: no `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// The message's attributes.
    pub attributes: BTreeMap<String, String>,
    /// Everything else.
    pub about: About,
}

/// What is known of a rejected message besides its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Its id on the subscription that it came from.
    pub message_id: String,
    /// That subscription.
    pub subscription: String,
    /// The kind of the rejection.
    pub reason: String,
    /// What a person needs to know, credentials taken out.
    pub detail: String,
    /// When it was published.
    pub published_at: Option<Timestamp>,
    /// When it was rejected.
    pub rejected_at: Timestamp,
    /// How often it was delivered, where that is known.
    pub deliveries: Option<u32>,
}

impl Record {
    /// The record of `message`, which came from `subscription`.
    pub fn of(
        message: &Received,
        rejection: &Rejection,
        subscription: &str,
        now: Timestamp,
    ) -> Self {
        Self {
            attributes: message.attributes.clone(),
            about: About {
                message_id: message.message_id.clone(),
                subscription: subscription.to_owned(),
                reason: rejection.kind.label().to_owned(),
                detail: rejection.detail.clone(),
                published_at: message.published_at,
                rejected_at: now,
                deliveries: message.deliveries,
            },
        }
    }

    /// As a message for the quarantine's topic.
    pub fn to_message(&self) -> Outgoing {
        let about = &self.about;
        let ours = [
            ("reason", about.reason.as_str()),
            ("detail", about.detail.as_str()),
            ("message-id", about.message_id.as_str()),
            ("subscription", about.subscription.as_str()),
        ];
        let mut attributes = self.publishable();
        for (name, value) in ours {
            // The data says it too: a message with as many attributes as there may be is kept whole.
            if attributes.len() < ATTRIBUTES_MOST {
                attributes.insert(format!("{OURS}{name}"), cut(value).to_owned());
            }
        }
        // Plain data of ours: serializing it can't fail.
        let data = serde_json::to_vec(about).unwrap_or_default();
        Outgoing { attributes, data }
    }

    /// Reads a record; `None` if the message is none of ours.
    pub fn parse(message: &Received) -> Option<Self> {
        let about = serde_json::from_slice(&message.data).ok()?;
        let mut record = Self { attributes: message.attributes.clone(), about };
        record.attributes = record.publishable();
        Some(record)
    }

    /// The message as it was, for its own topic, which has other subscriptions too. Where it came
    /// from one with a base OS version, it is tagged with that: the others' schedulers then drop
    /// it, as they do any message of another version.
    pub fn original(&self, came_from: Option<(&str, &str)>) -> Outgoing {
        let mut attributes = self.publishable();
        if let Some((subscription, version)) = came_from
            && subscription == self.about.subscription
            && !attributes.is_empty()
        {
            let tag = attributes.entry("base_os_version".to_owned()).or_default();
            if tag.is_empty() {
                version.clone_into(tag);
            }
        }
        Outgoing { attributes, data: Vec::new() }
    }

    fn publishable(&self) -> BTreeMap<String, String> {
        let kept = |name: &str| !name.starts_with(OURS) && !name.starts_with(GOOGLES);
        let kept = self.attributes.iter().filter(|(name, _)| kept(name));
        kept.map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

/// As much of `text` as an attribute takes.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(VALUE_MOST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::outcome::RejectKind;

    fn message(attributes: &[(&str, &str)]) -> Received {
        let attribute = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Received {
            ack_id: "a".into(),
            message_id: "7".into(),
            attributes: attributes.iter().map(attribute).collect(),
            data: Vec::new(),
            published_at: Some(Timestamp::UNIX_EPOCH),
            deliveries: Some(2),
        }
    }

    fn record(message: &Received, detail: &str) -> Record {
        let why = Rejection::new(RejectKind::BadUrl, detail);
        Record::of(message, &why, "projects/p/subscriptions/s", Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_record_is_read_back_and_gives_the_message_as_it_was() {
        let url = "https://h/b/o?X-Goog-Signature=abc";
        let original = [("command", "fuzz"), ("argument", url), ("googclient_x", "y")];
        let record = record(&message(&original), "no good");
        let sent = record.to_message();
        assert_eq!(sent.attributes["katabatch-reason"], "bad_url");
        assert_eq!(sent.attributes["katabatch-message-id"], "7");
        assert!(!String::from_utf8_lossy(&sent.data).contains("abc"));

        let back = Received { attributes: sent.attributes, data: sent.data, ..message(&[]) };
        let read = Record::parse(&back).expect("a record");
        assert_eq!(read.about, record.about);
        let names: Vec<_> = read.original(None).attributes.into_keys().collect();
        assert_eq!(names, ["argument", "command"]);
        let tag = |from, version| {
            let back = read.original(Some((from, version))).attributes;
            back.get("base_os_version").cloned()
        };
        let version = "ubuntu-24-04";
        assert_eq!(tag("projects/p/subscriptions/s", version).as_deref(), Some(version));
        assert_eq!(tag("projects/p/subscriptions/other", version), None);
    }

    #[test]
    fn a_record_keeps_within_what_an_attribute_and_a_message_may_have() {
        let many: Vec<String> = (0..100).map(|i| format!("k{i}")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|k| (k.as_str(), "v")).collect();
        let full = record(&message(&many), "x").to_message();
        assert_eq!(full.attributes.len(), 100);
        let long = record(&message(&[]), &"é".repeat(2_000)).to_message();
        assert_eq!(long.attributes["katabatch-detail"].len(), 1_024);
        assert!(String::from_utf8_lossy(&long.data).contains(&"é".repeat(2_000)));
    }

    #[test]
    fn what_is_no_record_is_none() {
        assert!(Record::parse(&message(&[("command", "fuzz")])).is_none());
    }
}
