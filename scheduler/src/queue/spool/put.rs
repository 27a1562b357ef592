//! Puts messages.

use rusqlite::params;
use uuid::Builder;

use super::group::Work;
use super::record::{NewMessage, PutCount};

/// Puts each message, unless one of its id is there.
pub(super) fn put(work: &mut Work<'_>, messages: &[NewMessage]) -> rusqlite::Result<PutCount> {
    let mut insert = work.tx.prepare_cached(
        "INSERT INTO message (id, attributes, published_at, due_at, attempts_allowed, timeout_s)
         SELECT ?1, ?2, ?3, ?4, ?5, ?6
         WHERE NOT EXISTS (SELECT 1 FROM quarantine WHERE id = ?1)
         ON CONFLICT (id) DO NOTHING",
    )?;
    let mut count = PutCount::default();
    for message in messages {
        let made;
        let id = match &message.id {
            Some(id) => id,
            None => {
                made = new_id(work);
                &made
            }
        };
        let due = message.not_before.map_or(work.now, |t| t.as_microsecond().max(work.now));
        let timeout = message.timeout.map(|t| i64::try_from(t.as_secs()).unwrap_or(i64::MAX));
        let attributes = attributes_text(message)?;
        let row = params![id, attributes, work.now, due, message.attempts, timeout];
        if insert.execute(row)? == 1 {
            count.put += 1;
        } else {
            count.already_there += 1;
        }
    }
    Ok(count)
}

/// A version 7 UUID (RFC 9562): ids that grow with time keep a long put's index writes together.
fn new_id(work: &mut Work<'_>) -> String {
    let mut random = [0; 10];
    work.random.fill_bytes(&mut random);
    let millis = u64::try_from(work.now / 1_000).unwrap_or(0);
    Builder::from_unix_timestamp_millis(millis, &random).into_uuid().to_string()
}

fn attributes_text(message: &NewMessage) -> rusqlite::Result<String> {
    serde_json::to_string(&message.attributes)
        .map_err(|e| rusqlite::Error::ToSqlConversionFailure(e.into()))
}
