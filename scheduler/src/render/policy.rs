//! The isolation policy, on the typed Job: what a Job of untrusted work may be.
//!
//! Pure: it takes the Job, the workload it is for and the configured strictness, and lists every
//! rule that is broken, each with what would be right. `containers` judges each container,
//! `volumes` what they mount, `federation` the one
//! token among it. A denial here is the last word on our side; the admission policy of
//! the cluster is a second wall, not this one's excuse.

mod containers;
mod federation;
#[cfg(test)]
mod tests;
mod volumes;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::PodSpec;

use super::labels::{APP, KATA_APP};
use crate::domain::workload::{Account, Isolation, Workload};

/// How strictly work is isolated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policy {
    /// Refuse work that runs in standard containers.
    pub strict: bool,
}

/// Collects what is refused and what is only warned about.
#[derive(Default)]
struct Verdict {
    refusals: Vec<String>,
    warnings: Vec<String>,
}

impl Verdict {
    fn refuse(&mut self, refusal: impl Into<String>) {
        self.refusals.push(refusal.into());
    }

    fn refuse_if(&mut self, broken: bool, refusal: &str) {
        if broken {
            self.refuse(refusal);
        }
    }
}

impl Policy {
    /// The warnings of a Job that may run.
    ///
    /// # Errors
    /// Every rule that the Job breaks.
    pub fn judge(&self, job: &Job, workload: &Workload) -> Result<Vec<String>, Vec<String>> {
        let mut verdict = Verdict::default();
        let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        match pod {
            Some(pod) => {
                self.judge_runtime(pod, job, workload, &mut verdict);
                judge_host(pod, workload, &mut verdict);
                judge_identity(pod, workload, &mut verdict);
                containers::judge(pod, workload, &mut verdict);
                volumes::judge(pod, &mut verdict);
            }
            None => verdict.refuse("the Job has no pod template"),
        }
        if verdict.refusals.is_empty() { Ok(verdict.warnings) } else { Err(verdict.refusals) }
    }

    /// Kata work runs in Kata, and nothing else says that it does.
    fn judge_runtime(&self, pod: &PodSpec, job: &Job, workload: &Workload, verdict: &mut Verdict) {
        let class = pod.runtime_class_name.as_deref();
        let kata = workload.profile.runtime_class.as_str();
        match workload.isolation {
            Isolation::Kata => verdict.refuse_if(
                kata.is_empty() || class != Some(kata),
                &format!(
                    "runtimeClassName is {}, and this workload must run in a VM: \
                     runtimeClassName: {kata} (only `is_kata: false` in batch.yaml changes that)",
                    class.map_or("missing".to_owned(), |class| format!("`{class}`")),
                ),
            ),
            Isolation::Standard => {
                verdict.refuse_if(
                    self.strict,
                    "the mapping says `is_kata: false`, and `policy: strict` refuses standard \
                     containers: make the mapping Kata, or the policy less strict",
                );
                verdict.refuse_if(
                    class == Some(kata) || says_kata(job),
                    &format!(
                        "the Job claims Kata ({APP}: {KATA_APP}, or runtimeClassName: {kata}), \
                         and the mapping says `is_kata: false`: take the claim out, or make the \
                         mapping Kata"
                    ),
                );
                let privileged = if workload.profile.privileged { "privileged " } else { "" };
                verdict.warnings.push(format!(
                    "{} runs in a {privileged}standard container: it is not isolated from its node",
                    workload.key
                ));
            }
        }
    }
}

fn says_kata(job: &Job) -> bool {
    let pod = job.spec.as_ref().and_then(|spec| spec.template.metadata.as_ref());
    let all = [job.metadata.labels.as_ref(), pod.and_then(|metadata| metadata.labels.as_ref())];
    all.into_iter().flatten().any(|labels| labels.get(APP).is_some_and(|app| app == KATA_APP))
}

/// The node's namespaces. Kata documents host networking as unsupported (Limitations, "Host
/// network"); pods on the host's network get the node's identity in place of their own (GKE,
/// "Workload Identity Federation: limitations").
fn judge_host(pod: &PodSpec, workload: &Workload, verdict: &mut Verdict) {
    verdict.refuse_if(pod.host_pid == Some(true), "hostPID is never allowed: remove it");
    verdict.refuse_if(pod.host_ipc == Some(true), "hostIPC is never allowed: remove it");
    verdict.refuse_if(pod.node_name.is_some(), "nodeName is never allowed: use a node selector");
    verdict.refuse_if(
        pod.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()),
        "resourceClaims give a pod devices of its node: remove them",
    );
    if pod.host_network != Some(true) {
        return;
    }
    let profile = &workload.profile;
    verdict.refuse_if(
        !profile.host_network,
        "hostNetwork is on, and the profile's host_network is off: use `{{ host_network }}`",
    );
    let mut clashes = Vec::new();
    if workload.isolation == Isolation::Kata {
        clashes.push("Kata, which does not support it");
    }
    if matches!(workload.account, Account::Google { .. }) {
        clashes.push("Workload Identity, which it bypasses (the pod gets the node's account)");
    }
    for clash in clashes {
        let problem = format!("hostNetwork together with {clash}");
        if profile.host_network_exception {
            verdict.warnings.push(format!("{}: {problem}, as an exception", workload.key));
        } else {
            verdict.refuse(format!(
                "{problem}: turn host_network off, or name this workload as an exception"
            ));
        }
    }
}

/// Who the pod is: the mapping's account towards Google, nobody towards Kubernetes.
fn judge_identity(pod: &PodSpec, workload: &Workload, verdict: &mut Verdict) {
    verdict.refuse_if(
        pod.automount_service_account_token != Some(false),
        "the Kubernetes API token must not be mounted: automountServiceAccountToken: false",
    );
    let account = workload.account.name();
    let named = [pod.service_account_name.as_deref(), pod.service_account.as_deref()];
    verdict.refuse_if(
        named[0] != Some(account) || named[1].is_some_and(|name| name != account),
        &format!("serviceAccountName must be the mapping's account, `{account}`"),
    );
}
