//! Checks what files say: the farm's mappings, the catalog, the flags, templates and policy.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Findings;
use crate::catalog::entity::JobEntities;
use crate::catalog::{CatalogError, Freshness};
use crate::clock::{Clock, SystemClock};
use crate::config::backends::BackendKind;
use crate::domain::name::JobType;
use crate::domain::outcome::HoldKind;
use crate::domain::task::WorkloadKey;
use crate::domain::workload::{Isolation, Workload};
use crate::flags::FlagSet;
use crate::gate::{Candidate, Weights};
use crate::pipeline::resolve::resolve;
use crate::render::{Policy, Target};
use crate::service::{Loaded, Lookups, templates};

/// The commands that differ in mapping, deadline and restart policy.
const COMMANDS: [&str; 2] = ["fuzz", "corpus_pruning"];

/// Checks them all; returns one workload for each mapping and command that occurs, for the cluster
/// to judge.
pub async fn check(loaded: &Loaded, findings: &mut Findings) -> Vec<Workload> {
    for warning in &loaded.farm.warnings {
        findings.warn("batch.yaml", warning, "");
    }
    for broken in loaded.farm.batch.broken_mappings() {
        findings.fail("batch.yaml", broken, "its tasks are held until it is mended");
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let lookups = match Lookups::open(loaded, &clock).await {
        Ok(lookups) => lookups,
        Err(problem) => {
            findings.fail("catalog and flags", problem, "see catalog and flags");
            return Vec::new();
        }
    };
    let flags = match lookups.flags().read().await {
        Ok(flags) => flags,
        Err(error) => {
            findings.fail("flags", error, "nothing is created on flags never read");
            return Vec::new();
        }
    };
    check_flags(loaded, &flags, findings);
    let (names, entities) = match everything(&lookups).await {
        Ok(found) => found,
        Err(error) => {
            findings.fail("catalog", error, "see catalog");
            return Vec::new();
        }
    };
    let mut workloads = BTreeMap::new();
    let mut faults: BTreeMap<HoldKind, Vec<(JobType, String)>> = BTreeMap::new();
    for (name, entities) in &entities {
        for command in COMMANDS {
            let key = WorkloadKey { command: command.into(), job_type: name.clone() };
            match resolve(&key, entities, &loaded.farm, &loaded.config.profiles, &flags) {
                Ok(resolved) => {
                    let kind = (resolved.workload.mapping.clone(), command);
                    workloads.entry(kind).or_insert(resolved.workload);
                }
                Err(why) => {
                    let list = faults.entry(why.kind).or_default();
                    if list.last().is_none_or(|(last, _)| last != name) {
                        list.push((name.clone(), why.detail));
                    }
                }
            }
        }
    }
    let good = names.len() - faults.values().map(Vec::len).sum::<usize>().min(names.len());
    findings.pass("catalog", format!("{good} of {} job types can be scheduled", names.len()));
    for (kind, list) in &faults {
        let Some((name, detail)) = list.first() else { continue };
        let detail = format!("{} job types, such as {name}: {detail}", list.len());
        findings.fail(&format!("job types: {kind}"), detail, "their tasks are held");
    }
    let workloads: Vec<Workload> = workloads.into_values().collect();
    check_templates(loaded, &workloads, findings);
    workloads
}

/// Every job type, with its entities.
async fn everything(
    lookups: &Lookups,
) -> Result<(Vec<JobType>, BTreeMap<JobType, JobEntities>), CatalogError> {
    let names = lookups.job_types().await?;
    let entities = lookups.catalog().look_up(&names, Freshness::Fresh).await?;
    Ok((names, entities))
}

/// Weights and limits as read, and where they mean something else than to ClusterFuzz.
fn check_flags(loaded: &Loaded, flags: &FlagSet, findings: &mut Findings) {
    let candidate = |backend: &crate::config::backends::BackendConfig| Candidate {
        name: backend.name.clone(),
        flag: backend.weight.flag.clone(),
        default_weight: backend.weight.default,
    };
    let candidates: Vec<Candidate> = loaded.config.backends.iter().map(candidate).collect();
    let weights = Weights::read(&candidates, flags);
    for warning in &weights.warnings {
        findings.warn("weights", warning, "see the flags");
    }
    for share in &weights.shares {
        let what = format!("weight of {}", share.name);
        if share.off {
            findings.warn(&what, "its flag is off: it takes nothing", "enable the flag");
        } else {
            findings.pass(&what, share.weight);
        }
    }
    for backend in &loaded.config.backends {
        let Some(name) = &backend.limits.pending_flag else { continue };
        let limit = flags.limit(name, backend.limits.pending);
        let what = format!("pending limit of {}", backend.name);
        let set = flags.0.get(name).filter(|flag| flag.enabled).and_then(|flag| flag.value);
        if limit == 0 {
            let hint = "ClusterFuzz takes 0 for unset (1,000); here 0 is 0: set another limit, or \
                        leave it to stop creation";
            findings.warn(&what, format!("flag {name} is 0: nothing is created"), hint);
        } else if set.is_some_and(|value| !value.is_finite() || value < 0.0) {
            findings.warn(
                &what,
                format!("flag {name} is no limit; {limit} is used"),
                "set a number",
            );
        } else {
            findings.pass(&what, limit);
        }
        if backend.limits.live.is_none_or(|live| live > 3_000)
            && matches!(backend.kind, BackendKind::Kubernetes { .. })
        {
            let hint = "set limits.live: above about 3,000 live Jobs the controllers slow down";
            findings.warn(
                &format!("live limit of {}", backend.name),
                "unlimited or above 3,000",
                hint,
            );
        }
    }
}

/// Every workload through its backend's templates and the isolation policy.
fn check_templates(loaded: &Loaded, workloads: &[Workload], findings: &mut Findings) {
    for backend in &loaded.config.backends {
        let BackendKind::Kubernetes { namespace, .. } = &backend.kind else {
            findings.warn(
                &format!("backend {}", backend.name),
                "runs tasks as processes of this machine, isolated from nothing",
                "for trying things out; untrusted work belongs on Kubernetes",
            );
            continue;
        };
        let what = format!("templates of {}", backend.name);
        let templates = match templates(backend) {
            Ok(templates) => templates,
            Err(error) => {
                findings.fail(&what, error, "mend the template");
                continue;
            }
        };
        let target =
            Target { namespace: namespace.clone(), scheduler: loaded.config.scheduler.clone() };
        let policy = Policy { strict: loaded.config.policy.strict };
        for workload in workloads {
            let what = format!("{what}: {} ({})", workload.mapping, workload.key.command);
            match templates.check(workload, &target, &policy) {
                Err(error) => findings.fail(&what, error, "its tasks are held"),
                Ok(_) if workload.isolation == Isolation::Standard => {
                    let hint = "remove `is_kata: false` to run it in a VM of its own";
                    findings.warn(&what, "not isolated: batch.yaml says is_kata: false", hint);
                }
                Ok(checked) => {
                    for warning in checked.warnings() {
                        findings.warn(&what, warning, "");
                    }
                    findings.pass(&what, "renders to a valid, isolated Job");
                }
            }
        }
    }
}
