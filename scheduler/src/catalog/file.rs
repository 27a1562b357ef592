//! The catalog in files: `Job`, `JobTemplate` and `OssFuzzProject` entities, indexed by name.
//!
//! Read once and again when the files change. A bad entity is its own fault: others go on, and a
//! job type that depends on it, or that it may be, gets the fault instead of looking unknown, since
//! tasks of unknown job types are rejected in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;

use super::entity::{Job, JobEntities, JobTemplate, OssFuzzProject};
use super::{Catalog, CatalogError, Freshness};
use crate::config::files::Files;
use crate::config::watch::{Reload, Sources, Watched};
use crate::domain::name::JobType;
use crate::located::entities::{self, Entity, Fault};

/// All entities of the files at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Index {
    jobs: Named<Job>,
    templates: Named<JobTemplate>,
    projects: Named<OssFuzzProject>,
    /// Every fault, with file and line, for people.
    faults: Vec<String>,
}

/// The entities of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Named<T> {
    by_name: BTreeMap<String, Vec<T>>,
    /// Faults of entities whose name is known.
    faults: BTreeMap<String, Vec<String>>,
    /// Faults of entities that may have any name.
    nameless: Vec<String>,
}

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self { by_name: BTreeMap::new(), faults: BTreeMap::new(), nameless: Vec::new() }
    }
}

impl<T: Clone> Named<T> {
    /// Takes an entity in; what is wrong with it is kept by its name, as `FILE:LINE: PROBLEM`.
    fn add(
        &mut self,
        file: &Path,
        entity: &Entity,
        read: impl FnOnce(String) -> Result<T, Fault>,
    ) -> Result<(), String> {
        let named = entity.text("name").and_then(|name| {
            let none = || Fault { line: entity.line, problem: "has no `name`".into() };
            name.filter(|name| !name.is_empty()).ok_or_else(none)
        });
        let name = named.map_err(|fault| {
            let placed = place(file, &fault);
            self.nameless.push(placed.clone());
            placed
        })?;
        match read(name.clone()) {
            Ok(value) => self.by_name.entry(name).or_default().push(value),
            Err(fault) => {
                let placed = place(file, &fault);
                self.faults.entry(name).or_default().push(placed.clone());
                return Err(placed);
            }
        }
        Ok(())
    }

    /// All of that name, and what is wrong with it or, when it isn't there, might be it.
    fn find(&self, name: &str, found: &mut Vec<T>, faults: &mut Vec<String>) {
        let here = self.by_name.get(name);
        found.extend(here.into_iter().flatten().cloned());
        match self.faults.get(name) {
            Some(own) => faults.extend(own.iter().cloned()),
            None if here.is_none() => faults.extend(self.nameless.iter().cloned()),
            None => {}
        }
    }
}

fn place(file: &Path, fault: &Fault) -> String {
    format!("{}:{fault}", file.display())
}

impl Index {
    /// Adds the entities of the file at `path`; a bad one is kept as a fault.
    ///
    /// # Errors
    /// When nothing in it can be read, with file and line: then it is the file that is broken.
    pub fn add(&mut self, path: &Path, text: &str) -> Result<(), String> {
        let entities = entities::read(path, text);
        if let Some(Err(first)) = entities.first()
            && entities.iter().all(Result::is_err)
        {
            return Err(place(path, first));
        }
        for entity in entities {
            let added = match &entity {
                Ok(entity) => self.add_one(path, entity),
                Err(fault) => Err(self.add_unknown(&place(path, fault))),
            };
            self.faults.extend(added.err());
        }
        Ok(())
    }

    fn add_one(&mut self, file: &Path, entity: &Entity) -> Result<(), String> {
        match entity.kind.as_str() {
            "Job" => self.jobs.add(file, entity, |name| read_job(name, entity)),
            "JobTemplate" => self.templates.add(file, entity, |name| {
                let environment_string = entity.text("environment_string")?.unwrap_or_default();
                Ok(JobTemplate { name, environment_string })
            }),
            "OssFuzzProject" => self.projects.add(file, entity, |name| {
                let base_os_version = set(entity.text("base_os_version")?);
                Ok(OssFuzzProject { name, base_os_version })
            }),
            // An export holds many kinds; the others are not the scheduler's.
            _ => Ok(()),
        }
    }

    /// An entity of which not even the kind is known may be any.
    fn add_unknown(&mut self, fault: &str) -> String {
        self.jobs.nameless.push(fault.to_owned());
        self.templates.nameless.push(fault.to_owned());
        self.projects.nameless.push(fault.to_owned());
        fault.to_owned()
    }

    /// Every bad entity, as `FILE:LINE: PROBLEM`.
    pub fn faults(&self) -> &[String] {
        &self.faults
    }

    /// Every job type that has an entity, in order.
    pub fn job_types(&self) -> impl Iterator<Item = &str> {
        self.jobs.by_name.keys().map(String::as_str)
    }

    /// All that is known of one job type.
    pub fn look_up(&self, job_type: &str) -> JobEntities {
        let mut entities = JobEntities::default();
        self.jobs.find(job_type, &mut entities.jobs, &mut entities.faults);
        let templates: BTreeSet<_> = entities.jobs.iter().flat_map(|j| &j.templates).collect();
        for name in templates {
            self.templates.find(name, &mut entities.templates, &mut entities.faults);
        }
        let projects: BTreeSet<_> =
            entities.jobs.iter().filter_map(|j| j.project.as_ref()).collect();
        for name in projects {
            self.projects.find(name, &mut entities.projects, &mut entities.faults);
        }
        entities
    }
}

/// An empty text counts as unset, as in Python.
fn set(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn read_job(name: String, entity: &Entity) -> Result<Job, Fault> {
    Ok(Job {
        name,
        platform: entity.text("platform")?.unwrap_or_default(),
        base_os_version: set(entity.text("base_os_version")?),
        environment_string: entity.text("environment_string")?.unwrap_or_default(),
        templates: entity.texts("templates")?,
        project: set(entity.text("project")?),
    })
}

/// A catalog of files.
#[derive(Debug)]
pub struct FileCatalog {
    watched: Arc<Watched<Index>>,
}

impl FileCatalog {
    /// Reads all of `files` from the file system; bad entities are kept as faults.
    ///
    /// # Errors
    /// When a file can't be read, or nothing in it.
    pub fn open(files: Vec<PathBuf>) -> Result<Self, CatalogError> {
        Self::open_in(Files::default(), files)
    }

    /// As [`open`](Self::open), from wherever `at` reads them.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_in(at: Files, files: Vec<PathBuf>) -> Result<Self, CatalogError> {
        let load = move |sources: &mut Sources| {
            let mut index = Index::default();
            for file in &files {
                let text = sources.read(file).map_err(|e| format!("{}: {e}", file.display()))?;
                index.add(file, &text)?;
            }
            Ok(index)
        };
        let watched = Watched::open_in(at, load).map_err(CatalogError)?;
        Ok(Self { watched: Arc::new(watched) })
    }

    /// The entities as they were last read.
    pub fn index(&self) -> Arc<Index> {
        self.watched.get()
    }

    /// Looks at the files, and reads them again if they changed: for a timer. Waits for the file
    /// system, or what else has them.
    pub fn poll(&self) -> Reload {
        self.watched.poll()
    }
}

#[async_trait]
impl Catalog for FileCatalog {
    async fn look_up(
        &self,
        job_types: &[JobType],
        freshness: Freshness,
    ) -> Result<BTreeMap<JobType, JobEntities>, CatalogError> {
        if freshness == Freshness::Fresh {
            let watched = self.watched.clone();
            let polled = tokio::task::spawn_blocking(move || {
                watched.poll();
                watched.failure()
            });
            // The last good state is not fresh: nothing may be rejected on it.
            let failure = polled.await.map_err(|error| CatalogError(error.to_string()))?;
            failure.map_or(Ok(()), |failure| Err(CatalogError(failure)))?;
        }
        let index = self.watched.get();
        let found = job_types.iter().map(|name| (name.clone(), index.look_up(name.as_str())));
        Ok(found.collect())
    }
}

#[cfg(test)]
mod tests;
