//! `katabatch queue quarantine` on a Pub/Sub queue: its records are read from a subscription of the
//! quarantine's topic, and put back on the tasks' topic.

use std::io::Write;

use jiff::Timestamp;

use super::super::output::{Exit, after_printing, print_error};
use super::quarantine::{Rejected, chosen, print};
use super::{QuarantineCommand, QueueCommand};
use crate::domain::pubsub::Names;
use crate::domain::subscription::id;
use crate::gcp::channel::Channel;
use crate::queue::QueueError;
use crate::queue::pubsub::admin::{Admin, Looked};
use crate::queue::pubsub::quarantine;
use crate::queue::pubsub::record::Record;
use crate::queue::pubsub::wire::{Grpc, Wire};
use crate::queue::spool::record::Selection;

/// Runs one of the commands on the queue that `names` and `channel` lead to, which carries the base
/// OS version `version`.
pub async fn run(
    names: &Names,
    version: Option<&str>,
    channel: &Channel,
    command: &QueueCommand,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Exit {
    let QueueCommand::Quarantine(command) = command else {
        let topic = names.topic.as_deref().unwrap_or("TOPIC");
        let hint = format!(
            "publish with `gcloud pubsub topics publish {topic} --attribute=command=fuzz,job=…`; \
             look with `gcloud pubsub subscriptions pull {}`",
            names.subscription
        );
        return refuse("a Pub/Sub queue has only its quarantine here", &hint, err);
    };
    let Some(subscription) = &names.quarantine_subscription else {
        let hint = format!(
            "make a subscription of {}, and name it as pubsub.quarantine_subscription",
            names.quarantine_topic
        );
        return refuse("the quarantine of this queue has no subscription to read", &hint, err);
    };
    let records = Grpc::new(channel, subscription.clone());
    let now = Timestamp::now();
    match command {
        QuarantineCommand::List { select, list } => {
            let selection = select.selection(now);
            let everything = selection == Selection::default();
            match quarantine::list(&records).await {
                Ok(all) => {
                    let of_these = all.into_iter().filter(|record| selects(&selection, record));
                    print(of_these.map(Rejected::from), everything, list, out, err)
                }
                Err(error) => failed(&error, err),
            }
        }
        QuarantineCommand::Retry { select, all } => match chosen(select, *all, now, err) {
            Ok(selection) => retry(names, version, channel, &records, &selection, err).await,
            Err(exit) => exit,
        },
    }
}

async fn retry(
    names: &Names,
    version: Option<&str>,
    channel: &Channel,
    records: &Grpc,
    selection: &Selection,
    err: &mut dyn Write,
) -> Exit {
    let topic = match &names.topic {
        Some(topic) => Ok(topic.clone()),
        None => Grpc::new(channel, names.subscription.clone()).topic().await,
    };
    let back = match topic {
        Ok(topic) => {
            let versioned = version.map(|version| (names.subscription.as_str(), version));
            say_who_else(names, version, channel, &topic, err).await;
            quarantine::put_back(records, &topic, versioned, |r| selects(selection, r)).await
        }
        Err(fault) => Err(fault.into()),
    };
    match back {
        Ok(done) => {
            let mut told = writeln!(err, "{} put back", done.put_back + done.left);
            if done.left > 0 {
                let left = done.left;
                told = told.and_then(|()| writeln!(err, "{left} of them are still listed too"));
            }
            if done.empty > 0 {
                let empty = done.empty;
                told = told.and_then(|()| writeln!(err, "{empty} say nothing and stay"));
            }
            let exit = if done.left + done.empty > 0 { Exit::Partly } else { Exit::Done };
            after_printing(told, exit, err)
        }
        Err(error) => failed(&error, err),
    }
}

/// What is put back on the topic comes to all of its subscriptions, unless it is tagged with the
/// version of one.
async fn say_who_else(
    names: &Names,
    version: Option<&str>,
    channel: &Channel,
    topic: &str,
    err: &mut dyn Write,
) {
    if version.is_some() {
        return;
    }
    if let Looked::Found(all) = Admin::new(channel).subscriptions_of(topic).await {
        let others: Vec<&str> =
            all.iter().filter(|name| **name != names.subscription).map(|name| id(name)).collect();
        if !others.is_empty() {
            // stderr is gone: what was asked is done all the same.
            let _ = writeln!(
                err,
                "warning: {} has other subscriptions, which get what is put back and has no base \
                 OS version too: {}",
                id(topic),
                others.join(", ")
            );
        }
    }
}

fn selects(selection: &Selection, record: &Record) -> bool {
    let about = &record.about;
    selection.reason.as_ref().is_none_or(|reason| *reason == about.reason)
        && selection.since.is_none_or(|since| about.rejected_at >= since)
        && selection.until.is_none_or(|until| about.rejected_at < until)
}

impl From<Record> for Rejected {
    fn from(record: Record) -> Self {
        let Record { attributes, about } = record;
        Self {
            id: about.message_id,
            reason: about.reason,
            detail: about.detail,
            rejected_at: about.rejected_at,
            published_at: about.published_at,
            deliveries: about.deliveries,
            attributes,
        }
    }
}

fn refuse(problem: &str, hint: &str, err: &mut dyn Write) -> Exit {
    let told = print_error(err, &problem, Some(hint));
    after_printing(told, Exit::Failed, err)
}

fn failed(error: &QueueError, err: &mut dyn Write) -> Exit {
    let hint = match error {
        QueueError::Unavailable(_) => Some("nothing is lost; try again"),
        // The error itself says what to do.
        QueueError::Unusable(_) | QueueError::LeaseLost => None,
    };
    let told = print_error(err, error, hint);
    after_printing(told, Exit::Failed, err)
}
