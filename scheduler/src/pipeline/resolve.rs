//! Decides what the tasks of one (command, job type) run as. Pure: entities, files, profiles and
//! flags come looked up and checked.
//!
//! What is wrong here is always the farm's fault, never a message's: the tasks are held.

use std::collections::BTreeSet;

use crate::catalog::entity::{Job, JobEntities, JobTemplate, OssFuzzProject};
use crate::catalog::environment::{self, Environment};
use crate::config::batch_yaml::BatchYaml;
use crate::config::farm::Farm;
use crate::config::mapping::Mapping;
use crate::config::profiles::Profiles;
use crate::domain::machines::{Machines, Region};
use crate::domain::outcome::HoldKind;
use crate::domain::task::WorkloadKey;
use crate::domain::workload::{Isolation, Workload, upstream_duration};
use crate::flags::FlagSet;

/// The flag that gives some job types to Swarming.
const SWARMING_FLAG: &str = "swarming_remote_execution";

/// A workload, and what is odd about how it came to be.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// What the tasks run as.
    pub workload: Workload,
    /// What a person should look at, though the tasks run.
    pub warnings: Vec<String>,
}

/// Why there is no workload: its tasks are held.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {detail}")]
pub struct Unresolved {
    /// The kind of hold.
    pub kind: HoldKind,
    /// What a person needs to know.
    pub detail: String,
}

impl Unresolved {
    fn new(kind: HoldKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }
}

/// Makes the workload of `key`.
///
/// # Errors
/// [`Unresolved`] says why its tasks must wait.
pub fn resolve(
    key: &WorkloadKey,
    entities: &JobEntities,
    farm: &Farm,
    profiles: &Profiles,
    flags: &FlagSet,
) -> Result<Resolved, Unresolved> {
    if !entities.faults.is_empty() {
        return Err(Unresolved::new(HoldKind::BadJobType, entities.faults.join("; ")));
    }
    let Some((first, others)) = entities.jobs.split_first() else {
        let detail = format!("the catalog has no Job named `{}`", key.job_type);
        return Err(Unresolved::new(HoldKind::UnknownJobType, detail));
    };
    let of = |job| of_job(key, job, entities, farm, profiles, flags);
    let resolved = of(first);
    for other in others {
        if !same(&resolved, &of(other)) {
            let detail = format!(
                "the catalog has {} Jobs named `{}` that differ (platforms {}); keep one",
                entities.jobs.len(),
                key.job_type,
                platforms(entities),
            );
            return Err(Unresolved::new(HoldKind::AmbiguousJobType, detail));
        }
    }
    let mut resolved = resolved?;
    if !others.is_empty() {
        let count = entities.jobs.len();
        let warning = format!("the catalog has {count} like Jobs named `{}`", key.job_type);
        resolved.warnings.push(warning);
    }
    Ok(resolved)
}

/// Two jobs of one name are alike when their tasks would run as the same.
fn same(a: &Result<Resolved, Unresolved>, b: &Result<Resolved, Unresolved>) -> bool {
    match (a, b) {
        (Ok(a), Ok(b)) => a.workload == b.workload,
        (Err(a), Err(b)) => a == b,
        _ => false,
    }
}

fn platforms(entities: &JobEntities) -> String {
    let names: BTreeSet<_> = entities.jobs.iter().map(|job| job.platform.as_str()).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

fn of_job(
    key: &WorkloadKey,
    job: &Job,
    entities: &JobEntities,
    farm: &Farm,
    profiles: &Profiles,
    flags: &FlagSet,
) -> Result<Resolved, Unresolved> {
    let mut warnings = Vec::new();
    let environment = environment(job, &entities.templates, &mut warnings)?;
    if flags.0.get(SWARMING_FLAG).is_some_and(|flag| flag.enabled) && is_swarming(&environment) {
        let detail = format!("the flag {SWARMING_FLAG} gives this job type to Swarming");
        return Err(Unresolved::new(HoldKind::Swarming, detail));
    }
    let own_disk = own_disk(&environment)?;
    let (mapping_key, mapping) = mapping(key, job, farm)?;
    let base_os_version = base_os_version(job, &entities.projects, farm)?;
    let image = image(mapping, base_os_version.as_deref(), &mut warnings);
    let workload = Workload {
        key: key.clone(),
        platform: job.platform.clone(),
        project: job.project.clone(),
        base_os_version,
        image,
        release: mapping.clusterfuzz_release.clone(),
        account: mapping.account.clone(),
        isolation: if mapping.is_kata { Isolation::Kata } else { Isolation::Standard },
        duration: upstream_duration(key.command.as_str()),
        disk_gb: own_disk.or(mapping.disk_size_gb),
        profile: profiles.resolve(&mapping_key, key),
        machines: Some(machines(mapping, &farm.batch)),
        mapping: mapping_key,
    };
    Ok(Resolved { workload, warnings })
}

/// The templates in order, then the job's own. A missing template is skipped, as upstream does.
fn environment(
    job: &Job,
    templates: &[JobTemplate],
    warnings: &mut Vec<String>,
) -> Result<Environment, Unresolved> {
    let mut layers = Vec::new();
    for name in &job.templates {
        let mut named = templates.iter().filter(|template| &template.name == name);
        let Some(template) = named.next() else {
            warnings.push(format!("there is no JobTemplate `{name}`; it is skipped"));
            continue;
        };
        if named.any(|other| other != template) {
            let detail = format!("the catalog has differing JobTemplates named `{name}`; keep one");
            return Err(Unresolved::new(HoldKind::AmbiguousJobType, detail));
        }
        layers.push(template.environment_string.as_str());
    }
    layers.push(&job.environment_string);
    Ok(environment::layered(layers))
}

/// As ClusterFuzz decides it: a true `IS_SWARMING_JOB`, or dimensions.
fn is_swarming(environment: &Environment) -> bool {
    let value = |key: &str| environment.get(key).map_or("", String::as_str);
    let says_yes = !matches!(
        value("IS_SWARMING_JOB").to_ascii_lowercase().as_str(),
        "" | "false" | "0" | "none"
    );
    says_yes || !value("SWARMING_DIMENSIONS").is_empty()
}

fn own_disk(environment: &Environment) -> Result<Option<u64>, Unresolved> {
    let Some(text) = environment.get("DISK_SIZE_GB") else { return Ok(None) };
    environment::disk_size_gb(text)
        .map_err(|error| Unresolved::new(HoldKind::BadJobType, format!("DISK_SIZE_GB: {error}")))
}

/// The mapping by platform and command; OSS-Fuzz runs everything on Linux. There is no other
/// mapping to fall back on: an Android job never gets a Linux image by chance.
fn mapping<'a>(
    key: &WorkloadKey,
    job: &Job,
    farm: &'a Farm,
) -> Result<(String, &'a Mapping), Unresolved> {
    let platform = if farm.oss_fuzz { "LINUX" } else { job.platform.as_str() };
    if platform.is_empty() {
        let detail = format!("the Job `{}` has no platform", job.name);
        return Err(Unresolved::new(HoldKind::BadJobType, detail));
    }
    let price = if key.command.as_str() == "fuzz" { "PREEMPTIBLE" } else { "NONPREEMPTIBLE" };
    let name = format!("{platform}-{price}-UNPRIVILEGED");
    match farm.batch.mapping.get(&name) {
        Some(Ok(mapping)) => Ok((name, mapping)),
        Some(Err(errors)) => {
            let problems: Vec<_> = errors.0.iter().map(ToString::to_string).collect();
            Err(Unresolved::new(HoldKind::BadMapping, problems.join("; ")))
        }
        None => {
            let detail = format!("batch.yaml has no mapping `{name}`");
            Err(Unresolved::new(HoldKind::BadMapping, detail))
        }
    }
}

/// The job's; on OSS-Fuzz the project's comes first.
fn base_os_version(
    job: &Job,
    projects: &[OssFuzzProject],
    farm: &Farm,
) -> Result<Option<String>, Unresolved> {
    let own = job.base_os_version.clone();
    let Some(project) = job.project.as_ref().filter(|_| farm.oss_fuzz) else { return Ok(own) };
    let mut named = projects.iter().filter(|found| &found.name == project);
    let Some(found) = named.next() else { return Ok(own) };
    if named.any(|other| other != found) {
        let detail = format!("the catalog has differing OssFuzzProjects named `{project}`");
        return Err(Unresolved::new(HoldKind::AmbiguousJobType, detail));
    }
    Ok(found.base_os_version.clone().or(own))
}

fn image(mapping: &Mapping, version: Option<&str>, warnings: &mut Vec<String>) -> String {
    let Some(version) = version else { return mapping.docker_image.clone() };
    match mapping.versioned_docker_images.get(version) {
        Some(image) => image.clone(),
        None => {
            if !mapping.versioned_docker_images.is_empty() {
                warnings.push(format!(
                    "the mapping has no image for the base OS version `{version}`; docker_image is \
                     used"
                ));
            }
            mapping.docker_image.clone()
        }
    }
}

/// The VMs that the mapping asks for. What it lacks is a fault only where VMs are made.
fn machines(mapping: &Mapping, batch: &BatchYaml) -> Machines {
    let mut machines = Machines {
        project: batch.project.clone(),
        project_number: batch.project_number.clone(),
        machine_type: mapping.machine_type.clone(),
        disk_type: mapping.disk_type.clone(),
        preemptible: mapping.preemptible,
        retry: mapping.retry,
        checked: batch.queue_check_regions.iter().cloned().collect(),
        ..Machines::default()
    };
    for asked in &mapping.subconfigs {
        match batch.subconfigs.get(&asked.name) {
            Some(place) => machines.regions.push(Region {
                name: place.region.clone(),
                network: place.network.clone(),
                subnetwork: place.subnetwork.clone(),
                weight: asked.weight,
            }),
            None => machines.unknown_places.push(asked.name.clone()),
        }
    }
    machines
}

#[cfg(test)]
mod tests;
