//! Settles creates whose answer was lost and whose caller is gone: by a GET, once the request can
//! no longer take effect. Until then their room stays taken.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::api::ClusterApi;
use super::room::Rooms;
use crate::clock::Clock;

/// How often it is looked whether something is due.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// When a GET that failed is made again.
const AGAIN_AFTER: Duration = Duration::from_secs(3);

/// Settles lost answers until it is dropped.
pub async fn settle(api: Arc<dyn ClusterApi>, rooms: Arc<Rooms>, clock: Arc<dyn Clock>) {
    loop {
        sleep(LOOK_EVERY).await;
        for name in rooms.with(|ledger| ledger.lost_by(clock.mono())) {
            let at = clock.mono();
            let began = rooms.with(|ledger| ledger.moment());
            match api.get_job(&name).await {
                Ok(found) => {
                    tracing::info!(job = name, found = found.is_some(), "settled a lost answer");
                    rooms.with(|ledger| ledger.settled(&name, began, at, found.as_ref()));
                }
                Err(error) => {
                    tracing::info!(job = name, %error, "a lost answer is still not settled");
                    rooms.with(|ledger| ledger.postponed(&name, clock.mono() + AGAIN_AFTER));
                }
            }
        }
    }
}
