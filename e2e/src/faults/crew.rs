//! The scheduler's processes, tended as a Deployment would: one that ends is replaced.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::{Value, json};

use super::plan::BadTemplate;
use crate::process::{Output, Process};
use crate::site::Site;

/// How soon a process that ended is replaced: less than a Deployment would let pass.
const AGAIN: Duration = Duration::from_secs(1);
/// How long one that was told to stop may take.
const STOP: Duration = Duration::from_secs(60);

/// The processes on one site.
pub struct Crew<'a> {
    site: &'a Site,
    running: BTreeMap<String, Process>,
    /// Processes that stand still, which nobody counts as running.
    paused: BTreeMap<String, Process>,
    wanted: usize,
    started: usize,
    last_start: Option<Instant>,
    /// How often one ended by itself.
    pub ended: usize,
}

impl<'a> Crew<'a> {
    /// Nobody yet; one is wanted.
    pub fn new(site: &'a Site) -> Self {
        Self {
            site,
            running: BTreeMap::new(),
            paused: BTreeMap::new(),
            wanted: 1,
            started: 0,
            last_start: None,
            ended: 0,
        }
    }

    /// Replaces those that have ended.
    ///
    /// # Errors
    /// When none can be started; or when one ended as if it had been told to.
    pub fn tend(&mut self) -> Result<()> {
        let mut over = Vec::new();
        for (name, process) in &mut self.running {
            if let Some(output) = process.has_ended()? {
                over.push((name.clone(), output));
            }
        }
        for (name, output) in over {
            self.running.remove(&name);
            self.note(&name, &output)?;
        }
        let may = self.last_start.is_none_or(|at| at.elapsed() >= AGAIN);
        if self.running.len() < self.wanted && (self.started == 0 || may) {
            self.start()?;
        }
        Ok(())
    }

    fn note(&mut self, name: &str, output: &Output) -> Result<()> {
        let said = output.stderr.lines().last().unwrap_or_default();
        ensure!(output.code != Some(0), "{name} ended with 0, untold: {said}");
        ensure!(!output.stderr.contains("panicked"), "{name} panicked: {}", output.stderr);
        self.ended += 1;
        eprintln!("  {name} has ended by itself: {said}");
        Ok(())
    }

    /// Starts another one.
    ///
    /// # Errors
    /// When it can't be.
    pub fn start(&mut self) -> Result<String> {
        self.started += 1;
        self.last_start = Some(Instant::now());
        let name = format!("katabatch-{}", self.started);
        self.running.insert(name.clone(), self.site.run(&name)?);
        Ok(name)
    }

    /// How many are wanted from now on.
    pub fn want(&mut self, wanted: usize) {
        self.wanted = wanted;
    }

    /// Whether this one runs still.
    ///
    /// # Errors
    /// When it can't be looked after.
    pub fn runs(&mut self, name: &str) -> Result<bool> {
        Ok(match self.running.get_mut(name) {
            Some(process) => process.has_ended()?.is_none(),
            None => false,
        })
    }

    /// The process that holds the Lease, or else one of them.
    ///
    /// # Errors
    /// When none runs.
    pub async fn leader(&self) -> Result<String> {
        let lease = self.site.api::<Lease>().get_opt("katabatch-e2e").await.ok().flatten();
        let holder = lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default();
        let leads = |process: &Process| !holder.is_empty() && process.messages().contains(&holder);
        let leader = self.running.iter().find(|(_, process)| leads(process));
        let any = leader.or(self.running.iter().next());
        Ok(any.context("no scheduler runs")?.0.clone())
    }

    fn take(&mut self, name: &str) -> Result<Process> {
        self.running.remove(name).with_context(|| format!("{name} doesn't run"))
    }

    /// Kills it.
    ///
    /// # Errors
    /// When it doesn't run.
    pub async fn kill(&mut self, name: &str) -> Result<()> {
        let mut process = self.take(name)?;
        // It may just have ended by itself.
        if let Some(output) = process.has_ended()? {
            return self.note(name, &output);
        }
        process.kill().await.map(drop)
    }

    /// Makes it stand still.
    ///
    /// # Errors
    /// When it doesn't run.
    pub async fn pause(&mut self, name: &str) -> Result<()> {
        let process = self.take(name)?;
        process.pause().await?;
        self.paused.insert(name.to_owned(), process);
        Ok(())
    }

    /// Wakes it, and waits for its end: its Lease is another's.
    ///
    /// # Errors
    /// When it goes on, or ends as if it had been told to.
    pub async fn wake(&mut self, name: &str) -> Result<()> {
        let process = self.paused.remove(name).context("it isn't paused")?;
        process.resume()?;
        let output = process.end(STOP).await.context("a woken scheduler goes on")?;
        self.note(name, &output)
    }

    /// Tells it to stop, and waits until it has.
    ///
    /// # Errors
    /// When it doesn't, or not well.
    pub async fn terminate(&mut self, name: &str) -> Result<()> {
        let mut process = self.take(name)?;
        if let Some(output) = process.has_ended()? {
            return self.note(name, &output);
        }
        process.terminate()?;
        let output = process.end(STOP).await?;
        ensure!(!output.stderr.contains("panicked"), "{name} panicked: {}", output.stderr);
        Ok(())
    }

    /// Tells all to stop.
    ///
    /// # Errors
    /// As [`Crew::terminate`].
    pub async fn terminate_all(&mut self) -> Result<()> {
        for name in self.running.keys().cloned().collect::<Vec<_>>() {
            self.terminate(&name).await?;
        }
        Ok(())
    }

    /// All that run now.
    pub fn names(&self) -> Vec<String> {
        self.running.keys().cloned().collect()
    }

    /// The templates that processes begin with from now on: the built-in ones, or a bad copy.
    ///
    /// # Errors
    /// When they can't be written.
    pub fn set_templates(&self, bad: Option<BadTemplate>) -> Result<()> {
        let farm = &self.site.farm;
        let text = fs::read_to_string(farm.config()).context("read the configuration")?;
        let config: Value = serde_json::from_str(&text).context("read the configuration")?;
        let mut backends = config.get("backends").cloned().context("the backends")?;
        let first = backends.get_mut(0).and_then(Value::as_object_mut).context("a backend")?;
        first.remove("templates");
        if let Some(kind) = bad {
            write_templates(&farm.dir().join("templates"), kind)?;
            first.insert("templates".into(), "templates".into());
        }
        farm.configure(&json!({ "backends": backends }))
    }
}

/// Our templates with one thing changed for the bad.
fn write_templates(dir: &Path, kind: BadTemplate) -> Result<()> {
    let ours = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../templates"));
    fs::create_dir_all(dir).context("make a folder for templates")?;
    for name in ["kata.yaml.tera", "standard.yaml.tera"] {
        let text = fs::read_to_string(ours.join(name)).context("read our templates")?;
        let (from, to) = match kind {
            BadTemplate::Unreadable => ("apiVersion: batch/v1\n", "apiVersion: {{ batch\n"),
            BadTemplate::AgainstPolicy => ("    spec:\n", "    spec:\n      hostPID: true\n"),
            BadTemplate::RefusedByServer => {
                ("restartPolicy: {{ restart_policy }}", "restartPolicy: Sometimes")
            }
        };
        if !text.contains(from) {
            bail!("{name} has no line like {from:?} to break");
        }
        fs::write(dir.join(name), text.replacen(from, to, 1)).context("write a template")?;
    }
    Ok(())
}
