//! The environment of a task's command: what a ClusterFuzz worker is told, and where its own
//! directories are.
//!
//! As the Job of a cluster would set it, but for `IS_K8S_ENV`: this is no Kubernetes, and a worker
//! that believed it was would ask for an API server. `PATH` and `HOME` come from this machine, at
//! the moment of starting; nothing else does.

use std::collections::BTreeMap;
use std::path::Path;

use super::record::{SCRATCH, SHM};
use crate::domain::task::Task;
use crate::domain::workload::Workload;

/// Names a process's scratch directory; also how a task's stray processes are told.
pub(super) const SCRATCH_VARIABLE: &str = "KATABATCH_SCRATCH";

/// A variable of the profile that no process can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the profile's environment variable {0:?} can't be set: a name is not empty and has no `=`, and neither name nor value has a NUL byte"
)]
pub(super) struct BadVariable(pub String);

/// The environment of `task`, whose directory is `dir`.
///
/// The profile's variables beat ClusterFuzz's fixed ones, but neither the input nor what names the
/// task and its directories.
pub(super) fn of(
    workload: &Workload,
    task: &Task,
    dir: &str,
) -> Result<BTreeMap<String, String>, BadVariable> {
    let fixed = [
        ("HOST_UID", "1337"),
        ("CLUSTERFUZZ_RELEASE", &workload.release),
        ("UNTRUSTED_WORKER", "False"),
        ("UWORKER", "True"),
        ("USE_GCLOUD_STORAGE_RSYNC", "1"),
        ("DISABLE_MOUNTS", "true"),
        ("UPDATE_WEB_TESTS", "False"),
    ];
    let hash = task.hash.to_string();
    let (scratch, shm) = (format!("{dir}/{SCRATCH}"), format!("{dir}/{SHM}"));
    let own = [
        ("UWORKER_INPUT_DOWNLOAD_URL", task.input.reveal()),
        ("KATABATCH_TASK", &hash),
        (SCRATCH_VARIABLE, &scratch),
        ("KATABATCH_SHM", &shm),
    ];
    let mut env = owned(&fixed);
    for (name, value) in &workload.profile.env {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(BadVariable(name.clone()));
        }
        env.insert(name.clone(), value.clone());
    }
    env.extend(owned(&own));
    Ok(env)
}

/// What marks a process as one of the task in `dir`.
pub(super) fn marker(dir: &Path) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt as _;
    let mut marker = format!("{SCRATCH_VARIABLE}=").into_bytes();
    marker.extend_from_slice(dir.join(SCRATCH).as_os_str().as_bytes());
    marker
}

fn owned(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}
