//! Where the watches' news go: the account of room, and the acks.

use std::sync::Arc;

use super::api::{JobFacts, PodFacts, WatchEvent};
use super::janitor::SharedAcks;
use super::ledger::Moment;
use super::observe::Observe;
use super::room::Rooms;
use super::watch::Sink;
use crate::clock::Clock;

/// Takes news of Jobs.
pub struct JobSink {
    /// The account of room.
    pub rooms: Arc<Rooms>,
    /// The acks.
    pub acks: SharedAcks,
    /// How they end.
    pub observe: Arc<Observe>,
    /// The time, which counts from an end as it is seen.
    pub clock: Arc<dyn Clock>,
}

/// Takes news of pending pods.
pub struct PodSink {
    /// The account of room.
    pub rooms: Arc<Rooms>,
}

impl Sink<JobFacts> for JobSink {
    fn list_begins(&self) -> Moment {
        self.rooms.with(|ledger| ledger.moment())
    }

    fn listed(&self, began: Moment, jobs: &[JobFacts]) {
        // The acks first: whoever sees room must find the Jobs that are there known.
        let moment = self.rooms.with(|ledger| ledger.moment());
        self.acks.lock().listed(began, jobs, self.clock.mono(), moment);
        self.rooms.with(|ledger| ledger.jobs_listed(began, jobs));
        self.observe.jobs_listed(began, jobs, moment);
    }

    fn event(&self, event: &WatchEvent<JobFacts>) {
        match event {
            WatchEvent::Applied(job) => {
                let moment = self.rooms.with(|ledger| {
                    ledger.job_applied(job);
                    ledger.moment()
                });
                self.acks.lock().seen(job, self.clock.mono(), moment);
                self.observe.job_seen(job, moment);
            }
            WatchEvent::Deleted(job) => {
                let moment = self.rooms.with(|ledger| {
                    ledger.job_deleted(job);
                    ledger.moment()
                });
                self.observe.job_gone(job, moment);
                self.acks.lock().gone(&job.name, &job.uid);
            }
            WatchEvent::Bookmark(_) => {}
        }
    }

    fn unknown(&self, why: String) {
        self.rooms.with(|ledger| ledger.jobs_unknown(why));
    }
}

impl Sink<PodFacts> for PodSink {
    fn list_begins(&self) -> Moment {
        self.rooms.with(|ledger| ledger.moment())
    }

    fn listed(&self, began: Moment, pods: &[PodFacts]) {
        self.rooms.with(|ledger| ledger.pods_listed(began, pods));
    }

    fn event(&self, event: &WatchEvent<PodFacts>) {
        match event {
            WatchEvent::Applied(pod) => self.rooms.with(|ledger| ledger.pod_applied(pod)),
            WatchEvent::Deleted(pod) => self.rooms.with(|ledger| ledger.pod_deleted(pod)),
            WatchEvent::Bookmark(_) => {}
        }
    }

    fn unknown(&self, why: String) {
        self.rooms.with(|ledger| ledger.pods_unknown(why));
    }
}
