//! The catalog in Datastore: `Job`, `JobTemplate` and `OssFuzzProject` entities, looked up by their
//! property `name` (their keys are numbers, or not theirs to be relied on).
//!
//! Every look-up asks Datastore; what may be answered from memory is [`super::cached`]'s to say.
//! A bad entity is the fault of the job types that it may belong to, never of the whole look-up.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use gcloud_sdk::google::datastore::v1::Entity;

use super::entity::{Job, JobEntities, JobTemplate, OssFuzzProject};
use super::{Catalog, CatalogError, Freshness};
use crate::domain::name::JobType;
use crate::gcp::datastore::properties::{list_of, text_of};
use crate::gcp::datastore::{Datastore, DatastoreError, Found};

impl From<DatastoreError> for CatalogError {
    fn from(error: DatastoreError) -> Self {
        Self(error.to_string())
    }
}

/// A project's catalog.
#[derive(Debug, Clone)]
pub struct DatastoreCatalog {
    datastore: Datastore,
}

impl DatastoreCatalog {
    /// The catalog in this Datastore.
    pub fn new(datastore: Datastore) -> Self {
        Self { datastore }
    }

    /// Every job type that has an entity, in order.
    ///
    /// # Errors
    /// Datastore can't be read.
    pub async fn job_types(&self) -> Result<Vec<JobType>, CatalogError> {
        let jobs = self.datastore.all("Job").await?;
        // One without a readable name can't be looked up by it, and so is nobody's job type.
        let names: BTreeSet<String> =
            jobs.iter().filter_map(|job| text_of(job, "name").ok().flatten()).collect();
        Ok(names.into_iter().filter(|name| !name.is_empty()).map(JobType::from).collect())
    }

    async fn named<T: Clone>(
        &self,
        kind: &str,
        names: impl IntoIterator<Item = &str> + Send,
        read: impl Fn(&Entity, String) -> Result<T, String> + Send + Sync,
    ) -> Result<Named<T>, CatalogError> {
        let names: BTreeSet<&str> = names.into_iter().collect();
        let names: Vec<&str> = names.into_iter().collect();
        Ok(Named::of(kind, self.datastore.by_values(kind, "name", &names).await?, read))
    }
}

/// The entities of one kind that were asked for.
struct Named<T> {
    by_name: BTreeMap<String, Vec<T>>,
    faults: BTreeMap<String, Vec<String>>,
}

impl<T: Clone> Named<T> {
    fn of(kind: &str, found: Found, read: impl Fn(&Entity, String) -> Result<T, String>) -> Self {
        let mut named = Self { by_name: BTreeMap::new(), faults: BTreeMap::new() };
        for (name, reason) in found.refused {
            let fault = format!("Datastore refuses to look {kind} `{name}` up: {reason}");
            named.faults.entry(name).or_default().push(fault);
        }
        for (name, entities) in found.entities {
            for entity in entities {
                // A list that has the name among others is found by it, and is no name.
                let value = text_of(&entity, "name").and_then(|_| read(&entity, name.clone()));
                match value {
                    Ok(value) => named.by_name.entry(name.clone()).or_default().push(value),
                    Err(fault) => named.faults.entry(name.clone()).or_default().push(fault),
                }
            }
        }
        named
    }

    fn find(&self, name: &str, found: &mut Vec<T>, faults: &mut Vec<String>) {
        found.extend(self.by_name.get(name).into_iter().flatten().cloned());
        faults.extend(self.faults.get(name).into_iter().flatten().cloned());
    }
}

/// An empty text counts as unset, as in Python.
fn set(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn read_job(entity: &Entity, name: String) -> Result<Job, String> {
    Ok(Job {
        name,
        platform: text_of(entity, "platform")?.unwrap_or_default(),
        base_os_version: set(text_of(entity, "base_os_version")?),
        environment_string: text_of(entity, "environment_string")?.unwrap_or_default(),
        templates: list_of(entity, "templates")?,
        project: set(text_of(entity, "project")?),
    })
}

fn read_template(entity: &Entity, name: String) -> Result<JobTemplate, String> {
    let environment_string = text_of(entity, "environment_string")?.unwrap_or_default();
    Ok(JobTemplate { name, environment_string })
}

fn read_project(entity: &Entity, name: String) -> Result<OssFuzzProject, String> {
    Ok(OssFuzzProject { name, base_os_version: set(text_of(entity, "base_os_version")?) })
}

#[async_trait]
impl Catalog for DatastoreCatalog {
    async fn look_up(
        &self,
        job_types: &[JobType],
        _: Freshness,
    ) -> Result<BTreeMap<JobType, JobEntities>, CatalogError> {
        let names = job_types.iter().map(JobType::as_str);
        let jobs = self.named("Job", names, read_job).await?;
        let all = || jobs.by_name.values().flatten();
        let template_names: Vec<&str> =
            all().flat_map(|job| &job.templates).map(String::as_str).collect();
        let project_names: Vec<&str> = all().filter_map(|job| job.project.as_deref()).collect();
        let (templates, projects) = futures::try_join!(
            self.named("JobTemplate", template_names, read_template),
            self.named("OssFuzzProject", project_names, read_project),
        )?;
        let entities_of = |job_type: &JobType| {
            let mut entities = JobEntities::default();
            jobs.find(job_type.as_str(), &mut entities.jobs, &mut entities.faults);
            let names: BTreeSet<_> = entities.jobs.iter().flat_map(|job| &job.templates).collect();
            for name in names {
                templates.find(name, &mut entities.templates, &mut entities.faults);
            }
            let names: BTreeSet<_> =
                entities.jobs.iter().filter_map(|job| job.project.as_ref()).collect();
            for name in names {
                projects.find(name, &mut entities.projects, &mut entities.faults);
            }
            entities
        };
        Ok(job_types.iter().map(|name| (name.clone(), entities_of(name))).collect())
    }
}

#[cfg(test)]
mod tests;
