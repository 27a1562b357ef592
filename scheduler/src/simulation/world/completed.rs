//! The world whose messages wait for their Jobs' ends, and what must have become of them.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::super::fates::ATTEMPTS;
use super::World;
use crate::backend::{Finished, Follower};

struct Ends(mpsc::UnboundedSender<Finished>);

impl Follower for Ends {
    fn finished(&self, finished: Finished) {
        let _ = self.0.send(finished);
    }
}

/// A process's way from its backends to its pipeline.
pub(super) fn follower() -> (Arc<dyn Follower>, mpsc::UnboundedReceiver<Finished>) {
    let (sender, ends) = mpsc::unbounded_channel();
    (Arc::new(Ends(sender)), ends)
}

impl World {
    /// Every message is acked with a complete Job, or in quarantine after its attempts have failed.
    pub(super) fn check_completed(&self) -> Result<(), String> {
        let quarantined = self.queue.quarantined();
        let mut bad = quarantined.len();
        // Who posts waits for no end.
        for (id, job) in self.tasks.iter().filter(|(id, _)| id.starts_with('m')) {
            let codes = self.fates.of(job);
            let failures = codes.iter().filter(|code| **code != 0).count();
            if quarantined.contains_key(id) {
                bad -= 1;
                if failures < ATTEMPTS as usize {
                    return Err(format!("{id} is in quarantine after {failures} failures"));
                }
            } else if !codes.contains(&0) {
                return Err(format!("{id} is acked, and its Jobs ended with {codes:?}"));
            }
        }
        match bad == self.bad {
            true => Ok(()),
            false => Err(format!("{bad} bad ones in quarantine, {} bad messages", self.bad)),
        }
    }
}
