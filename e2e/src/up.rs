//! `up`: a control plane for a person to play with, and with `--google` the emulators of what a
//! farm on Google Cloud has beside it, and a farm that uses them.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};

use crate::cluster_objects::FAKE;
use crate::farm::{Plan, write};
use crate::google::{Google, farm};
use crate::real::{self, RealNode, images};
use crate::{ControlPlane, Options, ndb};

/// The namespace that the farm's Jobs go to.
const NAMESPACE: &str = "katabatch";

/// What becomes of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Pods {
    /// No container runs: KWOK says what a kubelet would.
    #[default]
    Fake,
    /// They run on a node of this machine. As root.
    Real,
}

/// What to start.
#[derive(Debug, clap::Args)]
pub struct UpArgs {
    /// How many fake nodes.
    #[arg(long, default_value_t = 4)]
    nodes: usize,
    /// What becomes of pods. Real ones run under containerd and runc; so does the RuntimeClass
    /// `kata`, which then isolates nothing.
    #[arg(long, value_enum, default_value_t, conflicts_with = "no_controllers")]
    pods: Pods,
    /// Only the API server: Jobs can be created, and nothing becomes of them.
    #[arg(long)]
    no_controllers: bool,
    /// Where data and logs go, and stay [default: a temporary folder].
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Start Google's emulators of Pub/Sub and Datastore too, make the topics and subscriptions,
    /// and write a farm that uses them into this folder; `. FARM/env` then sets the variables.
    #[arg(long, value_name = "FARM")]
    google: Option<PathBuf>,
}

/// Starts it all, says how to use it, and keeps it until Ctrl-C or SIGTERM.
///
/// # Errors
/// When something does not start or can't be written.
pub async fn up(args: UpArgs) -> Result<()> {
    // Asked for first: a signal that comes while it starts must not leave processes.
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let stopped = async {
        tokio::select! {
            biased;
            _ = interrupt.recv() => (),
            _ = terminate.recv() => (),
        }
    };
    tokio::pin!(stopped);

    let since = Instant::now();
    let started = tokio::select! {
        biased;
        () = &mut stopped => return Ok(()),
        started = start(args) => started?,
    };
    let Up { plane, node, google } = started;
    let kubeconfig = plane.admin_kubeconfig();
    let mut out = io::stdout().lock();
    match &google {
        Some((_, folder)) => writeln!(out, ". {}", quoted(&folder.join("env")))?,
        None => writeln!(out, "export KUBECONFIG={}", quoted(&kubeconfig))?,
    }
    writeln!(out, "kubectl --namespace {NAMESPACE} get nodes,jobs")?;
    drop(out);
    if let Some(node) = &node {
        eprint!("{}", of_real_pods(node.name()));
    }
    eprintln!("ready after {:.1} s; Ctrl-C stops it", since.elapsed().as_secs_f64());
    stopped.await;
    drop((node, google));
    plane.stop();
    Ok(())
}

/// What has started. The node ends before its control plane.
struct Up {
    node: Option<RealNode>,
    google: Option<(Google, PathBuf)>,
    plane: ControlPlane,
}

async fn start(args: UpArgs) -> Result<Up> {
    let real = args.pods == Pods::Real;
    if real {
        // Before anything is started.
        real::require().await?;
    }
    let google = async {
        Ok(match &args.google {
            Some(_) => Some(Google::start().await?),
            None => None,
        })
    };
    let options = Options {
        controllers: !args.no_controllers,
        nodes: args.nodes,
        dir: args.dir.clone(),
        beside_real: real,
        ..Options::default()
    };
    let (plane, google) = tokio::try_join!(ControlPlane::start(options), google)?;
    plane.ensure_namespace(NAMESPACE).await?;
    let node = match real {
        true => Some(RealNode::start(&plane).await?),
        false => None,
    };
    let Some((google, folder)) = google.zip(args.google) else {
        return Ok(Up { node, google: None, plane });
    };
    let folder = std::path::absolute(&folder).context("find the farm's folder")?;
    let kubeconfig = plane.admin_kubeconfig();
    let lease = Duration::from_secs(60);
    let plan = Plan { scheduler: "google".into(), lease, ..Plan::default() };
    farm::prepare(&folder, NAMESPACE, &kubeconfig, &plan)?;
    write(&folder, "env", &variables(&google, &folder, &kubeconfig))?;
    Ok(Up { node, google: Some((google, folder)), plane })
}

fn of_real_pods(node: &str) -> String {
    format!(
        "pods run on the node {node}, on this machine. NO ISOLATION: the RuntimeClass kata is runc \
         here\nimages there: {}, {}; the fake nodes take what tolerates the taint {FAKE}\n",
        images::WORKER,
        images::WITHOUT_SHELL,
    )
}

/// What a shell is to know.
fn variables(google: &Google, farm: &Path, kubeconfig: &Path) -> String {
    let mut text = String::new();
    let mut export = |name: &str, value: String| text += &format!("export {name}={value}\n");
    export("KUBECONFIG", quoted(kubeconfig));
    export("KATABATCH_CONFIG", quoted(&farm.join("katabatch.yaml")));
    export("GOOGLE_CLOUD_PROJECT", ndb::PROJECT.to_owned());
    for (name, value) in google.environment() {
        export(name, value);
    }
    // To suspend it with SIGSTOP: killed, it would forget its topics and messages.
    if let Some(pid) = google.pubsub.pid() {
        export("PUBSUB_EMULATOR_PID", pid.to_string());
    }
    text
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}
