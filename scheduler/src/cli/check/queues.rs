//! Looks at the queues: spools here, subscriptions side by side, then the topics that they are on.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::catalog::Knowing;
use super::looks::Looks;
use super::subscriptions::{self, OnTopic};
use crate::check::findings::Findings;
use crate::check::readers::Reader;
use crate::check::spool;
use crate::config::backends::BackendKind;
use crate::config::queues::{QueueConfig, QueueSource};
use crate::queue::spool::inspect::{Look, inspect};
use crate::service::Loaded;

/// Looks at all queues.
pub async fn check(
    loaded: &Arc<Loaded>,
    offline: bool,
    looks: &Looks,
    knowing: Knowing,
) -> Findings {
    let one = |queue: &QueueConfig| {
        let (queue, loaded, looks) = (queue.clone(), Arc::clone(loaded), looks.clone());
        async move {
            match &queue.source {
                QueueSource::Spool { path } => (spool(&loaded, &queue, path), None),
                QueueSource::PubSub { names, endpoint } => {
                    let endpoint = endpoint.as_deref();
                    subscriptions::check(&loaded, &queue, names, endpoint, offline, &looks).await
                }
            }
        }
    };
    let seen = futures::future::join_all(loaded.config.queues.iter().map(one)).await;
    let mut findings = Findings::about("queue");
    let mut topics: BTreeMap<(String, String), (OnTopic, Vec<Reader>)> = BTreeMap::new();
    for (found, on) in seen {
        findings.extend(found);
        if let Some((on, reader)) = on {
            let key = (on.endpoint.clone(), on.topic.clone());
            topics.entry(key).or_insert_with(|| (on, Vec::new())).1.push(reader);
        }
    }
    if topics.is_empty() {
        return findings;
    }
    let versions = knowing.await;
    for (on, readers) in topics.values() {
        let of_topic = subscriptions::readers(on, readers, versions.versions.as_ref(), looks);
        findings.extend(of_topic.await);
    }
    findings
}

fn spool(loaded: &Loaded, queue: &QueueConfig, path: &Path) -> Findings {
    let mut findings = Findings::about("queue");
    let (name, shown) = (queue.name.as_str(), path.display());
    match inspect(path) {
        Ok(Look::Absent) => {
            let hint = "`katabatch queue put` and `run` make it";
            findings.warn(name, format!("{shown} is not there yet"), hint);
        }
        Ok(Look::Spool { readable_by_others: true }) => {
            let detail = format!("{shown} holds credentials, and others may read it");
            findings.warn(name, detail, &format!("chmod 600 {shown}; `run` does it too"));
        }
        Ok(Look::Spool { readable_by_others: false }) => findings.pass(name, shown),
        Err(error) => findings.fail(name, error, "see the path's owner and rights"),
    }
    let kinds = loaded.config.backends.iter().map(|backend| &backend.kind);
    let elects = kinds.into_iter().any(|kind| matches!(kind, BackendKind::Kubernetes { .. }));
    // Set by Kubernetes in every pod.
    let in_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    findings.extend(spool::judge(name, elects, in_pod));
    findings
}
