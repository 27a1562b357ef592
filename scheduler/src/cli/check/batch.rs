//! Looks at whether batch.yaml says all that GCP Batch needs to know of the job types' machines. Asks
//! no Batch.

use std::collections::BTreeMap;

use super::catalog::Knowing;
use crate::backend::gcp_batch::spec::Form;
use crate::check::findings::Findings;
use crate::config::backends::{BackendConfig, BackendKind};
use crate::domain::labels::TaskLabels;
use crate::domain::workload::Workload;
use crate::service::Loaded;

/// Looks at all workloads that may come to a Batch backend.
pub async fn check(loaded: &Loaded, backend: &BackendConfig, knowing: Knowing) -> Findings {
    let mut findings = Findings::about("batch");
    let BackendKind::GcpBatch { project, .. } = &backend.kind else { return findings };
    let name = backend.name.as_str();
    if backend.weight.flag.is_none() && backend.weight.default <= 0.0 {
        findings.pass(name, "gets no tasks: its weight is 0 and no flag sets it");
        return findings;
    }
    let known = knowing.await;
    // Job types differ in little but their disks; a mapping is told once.
    let mut lacks: BTreeMap<String, &Workload> = BTreeMap::new();
    let mut fine = 0;
    for workload in known.workloads.iter().filter(|workload| may_come(loaded, backend, workload)) {
        match Form::of(workload, project.as_deref()) {
            Ok(_) => fine += 1,
            Err(why) => drop(lacks.entry(why).or_insert(workload)),
        }
    }
    for (why, Workload { key, .. }) in &lacks {
        let hint = "tasks that fall to this backend would be held: mend batch.yaml, or bind them to \
                    other backends (routes)";
        findings.warn(name, format!("{why} (as for {key})"), hint);
    }
    if lacks.is_empty() {
        let detail = format!("batch.yaml says all that Batch needs ({fine} mappings and commands)");
        findings.pass(name, detail);
    }
    findings
}

/// Whether no routing rule keeps a workload from the backend.
fn may_come(loaded: &Loaded, backend: &BackendConfig, workload: &Workload) -> bool {
    let rule = loaded.config.routes.rule(workload, &TaskLabels::default());
    rule.is_none_or(|rule| rule.backends.contains(&backend.name))
}
