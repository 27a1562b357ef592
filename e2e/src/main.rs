//! The command line of the harness: a control plane for a person to play with, and
//! the programs it is made of. What a command does lies in the library.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use katabatch_e2e::bench::contender::{self, ContenderArgs};
use katabatch_e2e::bench::{self, CreateArgs};
use katabatch_e2e::binaries::{Binaries, Program};
use katabatch_e2e::gcs::FakeGcs;
use katabatch_e2e::{ControlPlane, Options};
use tokio::signal::unix::{SignalKind, signal};

/// A real Kubernetes control plane without a container engine.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a control plane and keep it until Ctrl-C.
    Up(Up),
    /// Measure, against a control plane of its own.
    #[command(subcommand)]
    Bench(Bench),
    /// One side of `bench create`, in a process of its own.
    #[command(hide = true)]
    BenchPoster(ContenderArgs),
    /// The other side.
    #[command(hide = true)]
    BenchKatabatch(ContenderArgs),
    /// Find the programs of the control plane and the fake of Cloud Storage, build those that
    /// are missing, and print where they are.
    Binaries,
}

#[derive(Subcommand)]
enum Bench {
    /// How fast Jobs are made, against a raw poster of the same bodies.
    Create(CreateArgs),
}

#[derive(Args)]
struct Up {
    /// How many fake nodes.
    #[arg(long, default_value_t = 4)]
    nodes: usize,
    /// Only the API server: Jobs can be created, and nothing becomes of them.
    #[arg(long)]
    no_controllers: bool,
    /// Where data and logs go, and stay [default: a temporary folder].
    #[arg(long)]
    dir: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    katabatch::telemetry::start("katabatch=warn");
    // The scheduler's client and the harness' share one provider.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let outcome = tokio::runtime::Runtime::new().context("start the runtime").and_then(|runtime| {
        runtime.block_on(async {
            match arguments.command {
                Command::Up(up) => self::up(up).await,
                Command::Bench(Bench::Create(args)) => bench::create(&args).await,
                Command::BenchPoster(args) => say(&contender::poster(&args).await?),
                Command::BenchKatabatch(args) => say(&contender::katabatch(&args).await?),
                Command::Binaries => binaries().await,
            }
        })
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What a contender tells the one that started it.
fn say(ran: &contender::Ran) -> Result<()> {
    Ok(serde_json::to_writer(io::stdout(), ran)?)
}

async fn up(up: Up) -> Result<()> {
    // Asked for first: a signal that comes while it starts must not leave processes.
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let stopped = async {
        tokio::select! {
            _ = interrupt.recv() => (),
            _ = terminate.recv() => (),
        }
    };
    tokio::pin!(stopped);

    let since = Instant::now();
    let started = async {
        let plane = ControlPlane::start(Options {
            controllers: !up.no_controllers,
            nodes: up.nodes,
            dir: up.dir,
            ..Options::default()
        })
        .await?;
        plane.ensure_namespace("katabatch").await?;
        anyhow::Ok(plane)
    };
    let plane = tokio::select! {
        started = started => started?,
        () = &mut stopped => return Ok(()),
    };
    writeln!(
        io::stdout(),
        "export KUBECONFIG={}\nkubectl --namespace katabatch get nodes,jobs",
        plane.admin_kubeconfig().display()
    )?;
    eprintln!("ready after {:.1} s; Ctrl-C stops it", since.elapsed().as_secs_f64());
    stopped.await;
    plane.stop();
    Ok(())
}

async fn binaries() -> Result<()> {
    let found = Binaries::find(&Program::ALL).await?;
    let storage = FakeGcs::program().await?;
    let mut out = io::stdout().lock();
    for (_, path) in found.iter() {
        writeln!(out, "{}", path.display())?;
    }
    writeln!(out, "{}", storage.display())?;
    Ok(())
}
