//! A setting's variable in the place of the template's variable of the same name.
//!
//! Kubernetes takes the last of two variables of one name and warns about the first; so does this,
//! before the Job is sent.

use std::collections::BTreeSet;

use k8s_openapi::api::batch::v1::Job;

/// Takes out variables that a later one of the same name hides; whether there were any.
pub(super) fn drop_hidden(job: &mut Job) -> bool {
    let pod = job.spec.as_mut().and_then(|spec| spec.template.spec.as_mut());
    let Some(pod) = pod else { return false };
    let mut dropped = false;
    for container in pod.init_containers.iter_mut().flatten().chain(&mut pod.containers) {
        let Some(env) = &mut container.env else { continue };
        let before = env.len();
        let mut seen = BTreeSet::new();
        env.reverse();
        env.retain(|variable| seen.insert(variable.name.clone()));
        env.reverse();
        dropped |= env.len() != before;
    }
    dropped
}
