//! Looks at flags and job types, wherever they are, and at what the job types would run as.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, Shared};

use super::looks::Looks;
use crate::catalog::Freshness;
use crate::catalog::entity::{Job, JobEntities};
use crate::check::findings::Findings;
use crate::check::readers::Versions;
use crate::clock::{Clock, SystemClock};
use crate::config::entities::{CatalogConfig, FlagsFrom};
use crate::domain::name::JobType;
use crate::domain::outcome::HoldKind;
use crate::domain::task::WorkloadKey;
use crate::domain::workload::{Disk, Workload};
use crate::flags::{FlagSet, FlagSource};
use crate::pipeline::resolve::{Resolved, Unresolved, resolve};
use crate::service::{CatalogSource, Loaded, open_flags};

/// The commands that differ in mapping, deadline and restart policy.
const COMMANDS: [&str; 2] = ["fuzz", "corpus_pruning"];
/// How long each may take. The whole of OSS-Fuzz's catalog is read in a few seconds.
const FLAGS_WITHIN: Duration = Duration::from_secs(20);
const CATALOG_WITHIN: Duration = Duration::from_secs(60);
/// So many warnings and so many job types of a kind are shown.
const MOST_WARNINGS: usize = 20;
const MOST_NAMES: usize = 3;

/// What flags and catalog say.
pub struct Known {
    /// How that came out.
    pub findings: Findings,
    /// One workload for each mapping, command and profile that occurs: of a job type of the
    /// catalog where there is one, else of one made up for the mapping.
    pub workloads: Vec<Workload>,
    /// The base OS versions of the job types; `None` where the catalog could not be read.
    pub versions: Option<Versions>,
}

/// What several looks wait for.
pub type Knowing = Shared<BoxFuture<'static, Arc<Known>>>;

type Entities = BTreeMap<JobType, JobEntities>;

/// Reads both, side by side.
pub async fn read(loaded: Arc<Loaded>, offline: bool, looks: Looks) -> Known {
    let ((mut findings, flags), (of_catalog, entities)) =
        tokio::join!(flags(&loaded, offline, &looks), entities(&loaded, offline, &looks));
    findings.extend(of_catalog);
    let flags = flags.unwrap_or_default();
    let mut workloads = Vec::new();
    let mut versions = None;
    if let Some(entities) = entities {
        let mut used = Versions::new();
        findings.extend(job_types(&loaded, &entities, &flags, &mut workloads, &mut used));
        versions = Some(used);
    }
    made_up(&loaded, &flags, &mut workloads);
    Known { findings, workloads, versions }
}

async fn flags(loaded: &Arc<Loaded>, offline: bool, looks: &Looks) -> (Findings, Option<FlagSet>) {
    let mut findings = Findings::about("flags");
    if offline && matches!(loaded.config.flags.source, FlagsFrom::Datastore { .. }) {
        findings.not_checked("all", "--offline asks no Datastore", "");
        return (findings, None);
    }
    let from = Arc::clone(loaded);
    let look = async move { open_flags(&from).await?.read().await.map_err(|e| e.to_string()) };
    match looks.at("flags", FLAGS_WITHIN, look).await.and_then(|read| read) {
        Ok(flags) => {
            findings.pass("all", format!("{} are read", flags.0.len()));
            findings.extend(crate::check::flags::judge(&loaded.config.backends, &flags));
            (findings, Some(flags))
        }
        Err(error) => {
            // A right that is missing is named by the error itself.
            let hint = "nothing is created on flags never read: see `flags`, and whether what it \
                        names can be reached";
            findings.fail("all", error, hint);
            (findings, None)
        }
    }
}

async fn entities(
    loaded: &Arc<Loaded>,
    offline: bool,
    looks: &Looks,
) -> (Findings, Option<Entities>) {
    let mut findings = Findings::about("catalog");
    if offline && matches!(loaded.config.catalog, CatalogConfig::Datastore { .. }) {
        findings.not_checked("all", "--offline asks no Datastore", "");
        return (findings, None);
    }
    let from = Arc::clone(loaded);
    let look = async move {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let source = CatalogSource::open(&from, &clock).await?;
        let names = source.job_types().await.map_err(|e| e.to_string())?;
        let entities = source.catalog().look_up(&names, Freshness::Fresh).await;
        Ok::<_, String>((source.faults(), entities.map_err(|e| e.to_string())?))
    };
    match looks.at("catalog", CATALOG_WITHIN, look).await.and_then(|read| read) {
        Ok((faults, entities)) => {
            for fault in faults.iter().take(MOST_WARNINGS) {
                findings.fail("entity", fault, "mend or remove the entity");
            }
            (findings, Some(entities))
        }
        Err(error) => {
            let hint = "see `catalog`, and whether what it names can be reached";
            findings.fail("all", error, hint);
            (findings, None)
        }
    }
}

/// What each job type would run as, or why its tasks would be held.
fn job_types(
    loaded: &Loaded,
    entities: &Entities,
    flags: &FlagSet,
    workloads: &mut Vec<Workload>,
    versions: &mut Versions,
) -> Findings {
    let mut faults: BTreeMap<HoldKind, Vec<(&JobType, String)>> = BTreeMap::new();
    let mut warnings: BTreeMap<String, Vec<&JobType>> = BTreeMap::new();
    for (name, entities) in entities {
        for command in COMMANDS.into_iter().chain(loaded.config.profiles.commands()) {
            match resolved(loaded, name, command, entities, flags) {
                Ok(Resolved { workload, warnings: odd }) => {
                    if command == COMMANDS[0] {
                        for warning in odd {
                            warnings.entry(warning).or_default().push(name);
                        }
                        if let Some(version) = &workload.base_os_version {
                            let first = || (0, name.to_string());
                            versions.entry(version.clone()).or_insert_with(first).0 += 1;
                        }
                    }
                    keep(workloads, workload);
                }
                Err(why) => {
                    let list = faults.entry(why.kind).or_default();
                    if list.last().is_none_or(|(last, _)| *last != name) {
                        list.push((name, why.detail));
                    }
                }
            }
        }
    }
    report(entities.len(), &faults, &warnings)
}

fn report(
    all: usize,
    faults: &BTreeMap<HoldKind, Vec<(&JobType, String)>>,
    warnings: &BTreeMap<String, Vec<&JobType>>,
) -> Findings {
    let mut findings = Findings::about("catalog");
    let bad: std::collections::BTreeSet<&JobType> =
        faults.values().flatten().map(|(name, _)| *name).collect();
    let detail = format!("{} of {all} job types can be scheduled", all - bad.len().min(all));
    if all == 0 {
        findings.warn("job types", "there are none", "see catalog: every task would be held");
    } else {
        findings.pass("job types", detail);
    }
    for (kind, list) in faults {
        let shown: Vec<String> =
            list.iter().take(MOST_NAMES).map(|(name, why)| format!("{name}: {why}")).collect();
        let detail = format!("{} job types, such as {}", list.len(), shown.join("; "));
        findings.fail(&format!("job types: {kind}"), detail, hint(*kind));
    }
    for (warning, names) in warnings.iter().take(MOST_WARNINGS) {
        let Some(first) = names.first() else { continue };
        let detail = format!("{warning} ({} job types, such as {first})", names.len());
        findings.warn("job types", detail, "see the entities");
    }
    if warnings.len() > MOST_WARNINGS {
        let more = warnings.len() - MOST_WARNINGS;
        findings.warn("job types", format!("{more} more warnings"), "mend those above first");
    }
    findings
}

fn hint(kind: HoldKind) -> &'static str {
    match kind {
        HoldKind::Swarming => {
            "their tasks are held: they belong to the queue utask_main-swarming and its own \
             scheduler"
        }
        HoldKind::AmbiguousJobType => "their tasks are held: keep one entity of each name",
        HoldKind::BadMapping => "their tasks are held: mend batch.yaml",
        _ => "their tasks are held: mend the entities",
    }
}

fn resolved(
    loaded: &Loaded,
    name: &JobType,
    command: &str,
    entities: &JobEntities,
    flags: &FlagSet,
) -> Result<Resolved, Unresolved> {
    let key = WorkloadKey { command: command.into(), job_type: name.clone() };
    resolve(&key, entities, &loaded.farm, &loaded.config.profiles, flags)
}

/// Keeps one workload of those that differ in nothing that a cluster judges.
fn keep(workloads: &mut Vec<Workload>, workload: Workload) {
    let like = |other: &Workload| {
        other.mapping == workload.mapping
            && other.key.command == workload.key.command
            && other.profile == workload.profile
            && (other.disk_gb == workload.disk_gb || workload.profile.disk != Disk::FromJob)
    };
    if !workloads.iter().any(like) {
        workloads.push(workload);
    }
}

/// Mappings that no job type of the catalog runs by, so that each is looked at: all of them where
/// the catalog could not be read.
fn made_up(loaded: &Loaded, flags: &FlagSet, workloads: &mut Vec<Workload>) {
    for key in loaded.farm.batch.mapping.keys() {
        if workloads.iter().any(|workload| workload.mapping == *key) {
            continue;
        }
        let (platform, command) = match key.strip_suffix("-NONPREEMPTIBLE-UNPRIVILEGED") {
            Some(platform) => (platform, COMMANDS[1]),
            None => (key.strip_suffix("-PREEMPTIBLE-UNPRIVILEGED").unwrap_or(key), COMMANDS[0]),
        };
        let name = JobType::from("katabatch-check");
        let job = Job { name: name.to_string(), platform: platform.to_owned(), ..Job::default() };
        let entities = JobEntities { jobs: vec![job], ..JobEntities::default() };
        // On OSS-Fuzz all platforms run by Linux's mappings; a broken one is reported as such.
        if let Ok(resolved) = resolved(loaded, &name, command, &entities, flags)
            && resolved.workload.mapping == *key
        {
            keep(workloads, resolved.workload);
        }
    }
}
