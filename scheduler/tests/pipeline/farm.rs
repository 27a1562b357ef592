//! The farm of the small world: job types, flags, and what comes of them.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use katabatch::catalog::entity::{Job, JobEntities};
use katabatch::catalog::{Catalog, CatalogError, Freshness};
use katabatch::domain::name::{Command, JobType};
use katabatch::domain::outcome::{Deferral, HoldKind, Scope};
use katabatch::domain::task::WorkloadKey;
use katabatch::domain::workload::*;
use katabatch::flags::{Flag, FlagSet, FlagSource, FlagsError};
use katabatch::pipeline::Resolver;

/// Job types that are there.
pub struct FakeCatalog(pub Vec<&'static str>);

#[async_trait]
impl Catalog for FakeCatalog {
    async fn look_up(
        &self,
        job_types: &[JobType],
        _: Freshness,
    ) -> Result<BTreeMap<JobType, JobEntities>, CatalogError> {
        let found = |name: &JobType| {
            let job = Job { name: name.to_string(), platform: "LINUX".into(), ..Job::default() };
            let jobs = if self.0.contains(&name.as_str()) { vec![job] } else { vec![] };
            (name.clone(), JobEntities { jobs, ..JobEntities::default() })
        };
        Ok(job_types.iter().map(found).collect())
    }
}

/// Flags that a test changes.
#[derive(Default)]
pub struct Flags(Mutex<FlagSet>);

impl Flags {
    /// Sets the weight of the backend of this name.
    pub fn weigh(&self, backend: &str, value: f64) {
        let flag = Flag { enabled: true, value: Some(value), ..Flag::default() };
        self.0.lock().unwrap().0.insert(backend.to_owned(), flag);
    }
}

#[async_trait]
impl FlagSource for Flags {
    async fn read(&self) -> Result<FlagSet, FlagsError> {
        Ok(self.0.lock().unwrap().clone())
    }
}

/// Makes a workload of whatever there is.
pub struct FakeResolver;

impl Resolver for FakeResolver {
    fn resolve(
        &self,
        key: &WorkloadKey,
        entities: &JobEntities,
        _: &FlagSet,
    ) -> Result<Workload, Deferral> {
        assert_ne!(key.job_type.as_str(), "explosive", "resolving went wrong");
        if entities.jobs.is_empty() {
            let again = Duration::from_secs(60);
            return Err(Deferral::new(
                Scope::Workload,
                HoldKind::UnknownJobType,
                "no such job type",
                again,
            ));
        }
        Ok(workload(key.clone()))
    }

    fn expected_run(&self, _: &Command) -> Duration {
        Duration::from_secs(6 * 3600)
    }
}

fn workload(key: WorkloadKey) -> Workload {
    Workload {
        key,
        mapping: "LINUX-PREEMPTIBLE-UNPRIVILEGED".into(),
        platform: "LINUX".into(),
        project: None,
        base_os_version: None,
        image: "image".into(),
        release: "prod".into(),
        account: Account::Existing { name: "sa".into() },
        isolation: Isolation::Kata,
        duration: Duration::from_secs(21_600),
        disk_gb: None,
        profile: Profile { ttl: Duration::from_secs(100), ..Profile::default() },
        machines: None,
    }
}
