//! Why a job type's tasks run or don't: the answer that `katabatch why` prints and a running
//! scheduler gives over HTTP.
//!
//! Data and pure words; who gathers the facts is the service's or the command's affair.

pub mod sentences;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::domain::breaker::Open;
use crate::ledger::record::{EndRecord, Record};

/// What is known of a job type, for one answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The job type.
    pub job_type: String,
    /// As of when.
    pub at: Timestamp,
    /// Whose word it is.
    pub source: Source,
    /// What the catalog says of it.
    pub catalog: InCatalog,
    /// What stops everything, whatever the job type; empty while any backend takes tasks.
    #[serde(default)]
    pub stopped: Vec<Stop>,
    /// Its workloads, by command.
    pub workloads: Vec<About>,
    /// The answer in words, the most important first.
    pub sentences: Vec<Sentence>,
}

/// Why a backend takes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// The label of the reason, as of holds.
    pub state: String,
    /// What is so, with the backend's name.
    pub detail: String,
}

/// Whose word an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A running scheduler's.
    Scheduler,
    /// The ledger's file: what was written last.
    File,
}

/// What the catalog says of a job type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InCatalog {
    /// It is there.
    Known,
    /// It is not.
    Unknown,
    /// The catalog can't be read.
    Unread(String),
}

/// One workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// Its command.
    pub command: String,
    /// What is known of it.
    pub record: Record,
    /// Its last ends, oldest first.
    pub ends: Vec<EndRecord>,
    /// Its breaker, if that is open.
    #[serde(default)]
    pub breaker: Option<Open>,
}

/// One thing to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sentence {
    /// The command that it is about; empty: all.
    pub command: String,
    /// The state, from a closed set: reasons of holds and rejections, kinds of ends, and `running`,
    /// `waiting`, `well`, `unseen`, `unknown_job_type`, `last_end`.
    pub state: String,
    /// What is so.
    pub text: String,
    /// What would have to change.
    pub change: Option<String>,
}

impl Answer {
    /// An answer, with its words.
    pub fn new(
        job_type: &str,
        (at, source): (Timestamp, Source),
        catalog: InCatalog,
        stopped: Vec<Stop>,
        workloads: Vec<About>,
    ) -> Self {
        let job_type = job_type.to_owned();
        let sentences = Vec::new();
        let mut answer = Self { job_type, at, source, catalog, stopped, workloads, sentences };
        answer.sentences = sentences::of(&answer);
        answer
    }
}
