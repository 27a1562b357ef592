//! Whether a RuntimeClass is one that Kata work may run under: what the API shows of it, and what
//! only a person can attest.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::node::v1::RuntimeClass;

use super::findings::Findings;
use super::needs::{amounts, shown};

/// A person has seen that the handler keeps the node's devices out of privileged pods
/// (`privileged_without_host_devices = true`), which the API does not show.
pub const ATTESTATION: &str = "katabatch.dev/privileged-without-host-devices";
/// What the annotation says then.
pub const ATTESTED: &str = "attested";

/// Judges the class; `privileged` is whether work under it is privileged.
pub fn judge(class: &RuntimeClass, privileged: bool, strict: bool) -> Findings {
    let mut found = Findings::about("runtime class");
    let name = class.metadata.name.as_deref().unwrap_or_default();
    let overhead = class.overhead.as_ref().and_then(|overhead| overhead.pod_fixed.as_ref());
    let overhead: Vec<String> = overhead
        .map(amounts)
        .unwrap_or_default()
        .iter()
        .map(|(resource, amount)| format!("{resource} {}", shown(resource, *amount)))
        .collect();
    if overhead.is_empty() {
        let detail = format!("handler {}, without overhead: a VM costs memory", class.handler);
        let hint = "measure what a VM costs its node, and put it in as overhead.podFixed";
        found.warn(name, detail, hint);
    } else {
        let detail = format!("handler {}, overhead {}", class.handler, overhead.join(", "));
        found.pass(name, detail);
    }
    if matches!(class.handler.as_str(), "runc" | "crun") {
        let detail = format!("its handler is {}: no VM at all", class.handler);
        found.fail(name, detail, "let it name the handler of a Kata runtime");
    }
    if privileged {
        attestation(class, name, strict, &mut found);
    }
    found
}

fn attestation(class: &RuntimeClass, name: &str, strict: bool, found: &mut Findings) {
    let says = class.metadata.annotations.as_ref().and_then(|all| all.get(ATTESTATION));
    let detail = match says.map(String::as_str) {
        Some(ATTESTED) => {
            return found.pass(name, "attested to keep the node's devices out of privileged pods");
        }
        Some(other) => format!("the annotation {ATTESTATION} says `{other}`, not {ATTESTED}"),
        None => "nobody has attested that its handler keeps the node's devices out of privileged \
                 pods (privileged_without_host_devices = true), which the API does not show"
            .to_owned(),
    };
    let hint = format!(
        "look as kata/README.md says, then: kubectl annotate --overwrite runtimeclass {name} \
         {ATTESTATION}={ATTESTED}; or set privileged: false in the profile"
    );
    if strict { found.fail(name, detail, &hint) } else { found.warn(name, detail, &hint) }
}

/// Whether a Job's pods are privileged.
pub fn is_privileged(job: &Job) -> bool {
    let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let containers = pod
        .into_iter()
        .flat_map(|pod| pod.containers.iter().chain(pod.init_containers.iter().flatten()));
    containers
        .filter_map(|container| container.security_context.as_ref())
        .any(|context| context.privileged == Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::findings::Verdict;

    fn class(handler: &str, annotation: Option<&str>, overhead: bool) -> RuntimeClass {
        let mut class = serde_json::json!({"metadata": {"name": "kata"}, "handler": handler});
        if let Some(annotation) = annotation {
            class["metadata"]["annotations"] = serde_json::json!({ (ATTESTATION): annotation });
        }
        if overhead {
            class["overhead"] = serde_json::json!({"podFixed": {"memory": "200Mi"}});
        }
        serde_json::from_value(class).expect("a class")
    }

    #[test]
    fn privileged_kata_wants_the_host_devices_attested_away() {
        use Verdict::{Fail, Pass, Warn};
        for (annotation, privileged, strict, expect) in [
            (None, true, false, Warn),
            (None, true, true, Fail),
            (Some("true"), true, true, Fail),
            (Some("attested"), true, true, Pass),
            (None, false, true, Pass),
        ] {
            let found = judge(&class("kata", annotation, true), privileged, strict);
            assert_eq!(found.worst(), expect, "{annotation:?} {privileged} {strict}");
        }
    }

    #[test]
    fn a_class_that_is_no_vm_or_counts_nothing_for_one_is_said() {
        assert_eq!(judge(&class("runc", None, true), false, false).worst(), Verdict::Fail);
        assert_eq!(judge(&class("kata", None, false), false, false).worst(), Verdict::Warn);
    }
}
