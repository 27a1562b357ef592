//! Which spool `katabatch queue` works on: the one named, or the configuration's only one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::bail;

use super::output::Exit;
use super::queue::{self, QueueArgs};
use crate::clock::SystemClock;
use crate::config::Config;
use crate::config::queues::QueueSource;
use crate::queue::spool::Spool;

/// Runs the command.
pub async fn run(config: &Path, args: QueueArgs) -> anyhow::Result<Exit> {
    let path = match args.spool {
        Some(path) => path,
        None => only_spool(config)?,
    };
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    Ok(match Spool::open(&path, "spool".into(), Arc::new(SystemClock)) {
        Ok(spool) => queue::run(&spool, &args.command, &mut out, &mut err).await,
        Err(error) => queue::failed(&error, &mut err),
    })
}

fn only_spool(config: &Path) -> anyhow::Result<PathBuf> {
    let config = Config::load(config)?;
    let mut spools = config.queues.iter().map(|queue| {
        let QueueSource::Spool { path } = &queue.source;
        path
    });
    match (spools.next(), spools.next()) {
        (Some(path), None) => Ok(path.clone()),
        _ => bail!("the configuration has several spools\nhint: name one with --spool"),
    }
}
