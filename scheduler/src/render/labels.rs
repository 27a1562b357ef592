//! The names of the labels and annotations on every Job, for whoever makes, finds or counts Jobs.

/// Label: the command, as ClusterFuzz's dashboards select on it.
pub const COMMAND: &str = "task_name";
/// Label: the job type, likewise.
pub const JOB_TYPE: &str = "job_name";
/// Label: on Kata Jobs and pods, [`KATA_APP`].
pub const APP: &str = "app.kubernetes.io/name";
/// What ClusterFuzz's dashboards and its pending count select Kata pods by.
pub const KATA_APP: &str = "clusterfuzz-kata-job";
/// Label: [`MANAGER`] on everything that katabatch makes.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Its value.
pub const MANAGER: &str = "katabatch";
/// Label: the id of the scheduler that made it.
pub const SCHEDULER: &str = "katabatch.dev/scheduler";
/// Label: the first [`HASH_LABEL_LEN`] digits of the task's hash; annotation: the whole hash.
pub const TASK: &str = "katabatch.dev/task";
/// Label: which attempt at the task it is, from 1.
pub const ATTEMPT: &str = "katabatch.dev/attempt";
/// Annotation: the version of what our labels and annotations mean.
pub const SCHEMA: &str = "katabatch.dev/schema";
/// Annotation: when the task's message was published (RFC 3339).
pub const PUBLISHED_AT: &str = "katabatch.dev/published-at";
/// Annotation: a digest of the spec before a task's values went in. It informs, nothing more.
pub const SPEC: &str = "katabatch.dev/spec";
/// Annotation: [`ON_COMPLETED`] on the Jobs of tasks whose message waits for their end. Others have
/// none.
pub const ACK: &str = "katabatch.dev/ack";
/// Its value.
pub const ON_COMPLETED: &str = "on_completed";

/// How many hexadecimal digits of the 64 fit a label (63 characters) with room to spare.
pub const HASH_LABEL_LEN: usize = 40;
