//! The backend against Batch in memory.

mod clearing;
mod crashes;
mod placing;
mod settling;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::clock::PacedClock;
use crate::domain::input_url::InputUrl;
use crate::domain::machines::{Machines, Region};
use crate::domain::task::WorkloadKey;
use crate::domain::workload::{Account, Isolation, Profile, upstream_duration};
use crate::leadership::Alone;
use crate::records::InMemory;
use fake::Fake;
use jiff::Timestamp;

pub const PARENT: &str = "projects/123/locations/r1";

pub fn workload(mapping: &str, regions: &[(&str, f64)], checked: &[&str]) -> Arc<Workload> {
    let region = |(name, weight): &(&str, f64)| Region {
        name: (*name).into(),
        network: Some("projects/p/global/networks/n".into()),
        subnetwork: Some(format!("projects/p/regions/{name}/subnetworks/s")),
        weight: *weight,
    };
    Arc::new(Workload {
        key: WorkloadKey { command: "fuzz".into(), job_type: mapping.into() },
        mapping: mapping.into(),
        platform: "LINUX".into(),
        project: None,
        base_os_version: None,
        image: "gcr.io/p/worker:1".into(),
        release: "prod".into(),
        account: Account::Google { name: "w".into(), email: "w@p.iam.gserviceaccount.com".into() },
        isolation: Isolation::Kata,
        duration: upstream_duration("fuzz"),
        disk_gb: Some(110),
        profile: Profile::default(),
        machines: Some(Machines {
            project: Some("p".into()),
            project_number: Some("123".into()),
            machine_type: Some("n1-standard-1".into()),
            disk_type: Some("pd-standard".into()),
            preemptible: true,
            retry: false,
            regions: regions.iter().map(region).collect(),
            checked: checked.iter().map(|r| (*r).to_owned()).collect(),
            unknown_places: Vec::new(),
        }),
    })
}

pub fn task(n: usize) -> Task {
    let url = format!("https://storage.googleapis.com/in/{n}?X-Goog-Signature=5ec2e7");
    let key = WorkloadKey { command: "fuzz".into(), job_type: "a".into() };
    Task::new(key, InputUrl::parse(&url).expect("a URL"), "m", Timestamp::UNIX_EPOCH)
}

pub fn tasks(range: std::ops::Range<usize>) -> Vec<Task> {
    range.map(task).collect()
}

/// A Batch, records and a workload, for one backend after the other.
pub struct Site {
    pub fake: Fake,
    pub records: Arc<dyn Records>,
    pub clock: Arc<dyn Clock>,
    pub workload: Arc<Workload>,
    pub pending: usize,
    seed: std::cell::Cell<u64>,
}

impl Site {
    pub fn new() -> Self {
        let start = "2026-11-30T00:00:00Z".parse().expect("a time");
        let clock: Arc<dyn Clock> = Arc::new(PacedClock::starting_at(start));
        Self {
            fake: Fake::new(Arc::clone(&clock), 1),
            records: Arc::new(InMemory::default()),
            clock,
            workload: workload("a", &[("r1", 1.0)], &[]),
            pending: 100_000,
            seed: std::cell::Cell::new(1),
        }
    }

    /// Another process's backend, which knows nothing yet.
    pub fn start(&self) -> Arc<GcpBatch> {
        self.seed.set(self.seed.get() + 1);
        let settings = Settings {
            name: "batch".into(),
            scheduler: "s".into(),
            project: None,
            parents: BTreeSet::from([PARENT.to_owned()]),
            pending_limit_default: self.pending,
            live_limit: None,
            poll: Duration::from_secs(10),
            seed: self.seed.get(),
        };
        let (records, clock) = (Arc::clone(&self.records), Arc::clone(&self.clock));
        GcpBatch::new(
            Arc::new(self.fake.clone()),
            records,
            clock,
            Arc::new(Alone { since: Timestamp::UNIX_EPOCH }),
            settings,
        )
    }

    /// One that has read everything.
    pub async fn ready(&self) -> Arc<GcpBatch> {
        let backend = self.start();
        backend.look_once().await.expect("all is there to be read");
        backend
    }
}

pub fn kinds(outcomes: &[Outcome]) -> Vec<String> {
    let one = |outcome: &Outcome| match outcome {
        Outcome::Scheduled(placed) => format!("{placed:?}"),
        Outcome::Deferred(why) => format!("{:?} {}", why.scope, why.kind),
        Outcome::Running(attempt, _) => format!("running {attempt}"),
        Outcome::Rejected(why) => format!("rejected {}", why.kind),
    };
    let mut kinds: Vec<String> = outcomes.iter().map(one).collect();
    kinds.dedup();
    kinds
}
