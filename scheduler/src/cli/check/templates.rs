//! Renders every workload by a backend's templates, through the isolation policy.

use k8s_openapi::api::batch::v1::Job;

use crate::check::findings::Findings;
use crate::config::backends::BackendConfig;
use crate::domain::input_url::InputUrl;
use crate::domain::name::Attempt;
use crate::domain::task::Task;
use crate::domain::workload::{Isolation, Workload};
use crate::render::{Policy, Target, Templates};
use crate::service::{Loaded, templates};

/// A Job that would be created for tasks of a workload.
#[derive(Clone)]
pub struct Planned {
    /// The workload, for people.
    pub label: String,
    /// What it runs as.
    pub workload: Workload,
    /// The Job of a task that does not exist.
    pub job: Job,
}

/// Renders `workloads` for a backend in `namespace`.
pub fn check(
    loaded: &Loaded,
    backend: &BackendConfig,
    namespace: &str,
    workloads: &[Workload],
) -> (Findings, Vec<Planned>) {
    let mut findings = Findings::about("templates");
    let mut planned = Vec::new();
    let templates = match templates(backend) {
        Ok(templates) => templates,
        Err(error) => {
            findings.fail(backend.name.as_str(), error, "mend the template");
            return (findings, planned);
        }
    };
    let target =
        Target { namespace: namespace.to_owned(), scheduler: loaded.config.scheduler.clone() };
    let policy = Policy { strict: loaded.config.policy.strict };
    for workload in workloads {
        let label = label(workload, workloads);
        let subject = format!("{}: {label}", backend.name);
        match job(&templates, workload, &target, &policy) {
            Ok((job, warnings)) => {
                let warned = !warnings.is_empty();
                for warning in warnings {
                    findings.warn(&subject, warning, "see the template and templates/README.md");
                }
                if workload.isolation == Isolation::Standard {
                    let hint = "remove `is_kata: false` to run it in a VM of its own";
                    findings.warn(&subject, "not isolated: batch.yaml says is_kata: false", hint);
                } else if !warned {
                    findings.pass(&subject, "renders to a valid, isolated Job");
                }
                planned.push(Planned { label, workload: workload.clone(), job });
            }
            Err(error) => findings.fail(&subject, error, "its tasks are held"),
        }
    }
    (findings, planned)
}

fn job(
    templates: &Templates,
    workload: &Workload,
    target: &Target,
    policy: &Policy,
) -> Result<(Job, Vec<String>), String> {
    let checked = templates.check(workload, target, policy).map_err(|e| e.to_string())?;
    let input = InputUrl::parse("https://storage.googleapis.com/katabatch-check/input")
        .map_err(|e| e.to_string())?;
    let task = Task::new(workload.key.clone(), input, "check", jiff::Timestamp::UNIX_EPOCH);
    let job = checked.fill(&task, Attempt::FIRST).typed().map_err(|e| e.to_string())?;
    Ok((job, checked.warnings().to_vec()))
}

/// Mapping and command, and the job type where they don't tell it from the others.
fn label(workload: &Workload, all: &[Workload]) -> String {
    let Workload { mapping, key, .. } = workload;
    let same = all.iter().filter(|o| o.mapping == *mapping && o.key.command == key.command);
    if same.count() > 1 {
        format!("{mapping} ({} {})", key.command, key.job_type)
    } else {
        format!("{mapping} ({})", key.command)
    }
}
