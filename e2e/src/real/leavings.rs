//! All that a real node leaves on its machine, removed: containers and their parents, mounts, network,
//! sockets, control groups, folder. Goes by what is found, not by what was started, so that it does
//! the same for a run that died. Pids come again within minutes: a command line is read before a kill.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::slot::Names;

/// How long killed processes may take to be gone.
const PATIENCE: Duration = Duration::from_secs(10);
/// Where CNI's library keeps what it has answered, for containers that are to be deleted.
const CNI_RESULTS: &str = "/var/lib/cni/results";
/// Where every kubelet puts links to its containers' logs.
const LOG_LINKS: &str = "/var/log/containers";
/// What every kubelet makes in a place that no setting moves.
const DEVICE_PLUGINS: &str = "/var/lib/kubelet/device-plugins";

/// Folders of all containerds and kubelets of a machine: each goes if nothing is in it any more.
const SHARED: [&str; 5] =
    [LOG_LINKS, CNI_RESULTS, "/var/lib/cni", "/run/containerd/s", "/run/containerd"];

/// Removes everything of that node.
///
/// # Errors
/// The first thing that can't be.
pub fn remove(names: &Names) -> Result<()> {
    // Who would start something anew goes first.
    kill_processes(names)?;
    let cgroups = names.cgroups()?;
    cgroups.kill_all()?;
    kill_processes(names)?;
    remove_shim_sockets(&names.dir);
    unmount_below(&names.dir)?;
    remove_network(names);
    cgroups.remove()?;
    for link in links_into(&names.dir) {
        let _ = fs::remove_file(link);
    }
    match fs::remove_dir_all(&names.dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", names.dir.display()))
        }
        _ => Ok(()),
    }
}

/// Removes the folders that all nodes share, where nothing is left in them: after the last node.
pub fn remove_shared() {
    remove_device_plugins();
    for folder in SHARED {
        let _ = fs::remove_dir(folder);
    }
}

/// containerd, its shims and the kubelet: each command line names the node's folder.
fn kill_processes(names: &Names) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = processes_of(&names.dir);
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

fn processes_of(dir: &Path) -> Vec<i32> {
    const OURS: [&str; 4] = ["kubelet", "containerd", "containerd-shim-runc-v2", "runc"];
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_ours = |pid: &i32| {
        // A zombie has no command line, and waits for its parent only.
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        let mut words = line.split('\0');
        let program = words.next().and_then(|word| Path::new(word).file_name()?.to_str());
        let dir = dir.to_string_lossy();
        let names_dir = |word: &str| {
            let after = word.split_once(&*dir).map(|(_, after)| after);
            after.is_some_and(|after| after.is_empty() || after.starts_with('/'))
        };
        program.is_some_and(|program| OURS.contains(&program)) && words.any(names_dir)
    };
    pids.filter(is_ours).collect()
}

/// A shim listens in a folder that all containerds share; its bundle says where.
fn remove_shim_sockets(dir: &Path) {
    let bundles = dir.join("state/io.containerd.runtime.v2.task/k8s.io");
    for bundle in fs::read_dir(bundles).into_iter().flatten().flatten() {
        let address = fs::read_to_string(bundle.path().join("address")).unwrap_or_default();
        if let Some(socket) = address.trim().strip_prefix("unix://") {
            let _ = fs::remove_file(socket);
        }
    }
}

fn unmount_below(dir: &Path) -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("read the mounts")?;
    // The last mounted first.
    for point in points_below(&mounts, dir).into_iter().rev() {
        match umount2(&point, MntFlags::MNT_DETACH) {
            // One that it was mounted over took it along.
            Ok(()) | Err(nix::errno::Errno::EINVAL | nix::errno::Errno::ENOENT) => {}
            Err(error) => {
                return Err(error).with_context(|| format!("unmount {}", point.display()));
            }
        }
    }
    let mounts = fs::read_to_string("/proc/self/mounts").context("read the mounts")?;
    let left = points_below(&mounts, dir);
    // What is mounted may be the host's own: nothing may be removed through it.
    ensure!(left.is_empty(), "still mounted: {left:?}");
    Ok(())
}

/// Paths of ours hold nothing that the kernel would escape.
fn points_below(mounts: &str, dir: &Path) -> Vec<PathBuf> {
    let point = |line: &str| line.split(' ').nth(1).map(PathBuf::from);
    mounts.lines().filter_map(point).filter(|point| point.starts_with(dir)).collect()
}

/// Each may be gone with another, or never have been made.
fn remove_network(names: &Names) {
    let ip = |arguments: &[&str]| {
        let _ = Command::new("ip").args(arguments).output();
    };
    ip(&["link", "delete", &names.bridge()]);
    ip(&["address", "delete", &format!("{}/32", names.address()), "dev", "lo"]);
    let results = || fs::read_dir(CNI_RESULTS).into_iter().flatten().flatten();
    let file_name = |path: PathBuf| Some(path.file_name()?.to_str()?.to_owned());
    let prefix = format!("{}-", names.bridge());
    for path in results().map(|entry| entry.path()) {
        let Some(name) = file_name(path.clone()) else { continue };
        let Some(id) = name.strip_prefix(&prefix).and_then(|rest| rest.strip_suffix("-eth0"))
        else {
            continue;
        };
        let _ = fs::remove_file(path.with_file_name(format!("cni-loopback-{id}-lo")));
        let _ = fs::remove_file(path);
    }
}

fn links_into(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(LOG_LINKS).into_iter().flatten().flatten();
    let leads_there = |path: &PathBuf| fs::read_link(path).is_ok_and(|to| to.starts_with(dir));
    entries.map(|entry| entry.path()).filter(leads_there).collect()
}

/// Only where nothing but a node of ours has been: another kubelet has more in its folder.
fn remove_device_plugins() {
    let folder = Path::new(DEVICE_PLUGINS);
    let Some(parent) = folder.parent() else { return };
    let others = fs::read_dir(parent).into_iter().flatten().flatten();
    if others.filter(|entry| entry.path() != folder).count() > 0 {
        return;
    }
    for file in ["DEPRECATION", "kubelet.sock", "kubelet_internal_checkpoint"] {
        let _ = fs::remove_file(folder.join(file));
    }
    let _ = fs::remove_dir(folder);
    let _ = fs::remove_dir(parent);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_mounted_below_is_found() {
        let mounts = "overlay /a/node-1/rootfs overlay rw 0 0\n\
                      tmpfs /a/node-1/rootfs/dev tmpfs rw 0 0\n\
                      tmpfs /a/node-10 tmpfs rw 0 0\n";
        let expected = ["/a/node-1/rootfs", "/a/node-1/rootfs/dev"].map(PathBuf::from);
        assert_eq!(points_below(mounts, Path::new("/a/node-1")), expected);
    }

    #[test]
    fn a_stranger_that_names_the_folder_is_left_alone() {
        let me = std::process::id().to_string();
        let dir = std::env::current_exe().expect("a path");
        assert!(!processes_of(&dir).iter().any(|pid| pid.to_string() == me));
    }
}
