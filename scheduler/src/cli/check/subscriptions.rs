//! Looks at subscriptions: the tasks' own, the quarantine's, the dead letters', and all of a topic.

use std::time::Duration;

use super::looks::Looks;
use crate::check::findings::Findings;
use crate::check::readers::{self, Reader, Versions};
use crate::check::subscription::{judge, judge_sink};
use crate::config::queues::QueueConfig;
use crate::domain::pubsub::{Names, Written};
use crate::domain::subscription::{DELETED_TOPIC, DeadLetter, id};
use crate::queue::pubsub::admin::{Admin, Looked};
use crate::service::Loaded;
use crate::service::queues::{full_names, reach};

/// How long one look may take, retries of credentials included.
const WITHIN: Duration = Duration::from_secs(20);
/// Who may look: `run` itself needs less.
const VIEWER: &str = "look with roles/pubsub.viewer on the project; `run` needs less";

/// What to do where no answer came: nobody can know yet whether a right is missing.
const AWAY: &str = "is it up, and can this machine reach it? See the queue's `pubsub.endpoint`, \
                    PUBSUB_EMULATOR_HOST and the network";
/// What to do about an answer that says nothing of what was asked.
const ODD: &str = "see the queue's `pubsub` section and the credentials";

/// A topic that a queue takes its tasks from.
pub struct OnTopic {
    /// Where the API is.
    pub endpoint: String,
    /// The topic's full name.
    pub topic: String,
    admin: Admin,
}

/// Looks at one queue's subscription and at where its rejected messages go.
pub async fn check(
    loaded: &Loaded,
    queue: &QueueConfig,
    written: &Written,
    endpoint: Option<&str>,
    offline: bool,
    looks: &Looks,
) -> (Findings, Option<(OnTopic, Reader)>) {
    let mut findings = Findings::about("queue");
    let name = queue.name.as_str();
    let hint = "see the queue's `pubsub` section, APPLICATION_ID and the credentials";
    let names = match full_names(written, &loaded.farm) {
        Ok(names) => names,
        Err(error) => {
            findings.fail(name, error, hint);
            return (findings, None);
        }
    };
    if offline {
        let why = format!("--offline asks no Pub/Sub; it would be {}", names.subscription);
        findings.not_checked(name, why, "");
        return (findings, None);
    }
    let (to, at, farm) = (written.clone(), endpoint.map(str::to_owned), loaded.farm.clone());
    let open = async move { reach(&to, at.as_deref(), &farm).await.map_err(|e| e.to_string()) };
    let admin = match looks.at(name, WITHIN, open).await.and_then(|opened| opened) {
        Ok((_, channel)) => Admin::new(&channel),
        Err(error) => {
            findings.fail(name, error, hint);
            return (findings, None);
        }
    };
    let (tasks, quarantine) =
        tokio::join!(tasks(&admin, &names, queue, looks), quarantine(&admin, &names, looks),);
    let (of_tasks, on) = tasks;
    findings.extend(of_tasks);
    findings.extend(quarantine);
    let on = on.map(|(topic, reader)| {
        let endpoint = endpoint.unwrap_or_default().to_owned();
        (OnTopic { endpoint, topic, admin }, reader)
    });
    (findings, on)
}

async fn tasks(
    admin: &Admin,
    names: &Names,
    queue: &QueueConfig,
    looks: &Looks,
) -> (Findings, Option<(String, Reader)>) {
    let mut findings = Findings::about("queue");
    let name = &names.subscription;
    let (asked, of) = (admin.clone(), name.clone());
    let seen = looks.at(id(name), WITHIN, async move { asked.subscription(&of).await }).await;
    let subscription = match seen.unwrap_or_else(Looked::Unreachable) {
        Looked::Found(subscription) => subscription,
        Looked::Missing => {
            let topic = names.topic.as_deref().unwrap_or("TOPIC");
            let hint = format!(
                "gcloud pubsub subscriptions create {name} --topic={topic} \
                 --message-retention-duration=7d --expiration-period=never"
            );
            findings.fail(id(name), format!("{name} is not there"), &hint);
            return (findings, None);
        }
        Looked::Forbidden(said) => {
            findings.not_checked(id(name), said, VIEWER);
            return (findings, None);
        }
        Looked::Unreachable(said) => {
            findings.fail(id(name), said, AWAY);
            return (findings, None);
        }
        Looked::Failed(said) => {
            findings.fail(id(name), said, ODD);
            return (findings, None);
        }
    };
    findings.extend(judge(&subscription, names.topic.as_deref()));
    if let Some(policy) = &subscription.dead_letter {
        findings.extend(dead_letters(admin, policy, looks).await);
    }
    let reader = Reader {
        queue: queue.name.to_string(),
        subscription: name.clone(),
        version: queue.base_os_version.clone(),
    };
    let on = (subscription.topic != DELETED_TOPIC && !subscription.detached)
        .then_some((subscription.topic, reader));
    (findings, on)
}

async fn dead_letters(admin: &Admin, policy: &DeadLetter, looks: &Looks) -> Findings {
    const AREA: &str = "dead letters";
    let mut findings = Findings::about(AREA);
    if policy.topic == DELETED_TOPIC {
        let hint = "name another topic in the dead-letter policy, or take the policy away";
        findings.fail(DELETED_TOPIC, "the policy's topic was deleted", hint);
        return findings;
    }
    findings.extend(sink(admin, AREA, &policy.topic, None, looks).await);
    let hint = "Pub/Sub's own account service-PROJECT_NUMBER@gcp-sa-pubsub.iam.gserviceaccount.com \
                must have roles/pubsub.publisher on this topic and roles/pubsub.subscriber on the \
                subscription";
    let why = "whether Pub/Sub may publish there is not shown by the API";
    findings.not_checked(id(&policy.topic), why, hint);
    findings
}

async fn quarantine(admin: &Admin, names: &Names, looks: &Looks) -> Findings {
    const AREA: &str = "quarantine";
    let reader = names.quarantine_subscription.as_deref();
    let mut findings = sink(admin, AREA, &names.quarantine_topic, reader, looks).await;
    if reader.is_none() {
        let hint = "name a subscription of that topic as quarantine_subscription";
        let detail = "`queue quarantine` can't read it";
        findings.warn(id(&names.quarantine_topic), detail, hint);
    }
    findings
}

/// A topic that must not lose what is published to it.
async fn sink(
    admin: &Admin,
    area: &'static str,
    topic: &str,
    reader: Option<&str>,
    looks: &Looks,
) -> Findings {
    let mut findings = Findings::about(area);
    match subscriptions_of(admin, topic, looks).await {
        Looked::Found(names) => findings.extend(judge_sink(area, topic, Some(&names), reader)),
        Looked::Missing => findings.extend(judge_sink(area, topic, None, reader)),
        Looked::Forbidden(said) => findings.not_checked(id(topic), said, VIEWER),
        Looked::Unreachable(said) => findings.fail(id(topic), said, AWAY),
        Looked::Failed(said) => findings.fail(id(topic), said, ODD),
    }
    findings
}

async fn subscriptions_of(admin: &Admin, topic: &str, looks: &Looks) -> Looked<Vec<String>> {
    let (asked, of) = (admin.clone(), topic.to_owned());
    let look = async move { asked.subscriptions_of(&of).await };
    looks.at(id(topic), WITHIN, look).await.unwrap_or_else(Looked::Unreachable)
}

/// Looks at all subscriptions of a topic, and at which versions nobody reads.
pub async fn readers(
    on: &OnTopic,
    readers: &[Reader],
    versions: Option<&Versions>,
    looks: &Looks,
) -> Findings {
    let mut findings = Findings::about("topic");
    let all = match subscriptions_of(&on.admin, &on.topic, looks).await {
        Looked::Found(all) => Some(all),
        Looked::Missing => {
            findings.fail(id(&on.topic), "is not there", "make topic and subscription anew");
            None
        }
        Looked::Forbidden(said) => {
            findings.not_checked(id(&on.topic), format!("its subscriptions: {said}"), VIEWER);
            None
        }
        Looked::Unreachable(said) | Looked::Failed(said) => {
            findings.not_checked(id(&on.topic), format!("its subscriptions: {said}"), "try again");
            None
        }
    };
    findings.extend(readers::judge(&on.topic, readers, all.as_deref(), versions));
    findings
}
