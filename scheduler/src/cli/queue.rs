//! `katabatch queue`: put tasks into a spool, look at them, and see to the quarantine.
//!
//! Each function takes an open spool and where to write. Which spool, and whose stdout, is the
//! caller's business. Of a Pub/Sub queue only the quarantine is seen to, by [`subscription`].

mod put;
mod quarantine;
mod show;
pub mod subscription;

use std::io::Write;
use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};

use super::output::{Exit, Format, print_error};
use crate::queue::QueueError;
use crate::queue::spool::Spool;
use crate::queue::spool::record::Selection;

/// Put tasks into the spool, list them, and see to the quarantine.
#[derive(Debug, Clone, clap::Args)]
pub struct QueueArgs {
    /// The spool's file; without it, the configuration's only spool.
    #[arg(long, value_name = "PATH", global = true)]
    pub spool: Option<PathBuf>,
    /// The configured queue of this name; without it, the configuration's only one.
    #[arg(long, value_name = "NAME", global = true, conflicts_with = "spool")]
    pub queue: Option<String>,
    /// What to do.
    #[command(subcommand)]
    pub command: QueueCommand,
}

/// What `katabatch queue` can do.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum QueueCommand {
    /// Put tasks from JSON lines into the spool.
    Put(PutArgs),
    /// List the tasks in the order in which they will be leased.
    List(ListArgs),
    /// List rejected tasks, or put them back.
    #[command(subcommand)]
    Quarantine(QuarantineCommand),
}

/// What `katabatch queue put` takes.
#[derive(Debug, Clone, clap::Args)]
pub struct PutArgs {
    /// A file with one JSON object a line: {"command":"fuzz","job":"…","argument":"https://…"}.
    /// `id` makes a put repeatable; `attempts`, `not_before` and `timeout` are optional; other
    /// keys become attributes. `-` reads stdin.
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
}

/// What `katabatch queue list` takes.
#[derive(Debug, Clone, clap::Args)]
pub struct ListArgs {
    /// The most tasks to list; 0 lists all.
    #[arg(short = 'n', long, default_value_t = 50, value_name = "N")]
    pub limit: usize,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
    /// Show input URLs whole, signatures included: they are credentials.
    #[arg(long)]
    pub reveal: bool,
}

/// What can be done with the quarantine.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum QuarantineCommand {
    /// List rejected tasks, the latest first.
    List {
        /// Which.
        #[command(flatten)]
        select: SelectArgs,
        /// How.
        #[command(flatten)]
        list: ListArgs,
    },
    /// Put rejected tasks back into the queue.
    Retry {
        /// Which.
        #[command(flatten)]
        select: SelectArgs,
        /// Put all of them back.
        #[arg(long, conflicts_with_all = ["reason", "since", "until"])]
        all: bool,
    },
}

/// Which records of the quarantine.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct SelectArgs {
    /// Those rejected for this reason, such as `bad_url`.
    #[arg(long, value_name = "KIND", value_parser = reasons())]
    pub reason: Option<String>,
    /// Those rejected at this time or later: 2026-03-01T00:00:00Z, or 2h for two hours ago.
    #[arg(long, value_name = "TIME")]
    pub since: Option<When>,
    /// Those rejected before this time.
    #[arg(long, value_name = "TIME")]
    pub until: Option<When>,
}

fn reasons() -> clap::builder::PossibleValuesParser {
    crate::domain::outcome::RejectKind::ALL
        .iter()
        .map(|kind| kind.label())
        .collect::<Vec<_>>()
        .into()
}

/// A time, as a date or as how long ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// That date.
    At(Timestamp),
    /// So long before now.
    Ago(SignedDuration),
}

impl std::str::FromStr for When {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let ago = || text.parse().ok().filter(|ago: &SignedDuration| !ago.is_negative());
        text.parse().map(Self::At).ok().or_else(|| ago().map(Self::Ago)).ok_or(
            "must be a time with its zone, such as 2026-03-01T00:00:00Z, or how long ago, such \
             as 2h or 30m",
        )
    }
}

impl When {
    fn time(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::Ago(ago) => now.checked_sub(ago).unwrap_or(Timestamp::MIN),
        }
    }
}

impl SelectArgs {
    fn selection(&self, now: Timestamp) -> Selection {
        Selection {
            reason: self.reason.clone(),
            since: self.since.map(|when| when.time(now)),
            until: self.until.map(|when| when.time(now)),
        }
    }
}

/// Runs one of the commands.
pub async fn run(
    spool: &Spool,
    command: &QueueCommand,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Exit {
    match command {
        QueueCommand::Put(args) => put::put(spool, args, err).await,
        QueueCommand::List(args) => show::list(spool, args, out, err).await,
        QueueCommand::Quarantine(QuarantineCommand::List { select, list }) => {
            quarantine::list(spool, select, list, out, err).await
        }
        QueueCommand::Quarantine(QuarantineCommand::Retry { select, all }) => {
            quarantine::retry(spool, select, *all, err).await
        }
    }
}

/// Tells of an error of the spool, and what to do about it.
pub fn failed(error: &QueueError, err: &mut dyn Write) -> Exit {
    let hint = match error {
        QueueError::Unusable(_) => {
            "if the file is not a spool, name another with --spool; if it is damaged, stop what \
             uses it, move it and its -wal and -shm files away together, and put the tasks again"
        }
        QueueError::Unavailable(_) => "nothing is lost; try again",
        QueueError::LeaseLost => "the message is delivered again by itself",
    };
    // stderr is the last place left to tell; if it is gone too, the exit code tells.
    let _ = print_error(err, error, Some(hint));
    Exit::Failed
}

#[cfg(test)]
mod tests;
