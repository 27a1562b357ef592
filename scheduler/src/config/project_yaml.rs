//! `project.yaml`: what the scheduler needs of the farm's own project file. The rest of that file
//! is other programs' business and is not looked at.

use std::path::Path;

use crate::located::problem::ConfigErrors;
use crate::located::reading::{Field, Reading};
use crate::located::tree::Value;

/// The cluster that ClusterFuzz takes where the file names none.
const DEFAULT_CLUSTER: &str = "clusterfuzz-cronjobs-gke";

/// What the file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectYaml {
    /// The cluster's name.
    pub cluster_name: String,
    /// `env.PROJECT_NAME`.
    pub project_name: Option<String>,
    /// `env.K8S_PROJECT`.
    pub k8s_project: Option<String>,
    /// `env.APPLICATION_ID`.
    pub application_id: Option<String>,
}

impl ProjectYaml {
    /// Reads `text` as the file at `path`.
    ///
    /// # Errors
    /// All problems with what is read here.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigErrors> {
        let reading = Reading::of(path);
        let node = reading.parse(text)?;
        let root = reading.root(&node);
        let project = root.section().map(|top| {
            let env = top.set("env").and_then(|f| f.section());
            let variable = |key| env.as_ref()?.set(key).and_then(|f| read_variable(&f));
            let cluster = top.set("cluster_name").and_then(|f| f.text());
            Self {
                cluster_name: cluster.unwrap_or(DEFAULT_CLUSTER).to_owned(),
                project_name: variable("PROJECT_NAME"),
                k8s_project: variable("K8S_PROJECT"),
                application_id: variable("APPLICATION_ID"),
            }
        });
        reading.finish(project)?.ok_or_else(|| ConfigErrors::of_file(path, "is no mapping", ""))
    }
}

/// A variable's text; a number counts as it is written, since the process would get it so.
fn read_variable(field: &Field<'_>) -> Option<String> {
    match &field.node().value {
        Value::Int { written, .. } => Some(written.clone()),
        _ => field.any_text().map(str::to_owned),
    }
    .filter(|text| !text.is_empty())
}
