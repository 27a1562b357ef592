//! `catalog` and `flags`: whether the farm's entities are in files or in Datastore.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{above_zero, places};
use crate::located::reading::{Field, Section};
use crate::located::tree::Value;

/// Where job types are looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CatalogConfig {
    /// In entity files, of this machine or `gs://`; at least one.
    Files(Vec<PathBuf>),
    /// In Datastore.
    Datastore {
        /// The project; `None` is the farm's own, its `APPLICATION_ID`.
        project: Option<String>,
        /// How long an answer is used.
        cache: Duration,
        /// How old answers may be while Datastore can't be read; at least `cache`.
        max_stale: Duration,
    },
}

/// Where feature flags come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlagsConfig {
    /// What they are in.
    pub source: FlagsFrom,
    /// How old flags may be before nothing is created on them.
    pub max_age: Duration,
}

/// What flags are in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlagsFrom {
    /// Files, of this machine or `gs://`; none at all means that no flag exists.
    Files(Vec<PathBuf>),
    /// Datastore.
    Datastore {
        /// The project; `None` is the farm's own, its `APPLICATION_ID`.
        project: Option<String>,
    },
}

impl CatalogConfig {
    /// Reads the section; without one the entities are in `entities.yaml`.
    pub(super) fn read(field: Option<Field<'_>>, base: &Path) -> Self {
        let default = || Self::Files(vec![base.join("entities.yaml")]);
        let Some(section) = field.and_then(|f| f.section()) else { return default() };
        let file = section.get("file");
        let datastore = section.get("datastore");
        not_both(&section, &file, &datastore);
        section.finish();
        match (file, datastore) {
            (_, Some(datastore)) => read_catalog_datastore(&datastore),
            (Some(file), None) => {
                let files = places(&file, base);
                if names_none(&file) {
                    let hint = "name one, or leave the key out for entities.yaml";
                    file.fault("names no file", hint);
                }
                if files.is_empty() { default() } else { Self::Files(files) }
            }
            (None, None) => default(),
        }
    }
}

fn read_catalog_datastore(field: &Field<'_>) -> CatalogConfig {
    const CACHE: Duration = Duration::from_secs(60);
    const MAX_STALE: Duration = Duration::from_secs(3_600);
    let none = CatalogConfig::Datastore { project: None, cache: CACHE, max_stale: MAX_STALE };
    let Some(section) = section_or_empty(field) else { return none };
    let cache = section.get("cache").and_then(|f| above_zero(&f)).unwrap_or(CACHE);
    let stale = section.get("max_stale");
    let max_stale = stale.as_ref().and_then(|f| f.duration());
    if let (Some(field), Some(given)) = (&stale, max_stale)
        && given < cache
    {
        field.fault("is less than `cache`", "write at least as much as `cache`");
    }
    let project = project(&section);
    section.finish();
    CatalogConfig::Datastore {
        project,
        cache,
        max_stale: max_stale.unwrap_or(MAX_STALE.max(cache)),
    }
}

impl FlagsConfig {
    /// Reads the section; without one there are no flags.
    pub(super) fn read(field: Option<Field<'_>>, base: &Path) -> Self {
        const MAX_AGE: Duration = Duration::from_secs(600);
        let Some(section) = field.and_then(|f| f.section()) else {
            return Self { source: FlagsFrom::Files(Vec::new()), max_age: MAX_AGE };
        };
        let file = section.set("file");
        let datastore = section.get("datastore");
        not_both(&section, &file, &datastore);
        let source = match datastore {
            Some(field) => FlagsFrom::Datastore { project: read_flags_datastore(&field) },
            None => FlagsFrom::Files(file.map(|f| places(&f, base)).unwrap_or_default()),
        };
        let max_age = section.get("max_age").and_then(|f| above_zero(&f)).unwrap_or(MAX_AGE);
        section.finish();
        Self { source, max_age }
    }
}

fn read_flags_datastore(field: &Field<'_>) -> Option<String> {
    let section = section_or_empty(field)?;
    let project = project(&section);
    section.finish();
    project
}

/// The section's keys; `datastore:` with nothing after it is a section too.
fn section_or_empty<'a>(field: &Field<'a>) -> Option<Section<'a>> {
    if field.is_null() { None } else { field.section() }
}

fn project(section: &Section<'_>) -> Option<String> {
    section.set("project").and_then(|f| f.text()).map(str::to_owned)
}

fn not_both(section: &Section<'_>, file: &Option<Field<'_>>, datastore: &Option<Field<'_>>) {
    if file.is_some() && datastore.is_some() {
        section.whole().fault("has both `file` and `datastore`", "keep one of them");
    }
}

fn names_none(field: &Field<'_>) -> bool {
    matches!(&field.node().value, Value::List(items) if items.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn parse(text: &str) -> Result<Config, String> {
        let text = format!("apiVersion: katabatch.dev/v1alpha1\n{text}");
        Config::parse(Path::new("/c/k.yaml"), &text).map_err(|errors| errors.to_string())
    }

    #[track_caller]
    fn check(text: &str, catalog: &CatalogConfig, flags: &FlagsFrom) {
        let config = parse(text).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!((&config.catalog, &config.flags.source), (catalog, flags), "{text}");
    }

    #[test]
    fn entities_are_in_files_or_in_datastore() {
        let files = |names: &[&str]| names.iter().map(|n| Path::new("/c").join(n)).collect();
        let minutes = |n: u64| Duration::from_secs(60 * n);
        let datastore = |project: Option<&str>, cache, max_stale| CatalogConfig::Datastore {
            project: project.map(str::to_owned),
            cache,
            max_stale,
        };
        let none = FlagsFrom::Files(Vec::new());
        check("", &CatalogConfig::Files(files(&["entities.yaml"])), &none);
        check(
            "catalog: {file: [a, b]}\nflags: {file: c}\n",
            &CatalogConfig::Files(files(&["a", "b"])),
            &FlagsFrom::Files(files(&["c"])),
        );
        check(
            "catalog: {file: [gs://b/x/e.jsonl, a]}\nflags: {file: gs://b/f.yaml}\n",
            &CatalogConfig::Files(vec!["gs://b/x/e.jsonl".into(), "/c/a".into()]),
            &FlagsFrom::Files(vec!["gs://b/f.yaml".into()]),
        );
        check("catalog: {datastore: {}}\n", &datastore(None, minutes(1), minutes(60)), &none);
        check(
            "catalog: {datastore: }\nflags: {datastore: }\n",
            &datastore(None, minutes(1), minutes(60)),
            &FlagsFrom::Datastore { project: None },
        );
        check(
            "catalog: {datastore: {project: p, cache: 2h}}\nflags: {datastore: {project: q}}\n",
            &datastore(Some("p"), minutes(120), minutes(120)),
            &FlagsFrom::Datastore { project: Some("q".into()) },
        );
    }

    #[test]
    fn what_makes_no_sense_is_told_with_its_place() {
        for (text, expect) in [
            ("catalog: {file: a, datastore: {}}", "k.yaml:2: catalog: has both `file` and"),
            ("flags: {file: a, datastore: {}}", "k.yaml:2: flags: has both `file` and"),
            ("catalog: {datastore: {cache: 0s}}", "catalog.datastore.cache: is zero"),
            ("catalog: {datastore: {max_stale: 5s}}", "max_stale: is less than `cache`"),
            ("catalog: {datastore: {proejct: x}}", "did you mean `project`?"),
            ("catalog: {file: []}", "catalog.file: names no file"),
            ("catalog: {file: gs://b}", "`gs://b` names nothing in Cloud Storage"),
            ("flags: {file: [gs:///o]}", "`gs:///o` names nothing in Cloud Storage"),
            ("clusterfuzz: {config_dir: 'gs://'}", "write gs://BUCKET or gs://BUCKET/FOLDER"),
            ("queues: [{name: a, spool: {path: gs://b/s}}]", "can't be in Cloud Storage"),
            ("flags: {datastore: 5}", "flags.datastore: is the number 5"),
        ] {
            let errors = parse(text).expect_err(text);
            assert!(errors.contains(expect), "{text}: {errors}");
        }
    }
}
