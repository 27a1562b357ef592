//! `routes` and `home`: what binds job types to backends, and which backend's namespace is home.

use std::collections::BTreeMap;

use super::backends::{BackendConfig, BackendKind};
use crate::domain::glob::Glob;
use crate::domain::labels;
use crate::domain::name::BackendName;
use crate::gate::routes::{Routes, Rule};
use crate::located::reading::Field;

/// Reads the rules; each backend that one names must be configured.
pub(super) fn read(field: Option<Field<'_>>, backends: &[BackendConfig]) -> Routes {
    let items = field.and_then(|f| f.list()).unwrap_or_default();
    Routes(items.iter().filter_map(|item| read_one(item, backends)).collect())
}

fn read_one(field: &Field<'_>, backends: &[BackendConfig]) -> Option<Rule> {
    let section = field.section()?;
    let globs = |field: Option<Field<'_>>| {
        let items = field.map(|f| f.one_or_more()).unwrap_or_default();
        items.iter().filter_map(|item| item.text().map(Glob::new)).collect::<Vec<_>>()
    };
    let job_types = globs(section.get("job_types"));
    let platforms = globs(section.get("platforms"));
    let wanted: BTreeMap<String, Glob> = section
        .get("labels")
        .and_then(|f| f.entries())
        .unwrap_or_default()
        .into_iter()
        .filter_map(|(label, value)| {
            if label.strip_prefix(labels::PREFIX).is_some_and(|name| !labels::is_name(name)) {
                let hint = "write at most 63 letters, digits, `-`, `_` and `.` after the `/`";
                value.fault("is of a label that no task can have", hint);
            }
            Some((label.to_owned(), Glob::new(value.text()?)))
        })
        .collect();
    let bound = section.required("backends", "name the backends that such tasks may go to");
    let mut names = Vec::new();
    for item in bound.iter().flat_map(Field::one_or_more) {
        let name = item.read(|text| named(text, backends).map(|backend| backend.name.clone()));
        names.extend(name);
    }
    if let Some(bound) = bound.filter(|bound| bound.one_or_more().is_empty()) {
        bound.fault("is empty", "name at least one backend");
    }
    if job_types.is_empty() && platforms.is_empty() && wanted.is_empty() {
        field.fault("says of no task that it is about it", "give job_types, platforms or labels");
    }
    section.finish();
    Some(Rule { job_types, platforms, labels: wanted, backends: names })
}

fn named<'a>(
    text: &str,
    backends: &'a [BackendConfig],
) -> Result<&'a BackendConfig, (String, String)> {
    let found = backends.iter().find(|backend| backend.name.as_str() == text);
    found.ok_or_else(|| {
        let names: Vec<&str> = backends.iter().map(|backend| backend.name.as_str()).collect();
        (format!("no backend is called `{text}`"), format!("there are {}", names.join(", ")))
    })
}

/// The backend in whose namespace the leader's Lease and the scheduler's records are: the one that
/// is named, else the first cluster; `None` where there is no cluster.
pub(super) fn home(field: Option<Field<'_>>, backends: &[BackendConfig]) -> Option<BackendName> {
    let cluster = |backend: &&BackendConfig| matches!(backend.kind, BackendKind::Kubernetes { .. });
    if let Some(field) = field {
        return field.read(|text| {
            let backend = named(text, backends)?;
            match cluster(&backend) {
                true => Ok(backend.name.clone()),
                false => Err((
                    format!("backend `{text}` is no Kubernetes namespace"),
                    "name one that is, or leave the key out".to_owned(),
                )),
            }
        });
    }
    backends.iter().find(cluster).map(|backend| backend.name.clone())
}
