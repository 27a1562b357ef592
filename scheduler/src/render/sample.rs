//! A workload to try templates with before any real one is known: ClusterFuzz's values, and in its
//! full form every setting used, so that each branch of a template is rendered once at load.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Target;
use crate::domain::quantity::{BadQuantity, Quantity};
use crate::domain::task::WorkloadKey;
use crate::domain::workload::{
    Account, Disk, Isolation, Profile, Restart, Toleration, Workload, upstream_duration,
};

/// Where the samples run.
pub(super) fn target() -> Target {
    Target { namespace: "fuzzing".to_owned(), scheduler: "main".to_owned() }
}

/// A workload with ClusterFuzz's values.
pub(super) fn upstream(command: &str, isolation: Isolation) -> Result<Workload, BadQuantity> {
    Ok(Workload {
        key: WorkloadKey { command: command.into(), job_type: "libfuzzer_asan_zlib".into() },
        mapping: "LINUX-PREEMPTIBLE-UNPRIVILEGED".to_owned(),
        platform: "LINUX".to_owned(),
        project: Some("zlib".to_owned()),
        base_os_version: None,
        image: "gcr.io/clusterfuzz-images/oss-fuzz/worker".to_owned(),
        release: "prod".to_owned(),
        account: Account::Google {
            name: "untrusted-worker".to_owned(),
            email: "untrusted-worker@farm.iam.gserviceaccount.com".to_owned(),
        },
        isolation,
        duration: upstream_duration(command),
        disk_gb: Some(110),
        profile: Profile {
            ttl: Duration::from_secs(100),
            restart: Restart::Upstream,
            ..Profile::default()
        },
        machines: None,
    })
}

/// A workload that uses every setting.
pub(super) fn full(command: &str, isolation: Isolation) -> Result<Workload, BadQuantity> {
    let one = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
    let mut workload = upstream(command, isolation)?;
    workload.key.job_type = "libfuzzer asan/zlib".into();
    workload.base_os_version = Some("ubuntu-24-04".to_owned());
    let profile = &mut workload.profile;
    profile.disk = Disk::FromJob;
    profile.scratch = BTreeMap::from([("/mnt/scratch0".to_owned(), Quantity::parse("512Mi")?)]);
    profile.host_network = true;
    profile.host_network_exception = true;
    profile.restart = Restart::Never;
    profile.backoff_limit = 1;
    profile.ttl = Duration::from_secs(93_600);
    profile.deadline = Some(Duration::from_secs(3_600));
    profile.node_selector = one("cloud.google.com/gke-nodepool", "fuzz");
    profile.tolerations = vec![Toleration {
        key: Some("fuzzing".to_owned()),
        operator: None,
        value: Some("only".to_owned()),
        effect: Some("NoExecute".to_owned()),
        toleration_seconds: Some(0),
    }];
    profile.priority_class = Some("fuzzing-low".to_owned());
    profile.env = one("DEPLOYMENT_BUCKET", "deployment.$(HOST_UID).example");
    profile.labels = one("team", "fuzzing");
    Ok(workload)
}
