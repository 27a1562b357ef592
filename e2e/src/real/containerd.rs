//! containerd of a real node: its configuration, its network, its start, and how images get in.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::json;
use tokio::net::UnixStream;

use super::images;
use super::packages::Installed;
use super::slot::Names;
use crate::component::Component;
use crate::eventually::{Seen, eventually};

const PATIENCE: Duration = Duration::from_secs(60);

/// Starts it, waits until it answers, and gives it the images.
///
/// # Errors
/// When it doesn't start, with the end of its log.
pub async fn start(installed: &Installed, names: &Names) -> Result<Component> {
    let config = names.dir.join("containerd.toml");
    fs::write(&config, configuration(installed, names)).context("write containerd.toml")?;
    let network = names.dir.join("cni");
    fs::create_dir_all(&network).context("make the network's folder")?;
    fs::write(network.join("10-bridge.conflist"), conflist(names)).context("write the network")?;
    let mut component = Component::spawn(
        "containerd",
        &installed.containerd,
        &["--config".into(), config.display().to_string()],
        &[],
        &names.dir,
    )?;
    let socket = names.socket();
    let up = eventually("containerd answers", PATIENCE, || {
        let running = component.is_running();
        let socket = socket.clone();
        async move {
            if !running {
                return Ok(Seen::Done(false));
            }
            UnixStream::connect(socket).await?;
            Ok(Seen::Done(true))
        }
    });
    if !up.await? {
        return Err(anyhow!("containerd ended by itself:\n{}", component.log_tail(20)));
    }
    let (installed, names) = (installed.clone(), names.clone());
    tokio::task::spawn_blocking(move || import(&installed, &names))
        .await
        .context("the import was interrupted")??;
    Ok(component)
}

fn import(installed: &Installed, names: &Names) -> Result<()> {
    let archive = names.dir.join("image.tar");
    for bytes in images::archives(&installed.busybox)? {
        fs::write(&archive, bytes).context("write an image")?;
        let output = Command::new(&installed.ctr)
            .arg("--address")
            .arg(names.socket())
            .args(["--namespace", "k8s.io", "images", "import"])
            .arg(&archive)
            .output()
            .context("run ctr")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "an image can't be imported: {said}");
    }
    fs::remove_file(archive).context("remove the archive")
}

/// Without the right to lower a process' OOM score (CAP_SYS_RESOURCE) every sandbox fails, hence
/// `restrict_oom_score_adj`. Network namespaces lie in our folder, so that they go with it.
fn configuration(installed: &Installed, names: &Names) -> String {
    let dir = |name: &str| quoted(names.dir.join(name));
    let runtime = |name: &str| {
        format!(
            r#"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{name}]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{name}.options]
    BinaryName = {runc}
    Root = {root}
    SystemdCgroup = false
"#,
            runc = quoted(installed.runc.clone()),
            root = dir("runc"),
        )
    };
    format!(
        r#"version = 2
root = {root}
state = {state}
temp = {temp}
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = {socket}
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  disable_tcp_service = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = {plugins}
    conf_dir = {network}
[plugins."io.containerd.grpc.v1.cri".containerd]
  default_runtime_name = "runc"
{runc}{kata}"#,
        root = dir("root"),
        state = dir("state"),
        temp = dir("temp"),
        socket = quoted(names.socket()),
        pause = images::PAUSE,
        plugins = quoted(installed.plugins.clone()),
        network = dir("cni"),
        runc = runtime("runc"),
        // No virtual machine: the handler of that name, so that Kata's pods run at all.
        kata = runtime("kata"),
    )
}

/// A TOML string. JSON's escapes are among TOML's.
fn quoted(path: PathBuf) -> String {
    json!(path.display().to_string()).to_string()
}

/// Pods reach each other and this host, and nothing else.
fn conflist(names: &Names) -> String {
    json!({
        "cniVersion": "0.4.0",
        "name": names.bridge(),
        "plugins": [{
            "type": "bridge",
            "bridge": names.bridge(),
            "isGateway": true,
            "ipMasq": false,
            "ipam": {
                "type": "host-local",
                "dataDir": names.dir.join("addresses"),
                "ranges": [[{ "subnet": names.subnet() }]],
                "routes": [{ "dst": "0.0.0.0/0" }],
            },
        }],
    })
    .to_string()
}
