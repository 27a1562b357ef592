//! What of a real node is not built here but installed: containerd, runc, CNI's plugins, busybox.
//! Looked for on `PATH` and where distributions put them; [`install`] asks apt for them.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::unistd::Uid;

use crate::unavailable::Unavailable;

/// Debian's packages; nothing that they merely recommend is needed.
const PACKAGES: [&str; 5] =
    ["containerd", "runc", "containernetworking-plugins", "busybox-static", "iproute2"];
const HINT: &str = "as root, `katabatch-e2e binaries --pods real` installs Debian's packages \
                    containerd, runc, containernetworking-plugins, busybox-static, iproute2; or \
                    leave it out with KATABATCH_E2E_WITHOUT=real";
/// The plugins of the network: a bridge with addresses from this host, and each pod's own lo.
const PLUGINS: [&str; 3] = ["bridge", "host-local", "loopback"];
/// Debian's folder for them, and everybody else's.
const PLUGIN_FOLDERS: [&str; 2] = ["/usr/lib/cni", "/opt/cni/bin"];

/// Where each program lies.
#[derive(Debug, Clone)]
pub struct Installed {
    /// The container runtime.
    pub containerd: PathBuf,
    /// Its command line.
    pub ctr: PathBuf,
    /// What starts containers.
    pub runc: PathBuf,
    /// A statically linked one.
    pub busybox: PathBuf,
    /// The network's command line.
    pub ip: PathBuf,
    /// The folder of CNI's plugins.
    pub plugins: PathBuf,
}

impl Installed {
    /// Finds them all.
    ///
    /// # Errors
    /// Which of them is not there.
    pub fn find() -> Result<Self, Unavailable> {
        // Its containers' parent, which containerd starts by this name.
        on_path("containerd-shim-runc-v2")?;
        let has_all = |folder: &PathBuf| PLUGINS.iter().all(|name| folder.join(name).is_file());
        let plugins = PLUGIN_FOLDERS.iter().map(PathBuf::from).find(has_all);
        Ok(Self {
            containerd: on_path("containerd")?,
            ctr: on_path("ctr")?,
            runc: on_path("runc")?,
            busybox: on_path("busybox")?,
            ip: on_path("ip")?,
            plugins: plugins.ok_or_else(|| Unavailable::new("no plugins of CNI", HINT))?,
        })
    }
}

fn on_path(program: &str) -> Result<PathBuf, Unavailable> {
    let path = env::var_os("PATH").unwrap_or_default();
    // Daemons' folders are not on everybody's PATH.
    let folders = env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    let found = folders.map(|folder| folder.join(program)).find(|path| path.is_file());
    found.ok_or_else(|| Unavailable::new(format!("no {program}"), HINT))
}

/// Installs what is missing.
///
/// # Errors
/// [`Unavailable`] when something is missing that can't be installed by this user or here.
pub fn install() -> Result<Installed> {
    let missing = match Installed::find() {
        Ok(found) => return Ok(found),
        Err(missing) => missing,
    };
    if !Uid::effective().is_root() || !Path::new("/usr/bin/apt-get").exists() {
        return Err(missing.into());
    }
    eprintln!("installing {}", PACKAGES.join(", "));
    let install = ["install", "--yes", "--no-install-recommends"].into_iter().chain(PACKAGES);
    let install: Vec<_> = install.collect();
    // A fresh machine has no lists yet, an old one has stale ones.
    if apt(&install).is_err() {
        apt(&["update"])?;
        apt(&install)?;
    }
    Ok(Installed::find()?)
}

fn apt(arguments: &[&str]) -> Result<()> {
    let output = Command::new("apt-get")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .output()
        .context("run apt-get")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "apt-get {} fails: {said}", arguments.join(" "));
    Ok(())
}
