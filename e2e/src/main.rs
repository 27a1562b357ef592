//! The command line of the harness: a control plane for a person to play with, and
//! the programs it is made of. What a command does lies in the library.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use katabatch_e2e::bench::contender::{self, ContenderArgs};
use katabatch_e2e::bench::{self, CreateArgs, IntakeArgs};
use katabatch_e2e::binaries::{Binaries, Program};
use katabatch_e2e::faults::{self, FaultsArgs};
use katabatch_e2e::gcs::FakeGcs;
use katabatch_e2e::process::as_katabatch;
use katabatch_e2e::real::packages;
use katabatch_e2e::up::{self, Pods, UpArgs};

/// A real Kubernetes control plane without a container engine.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a control plane (and the emulators of Google Cloud) and keep it until Ctrl-C.
    Up(UpArgs),
    /// Measure, against a control plane of its own.
    #[command(subcommand)]
    Bench(Bench),
    /// Break everything that can break while tasks become Jobs, and judge what came of them.
    Faults(FaultsArgs),
    /// One side of `bench create`, in a process of its own.
    #[command(hide = true)]
    BenchPoster(ContenderArgs),
    /// The other side.
    #[command(hide = true)]
    BenchKatabatch(ContenderArgs),
    /// Find the programs of the control plane and the fake of Cloud Storage, build those that
    /// are missing, and print where they are.
    Binaries {
        /// Also the kubelet; and as root, with apt, install what a node that runs pods takes.
        #[arg(long, value_enum, default_value_t)]
        pods: Pods,
    },
}

#[derive(Subcommand)]
enum Bench {
    /// How fast Jobs are made, against a raw poster of the same bodies.
    Create(CreateArgs),
    /// How soon a message becomes a Job and how fast many do: Pub/Sub's next to the spool's.
    Intake(IntakeArgs),
}

fn main() -> ExitCode {
    if let Some(code) = as_katabatch() {
        return code;
    }
    let arguments = Arguments::parse();
    katabatch::telemetry::start("katabatch=warn");
    // The scheduler's client and the harness' share one provider.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let outcome = tokio::runtime::Runtime::new().context("start the runtime").and_then(|runtime| {
        runtime.block_on(async {
            match arguments.command {
                Command::Up(up) => up::up(up).await,
                Command::Bench(Bench::Create(args)) => bench::create(&args).await,
                Command::Bench(Bench::Intake(args)) => bench::intake(&args).await,
                Command::Faults(args) => faults::faults(&args).await,
                Command::BenchPoster(args) => say(&contender::poster(&args).await?),
                Command::BenchKatabatch(args) => say(&contender::katabatch(&args).await?),
                Command::Binaries { pods } => binaries(pods).await,
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

async fn binaries(pods: Pods) -> Result<()> {
    let mut programs = Program::ALL.to_vec();
    if pods == Pods::Real {
        tokio::task::spawn_blocking(packages::install).await.context("it was interrupted")??;
        programs.push(Program::Kubelet);
    }
    let found = Binaries::find(&programs).await?;
    let storage = FakeGcs::program().await?;
    let mut out = io::stdout().lock();
    for (_, path) in found.iter() {
        writeln!(out, "{}", path.display())?;
    }
    writeln!(out, "{}", storage.display())?;
    Ok(())
}
