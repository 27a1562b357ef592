//! Looks at the messages without touching them.

use std::time::Duration;

use rusqlite::{Connection, params};

use super::record::{Counts, Entry, State, time};

/// How many messages there are at `now`, all as of one moment.
pub(super) fn counts(connection: &Connection, now: i64) -> rusqlite::Result<Counts> {
    let mut select = connection.prepare_cached(
        "SELECT (SELECT count(*) FROM message WHERE due_at <= ?1),
                (SELECT count(*) FROM message WHERE due_at > ?1 AND token IS NOT NULL),
                (SELECT count(*) FROM message WHERE due_at > ?1 AND token IS NULL),
                (SELECT count(*) FROM quarantine),
                (SELECT min(published_at) FROM message)",
    )?;
    select.query_row([now], |row| {
        let count = |column: usize| row.get::<_, i64>(column).map(i64::unsigned_abs);
        Ok(Counts {
            ready: count(0)?,
            leased: count(1)?,
            delayed: count(2)?,
            quarantined: count(3)?,
            oldest: row.get::<_, Option<i64>>(4)?.map(time),
        })
    })
}

/// The first `limit` messages, the one due first first.
pub(super) fn list(
    connection: &Connection,
    now: i64,
    limit: usize,
) -> rusqlite::Result<Vec<Entry>> {
    let mut select = connection.prepare_cached(
        "SELECT id, attributes, published_at, due_at, token IS NOT NULL, deliveries, attempts,
                attempts_allowed, timeout_s
         FROM message ORDER BY due_at, seq LIMIT ?1",
    )?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    select
        .query_map(params![limit], |row| {
            let due: i64 = row.get(3)?;
            let state = match row.get(4)? {
                _ if due <= now => State::Ready,
                true => State::Leased,
                false => State::Delayed,
            };
            Ok(Entry {
                id: row.get(0)?,
                attributes: super::attributes(row.get_ref(1)?).unwrap_or_default(),
                published_at: time(row.get(2)?),
                state,
                due_at: time(due),
                deliveries: row.get(5)?,
                attempts: row.get(6)?,
                attempts_allowed: row.get(7)?,
                timeout: row
                    .get::<_, Option<i64>>(8)?
                    .and_then(|s| u64::try_from(s).ok())
                    .map(Duration::from_secs),
            })
        })?
        .collect()
}
