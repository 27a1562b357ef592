//! `katabatch check`: looks at everything that a run depends on, and says what to mend.
//!
//! It changes nothing. Each look is a row with pass, warn, fail or not_checked; the exit code is
//! the worst one's: 1 where anything failed, else 0. What is made of what was seen is
//! [`crate::check`]'s; who looks is here, one file for each part: [`catalog`] and flags,
//! [`templates`], [`batch`], [`cluster`] with its [`nodes`] and the accounts' [`identities`], [`queues`] with
//! [`subscriptions`], and Cloud [`storage`].

mod batch;
mod catalog;
mod cluster;
mod identities;
mod looks;
mod nodes;
mod queues;
mod storage;
mod subscriptions;
mod templates;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use futures::FutureExt;

use super::output::{Exit, Format, Row, after_printing, print_rows};
use crate::backend::local::Cgroups;
use crate::check::findings::{Finding, Findings, Verdict};
use crate::config::backends::BackendKind;
use crate::service::{Loaded, load};
use looks::Looks;

/// What `katabatch check` takes.
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// Look at files only: no cluster, no Pub/Sub, no Datastore, no Cloud Storage.
    #[arg(long)]
    offline: bool,
}

impl Row for Finding {
    const HEADINGS: &'static [&'static str] = &["VERDICT", "AREA", "SUBJECT", "DETAIL", "HINT"];

    fn cells(&self) -> Vec<String> {
        // Failures are to catch the eye among many rows.
        let verdict = match self.verdict {
            Verdict::Fail => "FAIL",
            other => other.word(),
        };
        vec![
            verdict.to_owned(),
            self.area.to_owned(),
            self.subject.clone(),
            self.detail.clone(),
            self.hint.clone(),
        ]
    }
}

/// Runs the command.
pub async fn run(config: &Path, args: CheckArgs) -> anyhow::Result<Exit> {
    let looks = Looks::new();
    let findings = everything(config, args.offline, &looks).await;
    looks.done();
    let exit = if findings.worst() == Verdict::Fail { Exit::Failed } else { Exit::Done };
    let (mut out, mut err) = (std::io::stdout().lock(), std::io::stderr().lock());
    let printed = print_rows(args.output, findings.all(), "findings", &mut out, &mut err);
    let count = |verdict| findings.count(verdict);
    let told = writeln!(
        err,
        "{} pass, {} warn, {} fail, {} not checked",
        count(Verdict::Pass),
        count(Verdict::Warn),
        count(Verdict::Fail),
        count(Verdict::NotChecked)
    );
    Ok(after_printing(printed.and(told), exit, &mut err))
}

async fn everything(config: &Path, offline: bool, looks: &Looks) -> Findings {
    let mut findings = Findings::about("configuration");
    let file = config.display().to_string();
    let loaded = match load(config) {
        Ok(watched) => watched.get(),
        Err(problems) => {
            for problem in problems.to_string().lines() {
                findings.fail(&file, problem, "mend the line; `run` does not start before");
            }
            findings.not_checked("all else", "it needs the configuration", "");
            return findings;
        }
    };
    findings.pass(&file, "can be used");
    findings.extend(batch_yaml(&loaded));
    findings.extend(local_backends(&loaded));
    // What the job types run as is wanted by several looks, and read once.
    let known = catalog::read(Arc::clone(&loaded), offline, looks.clone());
    let known = known.map(Arc::new).boxed().shared();
    let clusters = loaded
        .config
        .backends
        .iter()
        .map(|backend| cluster::check(&loaded, backend, offline, looks, known.clone()));
    let batches =
        loaded.config.backends.iter().map(|backend| batch::check(&loaded, backend, known.clone()));
    let (first, clusters, batches, queues, storage) = tokio::join!(
        known.clone(),
        futures::future::join_all(clusters),
        futures::future::join_all(batches),
        queues::check(&loaded, offline, looks, known.clone()),
        storage::check(&loaded, offline, looks),
    );
    findings.extend(first.findings.clone());
    findings.extend(queues);
    findings.extend(storage);
    clusters.into_iter().chain(batches).for_each(|cluster| findings.extend(cluster));
    findings
}

fn batch_yaml(loaded: &Loaded) -> Findings {
    let mut findings = Findings::about("batch.yaml");
    for warning in &loaded.farm.warnings {
        findings.warn("batch.yaml", warning, "it does no harm; remove it if it is misspelt");
    }
    for broken in loaded.farm.batch.broken_mappings() {
        findings.fail("batch.yaml", broken, "its tasks are held until it is mended");
    }
    if findings.all().is_empty() {
        let detail = format!("{} mappings", loaded.farm.batch.mapping.len());
        findings.pass("batch.yaml", detail);
    }
    findings
}

fn local_backends(loaded: &Loaded) -> Findings {
    let mut findings = Findings::about("backend");
    for backend in &loaded.config.backends {
        if matches!(backend.kind, BackendKind::Local { .. }) {
            findings.warn(
                backend.name.as_str(),
                "runs tasks as processes of this machine, isolated from nothing",
                "for trying things out; untrusted work belongs on Kubernetes",
            );
            match Cgroups::find() {
                Ok(found) => findings.pass(
                    backend.name.as_str(),
                    format!(
                        "can limit its tasks' memory, by cgroups in {}",
                        found.place().display()
                    ),
                ),
                Err(missing) => findings.warn(
                    backend.name.as_str(),
                    format!("tasks run without a limit of their memory: {missing}"),
                    missing.hint,
                ),
            }
        }
    }
    findings
}
