//! The command line: what there is to ask, and which function answers.
//!
//! stdout is data and nothing else; logs, progress and errors go to stderr, errors with a `hint:`
//! where there is something to do. Exit codes: 0 done; 1 failed; 2 the command line is wrong;
//! 3 partly done, the rest reported; 130 forced to stop by a second signal.

mod backend;
mod cancel;
mod check;
mod controls;
mod demo;
pub(crate) mod demo_worker;
mod flags;
mod output;
mod person;
mod queue;
mod queue_of;
mod render;
mod run;
mod status;
mod submit;
mod target;
mod tasks;
mod why;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use output::Exit;

/// Kata-isolated fuzzing batch scheduler.
#[derive(Debug, Parser)]
#[command(name = "katabatch", version, about, max_term_width = 100)]
struct Cli {
    /// The configuration file.
    #[arg(
        short,
        long,
        global = true,
        value_name = "FILE",
        default_value = "katabatch.yaml",
        env = "KATABATCH_CONFIG"
    )]
    config: PathBuf,
    /// The least that is logged: error, warn, info, debug or trace, or a filter such as
    /// debug,hyper=trace. A plain level is about katabatch; its libraries are heard from info on
    /// where the filter does not name them. KATABATCH_LOG says it too.
    #[arg(long, global = true, value_name = "LEVEL", default_value = "info")]
    log: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// See the whole thing work on this machine (or on a cluster), with tasks of its own.
    Demo(demo::DemoArgs),
    /// Schedule tasks from the configured queues until stopped.
    Run(run::RunArgs),
    /// Schedule one task, or a file of them, without a queue. Beside a running scheduler
    /// of the same namespace it waits for the Lease, a minute at most.
    Submit(submit::SubmitArgs),
    /// Print the Job that a task would get.
    Render(render::RenderArgs),
    /// Check configuration and cluster, and say what to mend. Changes nothing.
    Check(check::CheckArgs),
    /// Ask a running scheduler what it is doing, and whether it can create.
    Status(status::StatusArgs),
    /// Put tasks into a spool, look at them, and see to the quarantine.
    Queue(queue::QueueArgs),
    /// Say why a job type's tasks run or don't, and how the last ones ended.
    Why(why::WhyArgs),
    /// Look at the feature flags, and change them.
    Flags(flags::FlagsArgs),
    /// Let no more tasks of a project, a job type, a command or a backend start, until resumed.
    Pause(controls::PauseArgs),
    /// End a pause.
    Resume(controls::ResumeArgs),
    /// Give a backend no more tasks: a pause of that backend. What runs there goes on.
    Drain(controls::DrainArgs),
    /// Delete the unfinished Jobs of a project, a job type, a command or a backend.
    Cancel(cancel::CancelArgs),
    /// Say of a backend that it is lost for good, or found again.
    Backend(backend::BackendArgs),
    /// Look at pauses, lost backends and the audit log.
    Controls(controls::ControlsArgs),
    /// Print a shell's completions.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Runs one task of the local backend to its end.
    #[command(hide = true)]
    LocalSupervise {
        /// The task's directory.
        dir: PathBuf,
    },
    /// Does a demo task's work.
    #[command(hide = true)]
    DemoWorker,
}

/// Parses the command line, runs the command, and answers the exit code.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {
        // These two are processes of their own that must start before any thread does.
        Command::LocalSupervise { dir } => {
            return ExitCode::from(crate::backend::local::supervise(&dir));
        }
        Command::DemoWorker => return ExitCode::from(demo_worker::run()),
        Command::Completions { shell } => {
            let mut out = std::io::stdout().lock();
            clap_complete::generate(shell, &mut Cli::command(), "katabatch", &mut out);
            return Exit::Done.into();
        }
        _ => {}
    }
    crate::telemetry::start(&cli.log);
    // Two providers may be compiled in; without a choice the TLS client panics.
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        tracing::debug!("a TLS provider was installed already");
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.into()),
    };
    let ended = runtime.block_on(dispatch(cli));
    // A blocked read of a file must not keep the process.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    match ended {
        Ok(exit) => exit.into(),
        Err(error) => failed(&error),
    }
}

async fn dispatch(cli: Cli) -> anyhow::Result<Exit> {
    match cli.command {
        Command::Demo(args) => demo::run(args).await,
        Command::Run(args) => run::run(&cli.config, args).await,
        Command::Submit(args) => submit::run(&cli.config, args).await,
        Command::Render(args) => render::run(&cli.config, args).await,
        Command::Check(args) => check::run(&cli.config, args).await,
        Command::Status(args) => status::run(&cli.config, args).await,
        Command::Queue(args) => queue_of::run(&cli.config, args).await,
        Command::Why(args) => why::run(&cli.config, args).await,
        Command::Flags(args) => flags::run(&cli.config, args).await,
        Command::Pause(args) => controls::pause(&cli.config, args).await,
        Command::Resume(args) => controls::resume(&cli.config, args).await,
        Command::Drain(args) => controls::drain(&cli.config, args).await,
        Command::Cancel(args) => cancel::run(&cli.config, args).await,
        Command::Backend(args) => backend::run(&cli.config, args).await,
        Command::Controls(args) => controls::show(&cli.config, args).await,
        Command::Completions { .. } | Command::LocalSupervise { .. } | Command::DemoWorker => {
            Ok(Exit::Done)
        }
    }
}

/// Prints an error with its causes, credentials taken out, and answers the exit code.
fn failed(error: &anyhow::Error) -> ExitCode {
    let text = format!("{error:#}");
    let text = crate::domain::redact::redact(&text);
    // stderr is the last place left to tell; if it is gone too, the exit code tells.
    let _ = writeln!(std::io::stderr(), "error: {text}");
    Exit::Failed.into()
}
