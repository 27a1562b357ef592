//! `backends`: where tasks go, how much each may be given, and by what weight.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{above_zero, path, unique_name};
use crate::domain::name::{BackendName, is_dns_label};
use crate::located::reading::{Field, Section};

/// One backend.
#[derive(Debug, Clone, PartialEq)]
pub struct BackendConfig {
    /// Its name.
    pub name: BackendName,
    /// What it is.
    pub kind: BackendKind,
    /// Its share of the tasks.
    pub weight: WeightConfig,
    /// How much it may be given.
    pub limits: BackendLimits,
    /// How long after their recorded end finished Jobs stay.
    pub retain_finished: Duration,
    /// A directory of templates in the place of the embedded ones.
    pub templates: Option<PathBuf>,
}

/// What a backend is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendKind {
    /// A namespace of a Kubernetes cluster.
    Kubernetes {
        /// `None`: see `backend::kubernetes::place`.
        kubeconfig: Option<PathBuf>,
        /// `None`: the kubeconfig's current context.
        context: Option<String>,
        /// A GKE cluster, found by its name.
        gke: Option<GkeConfig>,
        /// The cluster that this process is a pod of.
        in_cluster: bool,
        /// Where its Jobs are.
        namespace: String,
        /// After this, the answer to a request counts as lost.
        request_timeout: Duration,
    },
    /// Jobs of GCP Batch; all else about them is in the farm's `batch.yaml`.
    GcpBatch {
        /// The project; `None`: the farm's.
        project: Option<String>,
        /// Where Batch's API is; `http://` goes without credentials. `None`: Google's own.
        endpoint: Option<String>,
        /// After this, the answer to a request counts as lost.
        request_timeout: Duration,
    },
    /// Child processes of this machine. Not isolated.
    Local {
        /// The program and its arguments; never empty.
        command: Vec<String>,
        /// Where each task has its directory.
        dir: PathBuf,
        /// The most tasks that run at once.
        jobs: usize,
    },
}

/// A GKE cluster; what is left out is project.yaml's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GkeConfig {
    /// Its project's id. `None`: `K8S_PROJECT`.
    pub project: Option<String>,
    /// Its name. `None`: `cluster_name`.
    pub cluster: Option<String>,
    /// Its region or zone. `None`: wherever there is one of that name.
    pub location: Option<String>,
}

/// A backend's share of the tasks.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightConfig {
    /// The feature flag that sets it; `None`: the default always counts.
    pub flag: Option<String>,
    /// Its weight where the flag says none, from 0 to 1.
    pub default: f64,
}

/// How much a backend may be given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendLimits {
    /// The flag of the pending limit; `None`: the default always counts.
    pub pending_flag: Option<String>,
    /// The most Jobs that wait to start, where the flag says none.
    pub pending: usize,
    /// The most unfinished Jobs; `None` is unlimited.
    pub live: Option<usize>,
    /// The most creates a second; `None` is unlimited.
    pub creates_per_second: Option<NonZeroU32>,
    /// The most creates at once.
    pub window: usize,
}

/// Reads the list; without one there is one cluster, as kubectl would find it.
pub(super) fn read(field: Option<Field<'_>>, base: &Path) -> Vec<BackendConfig> {
    let Some(field) = field else {
        return vec![BackendConfig {
            name: "kubernetes".into(),
            kind: default_kubernetes(),
            weight: WeightConfig { flag: Some("k8s_jobs_frequency".into()), default: 1.0 },
            limits: default_limits(&default_kubernetes()),
            retain_finished: RETAIN_FINISHED,
            templates: None,
        }];
    };
    let Some(items) = field.list() else { return Vec::new() };
    if items.is_empty() {
        field.fault("is empty", "name at least one backend, or leave the key out");
    }
    let mut seen = BTreeMap::new();
    let alone = items.len() == 1;
    items.iter().filter_map(|item| read_one(item, base, alone, &mut seen)).collect()
}

/// How many tasks may be said to run at once on this machine.
pub const JOBS: std::ops::RangeInclusive<usize> = 1..=4_096;

const RETAIN_FINISHED: Duration = Duration::from_secs(600);

fn default_kubernetes() -> BackendKind {
    BackendKind::Kubernetes {
        kubeconfig: None,
        context: None,
        gke: None,
        in_cluster: false,
        // Where the farm's own cron jobs and upstream's Jobs are.
        namespace: "default".into(),
        request_timeout: Duration::from_secs(3),
    }
}

fn default_limits(kind: &BackendKind) -> BackendLimits {
    let kubernetes = matches!(kind, BackendKind::Kubernetes { .. });
    BackendLimits {
        pending_flag: kubernetes.then(|| "k8s_jobs_pending_limit".to_owned()),
        // Upstream has no limit for Batch but that of a region's queue: a hundred jobs of 999.
        pending: if matches!(kind, BackendKind::GcpBatch { .. }) { 100_000 } else { 1_000 },
        live: None,
        creates_per_second: None,
        window: 32,
    }
}

fn read_one(
    field: &Field<'_>,
    base: &Path,
    alone: bool,
    seen: &mut BTreeMap<String, u32>,
) -> Option<BackendConfig> {
    let section = field.section()?;
    let name = unique_name(&section, seen, "backend");
    let kinds = ["kubernetes", "gcp_batch", "local"].map(|key| section.get(key));
    let kind = match &kinds {
        [Some(kubernetes), None, None] => read_kubernetes(kubernetes, base),
        [None, Some(batch), None] => read_gcp_batch(batch),
        [None, None, Some(local)] => read_local(local, base),
        [None, None, None] => {
            field.fault(
                "has no kind",
                "write `kubernetes: {namespace: …}`, `gcp_batch:` or `local: {command: […]}`",
            );
            None
        }
        several => {
            if let Some(second) = several.iter().flatten().nth(1) {
                let hint = "one backend is either kubernetes, gcp_batch or local";
                second.fault("is a second kind", hint);
            }
            None
        }
    };
    let kind = kind.unwrap_or_else(default_kubernetes);
    refuse_idle(&section, &["retain_finished", "templates"], &kind);
    let backend = BackendConfig {
        name: name.unwrap_or_default().into(),
        weight: read_weight(section.set("weight"), &kind, alone),
        limits: read_limits(section.set("limits"), &kind),
        retain_finished: section
            .get("retain_finished")
            .and_then(|f| f.duration())
            .unwrap_or(RETAIN_FINISHED),
        templates: section.set("templates").and_then(|f| path(&f, base)),
        kind,
    };
    section.finish();
    Some(backend)
}

fn read_kubernetes(field: &Field<'_>, base: &Path) -> Option<BackendKind> {
    if field.is_null() {
        return Some(default_kubernetes());
    }
    let section = field.section()?;
    judge_cluster(&section);
    let namespace = section.get("namespace").and_then(|f| read_namespace(&f));
    let kind = BackendKind::Kubernetes {
        kubeconfig: section.set("kubeconfig").and_then(|f| path(&f, base)),
        context: section.set("context").and_then(|f| f.text()).map(str::to_owned),
        gke: section.get("gke").and_then(|f| read_gke(&f)),
        in_cluster: section.get("in_cluster").and_then(|f| f.boolean()).unwrap_or(false),
        namespace: namespace.unwrap_or_else(|| "default".into()),
        request_timeout: section
            .get("request_timeout")
            .and_then(|f| above_zero(&f))
            .unwrap_or(Duration::from_secs(3)),
    };
    section.finish();
    Some(kind)
}

fn read_gke(field: &Field<'_>) -> Option<GkeConfig> {
    if field.is_null() {
        return Some(GkeConfig::default());
    }
    let section = field.section()?;
    let text = |key| section.set(key).and_then(|f| f.text()).map(str::to_owned);
    let gke = GkeConfig {
        project: text("project"),
        cluster: text("cluster"),
        location: text("location"),
    };
    section.finish();
    Some(gke)
}

/// One cluster, said in one way.
fn judge_cluster(section: &Section<'_>) {
    let ways = ["kubeconfig", "context", "gke", "in_cluster"];
    let said: Vec<Field<'_>> = ways
        .iter()
        .filter(|way| **way != "context" || section.set("kubeconfig").is_none())
        .filter_map(|way| section.set(way))
        .collect();
    if let [_, second, ..] = said.as_slice() {
        second.fault("is a second cluster", "write one of kubeconfig, gke and in_cluster");
    }
}

fn read_gcp_batch(field: &Field<'_>) -> Option<BackendKind> {
    const TIMEOUT: Duration = Duration::from_secs(30);
    if field.is_null() {
        return Some(BackendKind::GcpBatch {
            project: None,
            endpoint: None,
            request_timeout: TIMEOUT,
        });
    }
    let section = field.section()?;
    let text = |key| section.set(key).and_then(|f| f.text()).map(str::to_owned);
    let kind = BackendKind::GcpBatch {
        project: text("project"),
        endpoint: text("endpoint"),
        request_timeout: section
            .get("request_timeout")
            .and_then(|f| above_zero(&f))
            .unwrap_or(TIMEOUT),
    };
    section.finish();
    Some(kind)
}

fn read_namespace(field: &Field<'_>) -> Option<String> {
    field.read(|text| {
        if is_dns_label(text) {
            return Ok(text.to_owned());
        }
        let hint = "write at most 63 lower-case letters, digits and `-`";
        Err((format!("`{text}` can't be a namespace"), hint.to_owned()))
    })
}

fn read_local(field: &Field<'_>, base: &Path) -> Option<BackendKind> {
    let section = field.section()?;
    let hint = "write the program and its arguments as a list: [worker, --flag]";
    let command = section.required("command", hint).and_then(|f| read_command(&f, hint));
    let kind = BackendKind::Local {
        command: command.unwrap_or_default(),
        dir: section.get("dir").and_then(|f| path(&f, base)).unwrap_or_else(|| base.join("work")),
        jobs: section.get("jobs").and_then(|f| f.whole(JOBS)).unwrap_or(2),
    };
    section.finish();
    Some(kind)
}

fn read_command(field: &Field<'_>, hint: &str) -> Option<Vec<String>> {
    let items = field.list()?;
    if items.is_empty() {
        field.fault("is empty", hint);
    }
    let mut words = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let word = if index == 0 { item.text() } else { item.any_text() };
        if word.is_some_and(|word| word.contains('\0')) {
            item.fault("contains a NUL byte", "no argument of a process can hold one");
        }
        words.extend(word.map(str::to_owned));
    }
    Some(words)
}

/// Upstream's kubernetes adapter has the weight 0.0 until its flag says otherwise, and the one of
/// Batch 1.0; here that holds where there are several backends, and a backend that is alone gets
/// everything.
fn read_weight(field: Option<Field<'_>>, kind: &BackendKind, alone: bool) -> WeightConfig {
    let (flag, default) = match kind {
        BackendKind::Kubernetes { .. } => (Some("k8s_jobs_frequency"), 0.0),
        BackendKind::GcpBatch { .. } => (Some("gcp_batch_jobs_frequency"), 1.0),
        BackendKind::Local { .. } => (None, 0.0),
    };
    let default = if alone { 1.0 } else { default };
    let mut weight = WeightConfig { flag: flag.map(str::to_owned), default };
    let Some(section) = field.and_then(|f| f.section()) else { return weight };
    read_flag(&section, &mut weight.flag);
    if let Some(value) = section.get("default").and_then(|f| f.number(0.0..=1.0)) {
        weight.default = value;
    }
    section.finish();
    weight
}

/// What is not for Batch: who sets it there expects what does not come.
fn refuse_idle(section: &Section<'_>, keys: &[&'static str], kind: &BackendKind) {
    if matches!(kind, BackendKind::GcpBatch { .. }) {
        let said = keys.iter().filter_map(|key| section.set(key));
        said.for_each(|field| field.fault("has no effect on gcp_batch", "take it out"));
    }
}

/// `null` means that no flag counts.
fn read_flag(section: &Section<'_>, flag: &mut Option<String>) {
    if let Some(field) = section.get("flag") {
        *flag = if field.is_null() { None } else { field.text().map(str::to_owned) };
    }
}

fn read_limits(field: Option<Field<'_>>, kind: &BackendKind) -> BackendLimits {
    let mut limits = default_limits(kind);
    let Some(section) = field.and_then(|f| f.section()) else { return limits };
    refuse_idle(&section, &["creates_per_second", "window"], kind);
    if let Some(pending) = section.set("pending").and_then(|f| f.section()) {
        read_flag(&pending, &mut limits.pending_flag);
        if let Some(value) = pending.get("default").and_then(|f| f.whole(0..=1_000_000_usize)) {
            limits.pending = value;
        }
        pending.finish();
    }
    limits.live = section.set("live").and_then(|f| f.whole(0..=1_000_000_usize));
    limits.creates_per_second = section
        .set("creates_per_second")
        .and_then(|f| f.whole(1..=100_000_u32))
        .and_then(NonZeroU32::new);
    if let Some(window) = section.get("window").and_then(|f| f.whole(1..=1_024_usize)) {
        limits.window = window;
    }
    section.finish();
    limits
}
