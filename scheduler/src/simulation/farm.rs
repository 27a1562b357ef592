//! The farm of the simulated world: any job type is there, and runs as the same.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;

use crate::catalog::entity::{Job, JobEntities};
use crate::catalog::{Catalog, CatalogError, Freshness};
use crate::domain::name::{Command, JobType};
use crate::domain::outcome::Deferral;
use crate::domain::task::WorkloadKey;
use crate::domain::workload::{Account, Isolation, Workload, upstream_duration};
use crate::flags::{FlagSet, FlagSource, FlagsError};
use crate::pipeline::Resolver;

pub struct AnyCatalog;

#[async_trait]
impl Catalog for AnyCatalog {
    async fn look_up(
        &self,
        job_types: &[JobType],
        _: Freshness,
    ) -> Result<BTreeMap<JobType, JobEntities>, CatalogError> {
        let entities = |name: &JobType| {
            let job = Job { name: name.to_string(), platform: "LINUX".into(), ..Job::default() };
            (name.clone(), JobEntities { jobs: vec![job], ..JobEntities::default() })
        };
        Ok(job_types.iter().map(entities).collect())
    }
}

pub struct OneWorkload;

impl Resolver for OneWorkload {
    fn resolve(
        &self,
        key: &WorkloadKey,
        _: &JobEntities,
        _: &FlagSet,
    ) -> Result<Workload, Deferral> {
        let profiles = crate::config::profiles::Profiles::default();
        let mapping = "LINUX-PREEMPTIBLE-UNPRIVILEGED";
        Ok(Workload {
            key: key.clone(),
            mapping: mapping.into(),
            platform: "LINUX".into(),
            project: None,
            base_os_version: None,
            image: "image".into(),
            release: "prod".into(),
            account: Account::Google { name: "sa".into(), email: "sa@p.example".into() },
            isolation: Isolation::Kata,
            duration: upstream_duration(key.command.as_str()),
            disk_gb: None,
            machines: None,
            profile: profiles.resolve(mapping, key),
        })
    }

    fn expected_run(&self, _: &Command) -> Duration {
        Duration::from_secs(3600)
    }
}

/// Flags that the world changes.
pub struct Weighing(pub Arc<Mutex<FlagSet>>);

#[async_trait]
impl FlagSource for Weighing {
    async fn read(&self) -> Result<FlagSet, FlagsError> {
        Ok(self.0.lock().unwrap().clone())
    }
}
