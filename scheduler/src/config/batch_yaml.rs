//! `batch/batch.yaml`: the farm's own file that says what each platform's tasks run as.
//!
//! It is read as ClusterFuzz's Python reads it (PyYAML: `no` is false). Keys that nobody knows are
//! kept with a warning, since farms add their own. A broken mapping is its own fault: tasks of that
//! mapping are held, all others go on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::mapping::Mapping;
use crate::domain::workload::Account;
use crate::located::problem::{ConfigErrors, Problem};
use crate::located::reading::{Field, Reading, Section};
use crate::located::tree::Value;

/// The whole file, checked.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BatchYaml {
    /// The project's name.
    pub project: Option<String>,
    /// Its number, digits as text; preferred in the parents of GCP Batch jobs.
    pub project_number: Option<String>,
    /// The regions whose queues are asked before one is chosen.
    pub queue_check_regions: Vec<String>,
    /// Where GCP Batch's VMs may be, by name.
    pub subconfigs: BTreeMap<String, Subconfig>,
    /// The mappings by key; a broken one is there with its problems.
    pub mapping: BTreeMap<String, Result<Mapping, ConfigErrors>>,
    /// What is odd but does no harm, each with file and line.
    pub warnings: Vec<String>,
}

/// A place for GCP Batch's VMs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subconfig {
    /// The region.
    pub region: String,
    /// The network's path.
    pub network: Option<String>,
    /// The subnetwork's path.
    pub subnetwork: Option<String>,
}

impl BatchYaml {
    /// Reads `text` as the file at `path`.
    ///
    /// # Errors
    /// What is wrong outside of the mappings, or with the file as a whole.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigErrors> {
        let reading = Reading::of(path);
        let node = reading.parse(text)?;
        let batch = reading.root(&node).section().map(|top| read(&top, path));
        reading.finish(batch)?.ok_or_else(|| ConfigErrors::of_file(path, "is no mapping", ""))
    }

    /// The problems of its broken mappings.
    pub fn broken_mappings(&self) -> Vec<Problem> {
        let broken = self.mapping.values().filter_map(|mapping| mapping.as_ref().err());
        broken.flat_map(|errors| errors.0.iter().cloned()).collect()
    }
}

fn read(top: &Section<'_>, path: &Path) -> BatchYaml {
    let mut warnings = Vec::new();
    let mut warn =
        |line: u32, text: String| warnings.push(format!("{}:{line}: {text}", path.display()));
    let regions = top.set("queue_check_regions").and_then(|f| f.list()).unwrap_or_default();
    let mut batch = BatchYaml {
        project: top.set("project").and_then(|f| f.text()).map(str::to_owned),
        project_number: top.set("project-number").and_then(|f| read_number(&f)),
        queue_check_regions: regions.iter().filter_map(|f| f.text()).map(str::to_owned).collect(),
        subconfigs: read_subconfigs(top.set("subconfigs"), &mut warn),
        mapping: BTreeMap::new(),
        warnings: Vec::new(),
    };
    let hint = "write what each platform's tasks run as under `mapping`";
    if let Some(field) = top.required("mapping", hint) {
        batch.mapping = read_mappings(&field, path, &mut warn);
    }
    for (key, mapping) in &batch.mapping {
        for subconfig in mapping.iter().flat_map(|mapping| &mapping.subconfigs) {
            if !batch.subconfigs.contains_key(&subconfig.name) {
                let line = top.whole().line();
                warn(line, format!("mapping.{key}: there is no subconfig `{}`", subconfig.name));
            }
        }
    }
    for (key, line) in top.unknown() {
        warn(line, format!("{key}: is not a known key; it counts for nothing"));
    }
    batch.warnings = warnings;
    batch
}

/// Digits, in quotes or not; as they are written, since an id may begin with a zero.
fn read_number(field: &Field<'_>) -> Option<String> {
    let text = match &field.node().value {
        Value::Int { written, .. } => written,
        Value::Text { text, .. } => text,
        _ => field.text()?,
    };
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return Some(text.to_owned());
    }
    field.fault(format!("`{text}` is no project number"), "write its digits");
    None
}

fn read_subconfigs(
    field: Option<Field<'_>>,
    warn: &mut dyn FnMut(u32, String),
) -> BTreeMap<String, Subconfig> {
    let mut subconfigs = BTreeMap::new();
    for (name, field) in field.and_then(|f| f.entries()).unwrap_or_default() {
        let Some(section) = field.section() else { continue };
        let text = |key| section.set(key).and_then(|f| f.text()).map(str::to_owned);
        let region = section.required("region", "write a region such as us-central1");
        let subconfig = Subconfig {
            region: region.and_then(|f| f.text()).unwrap_or_default().to_owned(),
            network: text("network"),
            subnetwork: text("subnetwork"),
        };
        for (key, line) in section.unknown() {
            warn(
                line,
                format!("{}.{key}: is not a known key; it counts for nothing", field.path()),
            );
        }
        subconfigs.insert(name.to_owned(), subconfig);
    }
    subconfigs
}

fn read_mappings(
    field: &Field<'_>,
    path: &Path,
    warn: &mut dyn FnMut(u32, String),
) -> BTreeMap<String, Result<Mapping, ConfigErrors>> {
    let mut mappings = BTreeMap::new();
    // A key that is there twice is that mapping's own fault, so the file's reading must not see it.
    let own = Reading::of(path);
    let Some(entries) = own.part(field).entries() else {
        let _ = field.section();
        return mappings;
    };
    for (key, entry) in entries {
        let reading = Reading::of(path);
        let mapping = Mapping::read(&reading.part(&entry), warn);
        let checked = reading.finish(mapping).and_then(|mapping| {
            mapping.ok_or_else(|| ConfigErrors::of_file(path, format!("mapping.{key} is none"), ""))
        });
        mappings.insert(key.to_owned(), checked);
    }
    if let Err(twice) = own.finish(()) {
        for problem in twice.0 {
            let key = problem.key.clone();
            let key = key.strip_prefix("mapping.").unwrap_or(&key);
            mappings.insert(key.to_owned(), Err(ConfigErrors(vec![problem])));
        }
    }
    refuse_shared_names(&mut mappings, field, path);
    mappings
}

/// Two emails with one part before the `@` would share one Kubernetes account, which can carry
/// only one of them: which would be chance, so neither mapping works.
fn refuse_shared_names(
    mappings: &mut BTreeMap<String, Result<Mapping, ConfigErrors>>,
    field: &Field<'_>,
    path: &Path,
) {
    let mut emails: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for mapping in mappings.values().flatten() {
        if let Account::Google { name, email } = &mapping.account {
            emails.entry(name.clone()).or_default().insert(email.clone());
        }
    }
    for (key, checked) in mappings.iter_mut() {
        let Ok(Mapping { account: Account::Google { name, .. }, .. }) = checked else { continue };
        let Some(sharing) = emails.get(name).filter(|emails| emails.len() > 1) else { continue };
        let all: Vec<_> = sharing.iter().map(String::as_str).collect();
        let node = field.node().get(key).and_then(|node| node.get("service_account_email"));
        *checked = Err(ConfigErrors(vec![Problem {
            file: path.to_owned(),
            line: node.map_or(field.line(), |node| node.line),
            key: format!("mapping.{key}.service_account_email"),
            problem: format!("{} would share the ServiceAccount `{name}`", all.join(" and ")),
            hint: Some("use one email, or accounts with different names".into()),
        }]));
    }
}

#[cfg(test)]
mod tests;
