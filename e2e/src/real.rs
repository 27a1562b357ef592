//! A node that runs pods, on this machine and without a container engine: a kubelet, containerd and
//! runc beside the fake nodes of a control plane. The handler `kata` is runc here, too: such a node
//! shows what becomes of a pod, and **isolates nothing**. As root only. Everything that it makes is
//! removed with it, or by the next one if this process dies.

mod archive;
mod cgroups;
mod containerd;
pub mod images;
mod kubelet;
mod leavings;
pub mod packages;
mod slot;
mod sysctls;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use nix::unistd::Uid;

use crate::binaries::{Binaries, Program};
use crate::component::Component;
use crate::control_plane::ControlPlane;
use crate::eventually::{Seen, eventually};
use crate::unavailable::Unavailable;
use packages::Installed;
use slot::Slot;

/// A busy machine takes its time; an idle one 1.5 s.
const PATIENCE: Duration = Duration::from_secs(90);

const ROOT_HINT: &str = "run as root, or leave them out with KATABATCH_E2E_WITHOUT=real";

/// The nodes of this process that may still run.
static STARTED: Mutex<Vec<Weak<Held>>> = Mutex::new(Vec::new());

/// A running node. It is removed with all its pods when stopped or dropped.
pub struct RealNode {
    name: String,
    held: Arc<Held>,
}

/// Empty once it is stopped.
struct Held(Mutex<Option<Running>>);

struct Running {
    // Ended in this order: who starts things before what is started.
    kubelet: Option<Component>,
    containerd: Component,
    slot: Slot,
    /// Where the control plane's logs are.
    logs: PathBuf,
}

/// What a real node takes, as far as it can be told without starting one.
struct Parts {
    installed: Installed,
    kubelet: PathBuf,
}

impl Parts {
    async fn find() -> Result<Self> {
        if !Uid::effective().is_root() {
            return Err(Unavailable::new("real pods need root", ROOT_HINT).into());
        }
        let installed = Installed::find()?;
        let kubelet = Binaries::find(&[Program::Kubelet]).await?;
        Ok(Self { installed, kubelet: kubelet.path(Program::Kubelet)?.to_path_buf() })
    }
}

/// Whether this machine can have one.
///
/// # Errors
/// [`Unavailable`] with what it lacks.
pub async fn require() -> Result<()> {
    Parts::find().await.map(|_| ())
}

impl RealNode {
    /// Starts one beside those that the control plane has, and waits until it is Ready. What a run
    /// that died has left is removed first.
    ///
    /// # Errors
    /// [`Unavailable`] when the machine lacks something; else what failed, with the logs' ends.
    pub async fn start(plane: &ControlPlane) -> Result<Self> {
        plane.require_local("a real node")?;
        let parts = Parts::find().await?;
        let slot = tokio::task::spawn_blocking(Slot::claim)
            .await
            .context("the claim was interrupted")??;
        let names = slot.names().clone();
        names.cgroups()?.make()?;
        let ip = Command::new(&parts.installed.ip)
            .args(["address", "replace", &format!("{}/32", names.address()), "dev", "lo"])
            .output()
            .context("run ip")?;
        let said = String::from_utf8_lossy(&ip.stderr);
        ensure!(ip.status.success(), "{} can't be had on lo: {said}", names.address());
        let containerd = containerd::start(&parts.installed, &names).await?;
        let kubelet = kubelet::start(&parts.kubelet, plane, &names)?;
        let logs = plane.logs_dir()?.to_path_buf();
        let running = Running { kubelet: Some(kubelet), containerd, slot, logs };
        let held = Arc::new(Held(Mutex::new(Some(running))));
        STARTED.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&held));
        let node = Self { name: names.node(), held };
        node.until_ready(plane).await?;
        Ok(node)
    }

    /// The node's name, and the value of its label `kubernetes.io/hostname`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Kills the kubelet, as a machine that dies would: nobody says anything of the pods any more.
    ///
    /// # Errors
    /// When it outlives that, or was killed before.
    pub fn kill_kubelet(&self) -> Result<()> {
        let mut running = self.held.running();
        let running = running.as_mut().context("the node is stopped")?;
        running.kubelet.take().context("the kubelet was killed before")?.finish(Instant::now())
    }

    /// Ends its pods and removes all that it has made. Dropping does the same; calling twice does
    /// nothing.
    pub fn stop(&self) {
        self.held.stop();
    }

    async fn until_ready(&self, plane: &ControlPlane) -> Result<()> {
        let nodes: Api<Node> = Api::all(plane.admin_client());
        let what = format!("{} is Ready", self.name);
        let ready = eventually(&what, PATIENCE, || async {
            if let Some(ended) = self.ended() {
                return Ok(Seen::Done(Err(anyhow!("{ended} ended by itself"))));
            }
            let Some(node) = nodes.get_opt(&self.name).await? else {
                return Ok(Seen::NotYet("no such node".into()));
            };
            let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
            let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
            Ok(match ready {
                Some(ready) if ready.status == "True" => Seen::Done(Ok(())),
                other => Seen::NotYet(format!("{other:?}")),
            })
        });
        ready
            .await
            .and_then(|ended| ended)
            .map_err(|error| anyhow!("{error:#}\n{}", self.logs_end()))
    }

    fn ended(&self) -> Option<&'static str> {
        let mut running = self.held.running();
        let running = running.as_mut()?;
        let components = running.kubelet.iter_mut().chain([&mut running.containerd]);
        components.filter_map(|one| (!one.is_running()).then(|| one.name())).next()
    }

    fn logs_end(&self) -> String {
        let running = self.held.running();
        let Some(running) = running.as_ref() else { return String::new() };
        let components = running.kubelet.iter().chain([&running.containerd]);
        let tail = |one: &Component| format!("{}'s log:\n{}\n", one.name(), one.log_tail(20));
        components.map(tail).collect()
    }
}

impl Drop for RealNode {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Held {
    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) {
        let taken = self.running().take();
        let Some(mut running) = taken else { return };
        if let Some(mut kubelet) = running.kubelet.take() {
            let _ = kubelet.finish(Instant::now());
        }
        let _ = running.containerd.finish(Instant::now());
        running.keep_logs();
    }
}

impl Running {
    /// Where the control plane's are; the node's own folder goes.
    fn keep_logs(&self) {
        let names = self.slot.names();
        for program in ["kubelet", "containerd"] {
            let from = names.dir.join(format!("{program}.log"));
            let _ = fs::copy(from, self.logs.join(format!("{program}-{}.log", names.node())));
        }
    }
}

/// Stops all nodes of this process: for one that is told to end.
pub fn stop_all() {
    let started = std::mem::take(&mut *STARTED.lock().unwrap_or_else(PoisonError::into_inner));
    for held in started.iter().filter_map(Weak::upgrade) {
        held.stop();
    }
}
