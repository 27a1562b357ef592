//! What the pipeline is given: all that it touches of the world, and how a run of it can end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::breaker::Patience;
use super::leases::Leases;
use super::tally::Observer;
use super::work::Work;
use crate::backend::{Backend, Finished};
use crate::catalog::Catalog;
use crate::catalog::entity::JobEntities;
use crate::clock::Clock;
use crate::domain::name::Command;
use crate::domain::outcome::Deferral;
use crate::domain::task::WorkloadKey;
use crate::domain::workload::Workload;
use crate::flags::{FlagSet, FlagSource};
use crate::gate::Candidate;
use crate::gate::routes::Routes;
use crate::leadership::Leadership;
use crate::queue::{Queue, QueueError};
use crate::records::{RecordError, Records};

/// Turns looked-up entities into a workload, by the farm's files and profiles in force. Pure.
pub trait Resolver: Send + Sync {
    /// The workload, or why there is none (always of scope `Workload`).
    fn resolve(
        &self,
        key: &WorkloadKey,
        entities: &JobEntities,
        flags: &FlagSet,
    ) -> Result<Workload, Deferral>;

    /// How long a task of this command is expected to run: its URLs must live that long.
    fn expected_run(&self, command: &Command) -> Duration;

    /// Changes whenever the same question may get another answer: after a reload.
    fn generation(&self) -> u64 {
        0
    }
}

/// A queue to take from.
pub struct QueueBinding {
    /// The queue, and the keeper of its leases (whose `run` is spawned by who makes it).
    pub leases: Arc<Leases>,
    /// The queue.
    pub queue: Arc<dyn Queue>,
    /// The base OS version whose messages it carries.
    pub base_os_version: Option<String>,
    /// How often handling one of its messages may panic before it is rejected.
    pub max_panics: u32,
    /// Whether its messages are kept until the Job ends (`ack: on_completed`).
    pub completes: bool,
    /// Whether what is deferred is held here. If not, it goes back at once, with the reason.
    pub hold: bool,
}

/// A backend to give to.
pub struct BackendBinding {
    /// The backend.
    pub backend: Arc<dyn Backend>,
    /// Where its weight comes from.
    pub candidate: Candidate,
}

/// The numbers that an operator may set.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// How many tasks may be held on top of what there is room for.
    pub held: usize,
    /// The oldest flags that anything is created on.
    pub flags_max_age: Duration,
    /// End when the queues are empty and nothing is left but what is held for long.
    pub once: bool,
    /// How long to wait for what is under way when told to stop.
    pub grace: Duration,
    /// How long a full or broken backend is waited for before its tasks may go to another one.
    pub spill_after: Duration,
    /// When breakers open and are tried.
    pub patience: Patience,
    /// The part of a backend's pending limit that one workload may hold while others wait, 0 to 1.
    pub workload_share: f64,
}

/// All that the pipeline touches.
pub struct Deps {
    /// The clocks.
    pub clock: Arc<dyn Clock>,
    /// Where tasks come from.
    pub queues: Vec<QueueBinding>,
    /// What job types are.
    pub catalog: Arc<dyn Catalog>,
    /// The feature flags.
    pub flags: Arc<dyn FlagSource>,
    /// The farm's files and profiles.
    pub resolver: Arc<dyn Resolver>,
    /// Where tasks go.
    pub backends: Vec<BackendBinding>,
    /// What binds job types to backends.
    pub routes: Routes,
    /// What the ends of Jobs come to, where messages wait for them.
    pub ends: Option<mpsc::UnboundedReceiver<Finished>>,
    /// Who leads: nothing is taken or given while this process does not.
    pub leadership: Arc<dyn Leadership>,
    /// The leader's own records: weight epochs.
    pub records: Arc<dyn Records>,
    /// What operators tell it: pauses, lost backends.
    pub controls: Arc<dyn Records>,
    /// The numbers.
    pub settings: Settings,
    /// Told of every set of flags that was read (limits live in flags).
    pub on_flags: Box<dyn Fn(&FlagSet) + Send + Sync>,
    /// How what was created fares; `None`: no breaker opens, and no share is bounded.
    pub work: Option<Arc<dyn Work>>,
    /// Hears of every decision.
    pub observer: Option<Arc<dyn Observer>>,
}

/// How a run of the pipeline ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It was told to stop, and gave back or finished all that it had in hand.
    Stopped,
    /// `once`: the queues are empty, and nothing is left but what is held.
    Drained,
    /// The fuse blew: too many rejects. Intake had stopped; what was in hand was given back.
    FuseBlown,
}

/// Why the pipeline can't go on.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// A queue is broken.
    #[error("queue {queue}: {error}")]
    Queue {
        /// The queue's name.
        queue: String,
        /// What it said.
        error: QueueError,
    },
    /// The records say that another process leads.
    #[error("{0}")]
    Overtaken(RecordError),
}
