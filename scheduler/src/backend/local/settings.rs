//! What the local backend needs to know, checked once.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::cgroup::Cgroups;
use super::supervise::Supervisor;
use crate::domain::name::BackendName;

/// How long a command has between SIGTERM and SIGKILL.
pub const GRACE: Duration = Duration::from_secs(5);

/// How long a finished task's directory is kept.
pub const RETAIN_FINISHED: Duration = Duration::from_secs(600);

/// How the local backend is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The configured name.
    pub name: BackendName,
    /// Where tasks have their directories. Made when it is absent; one process at a time owns it.
    pub dir: PathBuf,
    /// The program and its arguments. A name without `/` is looked up in `PATH`.
    pub command: Vec<String>,
    /// How many tasks may run at once; at least 1.
    pub jobs: usize,
    /// What starts a supervisor.
    pub supervisor: Supervisor,
    /// How long a finished task's directory is kept after its end and its ack.
    pub retain_finished: Duration,
    /// How long a command has between SIGTERM and SIGKILL when its deadline has passed.
    pub grace: Duration,
    /// Where tasks get cgroups, for a limit of their memory; `None`: without.
    pub cgroups: Option<Cgroups>,
}

/// Why the local backend can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// Another process owns the directory: wait for it, or configure another directory.
    #[error(
        "{0} is in use by another katabatch; stop that one or give this backend a `dir` of its own"
    )]
    InUse(PathBuf),
    /// A setting is wrong: a person must change it.
    #[error("{0}")]
    Setting(String),
    /// The directory can't be read or written.
    #[error("{path}: {source}")]
    Directory {
        /// What was touched.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
}

impl LocalError {
    pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |source| Self::Directory { path, source }
    }
}

impl Settings {
    /// Settings with the default retention and grace, and without limits of memory. `program` is this program's own path.
    pub fn new(
        name: BackendName,
        dir: PathBuf,
        command: Vec<String>,
        jobs: usize,
        program: PathBuf,
    ) -> Self {
        Self {
            name,
            dir,
            command,
            jobs,
            supervisor: program.into(),
            retain_finished: RETAIN_FINISHED,
            grace: GRACE,
            cgroups: None,
        }
    }

    /// The settings with every path absolute, since commands run in directories of their own.
    pub(super) fn checked(mut self) -> Result<Self, LocalError> {
        let wrong = |text: String| Err(LocalError::Setting(text));
        if self.jobs == 0 {
            return wrong("`jobs` is 0, so nothing could ever run; write at least 1".into());
        }
        self.dir = std::path::absolute(&self.dir).map_err(LocalError::at(&self.dir))?;
        if self.dir.to_str().is_none_or(|dir| dir.contains('\0')) {
            return wrong(format!("`dir` {:?} is not valid UTF-8 text", self.dir));
        }
        let Some(program) = self.command.first_mut() else {
            return wrong("`command` is empty; write a program and its arguments".into());
        };
        match find_program(program) {
            Some(path) => *program = path,
            None => {
                return wrong(format!(
                    "`command` names the program {program:?}, which is no executable file{}",
                    if program.contains('/') { "" } else { " in PATH" }
                ));
            }
        }
        if self.command.iter().any(|word| word.contains('\0')) {
            return wrong("`command` has a NUL byte, which no argument can hold".into());
        }
        let program = &self.supervisor.program;
        self.supervisor.program = std::path::absolute(program).map_err(LocalError::at(program))?;
        Ok(self)
    }
}

/// The absolute path of a program, as a shell would find it.
fn find_program(name: &str) -> Option<String> {
    let found = if name.contains('/') {
        is_executable(Path::new(name)).then(|| PathBuf::from(name))?
    } else {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path)
            .map(|dir| dir.join(name))
            .find(|candidate| !name.is_empty() && is_executable(candidate))?
    };
    std::path::absolute(found).ok()?.into_os_string().into_string().ok()
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(command: &[&str], jobs: usize, expect: Result<&str, &str>) {
        let command = command.iter().map(|word| (*word).to_owned()).collect();
        let settings = Settings::new("l".into(), "work".into(), command, jobs, "x".into());
        match (settings.checked(), expect) {
            (Ok(settings), Ok(program)) => {
                assert_eq!(settings.command[0], program);
                assert!(settings.dir.is_absolute() && settings.supervisor.program.is_absolute());
            }
            (Err(error), Err(text)) => assert_eq!(error.to_string(), text),
            (found, _) => panic!("{:?}", found.map(|s| s.command)),
        }
    }

    #[test]
    fn a_wrong_setting_is_told_before_anything_runs() {
        check(&["/bin/sh", "-c", "x"], 1, Ok("/bin/sh"));
        check(&["/bin/sh"], 0, Err("`jobs` is 0, so nothing could ever run; write at least 1"));
        check(&[], 1, Err("`command` is empty; write a program and its arguments"));
        check(
            &["/no/such"],
            1,
            Err("`command` names the program \"/no/such\", which is no executable file"),
        );
        check(
            &["no-such-program"],
            1,
            Err(
                "`command` names the program \"no-such-program\", which is no executable file in PATH",
            ),
        );
        check(&["/bin/sh", "a\0"], 1, Err("`command` has a NUL byte, which no argument can hold"));
    }
}
