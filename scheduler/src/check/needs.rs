//! What a Job's pods ask of a node, overhead of their RuntimeClass included.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PodSpec, Toleration};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;

use crate::domain::quantity::Quantity;

/// Amounts by resource (`cpu`, `memory`, `ephemeral-storage`, …), in thousandths of their unit.
pub type Amounts = BTreeMap<String, u128>;

/// What one pod needs of the node that it runs on.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Needs {
    /// The requests of its containers.
    pub requests: Amounts,
    /// What the RuntimeClass adds.
    pub overhead: Amounts,
    /// Labels that the node must have.
    pub selector: BTreeMap<String, String>,
    /// Taints that the pod bears.
    pub tolerations: Vec<Toleration>,
    /// The pod says more about its nodes (affinity, a node's name) than is looked at here.
    pub says_more: bool,
}

impl Needs {
    /// Of the Job's pods, under the RuntimeClass that they name, where it is known.
    ///
    /// The overhead and the scheduling of the class are added as the API server's admission does
    /// it (<https://kubernetes.io/docs/concepts/containers/runtime-class/>).
    pub fn of(job: &Job, class: Option<&RuntimeClass>) -> Self {
        let mut needs = Self::default();
        let Some(pod) = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()) else {
            return needs;
        };
        needs.requests = requests(pod);
        needs.selector = pod.node_selector.clone().unwrap_or_default();
        needs.tolerations = pod.tolerations.clone().unwrap_or_default();
        needs.says_more = pod.affinity.is_some() || pod.node_name.is_some();
        if let Some(class) = class {
            let fixed = class.overhead.as_ref().and_then(|overhead| overhead.pod_fixed.as_ref());
            needs.overhead = fixed.map(amounts).unwrap_or_default();
            if let Some(scheduling) = &class.scheduling {
                needs.selector.extend(scheduling.node_selector.clone().unwrap_or_default());
                needs.tolerations.extend(scheduling.tolerations.clone().unwrap_or_default());
            }
        }
        needs
    }

    /// Requests and overhead together.
    pub fn total(&self) -> Amounts {
        let mut total = self.requests.clone();
        for (resource, amount) in &self.overhead {
            let sum = total.entry(resource.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
        total
    }
}

/// A pod's requests, as the scheduler of Kubernetes counts them: the sum of its containers', or
/// that of one init container where it is more
/// (<https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers>).
pub fn requests(pod: &PodSpec) -> Amounts {
    let of = |container: &k8s_openapi::api::core::v1::Container| {
        let Some(resources) = &container.resources else { return Amounts::new() };
        let mut asked = resources.limits.as_ref().map(amounts).unwrap_or_default();
        asked.extend(resources.requests.as_ref().map(amounts).unwrap_or_default());
        asked
    };
    let mut sum = Amounts::new();
    for container in &pod.containers {
        for (resource, amount) in of(container) {
            let all = sum.entry(resource).or_default();
            *all = all.saturating_add(amount);
        }
    }
    for container in pod.init_containers.iter().flatten() {
        for (resource, amount) in of(container) {
            let most = sum.entry(resource).or_default();
            *most = amount.max(*most);
        }
    }
    sum
}

/// What the API says; what is no quantity counts as nothing.
pub fn amounts(of: &BTreeMap<String, Wire>) -> Amounts {
    let amount = |(name, quantity): (&String, &Wire)| {
        Some((name.clone(), Quantity::parse(&quantity.0).ok()?.milli()))
    };
    of.iter().filter_map(amount).collect()
}

/// An amount for people: memory and storage in Gi or Mi, other resources as a number.
pub fn shown(resource: &str, milli: u128) -> String {
    #[expect(clippy::cast_precision_loss, reason = "rounded for people")]
    let unit = milli as f64 / 1_000.0;
    let rounded = |number: f64, unit: &str| {
        let text = format!("{number:.2}");
        format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
    };
    const MI: f64 = 1_048_576.0;
    match resource {
        "memory" | "ephemeral-storage" if unit >= 1_024.0 * MI => {
            rounded(unit / (1_024.0 * MI), "Gi")
        }
        "memory" | "ephemeral-storage" => rounded(unit / MI, "Mi"),
        _ => rounded(unit, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(pod: serde_json::Value) -> Job {
        let spec = serde_json::json!({"spec": {"template": {"spec": pod}}});
        serde_json::from_value(spec).expect("a Job")
    }

    #[test]
    fn a_pod_needs_its_requests_and_what_its_class_adds() {
        let pod = serde_json::json!({
            "nodeSelector": {"a": "1"},
            "containers": [
                {"name": "x", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}},
                {"name": "y", "resources": {"limits": {"cpu": "500m"}}},
            ],
            "initContainers": [{"name": "i", "resources": {"requests": {"memory": "2Gi"}}}],
        });
        let class: RuntimeClass = serde_json::from_value(serde_json::json!({
            "handler": "kata",
            "overhead": {"podFixed": {"cpu": "250m", "memory": "200Mi"}},
            "scheduling": {"nodeSelector": {"kata": "true"}, "tolerations": [{"operator": "Exists"}]},
        }))
        .expect("a class");
        let needs = Needs::of(&job(pod), Some(&class));
        let total = needs.total();
        assert_eq!(shown("cpu", total["cpu"]), "1.75");
        assert_eq!(shown("memory", total["memory"]), "2.2Gi");
        assert_eq!((needs.selector.len(), needs.tolerations.len()), (2, 1));
        assert_eq!(shown("memory", 200 * 1_048_576_000), "200Mi");
    }
}
