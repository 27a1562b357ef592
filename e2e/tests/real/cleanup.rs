//! What a run leaves behind: nothing.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use katabatch_e2e::Case;
use katabatch_e2e::eventually::{Seen, eventually};
use katabatch_e2e::real::{RealNode, images};
use kube::api::PostParams;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::SOON;
use crate::world::is_running;

/// `katabatch-e2e up --pods real`, with its output in files.
struct Up {
    child: Child,
    dir: TempDir,
}

impl Up {
    async fn start() -> Result<Self> {
        let dir = tempfile::tempdir().context("a folder for the output")?;
        let file = |name: &str| fs::File::create(dir.path().join(name)).context("a file");
        // Told to end when this process is killed: nobody else would end it.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", env!("CARGO_BIN_EXE_katabatch-e2e")])
            .args(["up", "--pods", "real", "--nodes", "1"])
            .stdin(Stdio::null())
            .stdout(file("stdout")?)
            .stderr(file("stderr")?)
            .kill_on_drop(true)
            .spawn()
            .context("start katabatch-e2e")?;
        let up = Self { child, dir };
        eventually("it is ready", SOON, || async {
            let said = up.said("stderr");
            Ok(Seen::when(said.contains("ready after"), || said))
        })
        .await?;
        Ok(up)
    }

    fn said(&self, file: &str) -> String {
        fs::read_to_string(self.dir.path().join(file)).unwrap_or_default()
    }

    /// The name of its node, from the sentence that says what it is not.
    fn node(&self) -> Result<String> {
        let said = self.said("stderr");
        ensure!(said.contains("NO ISOLATION: the RuntimeClass kata is runc here"), "{said}");
        let name = said.split("the node ").nth(1).and_then(|rest| rest.split(',').next());
        name.map(str::to_owned).with_context(|| format!("no node: {said}"))
    }

    /// Starts a pod that doesn't end, and waits until it runs.
    async fn run_a_pod(&self) -> Result<()> {
        let said = self.said("stdout");
        let path = said.split('\'').nth(1).with_context(|| format!("no kubeconfig: {said}"))?;
        let options = KubeConfigOptions::default();
        let config = Kubeconfig::read_from(path)?;
        let client = Client::try_from(Config::from_custom_kubeconfig(config, &options).await?)?;
        let pods: Api<Pod> = Api::namespaced(client, "katabatch");
        let pod = serde_json::from_value(json!({
            "metadata": { "name": "left-behind" },
            "spec": {
                "runtimeClassName": "kata",
                "containers": [{
                    "name": "c",
                    "image": images::WORKER,
                    "command": ["sleep", "3600"],
                    "volumeMounts": [{ "name": "shm", "mountPath": "/dev/shm" }],
                }],
                "volumes": [{ "name": "shm", "emptyDir": { "medium": "Memory" } }],
            },
        }))?;
        pods.create(&PostParams::default(), &pod).await.context("create the pod")?;
        eventually("the pod runs", SOON, || async {
            let pod = pods.get("left-behind").await?;
            Ok(Seen::when(is_running(&pod), || format!("{:?}", pod.status)))
        })
        .await
    }
}

/// What is there of a node.
fn traces(node: &str) -> Result<Vec<String>> {
    let number = node.strip_prefix("real-").context("the node's number")?;
    let dir = format!("/var/lib/katabatch-e2e/node-{number}");
    let mut found = Vec::new();
    let mut note = |what: &str, is: bool| {
        if is {
            found.push(what.to_owned());
        }
    };
    note("its folder", Path::new(&dir).exists());
    note("its bridge", Path::new(&format!("/sys/class/net/kb-e2e-{number}")).exists());
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    note("a mount", mounts.contains(&format!("{dir}/")));
    let addresses = fs::read_to_string("/proc/net/fib_trie")?;
    let address = format!("10.99.0.{number}");
    note("its address", addresses.split_whitespace().any(|word| word == address));
    for mount in mounts.lines().filter(|line| line.contains(" cgroup")) {
        let point = mount.split(' ').nth(1).unwrap_or_default();
        let group = Path::new(point).join(format!("katabatch-e2e-{number}"));
        note("a control group", group.exists());
    }
    for process in fs::read_dir("/proc")?.flatten() {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let pid = process.file_name();
        note(&format!("process {pid:?}: {line}"), line.contains(&format!("{dir}/")));
    }
    Ok(found)
}

/// The second run ends by Ctrl-C, and cleans up after itself.
pub async fn a_killed_run_is_cleaned_up_by_the_next(_: Case, _: Arc<RealNode>) -> Result<()> {
    let mut killed = Up::start().await?;
    killed.run_a_pod().await?;
    let node = killed.node()?;
    killed.child.kill().await.context("kill it")?;
    let left = traces(&node)?;
    ensure!(left.len() > 5, "the test sees too little of what is there: {left:?}");

    let mut next = Up::start().await?;
    next.run_a_pod().await?;
    let new = next.node()?;
    let still = traces(&node)?;
    // Its number may be the new one's, or another's who cleaned up first.
    let same: Vec<_> =
        left.iter().filter(|trace| trace.starts_with("process") && still.contains(trace)).collect();
    ensure!(same.is_empty(), "of the killed run: {same:?}");

    let pid = i32::try_from(next.child.id().context("it runs")?)?;
    kill(Pid::from_raw(pid), Signal::SIGINT).context("send SIGINT")?;
    let status = timeout(SOON, next.child.wait()).await.context("it doesn't end")??;
    ensure!(status.success(), "{status}: {}", next.said("stderr"));
    let left = traces(&new)?;
    ensure!(left.is_empty(), "of {new}: {left:?}; {}", next.said("stderr"));
    Ok(())
}
