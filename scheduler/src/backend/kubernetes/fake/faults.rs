//! What can go wrong, and with which call.

use std::time::Duration;

use super::super::api::ApiError;

/// A method of [`ClusterApi`](super::super::api::ClusterApi).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is named as its method")]
pub enum Verb {
    CreateJob,
    GetJob,
    ReadJob,
    DeleteJob,
    ListJobs,
    WatchJobs,
    ListPods,
    WatchPods,
    ListWorkPods,
    WatchWorkPods,
    ListPodsOf,
    PodLog,
    ListEvents,
    GetAccount,
    CreateAccount,
    GetConfigMap,
    PutConfigMap,
    GetLease,
    PutLease,
}

/// What goes wrong with a call.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Nothing: for a place in a script.
    Pass,
    /// It is answered so, and nothing is done.
    Refuse(ApiError),
    /// It is done, and answered so: an answer lost on its way, a 504, an empty body.
    DoneThen(ApiError),
    /// It is answered so, and done only at [`land_late`](super::FakeCluster::land_late). For creates of Jobs.
    Late(ApiError),
    /// It is done after so long.
    Slow(Duration),
}
