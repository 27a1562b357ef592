//! `queues`: where tasks come from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::backends::{BackendConfig, BackendKind};
use super::{path, unique_name};
use crate::domain::name::QueueName;
use crate::domain::pubsub::{Written, is_name};
use crate::located::reading::{Field, Section};

/// One queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueConfig {
    /// Its name.
    pub name: QueueName,
    /// What it is.
    pub source: QueueSource,
    /// The base OS version whose tasks it carries; `None` is a queue without a version.
    pub base_os_version: Option<String>,
    /// When its messages are acked.
    pub ack: AckMode,
    /// How many deliveries of a message may panic before it is rejected.
    pub max_panics: u32,
}

/// When a message is acked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AckMode {
    /// When its task's Job is confirmed, as ClusterFuzz does it.
    #[default]
    OnCreated,
    /// When its task's Job is complete; a failed one gives it back to its queue.
    OnCompleted,
}

/// What a queue is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueSource {
    /// A SQLite file on this machine.
    Spool {
        /// The file.
        path: PathBuf,
    },
    /// A subscription of Google Cloud Pub/Sub.
    PubSub {
        /// What it and its topics are called.
        names: Written,
        /// Where the API is, if not where it or the emulator's variable say.
        endpoint: Option<String>,
    },
}

const MAX_PANICS: u32 = 3;

/// Reads the list; without one there is the spool `main` in `spool.sqlite`.
pub(super) fn read(
    field: Option<Field<'_>>,
    base: &Path,
    backends: &[BackendConfig],
) -> Vec<QueueConfig> {
    let Some(field) = field else {
        return vec![QueueConfig {
            name: "main".into(),
            source: QueueSource::Spool { path: base.join("spool.sqlite") },
            base_os_version: None,
            ack: AckMode::default(),
            max_panics: MAX_PANICS,
        }];
    };
    let Some(items) = field.list() else { return Vec::new() };
    if items.is_empty() {
        field.fault("is empty", "name at least one queue, or leave the key out");
    }
    let mut seen = BTreeMap::new();
    items.iter().filter_map(|item| read_one(item, base, backends, &mut seen)).collect()
}

fn read_one(
    field: &Field<'_>,
    base: &Path,
    backends: &[BackendConfig],
    seen: &mut BTreeMap<String, u32>,
) -> Option<QueueConfig> {
    let section = field.section()?;
    let name = unique_name(&section, seen, "queue");
    let source = match (section.get("spool"), section.get("pubsub")) {
        (Some(spool), None) => read_spool(&spool, base),
        (None, Some(pubsub)) => read_pubsub(&pubsub),
        (Some(_), Some(_)) => {
            field.fault("has two sources", "keep one of `spool` and `pubsub`");
            None
        }
        (None, None) => {
            let hint = "write `spool: {path: spool.sqlite}` or `pubsub: {subscription: …}`";
            field.fault("has no source", hint);
            None
        }
    };
    let ack = section.get("ack").and_then(|f| read_ack(&f, source.as_ref(), backends));
    let queue = QueueConfig {
        name: name.unwrap_or_default().into(),
        source: source.unwrap_or(QueueSource::Spool { path: PathBuf::new() }),
        base_os_version: section.set("base_os_version").and_then(|f| f.text()).map(str::to_owned),
        ack: ack.unwrap_or_default(),
        max_panics: section
            .get("max_panics")
            .and_then(|f| f.whole(1..=100_u32))
            .unwrap_or(MAX_PANICS),
    };
    section.finish();
    Some(queue)
}

fn read_spool(field: &Field<'_>, base: &Path) -> Option<QueueSource> {
    let section = field.section()?;
    let file =
        section.get("path").map_or_else(|| Some(base.join("spool.sqlite")), |f| path(&f, base));
    section.finish();
    Some(QueueSource::Spool { path: file? })
}

/// The project is the farm's unless it is written, which is known only once the farm's files are.
fn read_pubsub(field: &Field<'_>) -> Option<QueueSource> {
    let section = field.section()?;
    let subscription = {
        let hint = "name the subscription to take tasks from, such as utask_main";
        section.required("subscription", hint).and_then(|f| name(&f, "subscriptions"))
    };
    let quarantine_topic = {
        let hint = "name the topic that records of rejected messages go to, such as \
                    utask_main-rejected; without one no message could be rejected safely";
        section.required("quarantine_topic", hint).and_then(|f| name(&f, "topics"))
    };
    let optional = |section: &Section<'_>, key, kind| section.set(key).and_then(|f| name(&f, kind));
    let names = Written {
        project: section.set("project").and_then(|f| f.text()).map(str::to_owned),
        subscription: subscription.unwrap_or_default(),
        topic: optional(&section, "topic", "topics"),
        quarantine_topic: quarantine_topic.unwrap_or_default(),
        quarantine_subscription: optional(&section, "quarantine_subscription", "subscriptions"),
    };
    let endpoint = section.set("endpoint").and_then(|f| f.text()).map(str::to_owned);
    section.finish();
    Some(QueueSource::PubSub { names, endpoint })
}

fn name(field: &Field<'_>, kind: &str) -> Option<String> {
    field.read(|text| {
        if is_name(text, kind) {
            return Ok(text.to_owned());
        }
        let hint = format!("write its id, or in full: projects/PROJECT/{kind}/ID");
        Err((format!("`{text}` is no name of one of the {kind} of Pub/Sub"), hint))
    })
}

/// ClusterFuzz stops preprocessing while its topic `utask_main` has too many messages that are not
/// acked, leased ones included: kept until their Jobs end, they would stall the farm.
fn read_ack(
    field: &Field<'_>,
    source: Option<&QueueSource>,
    backends: &[BackendConfig],
) -> Option<AckMode> {
    match field.text()? {
        "on_created" => return Some(AckMode::OnCreated),
        "on_completed" => {}
        other => {
            let hint = "write on_created or on_completed";
            field.fault(format!("`{other}` is no ack mode"), hint);
            return None;
        }
    }
    if let Some(QueueSource::PubSub { names, .. }) = source
        && names.subscription.rsplit('/').next().is_some_and(|id| id.starts_with("utask_main"))
    {
        let problem = format!(
            "`on_completed` would keep the messages of {} for as long as their Jobs run, and \
             ClusterFuzz makes no further tasks while too many are not acked",
            names.subscription
        );
        field.fault(problem, "write on_created; failures are run again by `retries`");
        return None;
    }
    for backend in backends {
        let kind = match &backend.kind {
            BackendKind::Kubernetes { .. } => continue,
            BackendKind::GcpBatch { .. } => "gcp_batch",
            BackendKind::Local { .. } => "local",
        };
        let problem = format!(
            "`on_completed` needs backends that tell how their Jobs end, and backend {} is of the \
             kind {kind}, which does not",
            backend.name
        );
        let hint = "write on_created, or serve this queue by a scheduler whose backends are all \
                    `kubernetes`";
        field.fault(problem, hint);
        return None;
    }
    Some(AckMode::OnCompleted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn parse(queue: &str) -> Result<QueueSource, String> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("k.yaml");
        let text = format!("apiVersion: katabatch.dev/v1alpha1\nqueues:\n- name: q\n  {queue}\n");
        std::fs::write(&path, text).expect("written");
        let config = Config::load(&path).map_err(|errors| errors.to_string())?;
        Ok(config.queues.into_iter().next().expect("one").source)
    }

    #[test]
    fn messages_wait_for_ends_only_where_ends_are_told_and_the_farm_goes_on() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("k.yaml");
        let ack = |source: &str, backend: &str| {
            let text = format!(
                "apiVersion: katabatch.dev/v1alpha1\nqueues:\n- name: q\n  ack: on_completed\n  \
                 {source}\nbackends:\n- name: b\n  {backend}\n"
            );
            Config::parse(&path, &text)
                .map(|config| config.queues[0].ack)
                .map_err(|errors| errors.to_string())
        };
        let gke = "kubernetes: {}";
        let pubsub = |id: &str| format!("pubsub: {{subscription: {id}, quarantine_topic: xyz}}");
        assert_eq!(ack("spool: {}", gke), Ok(AckMode::OnCompleted));
        assert_eq!(ack(&pubsub("rainier"), gke), Ok(AckMode::OnCompleted));
        for (source, backend, expect) in [
            (pubsub("utask_main"), gke, "ClusterFuzz makes no further tasks"),
            (pubsub("projects/p/subscriptions/utask_main-ubuntu-24-04"), gke, "no further tasks"),
            ("spool: {}".to_owned(), "local: {command: [x]}", "backend b is of the kind local"),
            ("spool: {}".to_owned(), "gcp_batch: {}", "is of the kind gcp_batch"),
        ] {
            let said = ack(&source, backend).expect_err(&source);
            assert!(said.contains(expect) && said.contains("write on_created"), "{said}");
        }
    }

    #[test]
    fn a_subscription_needs_its_name_and_a_topic_for_the_quarantine() {
        let source = parse("pubsub: {subscription: utask_main, quarantine_topic: rejected}");
        let names = Written {
            subscription: "utask_main".into(),
            quarantine_topic: "rejected".into(),
            ..Written::default()
        };
        assert_eq!(source, Ok(QueueSource::PubSub { names, endpoint: None }));
        for (queue, expect) in [
            ("pubsub: {subscription: utask_main}", "no `quarantine_topic`"),
            ("pubsub: {quarantine_topic: rejected}", "no `subscription`"),
            (
                "pubsub: {subscription: a/b, quarantine_topic: xyz}",
                "projects/PROJECT/subscriptions",
            ),
            ("{spool: {}, pubsub: {}}", "k.yaml"),
        ] {
            let errors = parse(queue).expect_err(queue);
            assert!(errors.contains(expect), "{errors}");
        }
    }
}
