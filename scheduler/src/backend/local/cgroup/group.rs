//! One task's cgroup: made with its limit, entered by the supervisor for as long as it takes to
//! start the command there, asked what the kernel killed, emptied and removed.
//!
//! The supervisor itself must not stay: its memory is not the task's, and it has to survive what
//! ends the task. A child is born into its parent's cgroup, so that the command never runs a single
//! instruction outside of it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::{Home, Version};

/// How often a cgroup is made again, should another task's end remove the directory above it.
const TRIES: u32 = 100;

/// How often its processes are killed and it is tried to be removed, and how far apart: processes
/// that were killed take a moment to go. Five seconds in all.
const PASSES: u32 = 500;
const PASS_EVERY: Duration = Duration::from_millis(10);

/// A task's cgroup, there or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::backend::local) struct Group {
    pub(super) version: Version,
    /// Its directory.
    pub(super) path: PathBuf,
}

/// That this process is in a task's cgroup for a moment.
pub(in crate::backend::local) struct Inside {
    home: PathBuf,
}

impl Group {
    /// Makes it, with a limit in bytes for memory and swap together.
    pub(in crate::backend::local) fn make(&self, bytes: u64) -> io::Result<()> {
        let above = self.path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        let mut made = Err(io::ErrorKind::NotFound.into());
        for _ in 0..TRIES {
            made = make_in(above, &self.path, self.version);
            if made.as_ref().err().is_none_or(|e| e.kind() != io::ErrorKind::NotFound) {
                break;
            }
        }
        made?;
        let limit = |file: &str, value: &str| std::fs::write(self.path.join(file), value);
        let bytes = bytes.to_string();
        match self.version {
            Version::V1 => {
                limit("memory.limit_in_bytes", &bytes)?;
                // A kernel may be without the counting of swap.
                optional(limit("memory.memsw.limit_in_bytes", &bytes))
            }
            Version::V2 => {
                limit("memory.max", &bytes)?;
                optional(limit("memory.swap.max", "0"))?;
                // As Kubernetes has it: what a part of the task uses up is the end of all of it.
                optional(limit("memory.oom.group", "1"))
            }
        }
    }

    /// Moves this whole process into it; for a process with nothing else to do.
    pub(in crate::backend::local) fn enter(&self) -> io::Result<Inside> {
        let home = Home::of_this_process().map_err(io::Error::other)?.own;
        join(&self.path)?;
        Ok(Inside { home })
    }

    /// How many processes the kernel killed in it at the limit.
    pub(in crate::backend::local) fn oom_kills(&self) -> u64 {
        let file = match self.version {
            Version::V1 => "memory.oom_control",
            Version::V2 => "memory.events",
        };
        let text = std::fs::read_to_string(self.path.join(file)).unwrap_or_default();
        let count = |line: &str| line.strip_prefix("oom_kill ")?.trim().parse().ok();
        text.lines().find_map(count).unwrap_or(0)
    }

    /// Kills every process in it, whatever it did to get away, and removes it. One that is not
    /// there is removed already.
    pub(in crate::backend::local) fn destroy(&self) -> io::Result<()> {
        let me = i32::try_from(std::process::id()).map_err(io::Error::other)?;
        let mut removed = Ok(());
        for pass in 0..PASSES {
            if pass > 0 {
                std::thread::sleep(PASS_EVERY);
            }
            // At once for all of them, where the kernel can (5.14); this process is not in it.
            let _ = std::fs::OpenOptions::new()
                .write(true)
                .open(self.path.join("cgroup.kill"))
                .and_then(|mut file| io::Write::write_all(&mut file, b"1"));
            for pid in self.processes().into_iter().filter(|pid| *pid != me) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
            removed = std::fs::remove_dir(&self.path);
            match &removed {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {}
                _ => {
                    removed = Ok(());
                    break;
                }
            }
        }
        // The last one out; while others are in there, it stays.
        let _ = self.path.parent().map(std::fs::remove_dir);
        removed
    }

    fn processes(&self) -> Vec<i32> {
        let text = std::fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.trim().parse().ok()).filter(|pid| *pid > 0).collect()
    }
}

impl Inside {
    /// Moves this process back to where it was.
    pub(in crate::backend::local) fn leave(self) -> io::Result<()> {
        join(&self.home)
    }
}

fn join(cgroup: &Path) -> io::Result<()> {
    std::fs::write(cgroup.join("cgroup.procs"), std::process::id().to_string())
}

fn make_in(above: &Path, path: &Path, version: Version) -> io::Result<()> {
    make_dir(above)?;
    if version == Version::V2 {
        std::fs::write(above.join("cgroup.subtree_control"), "+memory")?;
    }
    make_dir(path)
}

fn make_dir(path: &Path) -> io::Result<()> {
    match std::fs::create_dir(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => Ok(()),
    }
}

/// What a kernel may lack.
fn optional(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
            Ok(())
        }
        other => other,
    }
}
