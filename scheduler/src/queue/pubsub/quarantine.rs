//! The way back out of quarantine: records are read from a subscription of the quarantine's topic,
//! and what was chosen is published again before its record is acked.
//!
//! Reading leases every record for a while: two people who look at once see a part each.

use std::collections::BTreeSet;
use std::time::Duration;

use super::batch::{each, with_tries};
use super::fault::Fault;
use super::record::Record;
use super::wire::{Outgoing, Wire};
use super::{DEADLINE_MOST, TRIES};
use crate::queue::QueueError;

/// How many messages one pull asks for, and how long it waits for the first one.
const ASK: usize = 1_000;
const WAIT: Duration = Duration::from_secs(2);
/// So many empty answers in a row are taken for the end: one alone says nothing.
const EMPTY: u32 = 2;
/// How many messages one publish carries: within 1,000 messages and 10 MB, whatever they say.
const PUBLISH: usize = 100;

/// What became of a try to put records back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PutBack {
    /// Published again and gone from the quarantine.
    pub put_back: usize,
    /// Published again, but still in quarantine too. They resolve to the same tasks.
    pub left: usize,
    /// Chosen, but without anything that could be published.
    pub empty: usize,
}

/// What a subscription of the quarantine holds.
struct Read {
    records: Vec<(String, Record)>,
    others: Vec<String>,
}

/// All records, the latest first. They stay in quarantine.
///
/// # Errors
/// [`QueueError`] of the first pull that fails.
pub async fn list(quarantine: &dyn Wire) -> Result<Vec<Record>, QueueError> {
    let read = read(quarantine).await?;
    let mut ids = read.others;
    let mut records = Vec::with_capacity(read.records.len());
    for (id, record) in read.records {
        ids.push(id);
        records.push(record);
    }
    give_back(quarantine, &ids).await;
    records.sort_by_key(|record| std::cmp::Reverse(record.about.rejected_at));
    Ok(records)
}

/// Publishes the `chosen` ones' messages to `topic` and takes their records out of the quarantine.
/// `versioned` is a subscription and the base OS version that its queue carries.
///
/// # Errors
/// [`QueueError`]: what was published so far is out of the quarantine, the rest stays.
pub async fn put_back(
    quarantine: &dyn Wire,
    topic: &str,
    versioned: Option<(&str, &str)>,
    chosen: impl Fn(&Record) -> bool,
) -> Result<PutBack, QueueError> {
    let Read { records, mut others } = read(quarantine).await?;
    let mut done = PutBack::default();
    let mut back: Vec<(String, Outgoing)> = Vec::new();
    for (id, record) in records {
        let message = record.original(versioned);
        if !chosen(&record) {
            others.push(id);
        } else if message.attributes.is_empty() {
            // Pub/Sub takes no message that says nothing.
            done.empty += 1;
            others.push(id);
        } else {
            back.push((id, message));
        }
    }
    let mut failed = None;
    for part in back.chunks(PUBLISH) {
        let ids: Vec<String> = part.iter().map(|(id, _)| id.clone()).collect();
        if failed.is_some() {
            others.extend(ids);
            continue;
        }
        let messages: Vec<Outgoing> = part.iter().map(|(_, message)| message.clone()).collect();
        if let Err(fault) = with_tries(TRIES, || quarantine.publish(topic, messages.clone())).await
        {
            failed = Some(fault);
            others.extend(ids);
            continue;
        }
        let acked =
            each(&ids, TRIES, |ids| async move { quarantine.acknowledge(&ids).await }).await;
        let out = acked.iter().filter(|answer| answer.is_ok()).count();
        done.put_back += out;
        done.left += ids.len() - out;
    }
    give_back(quarantine, &others).await;
    failed.map_or(Ok(done), |fault: Fault| Err(fault.into()))
}

async fn read(quarantine: &dyn Wire) -> Result<Read, QueueError> {
    let mut read = Read { records: Vec::new(), others: Vec::new() };
    let mut seen = BTreeSet::new();
    let mut empty = 0;
    while empty < EMPTY {
        let messages = match quarantine.pull(ASK, WAIT).await {
            Ok(messages) => messages,
            Err(fault) if fault.is_deadline() => Vec::new(),
            Err(fault) => return Err(fault.into()),
        };
        if messages.is_empty() {
            empty += 1;
            continue;
        }
        empty = 0;
        let ids: Vec<String> = messages.iter().map(|message| message.ack_id.clone()).collect();
        let leased =
            each(&ids, TRIES, |ids| async move { quarantine.modify(&ids, DEADLINE_MOST).await })
                .await;
        for (message, _) in messages.into_iter().zip(leased).filter(|(_, leased)| leased.is_ok()) {
            match Record::parse(&message) {
                Some(record) if seen.insert(message.message_id.clone()) => {
                    read.records.push((message.ack_id, record));
                }
                _ => read.others.push(message.ack_id),
            }
        }
    }
    Ok(read)
}

async fn give_back(quarantine: &dyn Wire, ids: &[String]) {
    // What this fails for comes again when its lease lapses.
    let _ = each(ids, TRIES, |ids| async move { quarantine.modify(&ids, 0).await }).await;
}
