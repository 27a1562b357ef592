//! `queues`: where tasks come from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{path, unique_name};
use crate::domain::name::QueueName;
use crate::located::reading::Field;

/// One queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueConfig {
    /// Its name.
    pub name: QueueName,
    /// What it is.
    pub source: QueueSource,
    /// The base OS version whose tasks it carries; `None` is a queue without a version.
    pub base_os_version: Option<String>,
    /// How many deliveries of a message may panic before it is rejected.
    pub max_panics: u32,
}

/// What a queue is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueSource {
    /// A SQLite file on this machine.
    Spool {
        /// The file.
        path: PathBuf,
    },
}

const MAX_PANICS: u32 = 3;

/// Reads the list; without one there is the spool `main` in `spool.sqlite`.
pub(super) fn read(field: Option<Field<'_>>, base: &Path) -> Vec<QueueConfig> {
    let Some(field) = field else {
        return vec![QueueConfig {
            name: "main".into(),
            source: QueueSource::Spool { path: base.join("spool.sqlite") },
            base_os_version: None,
            max_panics: MAX_PANICS,
        }];
    };
    let Some(items) = field.list() else { return Vec::new() };
    if items.is_empty() {
        field.fault("is empty", "name at least one queue, or leave the key out");
    }
    let mut seen = BTreeMap::new();
    items.iter().filter_map(|item| read_one(item, base, &mut seen)).collect()
}

fn read_one(
    field: &Field<'_>,
    base: &Path,
    seen: &mut BTreeMap<String, u32>,
) -> Option<QueueConfig> {
    let section = field.section()?;
    let name = unique_name(&section, seen, "queue");
    let source = match section.get("spool") {
        Some(spool) => read_spool(&spool, base),
        None => {
            field.fault("has no source", "write `spool: {path: spool.sqlite}`");
            None
        }
    };
    if let Some(ack) = section.get("ack") {
        read_ack(&ack);
    }
    let queue = QueueConfig {
        name: name.unwrap_or_default().into(),
        source: source.unwrap_or(QueueSource::Spool { path: PathBuf::new() }),
        base_os_version: section.set("base_os_version").and_then(|f| f.text()).map(str::to_owned),
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

/// Only ClusterFuzz's rule so far: any confirmed Job of the task acks its message.
fn read_ack(field: &Field<'_>) {
    match field.text() {
        Some("on_created") | None => {}
        Some("on_completed") => {
            field.fault("`on_completed` is not yet supported", "write on_created");
        }
        Some(other) => field.fault(format!("`{other}` is no ack mode"), "write on_created"),
    }
}
