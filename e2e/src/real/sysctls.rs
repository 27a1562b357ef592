//! The kernel's settings that a kubelet and the network's plugins change for the whole machine: kept
//! in a file before the first node starts, put back after the last one has gone.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// The first six are the kubelet's (`setupKernelTunables`), the last is the bridge's.
const SETTINGS: [&str; 7] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "net/ipv4/ip_forward",
];

/// Keeps them in `file`, unless it has them from before.
///
/// # Errors
/// When the file can't be written.
pub fn save(file: &Path) -> Result<()> {
    if file.exists() {
        return Ok(());
    }
    let read = |name: &&'static str| {
        let value = fs::read_to_string(Path::new("/proc/sys").join(name)).ok()?;
        Some((*name, value.trim().to_owned()))
    };
    let values: BTreeMap<_, _> = SETTINGS.iter().filter_map(read).collect();
    // Whole or not at all: half a file would be what is put back.
    let next = file.with_extension("next");
    fs::write(&next, serde_json::to_vec(&values)?)
        .and_then(|()| fs::rename(&next, file))
        .with_context(|| format!("write {}", file.display()))
}

/// Puts back what `file` has, and removes it.
///
/// # Errors
/// When one can't be written; the file then stays.
pub fn restore(file: &Path) -> Result<()> {
    let Ok(text) = fs::read(file) else { return Ok(()) };
    let values: BTreeMap<String, String> =
        serde_json::from_slice(&text).with_context(|| format!("read {}", file.display()))?;
    for (name, value) in values {
        let path = Path::new("/proc/sys").join(&name);
        if fs::read_to_string(&path).is_ok_and(|now| now.trim() == value) {
            continue;
        }
        fs::write(&path, &value).with_context(|| format!("set {name} to {value}"))?;
    }
    fs::remove_file(file).with_context(|| format!("remove {}", file.display()))
}
