//! The configuration: one file of ours, and the farm's own folder that it names.
//!
//! [`Config::load`] reads the file once into validated types; all of its errors come at once, each
//! with file, line and key. Every setting but `apiVersion` has a default. What the settings of the
//! farm itself say is [`farm`]'s.

pub mod accounts;
pub mod backends;
pub mod batch_yaml;
pub mod entities;
pub mod farm;
pub mod files;
pub mod http;
pub mod kubernetes_names;
pub mod ledger;
pub mod mapping;
pub mod outputs;
pub mod policy;
pub mod profile_layer;
pub mod profiles;
pub mod project_yaml;
pub mod queues;
mod retries;
mod routes;
pub mod watch;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::domain::name::{BackendName, is_dns_label};
use crate::domain::retry::RetryRules;
use crate::gate::routes::Routes;
pub use crate::located::problem::{ConfigErrors, Problem};
use crate::located::reading::{Field, Reading, Section};
use accounts::AccountsConfig;
use backends::BackendConfig;
use entities::{CatalogConfig, FlagsConfig};
use http::HttpConfig;
use ledger::LedgerConfig;
use policy::{ExpectedRun, Policy};
use profiles::Profiles;
use queues::QueueConfig;
use watch::Sources;

/// The version of the configuration's shape.
pub const API_VERSION: &str = "katabatch.dev/v1alpha1";

/// Everything that the configuration file says, checked, with all defaults filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// This scheduler's id, which stands on its Jobs: a DNS label.
    pub scheduler: String,
    /// The farm's configuration folder, which holds `project.yaml` and `batch/batch.yaml`; may be a
    /// `gs://` one, as the catalog's and the flags' files may.
    pub farm_dir: PathBuf,
    /// Where tasks come from; at least one, names unique.
    pub queues: Vec<QueueConfig>,
    /// Where tasks go; at least one, names unique, in the order in which weights are filled.
    pub backends: Vec<BackendConfig>,
    /// The backend whose namespace holds the leader's Lease and the scheduler's records; `None`
    /// where no backend is a cluster.
    pub home: Option<BackendName>,
    /// Where a scheduler without any cluster keeps its lock, its records and its controls.
    pub state_dir: PathBuf,
    /// What binds job types to backends, before any weight.
    pub routes: Routes,
    /// Where job types are looked up.
    pub catalog: CatalogConfig,
    /// Where flags come from.
    pub flags: FlagsConfig,
    /// The bucket of the tasks' output objects, where it is to be looked into.
    pub outputs: Option<String>,
    /// The settings of workloads' Jobs.
    pub profiles: Profiles,
    /// What the process itself may hold.
    pub limits: Limits,
    /// What is refused beyond the isolation policy's own rules.
    pub policy: Policy,
    /// What is done for the accounts that tasks run as.
    pub accounts: AccountsConfig,
    /// How long tasks are expected to run.
    pub expected_run: ExpectedRun,
    /// What is done about ends, and how often a task is tried.
    pub retries: RetryRules,
    /// What is served over HTTP; `None`: nothing.
    pub http: Option<HttpConfig>,
    /// Where explanations are kept.
    pub ledger: LedgerConfig,
}

/// What the process itself may hold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// The most tasks that may be held.
    pub held: usize,
    /// How long a lease runs; it is renewed well before.
    pub lease: Duration,
    /// How long a full or broken backend is waited for before its tasks may go to another one.
    pub spill_after: Duration,
    /// How long a pod may wait to start, for reasons of its own, before its workload's breaker opens.
    pub stuck_after: Duration,
    /// How long a breaker is open before one task is tried; doubles with each failure.
    pub probe_after: Duration,
    /// The part of a backend's pending limit that one workload may hold while others wait.
    pub workload_share: f64,
}

impl Config {
    /// Reads and checks the file at `path`.
    ///
    /// # Errors
    /// All problems of the file.
    pub fn load(path: &Path) -> Result<Self, ConfigErrors> {
        Self::load_from(path, &mut Sources::default())
    }

    /// As [`load`](Self::load), noting the file among `sources`, for [`watch::Watched`].
    ///
    /// # Errors
    /// All problems of the file.
    pub fn load_from(path: &Path, sources: &mut Sources) -> Result<Self, ConfigErrors> {
        let text = sources.read(path).map_err(|error| {
            ConfigErrors::of_file(
                path,
                format!("can't be read: {error}"),
                "give its path by --config",
            )
        })?;
        Self::parse(path, &text)
    }

    /// Checks `text` as if it stood in the file at `path`; relative paths start at its directory.
    ///
    /// # Errors
    /// All problems of the text.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigErrors> {
        let reading = Reading::of(path);
        let node = reading.parse(text)?;
        let base = path.parent().unwrap_or(Path::new(""));
        let config = reading.root(&node).section().map(|top| read(top, base));
        reading.finish(config)?.ok_or_else(|| ConfigErrors::of_file(path, "is no mapping", ""))
    }
}

/// Reads the whole file. Where a value is wrong, a default stands in and the problem is on record.
fn read(top: Section<'_>, base: &Path) -> Config {
    let version = top.required("apiVersion", &format!("write `apiVersion: {API_VERSION}`"));
    if let Some(version) = version
        && let Some(text) = version.text()
        && text != API_VERSION
    {
        let problem = format!("`{text}` is not a version that this katabatch reads");
        version.fault(problem, &format!("write {API_VERSION}"));
    }
    let config = read_sections(&top, base);
    top.finish();
    config
}

fn read_sections(top: &Section<'_>, base: &Path) -> Config {
    let policy = top.set("policy").and_then(|f| Policy::read(&f)).unwrap_or_default();
    let exceptions = policy.host_network_exceptions.clone();
    let backends = backends::read(top.get("backends"), base);
    Config {
        scheduler: top.get("scheduler").and_then(|f| scheduler(&f)).unwrap_or("default".into()),
        farm_dir: top
            .set("clusterfuzz")
            .and_then(|f| farm_dir(&f, base))
            .unwrap_or_else(|| base.join("clusterfuzz-config")),
        queues: queues::read(top.get("queues"), base, &backends),
        home: routes::home(top.set("home"), &backends),
        state_dir: top
            .set("state_dir")
            .and_then(|f| path(&f, base))
            .unwrap_or_else(|| base.join("state")),
        routes: routes::read(top.set("routes"), &backends),
        backends,
        catalog: CatalogConfig::read(top.set("catalog"), base),
        flags: FlagsConfig::read(top.set("flags"), base),
        outputs: top.set("outputs").and_then(|f| outputs::read(&f)),
        profiles: Profiles::read(top.set("profiles"), exceptions),
        limits: limits(top.set("limits")),
        policy,
        accounts: AccountsConfig::read(top.set("accounts")),
        expected_run: ExpectedRun::read(top.set("expected_run")),
        retries: retries::read(top.set("retries")),
        http: top.set("http").and_then(|f| HttpConfig::read(&f, base)),
        ledger: ledger::read(top.set("ledger"), base),
    }
}

fn scheduler(field: &Field<'_>) -> Option<String> {
    field.read(|text| {
        if is_dns_label(text) {
            return Ok(text.to_owned());
        }
        let hint = "write at most 63 lower-case letters, digits and `-`, such as `default`";
        Err((format!("`{text}` can't be a label on Jobs"), hint.to_owned()))
    })
}

fn farm_dir(field: &Field<'_>, base: &Path) -> Option<PathBuf> {
    let section = field.section()?;
    let dir = section.get("config_dir").and_then(|f| place(&f, base, Remote::Folder));
    section.finish();
    dir
}

/// A path; a relative one starts at `base`, the configuration file's directory.
fn path(field: &Field<'_>, base: &Path) -> Option<PathBuf> {
    field.read(|text| {
        if text.starts_with(files::SCHEME) {
            let problem = format!("`{text}` can't be in Cloud Storage");
            return Err((problem, "write a path of this machine".to_owned()));
        }
        Ok(base.join(text))
    })
}

/// What a `gs://` path must name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Remote {
    /// A bucket, and a folder in it or none.
    Folder,
    /// An object.
    File,
}

/// As [`path`], or one in Cloud Storage: `gs://BUCKET/…`.
fn place(field: &Field<'_>, base: &Path, what: Remote) -> Option<PathBuf> {
    field.read(|text| {
        let Some(inside) = text.strip_prefix(files::SCHEME) else { return Ok(base.join(text)) };
        let (bucket, object) = inside.split_once('/').unwrap_or((inside, ""));
        let is_whole = !bucket.is_empty() && (what == Remote::Folder || !object.is_empty());
        if is_whole {
            return Ok(PathBuf::from(text));
        }
        let hint = match what {
            Remote::Folder => "write gs://BUCKET or gs://BUCKET/FOLDER",
            Remote::File => "write gs://BUCKET/OBJECT",
        };
        Err((format!("`{text}` names nothing in Cloud Storage"), hint.to_owned()))
    })
}

fn places(field: &Field<'_>, base: &Path) -> Vec<PathBuf> {
    field.one_or_more().iter().filter_map(|item| place(item, base, Remote::File)).collect()
}

fn limits(field: Option<Field<'_>>) -> Limits {
    let mut limits = Limits {
        held: 1_000,
        lease: Duration::from_secs(60),
        spill_after: Duration::from_secs(600),
        stuck_after: Duration::from_secs(600),
        probe_after: Duration::from_secs(60),
        workload_share: 0.5,
    };
    let Some(section) = field.and_then(|f| f.section()) else { return limits };
    if let Some(held) = section.get("held").and_then(|f| f.whole(1..=1_000_000_usize)) {
        limits.held = held;
    }
    if let Some(field) = section.get("lease")
        && let Some(lease) = field.duration()
    {
        // Pub/Sub takes at most 600 s; below 10 s a slow create would outlive its lease.
        if (Duration::from_secs(10)..=Duration::from_secs(600)).contains(&lease) {
            limits.lease = lease;
        } else {
            field.fault("is out of range", "write 10s to 10m");
        }
    }
    if let Some(spill_after) = section.get("spill_after").and_then(|f| above_zero(&f)) {
        limits.spill_after = spill_after;
    }
    if let Some(stuck_after) = section.get("stuck_after").and_then(|f| above_zero(&f)) {
        limits.stuck_after = stuck_after;
    }
    if let Some(probe_after) = section.get("probe_after").and_then(|f| above_zero(&f)) {
        limits.probe_after = probe_after;
    }
    if let Some(share) = section.get("workload_share").and_then(|f| f.number(0.01..=1.0)) {
        limits.workload_share = share;
    }
    section.finish();
    limits
}

/// A length of time that isn't zero.
fn above_zero(field: &Field<'_>) -> Option<Duration> {
    let duration = field.duration()?;
    if duration.is_zero() {
        field.fault("is zero", "write a length of time such as 90s, 10m or 1h30m");
        return None;
    }
    Some(duration)
}

/// The name of an item of a list, unique in it.
fn unique_name(
    section: &Section<'_>,
    seen: &mut BTreeMap<String, u32>,
    what: &str,
) -> Option<String> {
    let field = section.required("name", &format!("give every {what} a name of its own"))?;
    let name = field.read(|text| {
        if is_dns_label(text) {
            return Ok(text.to_owned());
        }
        let hint = "write at most 63 lower-case letters, digits and `-`";
        Err((format!("`{text}` is no {what} name"), hint.to_owned()))
    })?;
    if let Some(line) = seen.insert(name.clone(), field.line()) {
        let problem = format!("`{name}` is the name of the {what} on line {line} too");
        field.fault(problem, &format!("give every {what} a name of its own"));
    }
    Some(name)
}

#[cfg(test)]
mod tests;
