//! The words of the scheduler as types: tasks, workloads, names, outcomes, room.
//!
//! Everything here is pure: no client, no clock of its own, no runtime. What belongs to one
//! backend's API (a Kubernetes Job, a Batch job) stays out.

pub mod breaker;
pub mod causes;
pub mod end;
pub mod glob;
pub mod input_url;
pub mod labels;
pub mod log_tail;
pub mod machines;
pub mod message;
pub mod name;
pub mod outcome;
pub mod pubsub;
pub mod quantity;
pub mod redact;
pub mod retry;
pub mod room;
pub mod signed_url;
pub mod subscription;
pub mod task;
pub mod workload;
pub mod workload_now;
