//! katabatch as a process of its own, which can be killed, measured, and judged by its exit code
//! and its two streams. The program is the test binary itself, told to be katabatch: so that no
//! other package's build has to be found.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use katabatch::backend::local::Supervisor;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::component::all_stand_still;
use crate::eventually::{Seen, eventually};

/// Set for a process that is to be katabatch.
const AS_KATABATCH: &str = "KATABATCH_E2E_AS_KATABATCH";

/// To be asked first thing in `main`: runs katabatch's own `main` in a process started here, or by
/// one of those: a local task's supervisor, which gets no variables.
pub fn as_katabatch() -> Option<ExitCode> {
    let first = env::args_os().nth(1);
    let supervises = first.is_some_and(|first| first == Supervisor::SUBCOMMAND);
    (supervises || env::var_os(AS_KATABATCH).is_some()).then(katabatch::cli::main)
}

/// A running katabatch. Killed when dropped.
pub struct Process {
    child: Child,
    pid: Pid,
    stdout: PathBuf,
    stderr: PathBuf,
}

/// How a process ended.
#[derive(Debug, Clone)]
pub struct Output {
    /// The exit code; none after a signal.
    pub code: Option<i32>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// All data.
    pub stdout: String,
    /// All messages.
    pub stderr: String,
}

/// What a process occupies, in KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Now (`VmRSS`).
    pub resident: u64,
    /// Of that, what is not the program's own file (`RssAnon`): the same in every build.
    pub anonymous: u64,
    /// At most so far (`VmHWM`).
    pub peak: u64,
}

impl Process {
    /// Starts `katabatch` with these arguments in `dir`, where its output is kept under `name`.
    ///
    /// # Errors
    /// When it can't be started.
    pub fn start<S: AsRef<OsStr>>(dir: &Path, name: &str, arguments: &[S]) -> Result<Self> {
        Self::start_with(dir, name, arguments, &[])
    }

    /// As [`Process::start`], with more environment variables.
    ///
    /// # Errors
    /// When it can't be started.
    pub fn start_with<S: AsRef<OsStr>>(
        dir: &Path,
        name: &str,
        arguments: &[S],
        variables: &[(&str, String)],
    ) -> Result<Self> {
        let stdout = dir.join(format!("{name}.stdout"));
        let stderr = dir.join(format!("{name}.stderr"));
        let file = |path| File::create(path).context("make a file for the output");
        let child = Command::new(env::current_exe().context("find this program")?)
            .args(arguments)
            .current_dir(dir)
            .env(AS_KATABATCH, "1")
            .env_remove("KUBECONFIG")
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(file(&stdout)?)
            .stderr(file(&stderr)?)
            .kill_on_drop(true)
            .spawn()
            .context("start katabatch")?;
        let id = child.id().context("it has ended already")?;
        let pid = Pid::from_raw(i32::try_from(id).context("a pid is an i32")?);
        Ok(Self { child, pid, stdout, stderr })
    }

    /// Runs a command to its end.
    ///
    /// # Errors
    /// When it can't be started, or doesn't end within a minute.
    pub async fn run<S: AsRef<OsStr>>(dir: &Path, name: &str, arguments: &[S]) -> Result<Output> {
        Self::start(dir, name, arguments)?.end(Duration::from_secs(60)).await
    }

    /// Kills it, as a machine that loses power would.
    ///
    /// # Errors
    /// When it had ended before.
    pub async fn kill(mut self) -> Result<Output> {
        if let Some(status) = self.child.try_wait().context("look after it")? {
            bail!("it had ended already, with {status}: {}", self.messages());
        }
        self.child.kill().await.context("kill it")?;
        let status = self.child.wait().await.context("wait for its end")?;
        self.output(status)
    }

    /// Sends SIGTERM.
    ///
    /// # Errors
    /// When it is gone.
    pub fn terminate(&self) -> Result<()> {
        kill(self.pid, Signal::SIGTERM).context("send SIGTERM")
    }

    /// Stops it where it stands, as a machine that hangs would, and waits until all of it stands.
    ///
    /// # Errors
    /// When it is gone.
    pub async fn pause(&self) -> Result<()> {
        kill(self.pid, Signal::SIGSTOP).context("send SIGSTOP")?;
        let threads = PathBuf::from(format!("/proc/{}/task", self.pid));
        eventually("it stands still", Duration::from_secs(30), || async {
            Ok(Seen::when(all_stand_still(&threads), || "a thread that runs".into()))
        })
        .await
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When it is gone.
    pub fn resume(&self) -> Result<()> {
        kill(self.pid, Signal::SIGCONT).context("send SIGCONT")
    }

    /// How it has ended, if it has.
    ///
    /// # Errors
    /// When it can't be looked after.
    pub fn has_ended(&mut self) -> Result<Option<Output>> {
        let status = self.child.try_wait().context("look after it")?;
        status.map(|status| self.output(status)).transpose()
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it doesn't come within that time.
    pub async fn end(mut self, within: Duration) -> Result<Output> {
        match timeout(within, self.child.wait()).await {
            Ok(status) => self.output(status.context("wait for its end")?),
            Err(_) => bail!("it didn't end within {within:?}: {}", self.messages()),
        }
    }

    /// For a look that must fail once the process is gone.
    ///
    /// # Errors
    /// With what it said, when it has ended.
    pub fn must_run(&mut self) -> Result<()> {
        match self.child.try_wait().context("look after it")? {
            None => Ok(()),
            Some(status) => bail!("it has ended with {status}: {}", self.messages()),
        }
    }

    /// What it has said on stderr so far.
    pub fn messages(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// What it occupies.
    ///
    /// # Errors
    /// When it has ended.
    pub fn memory(&self) -> Result<Memory> {
        let path = format!("/proc/{}/status", self.pid);
        let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().next());
            number.and_then(|number| number.parse().ok()).with_context(|| format!("no {name}"))
        };
        let (resident, anonymous) = (field("VmRSS:")?, field("RssAnon:")?);
        Ok(Memory { resident, anonymous, peak: field("VmHWM:")? })
    }

    fn output(&self, status: ExitStatus) -> Result<Output> {
        Ok(Output {
            code: status.code(),
            signal: status.signal(),
            stdout: fs::read_to_string(&self.stdout).context("read its stdout")?,
            stderr: self.messages(),
        })
    }
}
