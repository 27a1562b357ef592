//! Flags whose values mean something else here than to ClusterFuzz, or nothing at all.

use std::collections::BTreeSet;

use super::findings::Findings;
use crate::config::backends::{BackendConfig, BackendKind};
use crate::flags::{Flag, FlagSet};
use crate::gate::{Candidate, Weights};
use crate::located::problem::nearest;

/// The flags that the scheduler reads by ClusterFuzz's own names.
const KNOWN: [&str; 4] = [
    "k8s_jobs_frequency",
    "gcp_batch_jobs_frequency",
    "k8s_jobs_pending_limit",
    "swarming_remote_execution",
];
/// Above this many pods in a namespace, or live Jobs, Kubernetes' own controllers slow down.
const MANY: usize = 3_000;

/// Judges the weights, the limits and the names of flags.
pub fn judge(backends: &[BackendConfig], flags: &FlagSet) -> Findings {
    let mut findings = Findings::about("flags");
    weights(backends, flags, &mut findings);
    for backend in backends {
        pending(backend, flags, &mut findings);
        live(backend, &mut findings);
    }
    misspelt(backends, flags, &mut findings);
    findings
}

fn weights(backends: &[BackendConfig], flags: &FlagSet, findings: &mut Findings) {
    let candidate = |backend: &BackendConfig| Candidate {
        name: backend.name.clone(),
        flag: backend.weight.flag.clone(),
        default_weight: backend.weight.default,
    };
    let candidates: Vec<Candidate> = backends.iter().map(candidate).collect();
    let weights = Weights::read(&candidates, flags);
    for (share, candidate) in weights.shares.iter().zip(&candidates) {
        let subject = format!("weight of {}", share.name);
        let name = candidate.flag.as_deref().unwrap_or_default();
        let flag = flags.0.get(name);
        match flag {
            Some(Flag { enabled: false, .. }) => {
                let detail =
                    format!("flag {name} is off: it takes nothing, and its share goes back");
                let hint = format!("`katabatch flags set {name} --enabled true` turns it on");
                findings.warn(&subject, detail, &hint);
            }
            Some(Flag { value: Some(value), integer: true, .. }) => {
                let detail = format!(
                    "{}: flag {name} is the integer {value}, which ClusterFuzz takes for unset",
                    share.weight
                );
                let hint = format!("`katabatch flags set {name} --value {value}` writes a float");
                findings.warn(&subject, detail, &hint);
            }
            _ => findings.pass(&subject, origin(share.weight, candidate, flag)),
        }
    }
    for warning in &weights.warnings {
        let hint = "weights go from 0 to 1, and are filled in the order of the backends up to 1";
        findings.warn("weights", warning, hint);
    }
    let on = weights.shares.iter().filter(|share| !share.off);
    let sum: f64 = on.map(|share| share.weight).sum();
    if sum <= 0.0 {
        let hint = "give a backend a weight, unless creation is meant to stop";
        findings.warn("weights", "no backend has a weight: nothing is created", hint);
    } else if sum < 1.0 - 1e-9 {
        let detail = format!("their sum is {sum}: the rest of the tasks' time stays in the queue");
        findings.warn("weights", detail, "let the weights sum up to 1, unless this is meant");
    }
}

fn origin(weight: f64, candidate: &Candidate, flag: Option<&Flag>) -> String {
    match (&candidate.flag, flag) {
        (None, _) => format!("{weight}, from the configuration"),
        (Some(name), None) => format!("{weight}, the default: there is no flag {name}"),
        (Some(name), Some(Flag { value: None, .. })) => {
            format!("{weight}, the default: flag {name} has no value")
        }
        (Some(name), Some(_)) => format!("{weight}, from flag {name}"),
    }
}

fn pending(backend: &BackendConfig, flags: &FlagSet, findings: &mut Findings) {
    let default = backend.limits.pending;
    let Some(name) = &backend.limits.pending_flag else { return };
    let subject = format!("pending limit of {}", backend.name);
    let limit = flags.limit(name, default);
    let set = format!("`katabatch flags set {name} --value …` sets it");
    match flags.0.get(name) {
        Some(Flag { enabled: true, value: Some(value), .. }) if limit == 0 && *value == 0.0 => {
            let hint = "ClusterFuzz takes 0 for unset (1,000); here 0 is 0: set another limit, or \
                        leave it to stop creation";
            findings.warn(&subject, format!("flag {name} is 0: nothing is created"), hint);
        }
        Some(Flag { enabled: true, value: Some(value), .. })
            if !value.is_finite() || *value < 0.0 =>
        {
            let detail = format!("flag {name} is {value}, which is no limit; {limit} is used");
            findings.warn(&subject, detail, &set);
        }
        Some(Flag { enabled: true, value: Some(value), .. }) if value.fract() != 0.0 => {
            let stop = if limit == 0 { ": nothing is created" } else { "" };
            let detail = format!("flag {name} is {value}, which counts as {limit}{stop}");
            findings.warn(&subject, detail, "write a whole number");
        }
        Some(Flag { enabled: false, value: Some(value), .. }) => {
            let detail = format!("flag {name} is off, so its {value} does not count: {limit}");
            findings.warn(&subject, detail, "turn the flag on, or take its value away");
        }
        _ if limit > MANY => {
            let detail = format!("{limit}: above {MANY} pods a namespace slows Kubernetes down");
            findings.warn(&subject, detail, "lower it");
        }
        _ => findings.pass(&subject, limit),
    }
}

fn live(backend: &BackendConfig, findings: &mut Findings) {
    if !matches!(backend.kind, BackendKind::Kubernetes { .. }) {
        return;
    }
    let subject = format!("live limit of {}", backend.name);
    let hint = "set limits.live: above about 3,000 live Jobs the controllers slow down";
    match backend.limits.live {
        None => findings.warn(&subject, "unlimited", hint),
        Some(live) if live > MANY => findings.warn(&subject, live, hint),
        Some(0) => findings.warn(&subject, "0: nothing is created", "set limits.live"),
        Some(live) => findings.pass(&subject, live),
    }
}

/// A flag that is read but absent, beside one of nearly its name that nobody reads.
fn misspelt(backends: &[BackendConfig], flags: &FlagSet, findings: &mut Findings) {
    let own = backends.iter().flat_map(|b| [&b.weight.flag, &b.limits.pending_flag]).flatten();
    let known: BTreeSet<&str> = own.map(String::as_str).chain(KNOWN).collect();
    let absent: Vec<&str> =
        known.iter().copied().filter(|name| !flags.0.contains_key(*name)).collect();
    for name in flags.0.keys().filter(|name| !known.contains(name.as_str())) {
        if let Some(near) = nearest(name, absent.iter().copied()) {
            let detail = format!("nobody reads the flag {name}, and there is no {near}");
            findings.warn(name, detail, &format!("if it is misspelt, set {near}"));
        }
    }
}

#[cfg(test)]
mod tests;
