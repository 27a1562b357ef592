//! Finds and kills the processes that a task left behind, whatever process group they moved to.
//!
//! A process inherits its environment, so the name of the task's scratch directory in it tells
//! whose it is (Linux, `/proc/PID/environ`). One that wiped its own environment gets away: this
//! keeps a machine tidy, it isolates nothing. Where there is no `/proc`, nothing is found.

use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::environment::marker;

/// How often the processes are looked through: one that forks while it is looked for is found by
/// the next pass, one that forks faster than that is let go.
const PASSES: usize = 20;

/// Kills every process of the task in `dir` with SIGKILL.
pub(super) fn kill_all(dir: &Path) {
    let marker = marker(dir);
    for _ in 0..PASSES {
        let found = find(&marker);
        if found.is_empty() {
            break;
        }
        for pid in found {
            // It may have ended in between, which is as well.
            let _ = kill(pid, Signal::SIGKILL);
        }
    }
}

fn find(marker: &[u8]) -> Vec<Pid> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let is_ours = |pid: &i32| {
        // A zombie's environment is empty; other users' processes can't be read.
        std::fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|environ| environ.split(|&b| b == 0).any(|variable| variable == marker))
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(is_ours)
        .map(Pid::from_raw)
        .collect()
}
