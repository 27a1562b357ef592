//! Which queue `katabatch queue` works on: the spool or the queue named, or the configuration's only
//! one.

use std::path::Path;
use std::sync::Arc;

use anyhow::{anyhow, bail};

use super::output::Exit;
use super::queue::{self, QueueArgs};
use crate::clock::SystemClock;
use crate::config::Config;
use crate::config::queues::{QueueConfig, QueueSource};
use crate::queue::spool::Spool;
use crate::service;

/// Runs the command.
pub async fn run(config: &Path, args: QueueArgs) -> anyhow::Result<Exit> {
    if let Some(path) = args.spool.clone() {
        return Ok(on_spool(&path, &args).await);
    }
    let queue = the_queue(config, args.queue.as_deref())?;
    let version = queue.base_os_version;
    match queue.source {
        QueueSource::Spool { path } => Ok(on_spool(&path, &args).await),
        QueueSource::PubSub { names, endpoint } => {
            let farm = service::load(config)?.get().farm.clone();
            let (names, channel) =
                service::queues::reach(&names, endpoint.as_deref(), &farm).await?;
            let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
            let command = &args.command;
            let version = version.as_deref();
            Ok(queue::subscription::run(&names, version, &channel, command, &mut out, &mut err)
                .await)
        }
    }
}

async fn on_spool(path: &Path, args: &QueueArgs) -> Exit {
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    match Spool::open(path, "spool".into(), Arc::new(SystemClock)) {
        Ok(spool) => queue::run(&spool, &args.command, &mut out, &mut err).await,
        Err(error) => queue::failed(&error, &mut err),
    }
}

fn the_queue(config: &Path, name: Option<&str>) -> anyhow::Result<QueueConfig> {
    let mut queues = Config::load(config)?.queues;
    let names: Vec<String> = queues.iter().map(|queue| queue.name.to_string()).collect();
    let names = names.join(", ");
    if let Some(name) = name {
        queues.retain(|queue| queue.name.as_str() == name);
        let none = || anyhow!("no queue is called `{name}`\nhint: there are {names}");
        return queues.pop().ok_or_else(none);
    }
    match (queues.pop(), queues.is_empty()) {
        (Some(queue), true) => Ok(queue),
        _ => bail!("the configuration has several queues: {names}\nhint: name one with --queue"),
    }
}
