//! One program of a control plane as a child process: in a process group of its own,
//! its output in a log file, its pid in a file that outlives us. Knows nothing of
//! Kubernetes.

use std::fmt;
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// A running component.
pub struct Component {
    name: &'static str,
    group: Pid,
    log: PathBuf,
    pid_file: PathBuf,
    exited: Receiver<ExitStatus>,
    status: Option<ExitStatus>,
}

impl fmt::Debug for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {})", self.name, self.group)
    }
}

impl Component {
    /// Starts `program`; `<dir>/<name>.log` takes its output and `<dir>/<name>.pid`
    /// its process id.
    ///
    /// # Errors
    /// When the program can't be started or a file can't be written.
    pub fn spawn(
        name: &'static str,
        program: &Path,
        arguments: &[String],
        environment: &[(&str, String)],
        dir: &Path,
    ) -> Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let output = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("open {}", log.display()))?;
        let mut child = Command::new(program)
            .args(arguments)
            .envs(environment.iter().map(|(key, value)| (*key, value)))
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(output.try_clone().context("share the log file")?)
            .stderr(output)
            .process_group(0)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let pid = child.id();
        let (gone, exited) = channel();
        // A thread that waits sees an exit at once and leaves no zombie.
        thread::Builder::new()
            .name(format!("wait for {name}"))
            .spawn(move || {
                let status = child.wait().unwrap_or(ExitStatus::from_raw(0));
                let _ = gone.send(status);
            })
            .context("start the thread that waits")?;
        let component = Self {
            name,
            group: Pid::from_raw(i32::try_from(pid).context("a pid is an i32")?),
            log,
            pid_file: dir.join(format!("{name}.pid")),
            exited,
            status: None,
        };
        fs::write(&component.pid_file, pid.to_string())
            .with_context(|| format!("write {}", component.pid_file.display()))?;
        Ok(component)
    }

    /// The component's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its process id, and that of its group.
    pub fn pid(&self) -> i32 {
        self.group.as_raw()
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.exited_within(Duration::ZERO).is_none()
    }

    /// Stops it where it stands, as a machine that hangs would. Its threads stop one by
    /// one, soon: the check that is returned says when all have.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn pause(&self) -> Result<impl Fn() -> bool + use<>> {
        self.signal(Signal::SIGSTOP)?;
        let threads = PathBuf::from(format!("/proc/{}/task", self.group));
        Ok(move || all_stand_still(&threads))
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    /// Asks it to end. [`Component::finish`] sees to it that it does.
    pub fn ask_to_stop(&mut self) {
        if self.is_running() {
            // A paused process takes the signal only once it goes on.
            let _ = self.signal(Signal::SIGTERM);
            let _ = self.signal(Signal::SIGCONT);
        }
    }

    /// Waits until `deadline`, then kills it.
    ///
    /// # Errors
    /// When it outlives even that, which would be the kernel's doing.
    pub fn finish(&mut self, deadline: Instant) -> Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if self.exited_within(left).is_none() {
            let _ = self.signal(Signal::SIGKILL);
            if self.exited_within(Duration::from_secs(5)).is_none() {
                bail!("{self:?} outlived SIGKILL; hint: is its disk hanging?");
            }
        }
        let _ = fs::remove_file(&self.pid_file);
        Ok(())
    }

    /// The last lines of its log.
    pub fn log_tail(&self, lines: usize) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let all: Vec<_> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    fn exited_within(&mut self, patience: Duration) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = match self.exited.recv_timeout(patience) {
                Ok(status) => Some(status),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(ExitStatus::from_raw(0)),
            };
        }
        self.status
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        // Once it was waited for, its number may be another process's.
        if self.status.is_some() {
            bail!("{} has ended", self.name);
        }
        killpg(self.group, signal).with_context(|| format!("send {signal} to {self:?}"))
    }
}

/// Whether every thread's state, the letter after its name in parentheses, is "stopped".
pub(crate) fn all_stand_still(threads: &Path) -> bool {
    fs::read_dir(threads).is_ok_and(|entries| {
        entries.flatten().all(|thread| {
            fs::read_to_string(thread.path().join("stat")).is_ok_and(|stat| {
                stat.rsplit_once(')').is_some_and(|(_, end)| end.starts_with(" T"))
            })
        })
    })
}

impl Drop for Component {
    fn drop(&mut self) {
        self.ask_to_stop();
        let _ = self.finish(Instant::now() + Duration::from_millis(500));
    }
}
