//! The quarantine: records of rejected messages, and the way back for them.

use rusqlite::{ToSql, params};

use super::group::Work;
use super::lease::Held;
use super::record::{Quarantined, Selection, time};
use crate::domain::outcome::Rejection;

/// The selection as SQL over its parameters, in the order of [`parameters`].
const SELECTED: &str = "(?1 IS NULL OR reason = ?1)
    AND rejected_at >= coalesce(?2, -9223372036854775808)
    AND (?3 IS NULL OR rejected_at < ?3)";

/// Moves the message to quarantine, if the lease is ours.
pub(super) fn quarantine(
    work: &mut Work<'_>,
    held: &Held,
    rejection: &Rejection,
) -> rusqlite::Result<bool> {
    let ours = work
        .tx
        .prepare_cached("SELECT 1 FROM message WHERE seq = ?1 AND token = ?2")?
        .exists(params![held.seq, held.token])?;
    if ours {
        set_aside(work, held.seq, rejection)?;
    }
    Ok(ours)
}

/// Moves a message to quarantine, whoever holds it.
pub(super) fn set_aside(
    work: &mut Work<'_>,
    seq: i64,
    rejection: &Rejection,
) -> rusqlite::Result<()> {
    work.tx
        .prepare_cached(
            "INSERT OR REPLACE INTO quarantine (id, attributes, published_at, deliveries,
                 attempts_allowed, timeout_s, reason, detail, rejected_at)
             SELECT id, attributes, published_at, deliveries, attempts_allowed, timeout_s,
                 ?2, ?3, ?4
             FROM message WHERE seq = ?1",
        )?
        .execute(params![seq, rejection.kind.label(), rejection.detail, work.now])?;
    work.tx.prepare_cached("DELETE FROM message WHERE seq = ?1")?.execute([seq]).map(drop)
}

/// Puts the selected messages back, the oldest first, as if never delivered. They keep their
/// publish time: whether an earlier Job of theirs may exist is judged by it.
pub(super) fn retry(work: &mut Work<'_>, selection: &Selection) -> rusqlite::Result<u64> {
    let (reason, since, until) = parameters(selection);
    let back = format!(
        "INSERT INTO message (id, attributes, published_at, due_at, attempts_allowed, timeout_s)
         SELECT id, attributes, published_at, ?4, attempts_allowed, timeout_s
         FROM quarantine WHERE {SELECTED} ORDER BY published_at, seq
         ON CONFLICT (id) DO NOTHING"
    );
    let put = work.tx.prepare_cached(&back)?.execute(params![reason, since, until, work.now])?;
    work.tx
        .prepare_cached(&format!("DELETE FROM quarantine WHERE {SELECTED}"))?
        .execute(params![reason, since, until])?;
    Ok(put as u64)
}

/// The selected records, the latest first.
pub(super) fn list(
    connection: &rusqlite::Connection,
    selection: &Selection,
    limit: usize,
) -> rusqlite::Result<Vec<Quarantined>> {
    let (reason, since, until) = parameters(selection);
    let mut select = connection.prepare_cached(&format!(
        "SELECT id, attributes, published_at, deliveries, reason, detail, rejected_at
         FROM quarantine WHERE {SELECTED} ORDER BY rejected_at DESC, seq DESC LIMIT ?4"
    ))?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    select
        .query_map(params![reason, since, until, limit], |row| {
            Ok(Quarantined {
                id: row.get(0)?,
                attributes: super::attributes(row.get_ref(1)?).unwrap_or_default(),
                published_at: time(row.get(2)?),
                deliveries: row.get(3)?,
                reason: row.get(4)?,
                detail: row.get(5)?,
                rejected_at: time(row.get(6)?),
            })
        })?
        .collect()
}

fn parameters(selection: &Selection) -> (impl ToSql + '_, Option<i64>, Option<i64>) {
    (
        selection.reason.as_deref(),
        selection.since.map(|t| t.as_microsecond()),
        selection.until.map(|t| t.as_microsecond()),
    )
}
