//! A whole small farm in a directory, for `katabatch demo`: what a farm's own files and entities
//! look like, and tasks over real OSS-Fuzz job types, some of them bad.
//!
//! Everything is made from a seed and says beforehand what must come of it. Running it is the
//! command's business; what its worker does with an input is [`toy`]'s.

mod entities;
mod farm;
mod inputs;
mod job_types;
mod tasks;
pub mod toy;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::domain::outcome::{HoldKind, RejectKind};
use job_types::JobType;

/// The fewest tasks that a demo can have: the bad ones and as many good ones.
pub const FEWEST_TASKS: usize = 2 * tasks::BAD;

/// What to prepare.
#[derive(Debug, Clone)]
pub struct Plan {
    /// How many messages, the bad ones included; at least [`FEWEST_TASKS`].
    pub tasks: usize,
    /// What all choices are made from.
    pub seed: u64,
    /// The date of the signatures.
    pub now: Timestamp,
    /// Where the tasks are to run.
    pub place: Place,
}

/// Where a demo's tasks run.
#[derive(Debug, Clone)]
pub enum Place {
    /// On this machine: inputs are files.
    Local {
        /// The worker's program and arguments.
        worker: Vec<String>,
        /// How many at once.
        jobs: usize,
    },
    /// On a cluster: inputs are URLs that look signed.
    Cluster {
        /// The cluster's kubeconfig; `None` is kubectl's default.
        kubeconfig: Option<PathBuf>,
        /// Where the Jobs go.
        namespace: String,
    },
}

/// What was prepared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct World {
    /// The configuration.
    pub config: PathBuf,
    /// The messages, as JSON lines.
    pub tasks: PathBuf,
    /// The queue, to put them into.
    pub spool: PathBuf,
    /// What must come of them.
    pub expected: Expectation,
}

/// What must come of a demo's messages. All counts but `ends` add up to the number of messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expectation {
    /// Tasks whose Job is created.
    pub created: usize,
    /// Messages of a task that is there already.
    pub already_there: usize,
    /// Messages for another base OS version's queue: acked, without a Job.
    pub another_version: usize,
    /// Tasks that stay held, by reason.
    pub held: BTreeMap<HoldKind, usize>,
    /// Messages that are rejected, by reason.
    pub rejected: BTreeMap<RejectKind, usize>,
    /// How the created ones end on this machine; empty for a cluster.
    pub ends: Ends,
}

/// How a demo's tasks end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ends {
    /// Exit code 0.
    pub succeeded: usize,
    /// The toy parser crashed: exit code [`toy::CRASH_EXIT`].
    pub crashed: usize,
    /// Over the deadline.
    pub deadline_exceeded: usize,
}

/// Why a demo can't be prepared.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// Too few tasks.
    #[error("a demo of {0} tasks has no room for the bad ones; ask for at least {FEWEST_TASKS}")]
    TooFew(usize),
    /// A file can't be written.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
}

/// Writes a farm into `dir`, which is made when it is absent; files of an earlier demo there are
/// written over. The same plan makes the same files, but for the paths in them.
///
/// # Errors
/// [`DemoError`]: too few tasks, or a file that can't be written.
pub fn prepare(dir: &Path, plan: &Plan) -> Result<World, DemoError> {
    if plan.tasks < FEWEST_TASKS {
        return Err(DemoError::TooFew(plan.tasks));
    }
    let dir = std::path::absolute(dir).map_err(|e| fault(dir, e))?;
    let catalog = job_types::all();
    let mut random = ChaCha8Rng::seed_from_u64(plan.seed);
    let made = tasks::make(&dir, plan, &catalog, &mut random);
    for (name, input) in &made.inputs {
        write(&dir.join(inputs::FOLDER).join(name), input)?;
    }
    let lines: Vec<u8> = made.messages.iter().flat_map(tasks::line).collect();
    let slow = made.slow_job_type.as_deref();
    let files = [
        ("clusterfuzz-config/project.yaml", farm::PROJECT_YAML.to_owned()),
        ("clusterfuzz-config/batch/batch.yaml", farm::BATCH_YAML.to_owned()),
        ("entities.jsonl", entities::jsonl(&catalog)),
        ("flags.yaml", farm::FLAGS_YAML.to_owned()),
        ("katabatch.yaml", farm::configuration(&plan.place, slow)),
    ];
    for (name, text) in files {
        write(&dir.join(name), text.as_bytes())?;
    }
    let tasks = dir.join("tasks.jsonl");
    write(&tasks, &lines)?;
    Ok(World {
        config: dir.join("katabatch.yaml"),
        tasks,
        spool: dir.join(farm::SPOOL),
        expected: made.expected,
    })
}

/// Writes a file that this user alone may read: the tasks hold URLs that stand for credentials.
fn write(path: &Path, bytes: &[u8]) -> Result<(), DemoError> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let write = || {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(path)?.write_all(bytes)
    };
    write().map_err(|e| fault(path, e))
}

fn fault(path: &Path, source: io::Error) -> DemoError {
    DemoError::File { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests;
