//! The machines that a workload's tasks get where a backend makes a VM for each of them: what the
//! farm's `batch.yaml` says of them. Which backend that is, and how it is asked, stays out.

use std::collections::BTreeSet;

/// Machines of one kind, and where they may be. What is not said is `None`: whether that is a fault
/// is the backend's to say.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Machines {
    /// The Google Cloud project's name.
    pub project: Option<String>,
    /// The project's number, digits as text.
    pub project_number: Option<String>,
    /// The machine type, such as `n1-standard-1`.
    pub machine_type: Option<String>,
    /// The type of the boot disk, such as `pd-standard`. Its size is the workload's.
    pub disk_type: Option<String>,
    /// Whether they may be taken away at any time.
    pub preemptible: bool,
    /// Whether a failed task is tried again there.
    pub retry: bool,
    /// Where they may be.
    pub regions: Vec<Region>,
    /// The regions whose queue is looked at before one is chosen; empty: none is.
    pub checked: BTreeSet<String>,
    /// Places that the mapping names and the file lacks.
    pub unknown_places: Vec<String>,
}

/// A region, with its share.
#[derive(Debug, Clone, PartialEq)]
pub struct Region {
    /// The region, such as `us-central1`.
    pub name: String,
    /// The network's path.
    pub network: Option<String>,
    /// The subnetwork's path.
    pub subnetwork: Option<String>,
    /// Its share of the whole; zero is never chosen.
    pub weight: f64,
}
