//! The process between katabatch and a task's command: it outlives the scheduler, holds the task's
//! lock, keeps the deadline and the log, and writes down how the command ended.
//!
//! It is the same program, started as `local-supervise DIRECTORY`. Starting it twice for one
//! directory is harmless: the second waits for the first and finds the work done. It knows nothing
//! of queues and workloads; all it needs is in the directory.

use std::io::{self, PipeReader, Read};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use super::log_tail::TailWriter;
use super::record::{self, EXIT, Exit, How, Memory, Record, SCRATCH, STARTED, Started};
use super::{LOOK_EVERY, cancel, state, strays};
use crate::clock::{Clock as _, SystemClock};

/// How long the log may go on after the command has ended, when a process that got away holds its
/// output open.
const LOG_GRACE: Duration = Duration::from_secs(2);

/// Runs the task in `dir` to its end and writes the end down. Blocks. To be called in a process of
/// its own, before any other thread is started.
///
/// Answers the process's exit code: 0 when the directory holds the task's end, 1 when that could
/// not be written, 2 when `dir` holds no claim.
pub fn supervise(dir: &Path) -> u8 {
    match run(dir) {
        Ok(true) => 0,
        Ok(false) => 2,
        // There is nobody to tell: the lock goes with this process, and the backend finds out.
        Err(_) => 1,
    }
}

fn run(dir: &Path) -> io::Result<bool> {
    let dir = &std::path::absolute(dir)?;
    if Record::read(dir)?.is_none() {
        return Ok(false);
    }
    let _lock = state::lock(dir)?;
    // Read again: another may have had the lock, or the directory may have gone meanwhile.
    let Some(record) = Record::read(dir)? else { return Ok(false) };
    if dir.join(STARTED).try_exists()? || dir.join(EXIT).try_exists()? {
        return Ok(true);
    }
    if state::cancelled_before(dir, SystemClock.wall())?.is_some() {
        return Ok(true);
    }
    let started_at = SystemClock.wall();
    let started = Started { supervisor: std::process::id(), started_at };
    record::write(dir, STARTED, &started)?;
    let ended = match start(dir, &record) {
        Ok((child, log)) => attend(dir, &record, child, log)?,
        Err(e) => {
            destroy_group(&record);
            let how = How::NotStarted(format!("`{}`: {e}", program(&record)));
            Ended { how, stopped: None, oom_kills: 0 }
        }
    };
    let Ended { how, stopped, oom_kills } = ended;
    let cancelled = stopped == Some(Stopped::Cancelled);
    let deadline_exceeded = stopped == Some(Stopped::Deadline);
    let (started_at, ended_at) = (Some(started_at), SystemClock.wall());
    let exit = Exit { how, deadline_exceeded, oom_kills, cancelled, started_at, ended_at };
    record::write(dir, EXIT, &exit)?;
    Ok(true)
}

/// What became of a command.
struct Ended {
    how: How,
    /// Why it was stopped, if it was.
    stopped: Option<Stopped>,
    oom_kills: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stopped {
    Deadline,
    Cancelled,
}

fn program(record: &Record) -> &str {
    record.argv.first().map_or("", String::as_str)
}

/// Starts the command in a process group of its own, its output going to the log.
fn start(dir: &Path, record: &Record) -> io::Result<(Child, Receiver<TailWriter>)> {
    let (reader, writer) = io::pipe()?;
    let mut tail = TailWriter::create(dir)?;
    let inherited = ["PATH", "HOME"].map(|name| (name, std::env::var_os(name)));
    let mut command = Command::new(program(record));
    command
        .args(record.argv.iter().skip(1))
        .current_dir(dir.join(SCRATCH))
        .env_clear()
        .envs(inherited.into_iter().filter_map(|(name, value)| Some((name, value?))))
        .envs(&record.env)
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0);
    let child = match &record.memory {
        Some(memory) => spawn_limited(&mut command, memory, &mut tail)?,
        None => command.spawn()?,
    };
    // The command still holds the writing ends: without this the log would never end.
    drop(command);
    Ok((child, keep_log(reader, tail)))
}

/// Starts the command in the task's cgroup, or outside of it where that has become impossible since
/// it was found to be: a newcomer's task is better run and told of than lost.
fn spawn_limited(
    command: &mut Command,
    memory: &Memory,
    tail: &mut TailWriter,
) -> io::Result<Child> {
    match memory.group.make(memory.bytes).and_then(|()| memory.group.enter()) {
        Ok(inside) => {
            let child = command.spawn();
            // Before anything else: what is used from here on is not the task's. It worked one way,
            // so it does the other; if it ever does not, this process shares the task's limit.
            let _ = inside.leave();
            child
        }
        Err(e) => {
            let note = format!("katabatch: runs without a limit of memory: {e}\n");
            let _ = tail.push(note.as_bytes());
            command.spawn()
        }
    }
}

/// Reads the output to its end in a thread; the receiver gets the log back then.
fn keep_log(mut reader: PipeReader, mut tail: TailWriter) -> Receiver<TailWriter> {
    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        let mut buffer = vec![0; 16 * 1024];
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => break,
                // A log that can't be written (a full disk) must not stop the task: read on.
                Ok(n) => drop(buffer.get(..n).map(|bytes| tail.push(bytes))),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        let _ = done.send(tail);
    });
    ended
}

/// Waits for the command's end, its deadline or a request for its end, and clears up what it left running.
fn attend(
    dir: &Path,
    record: &Record,
    mut child: Child,
    log: Receiver<TailWriter>,
) -> io::Result<Ended> {
    let group = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
    let ended = end_of(group);
    let stopped = until_stopped(dir, &ended, Duration::from_millis(record.deadline_ms))?;
    if stopped.is_some() {
        let _ = killpg(group, Signal::SIGTERM);
        if !ends_within(&ended, Duration::from_millis(record.grace_ms))? {
            let _ = killpg(group, Signal::SIGKILL);
            ended.recv().map_err(io::Error::other)?;
        }
    }
    // As in a container, the end of the first process is the end of all. It has not been waited
    // for yet, so that its group's number can't be another's.
    let _ = killpg(group, Signal::SIGKILL);
    let status = child.wait()?;
    strays::kill_all(dir);
    let oom_kills = record.memory.as_ref().map_or(0, |memory| memory.group.oom_kills());
    // Also the processes that no marker tells.
    destroy_group(record);
    if let (Ok(mut tail), 1..) = (log.recv_timeout(LOG_GRACE), oom_kills) {
        let limit = record.memory.as_ref().map_or(0, |memory| memory.bytes);
        let note = format!(
            "katabatch: the kernel killed {oom_kills} of its processes at its limit of memory, \
             {limit} bytes\n"
        );
        let _ = tail.push(note.as_bytes());
    }
    Ok(Ended { how: how(status), stopped, oom_kills })
}

/// Should this fail, a process can't be killed, and no other try would do better.
fn destroy_group(record: &Record) {
    if let Some(memory) = &record.memory {
        let _ = memory.group.destroy();
    }
}

fn how(status: ExitStatus) -> How {
    match (status.code(), status.signal()) {
        (Some(code), _) => How::Code(code),
        (None, Some(signal)) => How::Signal(signal),
        (None, None) => How::Unknown,
    }
}

/// Hears of a child's end without waiting for it in the sense of wait(2): it stays a zombie.
fn end_of(child: Pid) -> Receiver<()> {
    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        while waitid(Id::Pid(child), flags) == Err(Errno::EINTR) {}
        let _ = done.send(());
    });
    ended
}

/// Waits for the end (`None`), or until there is a reason to stop it.
fn until_stopped(dir: &Path, ended: &Receiver<()>, limit: Duration) -> io::Result<Option<Stopped>> {
    let began = SystemClock.mono();
    loop {
        let left = limit.saturating_sub(SystemClock.mono().duration_since(began));
        if ends_within(ended, left.min(LOOK_EVERY))? {
            return Ok(None);
        }
        if left <= LOOK_EVERY {
            return Ok(Some(Stopped::Deadline));
        }
        if cancel::is_requested(dir) {
            return Ok(Some(Stopped::Cancelled));
        }
    }
}

fn ends_within(ended: &Receiver<()>, limit: Duration) -> io::Result<bool> {
    match ended.recv_timeout(limit) {
        Ok(()) => Ok(true),
        Err(RecvTimeoutError::Timeout) => Ok(false),
        Err(e @ RecvTimeoutError::Disconnected) => Err(io::Error::other(e)),
    }
}

/// How a supervisor is started: a program and the arguments before `local-supervise DIRECTORY`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supervisor {
    /// This program's own path (`std::env::current_exe`).
    pub program: PathBuf,
    /// Arguments that come first.
    pub arguments: Vec<String>,
}

impl Supervisor {
    /// The command line's word for this entry point.
    pub const SUBCOMMAND: &str = "local-supervise";

    /// What starts a supervisor for `dir`: with `PATH` and `HOME` alone, and in a process group of
    /// its own, so that Ctrl-C at a terminal is the scheduler's alone.
    pub(super) fn command(&self, dir: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .arg(Self::SUBCOMMAND)
            .arg(dir)
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| name == "PATH" || name == "HOME"))
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        command
    }
}

impl From<PathBuf> for Supervisor {
    fn from(program: PathBuf) -> Self {
        Self { program, arguments: Vec::new() }
    }
}
