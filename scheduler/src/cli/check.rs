//! `katabatch check`: looks at everything that a run depends on, and says what to mend.
//!
//! It changes nothing. Each check is one row with pass, warn or fail; the exit code is 1 when one
//! failed. What is looked at: [`files`], [`cluster`], and the queues here.

mod cluster;
mod files;

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use super::output::{Exit, Format, Row, after_printing, print_rows};
use crate::clock::SystemClock;
use crate::config::backends::BackendKind;
use crate::config::queues::{QueueConfig, QueueSource};
use crate::domain::pubsub::Names;
use crate::gcp::channel::Channel;
use crate::queue::QueueError;
use crate::queue::pubsub::wire::{Grpc, Wire};
use crate::queue::spool::Spool;
use crate::service::{self, Loaded, load};

/// What `katabatch check` takes.
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// Look at files only, at no cluster.
    #[arg(long)]
    offline: bool,
}

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Pass,
    Warn,
    Fail,
}

/// One check.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Finding {
    result: Verdict,
    what: String,
    detail: String,
    hint: String,
}

impl Row for Finding {
    const HEADINGS: &'static [&'static str] = &["RESULT", "WHAT", "DETAIL", "HINT"];

    fn cells(&self) -> Vec<String> {
        let result = match self.result {
            Verdict::Pass => "pass",
            Verdict::Warn => "warn",
            Verdict::Fail => "FAIL",
        };
        vec![result.to_owned(), self.what.clone(), self.detail.clone(), self.hint.clone()]
    }
}

/// The findings so far.
#[derive(Debug, Default)]
pub(super) struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, result: Verdict, what: &str, detail: impl ToString, hint: &str) {
        let detail = crate::domain::redact::redact(&detail.to_string()).into_owned();
        self.0.push(Finding { result, what: what.to_owned(), detail, hint: hint.to_owned() });
    }

    pub(super) fn pass(&mut self, what: &str, detail: impl ToString) {
        self.add(Verdict::Pass, what, detail, "");
    }

    pub(super) fn warn(&mut self, what: &str, detail: impl ToString, hint: &str) {
        self.add(Verdict::Warn, what, detail, hint);
    }

    pub(super) fn fail(&mut self, what: &str, detail: impl ToString, hint: &str) {
        self.add(Verdict::Fail, what, detail, hint);
    }

    fn exit(&self) -> Exit {
        let failed = self.0.iter().any(|finding| finding.result == Verdict::Fail);
        if failed { Exit::Failed } else { Exit::Done }
    }
}

/// Runs the command.
pub async fn run(config: &Path, args: CheckArgs) -> anyhow::Result<Exit> {
    let mut findings = Findings::default();
    match load(config) {
        Err(problems) => {
            for problem in problems.to_string().lines() {
                findings.fail(
                    "configuration",
                    problem,
                    "mend the line; `run` does not start before",
                );
            }
        }
        Ok(watched) => {
            let loaded = watched.get();
            findings.pass("configuration", config.display());
            let workloads = files::check(&loaded, &mut findings).await;
            queues(&loaded, args.offline, &mut findings).await;
            for backend in &loaded.config.backends {
                if matches!(backend.kind, BackendKind::Kubernetes { .. }) && !args.offline {
                    cluster::check(&loaded, backend, &workloads, &mut findings).await;
                }
            }
        }
    }
    let exit = findings.exit();
    let (mut out, mut err) = (std::io::stdout().lock(), std::io::stderr().lock());
    let printed = print_rows(args.output, &findings.0, "findings", &mut out, &mut err);
    Ok(after_printing(printed, exit, &mut err))
}

async fn queues(loaded: &Loaded, offline: bool, findings: &mut Findings) {
    for queue in &loaded.config.queues {
        let what = format!("queue {}", queue.name);
        match &queue.source {
            QueueSource::Spool { path } => spool(&what, path, queue, findings),
            QueueSource::PubSub { names, endpoint } => {
                let farm = &loaded.farm;
                match service::queues::reach(names, endpoint.as_deref(), farm).await {
                    Ok((names, _)) if offline => findings.pass(&what, names.subscription),
                    Ok((names, channel)) => subscription(&what, &names, &channel, findings).await,
                    Err(error) => findings.fail(&what, error, "see the queue's `pubsub` section"),
                }
            }
        }
    }
}

fn spool(what: &str, path: &Path, queue: &QueueConfig, findings: &mut Findings) {
    if !path.exists() {
        let hint = "`katabatch queue put` and `run` make it";
        findings.warn(what, format!("{} is not there yet", path.display()), hint);
        return;
    }
    match Spool::open(path, queue.name.clone(), Arc::new(SystemClock)) {
        Ok(_) => findings.pass(what, path.display()),
        Err(error) => findings.fail(what, error, "see the path's owner and rights"),
    }
}

/// Whether the subscription is there, and on the topic that the configuration says.
async fn subscription(what: &str, names: &Names, channel: &Channel, findings: &mut Findings) {
    let subscription = &names.subscription;
    match Grpc::new(channel, subscription.clone()).topic().await {
        Ok(topic) if names.topic.as_ref().is_some_and(|said| *said != topic) => {
            let problem = format!("{subscription} is on {topic}, not on the configured topic");
            findings.fail(what, problem, "name that topic, or leave `topic` out");
        }
        Ok(topic) => findings.pass(what, format!("{subscription} on {topic}")),
        Err(fault) => {
            let error = QueueError::from(fault);
            findings.fail(what, error, "see the project, the subscription and its permissions");
        }
    }
}
