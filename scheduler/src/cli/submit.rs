//! `katabatch submit`: schedules tasks at once, without a configured queue.
//!
//! The tasks go through the same pipeline as queued ones, from a queue in memory: what is not
//! scheduled when it ends is reported, and is the caller's to keep.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use serde::Serialize;

use super::output::{Exit, Format, Row, after_printing, print_rows};
use super::run::stop_on_signals;
use super::tasks::TaskArgs;
use crate::clock::{Clock, SystemClock};
use crate::domain::outcome::Placed;
use crate::domain::task::id_of;
use crate::pipeline::tally::{Decision, Observer, Verdict};
use crate::queue::memory::MemoryQueue;
use crate::queue::spool::lines::line::parse;
use crate::service::{Options, Service, load};

/// What `katabatch submit` takes.
#[derive(Debug, clap::Args)]
pub struct SubmitArgs {
    #[command(flatten)]
    task: TaskArgs,
    /// A file of tasks, one JSON object a line, as for `queue put`. `-` reads stdin.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["command", "job", "url", "id"])]
    file: Option<PathBuf>,
    /// How to print what became of each task.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// What became of one task.
#[derive(Debug, Clone, Serialize)]
struct Line {
    id: String,
    command: Option<String>,
    job_type: Option<String>,
    outcome: &'static str,
    job: Option<String>,
    backend: Option<String>,
    reason: Option<String>,
    detail: Option<String>,
}

impl Row for Line {
    const HEADINGS: &'static [&'static str] =
        &["ID", "COMMAND", "JOB TYPE", "OUTCOME", "JOB", "BACKEND", "REASON", "DETAIL"];

    fn cells(&self) -> Vec<String> {
        let cell = |value: &Option<String>| value.clone().unwrap_or_default();
        vec![
            self.id.clone(),
            cell(&self.command),
            cell(&self.job_type),
            self.outcome.to_owned(),
            cell(&self.job),
            cell(&self.backend),
            cell(&self.reason),
            cell(&self.detail),
        ]
    }
}

/// Keeps the last word on each message.
#[derive(Default)]
struct Results(Mutex<BTreeMap<String, Line>>);

impl Observer for Results {
    fn decided(&self, decision: &Decision) {
        let (outcome, reason, detail) = match &decision.verdict {
            Verdict::Scheduled(Placed::Created) => ("scheduled", Some("created"), None),
            Verdict::Scheduled(Placed::AlreadyThere) => ("scheduled", Some("already_there"), None),
            Verdict::Scheduled(Placed::Done) => ("scheduled", Some("done"), None),
            Verdict::Held(kind, detail) => ("deferred", Some(kind.label()), Some(detail.clone())),
            Verdict::Rejected(kind, detail) => {
                ("rejected", Some(kind.label()), Some(detail.clone()))
            }
            Verdict::NotOurs => ("rejected", Some("another_base_os_version"), None),
            Verdict::Acked | Verdict::AckLost | Verdict::Failed | Verdict::Released => return,
        };
        let line = Line {
            id: decision.message_id.clone(),
            command: decision.key.as_ref().map(|key| key.command.to_string()),
            job_type: decision.key.as_ref().map(|key| key.job_type.to_string()),
            outcome,
            job: decision.job.as_ref().map(ToString::to_string),
            backend: decision.backend.as_ref().map(ToString::to_string),
            reason: reason.map(str::to_owned),
            detail,
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(line.id.clone(), line);
    }
}

/// Runs the command: 0 when every task is scheduled, 3 when some are not.
pub async fn run(config: &Path, args: SubmitArgs) -> anyhow::Result<Exit> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let queue = Arc::new(MemoryQueue::new("submit".into(), clock));
    let mut ids = Vec::new();
    let mut bad_lines = false;
    match &args.file {
        None => {
            let (id, attributes) = args.task.message()?;
            queue.put(&id, attributes);
            ids.push(id);
        }
        Some(file) => bad_lines = read_lines(file, &queue, &mut ids)?,
    }
    let results = Arc::new(Results::default());
    let options = Options {
        once: true,
        queue: Some(queue),
        observer: Some(results.clone()),
        ..Options::default()
    };
    let service = Service::build(load(config)?, options).await?;
    service.run(stop_on_signals()?).await?;

    let mut found = std::mem::take(&mut *results.0.lock().unwrap_or_else(PoisonError::into_inner));
    let lines: Vec<Line> = ids
        .into_iter()
        .map(|id| {
            found.remove(&id).unwrap_or(Line {
                id,
                command: None,
                job_type: None,
                outcome: "deferred",
                job: None,
                backend: None,
                reason: Some("not_reached".to_owned()),
                detail: None,
            })
        })
        .collect();
    let all = !bad_lines && lines.iter().all(|line| line.outcome == "scheduled");
    let (mut out, mut err) = (std::io::stdout().lock(), std::io::stderr().lock());
    let printed = print_rows(args.output, &lines, "tasks", &mut out, &mut err);
    Ok(after_printing(printed, if all { Exit::Done } else { Exit::Partly }, &mut err))
}

/// Puts every line's task into the queue; says which lines are bad, and whether there were any.
fn read_lines(file: &Path, queue: &MemoryQueue, ids: &mut Vec<String>) -> anyhow::Result<bool> {
    let reader: Box<dyn BufRead> = if file == Path::new("-") {
        Box::new(BufReader::new(std::io::stdin()))
    } else {
        let opened = std::fs::File::open(file).with_context(|| file.display().to_string())?;
        Box::new(BufReader::new(opened))
    };
    let (mut bad, mut seen) = (false, BTreeSet::new());
    for (at, line) in reader.lines().enumerate() {
        let line = line.with_context(|| format!("{}:{}", file.display(), at + 1))?;
        if line.trim().is_empty() {
            continue;
        }
        match parse(&line) {
            Ok(message) => {
                let get = |name| message.attributes.get(name).map_or("", String::as_str);
                let id = id_of(get("command"), get("job"), get("argument"));
                let id = message.id.clone().unwrap_or(id);
                if seen.insert(id.clone()) {
                    queue.put(&id, message.attributes);
                    ids.push(id);
                }
            }
            Err(error) => {
                bad = true;
                tracing::error!("{}:{}: {error}", file.display(), at + 1);
            }
        }
    }
    Ok(bad)
}
