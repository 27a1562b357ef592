//! `katabatch backend`: ends the waiting for a cluster that will not come back, and lets it in again
//! when it did.

use std::path::Path;

use anyhow::{anyhow, bail};

use super::controls::{Opened, no_such_backend};
use super::output::Exit;
use super::target::{WhyArgs, confirm};
use crate::controls::lost;
use crate::domain::name::BackendName;
use crate::service::{Loaded, load};

/// What `katabatch backend` takes.
#[derive(Debug, clap::Args)]
pub struct BackendArgs {
    #[command(subcommand)]
    command: BackendCommand,
}

#[derive(Debug, clap::Subcommand)]
enum BackendCommand {
    /// Wait no more for a backend: it gets nothing, its tasks go elsewhere, and tasks that may be on
    /// it count as not there. When it answers again, all that runs there is deleted.
    DeclareLost {
        /// The backend. It may have left the configuration.
        name: String,
        #[command(flatten)]
        why: WhyArgs,
        /// Don't ask.
        #[arg(long)]
        yes: bool,
    },
    /// Let a backend that was declared lost take tasks again, once nothing of before runs there.
    DeclareFound {
        /// The backend.
        name: String,
        /// Though the scheduler has not yet seen that nothing of before runs there: tasks may then
        /// run twice.
        #[arg(long)]
        force: bool,
    },
}

/// Runs the command.
pub async fn run(config: &Path, args: BackendArgs) -> anyhow::Result<Exit> {
    let loaded = load(config)?.get();
    match args.command {
        BackendCommand::DeclareLost { name, why, yes } => {
            declare_lost(&loaded, name.into(), &why, yes).await
        }
        BackendCommand::DeclareFound { name, force } => {
            declare_found(&loaded, name.into(), force).await
        }
    }
}

async fn declare_lost(
    loaded: &Loaded,
    name: BackendName,
    why: &WhyArgs,
    yes: bool,
) -> anyhow::Result<Exit> {
    if loaded.config.home.as_ref() == Some(&name) {
        bail!(
            "backend {name} is home: the leader's Lease and this very record would be there\n\
             hint: set `home` to another kubernetes backend, restart, then declare it lost"
        );
    }
    let question = format!(
        "Tasks that run on backend {name} will be made again elsewhere if their messages come again, \
         and all that runs there is deleted when it answers again. Declare it lost?"
    );
    confirm(yes, &question, &mut std::io::stderr())?;
    let opened = Opened::of(loaded).await?;
    let mark = why.mark(None);
    let changes = lost(&name, Some(&mark)).map_err(|error| anyhow!(error))?;
    let what = format!("declare backend {name} lost");
    opened.change(changes, what, mark.to_string()).await?;
    tracing::info!("backend {name} is declared lost {mark}");
    Ok(Exit::Done)
}

async fn declare_found(loaded: &Loaded, name: BackendName, force: bool) -> anyhow::Result<Exit> {
    let (config, opened) = (&loaded.config, Opened::of(loaded).await?);
    let controls = opened.read().await?;
    let Some(mark) = controls.lost(&name) else {
        if !config.backends.iter().any(|backend| backend.name == name) {
            return Err(no_such_backend(config, name.as_str()));
        }
        bail!("backend {name} is not declared lost");
    };
    let configured = config.backends.iter().any(|backend| backend.name == name);
    if configured && !force && !controls.cleared.contains_key(name.as_str()) {
        bail!(
            "the scheduler has not seen yet that nothing of before runs on backend {name}\n\
             hint: wait until `katabatch controls list` says `lost, cleared`: the scheduler must \
             run and reach it"
        );
    }
    let changes = lost(&name, None).map_err(|error| anyhow!(error))?;
    let what = format!("declare backend {name} found");
    opened.change(changes, what, format!("was declared lost {mark}")).await?;
    tracing::info!("backend {name} is declared found");
    Ok(Exit::Done)
}
