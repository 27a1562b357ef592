//! A subscription's settings: would messages get lost, or not come?

use std::time::Duration;

use super::findings::Findings;
use crate::domain::subscription::{DELETED_TOPIC, Subscription, id};

const DAY: Duration = Duration::from_secs(86_400);
/// Below so many attempts a dead-letter policy is too tight. Holding a task uses up none, but each
/// end of the process without a clean stop uses up one of everything it had leased. A crash loop
/// of Kubernetes starts a container about twenty times in its first hour (10 s doubling up to 5
/// minutes between starts): with fewer attempts, what was leased is gone before a person looked.
const ATTEMPTS_LEAST: u32 = 20;

/// Judges the subscription that tasks come from; `topic` is the one that the configuration says.
pub fn judge(subscription: &Subscription, topic: Option<&str>) -> Findings {
    let mut findings = Findings::about("queue");
    let subject = id(&subscription.name);
    let found = &mut findings;
    reachable(subscription, topic, subject, found);
    if let Some(policy) = &subscription.dead_letter {
        dead_letter(policy.attempts, subject, found);
    }
    if subscription.retention.is_some_and(|retention| retention < DAY) {
        let hours = subscription.retention.unwrap_or_default().as_secs_f64() / 3_600.0;
        let detail = format!("keeps a message for {hours:.1} h; its input can be used for 24 h");
        found.warn(subject, detail, "set --message-retention-duration=7d");
    }
    if let Some(ttl) = subscription.expires_after.filter(|ttl| *ttl < 7 * DAY) {
        let detail = format!("is deleted after {} h without a consumer", ttl.as_secs() / 3_600);
        found.warn(subject, detail, "set --expiration-period=never");
    }
    if !subscription.filter.is_empty() {
        let detail =
            format!("has the filter {}: what it leaves out never comes", subscription.filter);
        found.warn(
            subject,
            detail,
            "base_os_version needs no filter; make one without, if unmeant",
        );
    }
    if subscription.ordered {
        let detail = "has ordering on: a held task holds up all others of its ordering key";
        found.warn(subject, detail, "publish without ordering keys, as ClusterFuzz does");
    }
    if subscription.exactly_once {
        let detail = "has exactly-once delivery on: it costs throughput, and gives nothing here, \
                      since a Job's name is a function of its task";
        found.warn(subject, detail, "make the subscription without it");
    }
    findings
}

fn reachable(
    subscription: &Subscription,
    topic: Option<&str>,
    subject: &str,
    found: &mut Findings,
) {
    let Subscription { topic: on, ack_deadline, .. } = subscription;
    if subscription.detached {
        let hint = "make it anew: a detached subscription can't be attached again";
        return found.fail(subject, "is detached from its topic: nothing comes", hint);
    }
    if on == DELETED_TOPIC {
        let hint = "make topic and subscription anew";
        return found.fail(subject, "its topic was deleted: nothing comes", hint);
    }
    if subscription.pushed {
        let hint = "give the queue a pull subscription of its own";
        return found.fail(subject, "its messages are pushed elsewhere, and can't be pulled", hint);
    }
    match topic {
        Some(topic) if topic != on => {
            let detail = format!("is on {on}, not on the configured {topic}");
            found.fail(subject, detail, "name that topic, or leave `topic` out");
        }
        _ => found.pass(subject, format!("is on {on}, ack deadline {ack_deadline} s")),
    }
}

fn dead_letter(attempts: u32, subject: &str, found: &mut Findings) {
    if attempts < ATTEMPTS_LEAST {
        let detail = format!(
            "its dead-letter policy takes a message away after {attempts} deliveries: each restart \
             without a clean stop uses up one, so a crash loop loses tasks within the hour"
        );
        let hint = format!("set --max-delivery-attempts to {ATTEMPTS_LEAST} or more, up to 100");
        found.warn(subject, detail, &hint);
    } else {
        found.pass(subject, format!("its dead-letter policy allows {attempts} deliveries"));
    }
}

/// Judges a topic that records or dead letters are published to: what has no subscription is lost.
/// `subscriptions` are those of the topic; `None`: the topic is not there.
pub fn judge_sink(
    area: &'static str,
    topic: &str,
    subscriptions: Option<&[String]>,
    reader: Option<&str>,
) -> Findings {
    let mut found = Findings::about(area);
    let subject = id(topic);
    let make =
        |reader: &str| format!("gcloud pubsub subscriptions create {} --topic={topic}", id(reader));
    match (subscriptions, reader) {
        (None, _) => {
            let hint = format!("gcloud pubsub topics create {topic}");
            found.fail(subject, "the topic is not there", &hint);
        }
        (Some([]), _) => {
            let hint = make(reader.unwrap_or(subject));
            found.fail(subject, "has no subscription: what is published to it is lost", &hint);
        }
        (Some(names), Some(reader)) if !names.iter().any(|name| name == reader) => {
            let detail = format!("{reader} is not one of its subscriptions");
            found.fail(subject, detail, &make(reader));
        }
        (Some(names), _) => {
            let names: Vec<&str> = names.iter().map(|name| id(name)).collect();
            found.pass(subject, format!("is read by {}", names.join(", ")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::findings::Verdict;
    use crate::domain::subscription::DeadLetter;

    fn good() -> Subscription {
        Subscription {
            name: "projects/p/subscriptions/utask_main".into(),
            topic: "projects/p/topics/utask_main".into(),
            ack_deadline: 10,
            retention: Some(7 * DAY),
            ..Subscription::default()
        }
    }

    fn policy(attempts: u32) -> Subscription {
        let topic = "projects/p/topics/dead".to_owned();
        Subscription { dead_letter: Some(DeadLetter { topic, attempts }), ..good() }
    }

    #[test]
    fn what_loses_or_stops_messages_is_found() {
        use Verdict::{Fail, Pass, Warn};
        for (subscription, expect, word) in [
            (good(), Pass, "ack deadline 10 s"),
            (policy(5), Warn, "after 5 deliveries"),
            (policy(19), Warn, "crash loop"),
            (policy(20), Pass, "allows 20"),
            (Subscription { retention: Some(DAY / 24), ..good() }, Warn, "for 1.0 h"),
            (Subscription { expires_after: Some(DAY), ..good() }, Warn, "after 24 h"),
            (Subscription { expires_after: Some(31 * DAY), ..good() }, Pass, "ack deadline"),
            (Subscription { filter: "attributes:x".into(), ..good() }, Warn, "attributes:x"),
            (Subscription { ordered: true, ..good() }, Warn, "ordering"),
            (Subscription { exactly_once: true, ..good() }, Warn, "exactly-once"),
            (Subscription { detached: true, ..good() }, Fail, "detached"),
            (Subscription { pushed: true, ..good() }, Fail, "pushed"),
            (Subscription { topic: DELETED_TOPIC.into(), ..good() }, Fail, "deleted"),
        ] {
            let findings = judge(&subscription, None);
            assert_eq!(findings.worst(), expect, "{findings:?}");
            let said = findings.all().iter().any(|f| f.detail.contains(word));
            assert!(said, "{word}: {findings:?}");
        }
        let other = judge(&good(), Some("projects/p/topics/other"));
        assert_eq!(other.worst(), Verdict::Fail);
    }

    #[test]
    fn records_that_nobody_can_read_are_lost() {
        let topic = "projects/p/topics/rejected";
        let reader = "projects/p/subscriptions/rejected";
        let other = ["projects/p/subscriptions/other".to_owned()];
        for (subscriptions, reader, expect, word) in [
            (None, None, Verdict::Fail, "not there"),
            (Some(&[][..]), Some(reader), Verdict::Fail, "is lost"),
            (Some(&[][..]), None, Verdict::Fail, "is lost"),
            (Some(&other[..]), Some(reader), Verdict::Fail, "not one of its"),
            (Some(&other[..]), None, Verdict::Pass, "read by other"),
        ] {
            let findings = judge_sink("quarantine", topic, subscriptions, reader);
            assert_eq!(findings.worst(), expect, "{findings:?}");
            assert!(findings.all()[0].detail.contains(word), "{findings:?}");
        }
    }
}
