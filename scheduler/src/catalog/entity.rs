//! The Datastore entities that the scheduler reads, with the properties it uses
//! (ClusterFuzz's `data_types.py` names).

/// A `Job` entity: one job type's definition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Job {
    /// The job type.
    pub name: String,
    /// `LINUX`, `ANDROID`, …
    pub platform: String,
    /// The base OS version, where set.
    pub base_os_version: Option<String>,
    /// Its environment string, last of the layers.
    pub environment_string: String,
    /// Names of `JobTemplate`s, applied in order before its own environment.
    pub templates: Vec<String>,
    /// The project that it belongs to.
    pub project: Option<String>,
}

/// A `JobTemplate` entity.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobTemplate {
    /// Its name.
    pub name: String,
    /// The environment string that it stands for.
    pub environment_string: String,
}

/// An `OssFuzzProject` entity.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OssFuzzProject {
    /// Its name.
    pub name: String,
    /// The base OS version, which beats the job's.
    pub base_os_version: Option<String>,
}

/// All that the catalog says about one job type.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobEntities {
    /// The `Job` entities of that name: none, one, or by mistake several, in a stable order.
    pub jobs: Vec<Job>,
    /// The templates that the jobs name, by name; a missing one is absent here.
    pub templates: Vec<JobTemplate>,
    /// The `OssFuzzProject`s that the jobs name; a missing one is absent here.
    pub projects: Vec<OssFuzzProject>,
    /// What is wrong with entities that this job type is made of, or that may be it: while there
    /// is anything, its tasks are held.
    pub faults: Vec<String>,
}
