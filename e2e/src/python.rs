//! Python as a tier of tests: the interpreter itself, and tools that are installed once into a folder
//! of the cache.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;
use tokio::time::timeout;

use crate::binaries::cache_dir;
use crate::unavailable::Unavailable;

/// How long one call may take, the installation of a tool too.
const WITHIN: Duration = Duration::from_secs(300);

/// Runs `python3` with these arguments in `dir`.
///
/// # Errors
/// [`Unavailable`] when there is none.
pub async fn python<S: AsRef<OsStr>>(
    dir: &Path,
    arguments: &[S],
    environment: &[(&str, &str)],
) -> Result<Output> {
    run(Path::new("python3"), dir, arguments, environment).await
}

/// Whether there is a Python that is new enough.
///
/// # Errors
/// [`Unavailable`] when there is none.
pub async fn require() -> Result<()> {
    let check = ["-c", "import sys; sys.exit(sys.version_info < (3, 9))"];
    let output = python(Path::new("."), &check, &[]).await?;
    if output.status.success() {
        return Ok(());
    }
    Err(Unavailable::new("python3 is older than 3.9", "install a newer Python").into())
}

/// A program of the package index, installed into a virtual environment of the cache the first time.
///
/// # Errors
/// [`Unavailable`] when it can't be installed.
pub async fn tool(package: &str, version: &str, program: &str) -> Result<PathBuf> {
    require().await?;
    let tools = cache_dir()?.parent().context("the cache has a parent")?.join("../python");
    let home = tools.join(format!("{package}-{version}"));
    let path = home.join("bin").join(program);
    if path.is_file() {
        return Ok(path);
    }
    std::fs::create_dir_all(&tools).context("make the cache's folder")?;
    // Test binaries run side by side: the second one waits here, then finds it.
    let lock = std::fs::File::create(tools.join(".lock")).context("make the cache's lock")?;
    let lock = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock));
    let _lock = lock.await.context("wait for the lock")?.context("lock the cache")?;
    if path.is_file() {
        return Ok(path);
    }
    let hint = "install Python with venv and pip, and see that the package index is reachable";
    let scratch = home.to_string_lossy().into_owned();
    let made = python(&tools, &["-m", "venv", "--clear", &scratch], &[]).await?;
    if !made.status.success() {
        return Err(Unavailable::new("python3 -m venv fails", hint).into());
    }
    let wanted = format!("{package}=={version}");
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", &wanted];
    let installed = run(&home.join("bin/python"), &tools, &install, &[]).await?;
    if !installed.status.success() {
        // Not half of it: the next run tries anew.
        let _ = std::fs::remove_dir_all(&home);
        let said = String::from_utf8_lossy(&installed.stderr);
        let last = said.lines().last().unwrap_or("it does not say why").to_owned();
        return Err(Unavailable::new(format!("{wanted} can't be installed: {last}"), hint).into());
    }
    ensure!(path.is_file(), "{package} has no program {program}");
    Ok(path)
}

/// Runs a program to its end.
///
/// # Errors
/// [`Unavailable`] when it can't be started; when it takes too long.
pub async fn run<S: AsRef<OsStr>>(
    program: &Path,
    dir: &Path,
    arguments: &[S],
    environment: &[(&str, &str)],
) -> Result<Output> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(dir).envs(environment.iter().copied());
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(WITHIN, command.output()).await.context("it takes too long")?;
    output.map_err(|error| {
        let what = format!("{} can't be run: {error}", program.display());
        Unavailable::new(what, "install Python 3.9 or newer").into()
    })
}
