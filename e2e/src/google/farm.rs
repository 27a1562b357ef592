//! The folder of a farm on Google Cloud: its own files, and a configuration that takes tasks from
//! Pub/Sub, job types and flags from Datastore. The entities that go with it are here too.

use std::path::Path;

use anyhow::{Context, Result};
use gcloud_sdk::google::datastore::v1::Entity;
use serde_json::{Value, json};

use super::{QUARANTINE, TASKS};
use crate::farm::{Plan, configuration, project, write, write_own_files};
use crate::ndb;

/// The flag of the pending limit.
pub const PENDING_LIMIT: &str = "k8s_jobs_pending_limit";

/// Writes the farm into `dir`, with a backend in `namespace` that is reached by `kubeconfig`.
///
/// # Errors
/// When a file can't be written.
pub fn prepare(dir: &Path, namespace: &str, kubeconfig: &Path, plan: &Plan) -> Result<()> {
    let mut config = configuration(namespace, kubeconfig, plan);
    config["queues"] = json!([{ "name": "main", "pubsub": {
        "subscription": TASKS,
        "quarantine_topic": QUARANTINE,
        "quarantine_subscription": QUARANTINE,
    }}]);
    config["catalog"] = json!({ "datastore": {} });
    config["flags"] = json!({ "datastore": {} });
    without_null(&mut config);
    let text = serde_saphyr::to_string(&config).context("write the configuration")?;
    write(dir, "katabatch.yaml", &text)?;
    write_own_files(dir, plan, &project(ndb::PROJECT))
}

/// The entities of the plan's job types and flags.
pub fn entities(plan: &Plan) -> Vec<Entity> {
    let environment = "PROJECT_NAME = e2e\nMANAGED = True\nDISK_SIZE_GB = None\n";
    let job = |name: &String| ndb::job(name, "LINUX", environment, &["libfuzzer"], Some("e2e"));
    #[expect(clippy::cast_precision_loss, reason = "a limit is far below 2^52")]
    let pending = plan.pending as f64;
    let others = [
        ndb::template("libfuzzer", "APP_NAME = launcher.py\n"),
        ndb::project("e2e", None),
        ndb::flag("k8s_jobs_frequency", true, ndb::float(1.0)),
        ndb::flag(PENDING_LIMIT, true, ndb::float(pending)),
    ];
    plan.job_types.iter().map(job).chain(others).collect()
}

/// Takes out what is not set: a person is to read the file.
fn without_null(value: &mut Value) {
    let Some(members) = value.as_object_mut() else {
        return value.as_array_mut().into_iter().flatten().for_each(without_null);
    };
    members.retain(|_, member| !member.is_null());
    members.values_mut().for_each(without_null);
}
