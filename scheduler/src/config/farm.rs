//! The farm: what its own configuration folder says of it.

use std::path::Path;

use super::batch_yaml::BatchYaml;
use super::project_yaml::ProjectYaml;
use super::watch::Sources;
use crate::located::problem::ConfigErrors;

/// What `project.yaml` and `batch/batch.yaml` say.
#[derive(Debug, Clone, PartialEq)]
pub struct Farm {
    /// The cluster that its Jobs run on.
    pub cluster_name: String,
    /// The Google Cloud project of that cluster, where one is named.
    pub project: Option<String>,
    /// The project of its queues and entities: `APPLICATION_ID` without a leading `s~`.
    pub application_project: Option<String>,
    /// Whether it is OSS-Fuzz itself, where every job runs on Linux.
    pub oss_fuzz: bool,
    /// What each platform's tasks run as.
    pub batch: BatchYaml,
    /// What is odd in its files but does no harm.
    pub warnings: Vec<String>,
}

impl Farm {
    /// Reads the folder `dir`. `k8s_project` is the process's own `K8S_PROJECT`, which wins over
    /// the file's; no other variable of the process counts.
    ///
    /// # Errors
    /// All problems of both files. A broken mapping is none: it is kept as such.
    pub fn load(
        dir: &Path,
        k8s_project: Option<&str>,
        sources: &mut Sources,
    ) -> Result<Self, ConfigErrors> {
        let mut read = |name: &str| {
            let path = dir.join(name);
            let hint = "clusterfuzz.config_dir must be the farm's configuration folder";
            match sources.read(&path) {
                Ok(text) => Ok((path, text)),
                Err(e) => Err(ConfigErrors::of_file(path, format!("can't be read: {e}"), hint)),
            }
        };
        let project =
            read("project.yaml").and_then(|(path, text)| ProjectYaml::parse(&path, &text));
        let batch =
            read("batch/batch.yaml").and_then(|(path, text)| BatchYaml::parse(&path, &text));
        match (project, batch) {
            (Ok(project), Ok(batch)) => Ok(Self::of(project, batch, k8s_project)),
            (project, batch) => {
                let errors = [project.err(), batch.err()].into_iter().flatten();
                Err(ConfigErrors(errors.flat_map(|errors| errors.0).collect()))
            }
        }
    }

    /// The farm of these two files.
    pub fn of(project: ProjectYaml, batch: BatchYaml, k8s_project: Option<&str>) -> Self {
        let own = k8s_project.filter(|value| !value.is_empty()).map(str::to_owned);
        let application = project.application_id.as_deref();
        Self {
            cluster_name: project.cluster_name,
            project: own.or(project.k8s_project),
            application_project: application
                .map(|id| id.strip_prefix("s~").unwrap_or(id).to_owned()),
            oss_fuzz: project.project_name.as_deref() == Some("oss-fuzz"),
            warnings: batch.warnings.clone(),
            batch,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn farm(project: &str, k8s_project: Option<&str>) -> Result<Farm, ConfigErrors> {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("batch")).expect("a directory");
        std::fs::write(dir.path().join("project.yaml"), project).expect("written");
        std::fs::write(dir.path().join("batch/batch.yaml"), "mapping: {}\n").expect("written");
        Farm::load(dir.path(), k8s_project, &mut Sources::default())
    }

    #[test]
    fn the_farms_settings_come_from_its_files_and_one_variable() {
        let text = "cluster_name: c\nfirebase: {x: 1}\nenv:\n  PROJECT_NAME: oss-fuzz\n  \
                    K8S_PROJECT: file\n  APPLICATION_ID: s~app\n  OTHER: [1]\n";
        let plain = farm(text, None).expect("a farm");
        assert_eq!((plain.cluster_name.as_str(), plain.oss_fuzz), ("c", true));
        assert_eq!(plain.project.as_deref(), Some("file"));
        assert_eq!(plain.application_project.as_deref(), Some("app"));
        assert_eq!(farm(text, Some("own")).expect("a farm").project.as_deref(), Some("own"));
        assert_eq!(farm(text, Some("")).expect("a farm").project.as_deref(), Some("file"));
    }

    #[test]
    fn what_is_not_said_has_clusterfuzzs_defaults() {
        let farm = farm("env: {PROJECT_NAME: clusterfuzz-external}\n", None).expect("a farm");
        assert_eq!(farm.cluster_name, "clusterfuzz-cronjobs-gke");
        assert_eq!((farm.oss_fuzz, farm.project, farm.application_project), (false, None, None));
    }

    #[test]
    fn the_problems_of_both_files_come_at_once() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("project.yaml"), "cluster_name: 5\n").expect("written");
        let errors = Farm::load(dir.path(), None, &mut Sources::default()).expect_err("two");
        let text = errors.to_string();
        assert_eq!(errors.0.len(), 2, "{text}");
        assert!(text.contains("project.yaml:1: cluster_name: is the number 5"), "{text}");
        assert!(text.contains("batch.yaml: can't be read"), "{text}");
    }
}
