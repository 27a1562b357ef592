//! Settles by a GET what no answer and no watch has told: creates whose answer was lost and whose
//! caller is gone, once the request can no longer take effect, and Jobs that were confirmed but
//! that the watch never showed. Until then their room stays taken.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::api::ClusterApi;
use super::janitor::SharedAcks;
use super::room::Rooms;
use crate::clock::Clock;

/// How often it is looked whether something is due.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// When a GET that failed is made again.
const AGAIN_AFTER: Duration = Duration::from_secs(3);

/// How long the watch may take to show a confirmed Job before a GET asks for it.
pub const UNSEEN: Duration = Duration::from_secs(60);

/// Settles lost answers until it is dropped.
pub async fn settle(
    api: Arc<dyn ClusterApi>,
    rooms: Arc<Rooms>,
    acks: SharedAcks,
    clock: Arc<dyn Clock>,
) {
    loop {
        sleep(LOOK_EVERY).await;
        for name in rooms.with(|ledger| ledger.due(clock.mono())) {
            let at = clock.mono();
            let began = rooms.with(|ledger| ledger.moment());
            match api.get_job(&name).await {
                Ok(found) => {
                    // First the acks: the account of room forgets a Job that has ended, and between
                    // the two it must not look as if there were none.
                    match &found {
                        Some(facts) => {
                            let moment = rooms.with(|ledger| ledger.moment());
                            acks.lock().placed(facts, clock.mono(), moment);
                        }
                        None => acks.lock().absent(&name, began),
                    }
                    tracing::info!(job = name, found = found.is_some(), "settled by a look");
                    rooms.with(|ledger| {
                        ledger.settled(&name, (began, at), found.as_ref(), clock.mono() + UNSEEN);
                    });
                }
                Err(error) => {
                    tracing::info!(job = name, %error, "what became of it could not be read");
                    rooms.with(|ledger| ledger.postponed(&name, clock.mono() + AGAIN_AFTER));
                }
            }
        }
    }
}
