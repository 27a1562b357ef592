//! One layer of a profile: what it sets, and how it changes what lies below it.
//!
//! A scalar or a list replaces the one below; a mapping is merged key by key, where `null` takes a
//! key away. `null` for a deadline or a priority class means that there is none.

use std::collections::BTreeMap;
use std::time::Duration;

use super::above_zero;
use super::kubernetes_names::{is_env_name, is_reserved_label, label_key_fault};
use crate::domain::name::{is_dns_subdomain, is_label_value};
use crate::domain::quantity::Quantity;
use crate::domain::workload::{Disk, Profile, Restart, Toleration};
use crate::located::reading::{Field, Section};

/// What one layer sets; `None` and absent keys leave what is below.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Layer {
    cpu: Option<Quantity>,
    memory: Option<Quantity>,
    shm: Option<Quantity>,
    disk: Option<Disk>,
    scratch: BTreeMap<String, Option<Quantity>>,
    privileged: Option<bool>,
    host_network: Option<bool>,
    dns_policy: Option<String>,
    runtime_class: Option<String>,
    restart: Option<Restart>,
    backoff_limit: Option<u32>,
    ttl: Option<Duration>,
    deadline: Option<Option<Duration>>,
    node_selector: BTreeMap<String, Option<String>>,
    tolerations: Option<Vec<Toleration>>,
    priority_class: Option<Option<String>>,
    env: BTreeMap<String, Option<String>>,
    labels: BTreeMap<String, Option<String>>,
}

/// Kubernetes keeps seconds in 32 bits in these places.
const MAX_SECONDS: u64 = i32::MAX as u64;

impl Layer {
    pub(super) fn read(field: &Field<'_>) -> Option<Self> {
        let section = field.section()?;
        let layer = Self {
            cpu: section.get("cpu").and_then(|f| f.quantity()),
            memory: section.get("memory").and_then(|f| f.quantity()),
            shm: section.get("shm").and_then(|f| f.quantity()),
            disk: section.get("disk").and_then(|f| read_disk(&f)),
            scratch: entries(&section, "scratch", scratch_key_fault, |f| f.quantity()),
            privileged: section.get("privileged").and_then(|f| f.boolean()),
            host_network: section.get("host_network").and_then(|f| f.boolean()),
            dns_policy: section.get("dns_policy").and_then(|f| read_dns_policy(&f)),
            runtime_class: section.get("runtime_class").and_then(|f| read_object_name(&f)),
            restart: section.get("restart_policy").and_then(|f| read_restart(&f)),
            backoff_limit: section.get("backoff_limit").and_then(|f| f.whole(0..=1_000_u32)),
            ttl: section.get("ttl").and_then(|f| read_seconds(&f)),
            deadline: nullable(section.get("deadline"), read_deadline),
            node_selector: entries(&section, "node_selector", key_fault, read_label_value),
            tolerations: section.get("tolerations").and_then(|f| read_tolerations(&f)),
            priority_class: nullable(section.get("priority_class"), read_object_name),
            env: entries(&section, "env", env_fault, read_env_value),
            labels: entries(&section, "labels", label_fault, read_label_value),
        };
        section.finish();
        Some(layer)
    }

    /// Lays itself over `profile`.
    pub fn apply(&self, profile: &mut Profile) {
        // Taken apart in full, so that a new setting can't be forgotten here.
        let Self {
            cpu,
            memory,
            shm,
            disk,
            scratch,
            privileged,
            host_network,
            dns_policy,
            runtime_class,
            restart,
            backoff_limit,
            ttl,
            deadline,
            node_selector,
            tolerations,
            priority_class,
            env,
            labels,
        } = self;
        replace(&mut profile.cpu, cpu);
        replace(&mut profile.memory, memory);
        replace(&mut profile.shm, shm);
        replace(&mut profile.disk, disk);
        merge(&mut profile.scratch, scratch);
        replace(&mut profile.privileged, privileged);
        replace(&mut profile.host_network, host_network);
        replace(&mut profile.dns_policy, dns_policy);
        replace(&mut profile.runtime_class, runtime_class);
        replace(&mut profile.restart, restart);
        replace(&mut profile.backoff_limit, backoff_limit);
        replace(&mut profile.ttl, ttl);
        replace(&mut profile.deadline, deadline);
        merge(&mut profile.node_selector, node_selector);
        replace(&mut profile.tolerations, tolerations);
        replace(&mut profile.priority_class, priority_class);
        merge(&mut profile.env, env);
        merge(&mut profile.labels, labels);
    }
}

fn replace<T: Clone>(below: &mut T, layer: &Option<T>) {
    if let Some(value) = layer {
        *below = value.clone();
    }
}

fn merge<T: Clone>(below: &mut BTreeMap<String, T>, layer: &BTreeMap<String, Option<T>>) {
    for (key, value) in layer {
        match value {
            Some(value) => below.insert(key.clone(), value.clone()),
            None => below.remove(key),
        };
    }
}

fn nullable<T>(
    field: Option<Field<'_>>,
    read: impl FnOnce(&Field<'_>) -> Option<T>,
) -> Option<Option<T>> {
    let field = field?;
    if field.is_null() { Some(None) } else { read(&field).map(Some) }
}

/// What is wrong with a key and what would be right, if it is wrong.
type KeyFault = Option<(String, &'static str)>;

fn entries<T>(
    section: &Section<'_>,
    key: &'static str,
    key_fault: impl Fn(&str) -> KeyFault,
    read: impl Fn(&Field<'_>) -> Option<T>,
) -> BTreeMap<String, Option<T>> {
    let mut out = BTreeMap::new();
    for (name, field) in section.get(key).and_then(|f| f.entries()).unwrap_or_default() {
        if let Some((problem, hint)) = key_fault(name) {
            field.fault(problem, hint);
        } else if field.is_null() {
            out.insert(name.to_owned(), None);
        } else if let Some(value) = read(&field) {
            out.insert(name.to_owned(), Some(value));
        }
    }
    out
}

fn read_disk(field: &Field<'_>) -> Option<Disk> {
    match field.node().as_text() {
        Some("none") => Some(Disk::Unrequested),
        Some("job") => Some(Disk::FromJob),
        Some(text) if Quantity::parse(text).is_err() => {
            field.fault(
                format!("`{text}` is no disk request"),
                "write none, job (the job's own size) or a quantity such as 50Gi",
            );
            None
        }
        _ => field.quantity().map(Disk::Fixed),
    }
}

fn scratch_key_fault(path: &str) -> KeyFault {
    let plain = path.split('/').skip(1).all(|part| !matches!(part, "" | "." | ".."));
    if !path.starts_with('/') || !plain {
        return Some(("is no absolute, plain path".into(), "write one such as /mnt/scratch1"));
    }
    // Kubernetes refuses a colon in a mount path, and `/dev/shm` is a mount of its own.
    if path.contains([':', '\0']) {
        return Some(("contains a character that no mount path may have".into(), ""));
    }
    (path == "/dev/shm" || path.starts_with("/dev/shm/"))
        .then(|| ("is the shared memory itself".into(), "set its size by `shm`"))
}

fn read_dns_policy(field: &Field<'_>) -> Option<String> {
    match field.text()? {
        text @ ("ClusterFirst" | "ClusterFirstWithHostNet" | "Default") => Some(text.to_owned()),
        other => {
            let hint = "write ClusterFirstWithHostNet, ClusterFirst or Default";
            field.fault(format!("`{other}` is no DNS policy"), hint);
            None
        }
    }
}

fn read_restart(field: &Field<'_>) -> Option<Restart> {
    match field.text()? {
        "upstream" => Some(Restart::Upstream),
        "never" => Some(Restart::Never),
        other => {
            let hint = "write upstream (Never for fuzz, else OnFailure) or never";
            field.fault(format!("`{other}` is no restart policy"), hint);
            None
        }
    }
}

fn read_object_name(field: &Field<'_>) -> Option<String> {
    field.read(|text| {
        if is_dns_subdomain(text) {
            return Ok(text.to_owned());
        }
        let hint = "write lower-case letters, digits, `-` and `.`";
        Err((format!("`{text}` can't be the name of an object"), hint.to_owned()))
    })
}

/// A length of time that Kubernetes keeps as whole seconds.
fn read_seconds(field: &Field<'_>) -> Option<Duration> {
    let duration = field.duration()?;
    if duration.subsec_nanos() != 0 || duration.as_secs() > MAX_SECONDS {
        field.fault("is not a number of seconds that Kubernetes takes", "write whole seconds");
        return None;
    }
    Some(duration)
}

fn read_deadline(field: &Field<'_>) -> Option<Duration> {
    above_zero(field)?;
    read_seconds(field)
}

fn key_fault(key: &str) -> KeyFault {
    label_key_fault(key).map(|fault| (format!("`{key}` {fault}"), ""))
}

fn label_fault(key: &str) -> KeyFault {
    if is_reserved_label(key) {
        let problem = format!("`{key}` is set by katabatch or Kubernetes");
        return Some((problem, "use a label of your own"));
    }
    key_fault(key)
}

fn read_label_value(field: &Field<'_>) -> Option<String> {
    let text = field.any_text()?;
    if is_label_value(text) {
        return Some(text.to_owned());
    }
    field.fault(
        format!("`{text}` is no label value"),
        "write at most 63 letters, digits, `-`, `_` and `.`, alphanumeric at both ends",
    );
    None
}

/// The variable by which a worker gets its task.
const INPUT: &str = "UWORKER_INPUT_DOWNLOAD_URL";

fn env_fault(name: &str) -> KeyFault {
    if name == INPUT {
        return Some((format!("`{INPUT}` is the task's own input"), "take it out"));
    }
    (!is_env_name(name)).then(|| {
        let hint = "write letters, digits, `_`, `-` and `.`, no digit first";
        (format!("`{name}` can't name an environment variable"), hint)
    })
}

fn read_env_value(field: &Field<'_>) -> Option<String> {
    let text = field.any_text()?;
    if text.contains('\0') {
        field.fault("contains a NUL byte", "no environment variable can hold one");
        return None;
    }
    Some(text.to_owned())
}

fn read_tolerations(field: &Field<'_>) -> Option<Vec<Toleration>> {
    Some(field.list()?.iter().filter_map(read_toleration).collect())
}

/// The rules of Kubernetes' "Taints and Tolerations".
fn read_toleration(field: &Field<'_>) -> Option<Toleration> {
    let section = field.section()?;
    let text = |key| section.set(key).and_then(|f| f.any_text()).map(str::to_owned);
    let toleration = Toleration {
        key: text("key").filter(|key| !key.is_empty()),
        operator: text("operator"),
        value: text("value"),
        effect: text("effect"),
        toleration_seconds: section
            .set("tolerationSeconds")
            .and_then(|f| f.whole(0..=i64::from(i32::MAX))),
    };
    section.finish();
    if let Some((problem, hint)) = toleration_fault(&toleration) {
        field.fault(problem, hint);
    }
    Some(toleration)
}

fn toleration_fault(toleration: &Toleration) -> KeyFault {
    let Toleration { key, operator, value, effect, toleration_seconds } = toleration;
    let operator = operator.as_deref().unwrap_or("Equal");
    let operator_fault = match operator {
        "Equal" if key.is_none() => {
            Some(("has no key".to_owned(), "write one, or `operator: Exists`"))
        }
        "Exists" if value.as_deref().is_some_and(|v| !v.is_empty()) => {
            Some(("has a value that `Exists` never compares".into(), "leave the value out"))
        }
        "Equal" | "Exists" => None,
        other => Some((format!("`{other}` is no operator"), "write Equal or Exists")),
    };
    let effect_fault = || match effect.as_deref() {
        None | Some("NoSchedule" | "PreferNoSchedule" | "NoExecute") => None,
        Some(other) => Some((
            format!("`{other}` is no effect"),
            "write NoSchedule, PreferNoSchedule or NoExecute, or leave it out for all",
        )),
    };
    let seconds_fault = || {
        (toleration_seconds.is_some() && effect.as_deref() != Some("NoExecute"))
            .then(|| ("tolerationSeconds needs the effect NoExecute".to_owned(), ""))
    };
    operator_fault
        .or_else(effect_fault)
        .or_else(seconds_fault)
        .or_else(|| key.as_deref().and_then(key_fault))
}
