//! The programs that a control plane is made of: looked for under `KUBEBUILDER_ASSETS`
//! first, then in a cache outside `target/`; what is still missing is built with Go
//! from the versions pinned in `control-plane/go.mod`. Starts none of them.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::unavailable::Unavailable;

const KUBERNETES: &str = "1.34.4";
const ETCD: &str = "3.6.4";
const KWOK: &str = "0.7.0";

/// The module that pins the versions, carried along so that the cache can be filled
/// from anywhere.
const MODULE: [(&str, &str); 3] = [
    ("go.mod", include_str!("../control-plane/go.mod")),
    ("go.sum", include_str!("../control-plane/go.sum")),
    ("tools.go", include_str!("../control-plane/tools.go")),
];

/// One program of a control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// The store.
    Etcd,
    /// The API server.
    ApiServer,
    /// The controllers: Jobs, namespaces, service accounts, garbage collection.
    ControllerManager,
    /// The pod scheduler.
    Scheduler,
    /// The fake kubelets.
    Kwok,
    /// The kubelet of a node that runs pods.
    Kubelet,
}

impl Program {
    /// A control plane with fake nodes.
    pub const ALL: [Self; 5] =
        [Self::Etcd, Self::ApiServer, Self::ControllerManager, Self::Scheduler, Self::Kwok];

    /// What a benchmark of the API server alone needs.
    pub const WITHOUT_CONTROLLERS: [Self; 2] = [Self::Etcd, Self::ApiServer];

    /// The file's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kwok => "kwok",
            Self::Kubelet => "kubelet",
        }
    }

    /// The Go package; KWOK doesn't build against this Kubernetes in one module, so
    /// it is installed by itself.
    fn package(self) -> String {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3".into(),
            Self::Kwok => format!("sigs.k8s.io/kwok/cmd/kwok@v{KWOK}"),
            _ => format!("k8s.io/kubernetes/cmd/{}", self.name()),
        }
    }
}

/// Where each program lies.
#[derive(Debug, Clone)]
pub struct Binaries(BTreeMap<Program, PathBuf>);

impl Binaries {
    /// The path of one program.
    ///
    /// # Errors
    /// When it was not among those asked for.
    pub fn path(&self, program: Program) -> Result<&Path> {
        match self.0.get(&program) {
            Some(path) => Ok(path),
            None => bail!("{} was not asked for", program.name()),
        }
    }

    /// Each program with its path.
    pub fn iter(&self) -> impl Iterator<Item = (Program, &Path)> {
        self.0.iter().map(|(program, path)| (*program, path.as_path()))
    }

    /// Finds the programs, and builds those that are nowhere yet (some minutes).
    ///
    /// # Errors
    /// [`Unavailable`] when something has to be built and can't be.
    pub async fn find(programs: &[Program]) -> Result<Self> {
        let programs = programs.to_vec();
        tokio::task::spawn_blocking(move || Self::find_or_build(&programs))
            .await
            .context("the search for binaries was interrupted")?
    }

    fn find_or_build(programs: &[Program]) -> Result<Self> {
        let cache = cache_dir()?;
        if let Some(all) = Self::present(programs, &cache) {
            return Ok(all);
        }
        if !go_is_there() {
            let missing: Vec<_> = programs
                .iter()
                .filter(|program| locate(**program, &cache).is_none())
                .map(|program| program.name())
                .collect();
            return Err(Unavailable::new(
                format!("no {} and no Go to build it with", missing.join(", ")),
                "install Go 1.24 or newer, or point KUBEBUILDER_ASSETS at a folder that has it",
            )
            .into());
        }
        fs::create_dir_all(&cache).with_context(|| format!("create {}", cache.display()))?;
        // Test binaries run side by side: the second one waits here, then finds all.
        let lock = File::create(cache.join(".lock")).context("create the cache's lock")?;
        lock.lock().context("lock the cache")?;
        for program in programs {
            if locate(*program, &cache).is_none() {
                build(*program, &cache)?;
            }
        }
        match Self::present(programs, &cache) {
            Some(all) => Ok(all),
            None => bail!("built everything, and yet a program is not in {}", cache.display()),
        }
    }

    fn present(programs: &[Program], cache: &Path) -> Option<Self> {
        programs
            .iter()
            .map(|program| Some((*program, locate(*program, cache)?)))
            .collect::<Option<_>>()
            .map(Self)
    }
}

fn locate(program: Program, cache: &Path) -> Option<PathBuf> {
    let assets = env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
    assets
        .into_iter()
        .chain([cache.to_path_buf()])
        .map(|dir| dir.join(program.name()))
        .find(|path| path.is_file())
}

/// `${XDG_CACHE_HOME:-$HOME/.cache}/katabatch/control-plane/<versions>`.
///
/// # Errors
/// When neither variable is set.
pub fn cache_dir() -> Result<PathBuf> {
    let versions = format!("kubernetes-{KUBERNETES}-etcd-{ETCD}-kwok-{KWOK}");
    Ok(cache_of("control-plane")?.join(versions))
}

/// `${XDG_CACHE_HOME:-$HOME/.cache}/katabatch/<what>`.
///
/// # Errors
/// When neither variable is set.
pub fn cache_of(what: &str) -> Result<PathBuf> {
    let base = match (env::var_os("XDG_CACHE_HOME"), env::var_os("HOME")) {
        (Some(cache), _) if !cache.is_empty() => PathBuf::from(cache),
        (_, Some(home)) => PathBuf::from(home).join(".cache"),
        _ => bail!("no folder for the cache; hint: set XDG_CACHE_HOME or HOME"),
    };
    Ok(base.join("katabatch").join(what))
}

fn go_is_there() -> bool {
    Command::new("go")
        .arg("version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Builds one program beside its final place and moves it there in one step, so that
/// a build that was killed leaves nothing that looks finished.
fn build(program: Program, cache: &Path) -> Result<()> {
    eprintln!("building {} (minutes, once)", program.name());
    let scratch = tempfile::Builder::new()
        .prefix(".building-")
        .tempdir_in(cache)
        .context("create a folder to build in")?;
    for (name, text) in MODULE {
        fs::write(scratch.path().join(name), text).context("write the Go module")?;
    }
    let output = scratch.path().join("out").join(program.name());

    let mut go = Command::new("go");
    go.current_dir(scratch.path()).env("GOWORK", "off").env("GOFLAGS", "").env("CGO_ENABLED", "0");
    match program {
        Program::Kwok => {
            go.env("GOBIN", scratch.path().join("out")).args([
                "install",
                "-trimpath",
                "-ldflags=-s -w",
            ]);
        }
        _ => {
            go.args(["build", "-trimpath", &ldflags(), "-o"]).arg(&output);
        }
    }
    let result = go.arg(program.package()).stdin(Stdio::null()).output().context("run go")?;
    if !result.status.success() {
        let said = String::from_utf8_lossy(&result.stderr);
        let tail: Vec<_> = said.lines().rev().take(5).collect();
        let tail: Vec<_> = tail.into_iter().rev().collect();
        return Err(Unavailable::new(
            format!("{} can't be built: {}", program.name(), tail.join(" | ")),
            "is the Go module proxy reachable? Or point KUBEBUILDER_ASSETS at a folder that has it",
        )
        .into());
    }
    fs::rename(&output, cache.join(program.name()))
        .with_context(|| format!("move {} into the cache", program.name()))
}

/// Without a version of its own an API server built from the module calls itself
/// v0.0.0, and clients refuse what they think is too old.
fn ldflags() -> String {
    let base = "k8s.io/component-base/version";
    let mut parts = KUBERNETES.split('.');
    let major = parts.next().unwrap_or_default();
    let minor = parts.next().unwrap_or_default();
    format!(
        "-ldflags=-s -w -X {base}.gitVersion=v{KUBERNETES} \
         -X {base}.gitMajor={major} -X {base}.gitMinor={minor}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_here_are_those_of_the_module() {
        let module = MODULE[0].1;
        assert!(module.contains(&format!("k8s.io/kubernetes v{KUBERNETES}")));
        assert!(module.contains(&format!("go.etcd.io/etcd/server/v3 v{ETCD}")));
    }
}
