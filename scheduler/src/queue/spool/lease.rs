//! Leases messages, and does what the holder of a lease may: extend, ack, give back.
//!
//! A lease is a row and a random token. It is lost when another lease of the message was given
//! out, or the message acked or given back. A deadline that has passed alone loses nothing: until
//! somebody else leases the message, an ack saves a second delivery.

use std::collections::BTreeMap;
use std::time::Duration;

use rusqlite::{OptionalExtension, params};

use super::group::Work;
use super::record::{later, time};
use super::{attributes, quarantine};
use crate::domain::outcome::{RejectKind, Rejection};
use crate::queue::{Delivery, LeaseId};

const TOKEN: usize = 16;
/// When a message comes again whose task failed once; each further failure waits twice as long.
pub(super) const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// A row's number and the token of its lease.
pub(super) struct Held {
    pub(super) seq: i64,
    pub(super) token: [u8; TOKEN],
}

impl Held {
    /// Reads a lease as [`Held::id`] writes it; `None` if this spool never gave it out.
    pub(super) fn parse(lease: &LeaseId) -> Option<Self> {
        let (seq, token) = lease.0.split_once('.')?;
        let mut bytes = [0; TOKEN];
        hex::decode_to_slice(token, &mut bytes).ok()?;
        Some(Self { seq: seq.parse().ok()?, token: bytes })
    }

    fn id(&self) -> LeaseId {
        LeaseId(format!("{}.{}", self.seq, hex::encode(self.token)))
    }
}

struct Found {
    seq: i64,
    id: String,
    attributes: Option<BTreeMap<String, String>>,
    published_at: i64,
    deliveries: u32,
    timeout: Option<i64>,
}

/// Leases up to `n` messages that are due, the one due first first.
pub(super) fn lease(
    work: &mut Work<'_>,
    n: usize,
    lease_for: Duration,
) -> rusqlite::Result<Vec<Delivery>> {
    let mut mark = work.tx.prepare_cached(
        "UPDATE message SET token = ?2, due_at = ?3, deliveries = deliveries + 1 WHERE seq = ?1",
    )?;
    let deadline = later(work.now, lease_for);
    let mut deliveries = Vec::new();
    for found in due(work, n)? {
        let Some(mut attributes) = found.attributes else {
            // Written by nobody we know. It must not stop those behind it.
            let detail = "its attributes in the spool are no JSON object of strings";
            let rejection = Rejection::new(RejectKind::BadMessage, detail);
            quarantine::set_aside(work, found.seq, &rejection)?;
            continue;
        };
        if let Some(timeout) = found.timeout {
            attributes.entry("timeout".to_owned()).or_insert_with(|| timeout.to_string());
        }
        let mut held = Held { seq: found.seq, token: [0; TOKEN] };
        work.random.fill_bytes(&mut held.token);
        mark.execute(params![held.seq, held.token, deadline])?;
        deliveries.push(Delivery {
            lease: held.id(),
            message_id: found.id,
            attributes,
            published_at: time(found.published_at),
            deliveries: Some(found.deliveries.saturating_add(1)),
        });
    }
    Ok(deliveries)
}

fn due(work: &Work<'_>, n: usize) -> rusqlite::Result<Vec<Found>> {
    let mut select = work.tx.prepare_cached(
        "SELECT seq, id, attributes, published_at, deliveries, timeout_s FROM message
         WHERE due_at <= ?1 ORDER BY due_at, seq LIMIT ?2",
    )?;
    let limit = i64::try_from(n).unwrap_or(i64::MAX);
    select
        .query_map(params![work.now, limit], |row| {
            Ok(Found {
                seq: row.get(0)?,
                id: row.get(1)?,
                attributes: attributes(row.get_ref(2)?),
                published_at: row.get(3)?,
                deliveries: row.get(4)?,
                timeout: row.get(5)?,
            })
        })?
        .collect()
}

/// Takes back a lease that nobody heard of, as if it had never been given.
pub(super) fn unlease(work: &mut Work<'_>, held: &Held) -> rusqlite::Result<()> {
    work.tx
        .prepare_cached(
            "UPDATE message SET token = NULL, due_at = ?3, deliveries = deliveries - 1
             WHERE seq = ?1 AND token = ?2",
        )?
        .execute(params![held.seq, held.token, work.now])
        .map(drop)
}

/// Whether the lease was ours to extend.
pub(super) fn extend(
    work: &mut Work<'_>,
    held: &Held,
    lease_for: Duration,
) -> rusqlite::Result<bool> {
    work.tx
        .prepare_cached("UPDATE message SET due_at = ?3 WHERE seq = ?1 AND token = ?2")?
        .execute(params![held.seq, held.token, later(work.now, lease_for)])
        .map(|rows| rows == 1)
}

/// Whether the message was ours to ack.
pub(super) fn ack(work: &mut Work<'_>, held: &Held) -> rusqlite::Result<bool> {
    work.tx
        .prepare_cached("DELETE FROM message WHERE seq = ?1 AND token = ?2")?
        .execute(params![held.seq, held.token])
        .map(|rows| rows == 1)
}

/// Whether the message was ours to give back, undone.
pub(super) fn release(work: &mut Work<'_>, held: &Held, after: Duration) -> rusqlite::Result<bool> {
    work.tx
        .prepare_cached(
            "UPDATE message SET token = NULL, due_at = ?3 WHERE seq = ?1 AND token = ?2",
        )?
        .execute(params![held.seq, held.token, later(work.now, after)])
        .map(|rows| rows == 1)
}

/// Whether the message was ours to give back, its task having failed. It comes again, later each
/// time; one whose task failed as often as it may goes to quarantine, with this reason. What counts
/// is failing, not delivering: a crash of ours delivers again too.
pub(super) fn fail(work: &mut Work<'_>, held: &Held, why: &str) -> rusqlite::Result<bool> {
    let attempts = work
        .tx
        .prepare_cached(
            "UPDATE message SET token = NULL, attempts = attempts + 1
             WHERE seq = ?1 AND token = ?2 RETURNING attempts, attempts_allowed",
        )?
        .query_row(params![held.seq, held.token], |row| {
            Ok((row.get::<_, u32>(0)?, row.get::<_, Option<u32>>(1)?))
        })
        .optional()?;
    let Some((used, allowed)) = attempts else { return Ok(false) };
    if allowed.is_some_and(|allowed| used >= allowed) {
        let rejection = Rejection::new(RejectKind::AttemptsUsedUp, why);
        quarantine::set_aside(work, held.seq, &rejection)?;
        return Ok(true);
    }
    let pause = (FIRST_PAUSE * 2_u32.saturating_pow(used.saturating_sub(1))).min(LONGEST_PAUSE);
    work.tx
        .prepare_cached("UPDATE message SET due_at = ?2 WHERE seq = ?1")?
        .execute(params![held.seq, later(work.now, pause)])?;
    Ok(true)
}
