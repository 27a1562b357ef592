//! The node's own control groups, made by hand in every hierarchy: the kubelet wants its root to be
//! there. Containers live in them, outside the groups of the process that started the node: that is
//! how they are found at the end, whatever became of their parents.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long killed processes may take to be gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// A group of the same name in every hierarchy.
#[derive(Debug, Clone)]
pub struct Cgroups(Vec<PathBuf>);

impl Cgroups {
    /// Those of that name, there or not.
    ///
    /// # Errors
    /// When the mounts can't be read, or there is no hierarchy among them.
    pub fn named(name: &str) -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").context("read the mounts")?;
        let folders: Vec<_> =
            hierarchies(&mounts).into_iter().map(|mount| mount.join(name)).collect();
        ensure!(!folders.is_empty(), "no control groups are mounted");
        Ok(Self(folders))
    }

    /// Makes them.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn make(&self) -> Result<()> {
        for folder in &self.0 {
            fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
            // A new group of version 1 has no CPUs and no memory, and takes no process before it has.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let parent = folder.parent().map(|parent| parent.join(file));
                let Some(value) = parent.and_then(|path| fs::read_to_string(path).ok()) else {
                    continue;
                };
                fs::write(folder.join(file), value.trim())
                    .with_context(|| format!("write {file} of {}", folder.display()))?;
            }
        }
        Ok(())
    }

    /// Kills every process in them and waits until they are gone.
    ///
    /// # Errors
    /// When one outlives that.
    pub fn kill_all(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = self.processes();
            if left.is_empty() {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "processes outlive SIGKILL: {left:?}");
            for pid in left {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Removes them, and the groups below.
    ///
    /// # Errors
    /// When a process is in one.
    pub fn remove(&self) -> Result<()> {
        for folder in &self.0 {
            remove(folder).with_context(|| format!("remove {}", folder.display()))?;
        }
        Ok(())
    }

    fn processes(&self) -> Vec<i32> {
        let mut found = Vec::new();
        for folder in &self.0 {
            collect(folder, &mut found);
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// The mount points of version 1's hierarchies, and of version 2's.
fn hierarchies(mounts: &str) -> Vec<PathBuf> {
    let of_line = |line: &str| {
        let mut fields = line.split(' ').skip(1);
        let (point, kind) = (fields.next()?, fields.next()?);
        matches!(kind, "cgroup" | "cgroup2").then(|| PathBuf::from(point))
    };
    mounts.lines().filter_map(of_line).collect()
}

fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

fn collect(folder: &Path, into: &mut Vec<i32>) {
    let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    // A process of another pid namespace is zero.
    into.extend(text.lines().filter_map(|pid| pid.parse::<i32>().ok()).filter(|pid| *pid > 0));
    for below in folders_in(folder) {
        collect(&below, into);
    }
}

/// A group's files can't be removed, and go with it.
fn remove(folder: &Path) -> io::Result<()> {
    for below in folders_in(folder) {
        remove(&below)?;
    }
    match fs::remove_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_both_versions_are_found() {
        let mounts = "proc /proc proc rw 0 0\n\
                      cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n\
                      tmpfs /cgroup tmpfs rw 0 0\n";
        let expected = ["/sys/fs/cgroup/cpuset", "/sys/fs/cgroup/unified"].map(PathBuf::from);
        assert_eq!(hierarchies(mounts), expected);
    }
}
