//! The images of a real node, made here from Debian's static busybox: nothing is pulled.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::archive::{Layer, image};

/// What holds a pod's namespaces open.
pub const PAUSE: &str = "registry.test/pause:1";
/// What a farm's mappings name unless their plan says otherwise: its container runs the shell
/// script in [`SCRIPT`], once the template's hook has run.
pub const WORKER: &str = "registry.test/worker:1";
/// A worker in which no hook can run, since there is no `/bin/sh`: it ends with 143 when told to.
pub const WITHOUT_SHELL: &str = "registry.test/without-shell:1";
/// The variable with the worker's script; without one it succeeds.
pub const SCRIPT: &str = "E2E_SCRIPT";

/// A container that ends before its hook has run fails by the hook. `exec` keeps the script the
/// first process of its container, as a fuzzer would be.
const RUN_SCRIPT: &str = "#!/bin/sh\n\
    until [ -d /tmp/.X11-unix ]; do usleep 20000; done\n\
    exec /bin/sh -c \"${E2E_SCRIPT:-true}\"\n";

/// The first process of a container gets no signal that it doesn't ask for.
const UNTIL_TOLD: &str = "trap 'exit 143' TERM; while :; do usleep 50000; done";

/// The archives of all of them.
///
/// # Errors
/// When busybox can't be read or doesn't say what it can do.
pub fn archives(busybox: &Path) -> Result<Vec<Vec<u8>>> {
    let program = fs::read(busybox).with_context(|| format!("read {}", busybox.display()))?;
    let applets = applets(busybox)?;
    let bare = || -> Result<Layer> {
        let mut layer = Layer::default();
        for folder in ["bin", "dev", "etc", "proc", "sys"] {
            layer.folder(folder, 0o755)?;
        }
        layer.folder("tmp", 0o1777)?;
        layer.file("bin/busybox", 0o755, &program)?;
        Ok(layer)
    };
    let mut worker = bare()?;
    for applet in applets.iter().filter(|applet| *applet != "busybox") {
        worker.link(&format!("bin/{applet}"), "busybox")?;
    }
    worker.file("bin/run-script", 0o755, RUN_SCRIPT.as_bytes())?;
    Ok(vec![
        image(PAUSE, &["/bin/busybox", "sleep", "2147483647"], bare()?)?,
        image(WITHOUT_SHELL, &["/bin/busybox", "sh", "-c", UNTIL_TOLD], bare()?)?,
        image(WORKER, &["/bin/run-script"], worker)?,
    ])
}

fn applets(busybox: &Path) -> Result<Vec<String>> {
    let output = Command::new(busybox).arg("--list").output().context("run busybox")?;
    ensure!(output.status.success(), "busybox --list fails: {}", output.status);
    let text = String::from_utf8(output.stdout).context("read what busybox lists")?;
    Ok(text.lines().map(str::to_owned).collect())
}
