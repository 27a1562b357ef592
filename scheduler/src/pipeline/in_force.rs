//! What is in force: flags and controls as last read, the weights that follow from them once their
//! epoch is on record, and reloads.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use jiff::Timestamp;
use tokio::time::Instant;

use super::{Event, Pipeline, PipelineError, said};
use crate::controls::{Controls, audit};
use crate::flags::{FlagSet, FlagsError};
use crate::gate::Weights;
use crate::gate::epochs::{Epochs, KEY};
use crate::records::RecordError;

/// How often flags and controls are read: a pause applies within so long.
const EVERY: Duration = Duration::from_secs(2);
/// How often it is looked whether this process leads, before it does.
const LEADS_EVERY: Duration = Duration::from_millis(100);

/// Records as they were read.
type Read = Result<BTreeMap<String, String>, RecordError>;

/// One look at all that may change.
pub(super) struct Look {
    flags: Result<FlagSet, FlagsError>,
    controls: Read,
    /// The leader's records; only until they were read once.
    records: Option<Read>,
}

/// What is in force beside flags and weights.
#[derive(Default)]
pub(super) struct InForce {
    /// When the controls were read, and what they said.
    controls: Option<(Instant, Controls)>,
    /// The epoch on record; the outer `None`: not read yet.
    recorded: Option<Option<Epochs>>,
    /// The backends that take nothing until an epoch is on record: one that is on its way, or
    /// whose write was not answered, takes their weight away.
    pub(super) withheld: BTreeSet<usize>,
    writing: bool,
    /// A write was not answered: what is on record is not known until another one is.
    in_doubt: bool,
    /// The last audit entry that was seen.
    audited: Option<String>,
}

impl InForce {
    /// The controls as last read.
    pub(super) fn controls(&self) -> Option<&Controls> {
        self.controls.as_ref().map(|(_, controls)| controls)
    }

    /// The epoch of the weights in use.
    pub(super) fn epoch(&self) -> Option<&Epochs> {
        self.recorded.as_ref().and_then(Option::as_ref)
    }
}

impl Pipeline {
    pub(super) fn look_at_all(&mut self) {
        let flags = Arc::clone(&self.deps.flags);
        let controls = Arc::clone(&self.deps.controls);
        let wanted = self.in_force.recorded.is_none() && self.deps.leadership.may_create();
        let records = wanted.then(|| Arc::clone(&self.deps.records));
        let call = async move {
            let flags = AssertUnwindSafe(flags.read()).catch_unwind().await;
            let controls = AssertUnwindSafe(controls.all()).catch_unwind().await;
            let records = match records {
                Some(records) => Some(AssertUnwindSafe(records.all()).catch_unwind().await),
                None => None,
            };
            let lost = |panic| Err(RecordError::Unavailable(said(panic)));
            Event::InForce(Box::new(Look {
                flags: flags.unwrap_or_else(|panic| Err(FlagsError(said(panic)))),
                controls: controls.unwrap_or_else(lost),
                records: records.map(|read| read.unwrap_or_else(lost)),
            }))
        };
        self.waits.push(call.boxed());
    }

    pub(super) fn looked_at_all(&mut self, look: Look, now: Instant) {
        let Look { flags, controls, records } = look;
        match controls {
            Ok(records) => self.controls_read(&records, now),
            Err(error) => tracing::warn!(%error, "controls were not read"),
        }
        match records.map(|read| read.map(|all| all.get(KEY).map(|text| Epochs::parse(text)))) {
            None => {}
            Some(Ok(None)) => self.in_force.recorded = Some(None),
            Some(Ok(Some(Ok(epochs)))) => self.in_force.recorded = Some(Some(epochs)),
            Some(Ok(Some(Err(error)))) => {
                tracing::error!("{error}; nothing is created. hint: use the version that wrote it")
            }
            Some(Err(error)) => tracing::warn!(%error, "the scheduler's records were not read"),
        }
        match flags {
            Ok(flags) => {
                (self.deps.on_flags)(&flags);
                self.weigh(&flags);
                self.flags = Some((now, flags));
            }
            Err(error) => tracing::warn!(%error, "flags were not read"),
        }
        self.notice_reload();
        self.clear_lost(now);
        self.publish(now);
        let leadership = Arc::clone(&self.deps.leadership);
        let leads = leadership.may_create();
        let clock = Arc::clone(&self.deps.clock);
        let due = async move {
            let until = clock.mono() + EVERY;
            while clock.mono() < until {
                tokio::time::sleep(if leads { EVERY } else { LEADS_EVERY }).await;
                if !leads && leadership.may_create() {
                    break;
                }
            }
            Event::LookDue
        };
        self.waits.push(due.boxed());
    }

    /// Uses the weights that the flags say, or first puts their epoch on record.
    fn weigh(&mut self, flags: &FlagSet) {
        let Some(recorded) = &self.in_force.recorded else { return };
        let candidates: Vec<_> = self.deps.backends.iter().map(|b| b.candidate.clone()).collect();
        let weights = Weights::read(&candidates, flags);
        // A lost backend's tasks go elsewhere, as if the weights had changed.
        let lost = self.in_force.controls().into_iter().flat_map(|controls| controls.lost.keys());
        let lost: Vec<&str> = lost.map(String::as_str).collect();
        let routes = format!("{} {}", self.deps.routes.fingerprint(), lost.join(" "));
        let wall = self.deps.clock.wall();
        match recorded {
            _ if self.in_force.writing => {}
            Some(epochs) if epochs.is(&weights, &routes) && !self.in_force.in_doubt => {
                self.use_weights(weights);
            }
            Some(epochs) => self.record(epochs.next(&weights, &routes, wall), weights),
            None => self.record(Epochs::first(&weights, &routes, wall), weights),
        }
    }

    fn record(&mut self, epochs: Epochs, weights: Weights) {
        let text = match epochs.to_text() {
            Ok(text) => text,
            Err(error) => return tracing::error!(error, "an epoch can't be written"),
        };
        self.in_force.writing = true;
        let taken_away = (0..self.backends.len()).filter(|&at| !weights.takes(at));
        self.in_force.withheld.extend(taken_away);
        let records = Arc::clone(&self.deps.records);
        let call = async move {
            let changes = [(KEY.to_owned(), Some(text))];
            let written = AssertUnwindSafe(records.write(&changes)).catch_unwind().await;
            let result = written.unwrap_or_else(|panic| Err(RecordError::Unavailable(said(panic))));
            Event::EpochWritten { epochs, weights, result }
        };
        self.waits.push(call.boxed());
    }

    pub(super) fn epoch_written(
        &mut self,
        epochs: Epochs,
        weights: Weights,
        result: Result<(), RecordError>,
    ) -> Result<(), PipelineError> {
        self.in_force.writing = false;
        match result {
            Ok(()) => {
                tracing::info!(epoch = epochs.number, "a weight epoch begins");
                self.in_force.recorded = Some(Some(epochs));
                self.in_force.in_doubt = false;
                self.in_force.withheld.clear();
                self.use_weights(weights);
                self.publish(self.deps.clock.mono());
            }
            Err(error @ RecordError::Overtaken(_)) => return Err(PipelineError::Overtaken(error)),
            // The next look tries again; what the new weights take away is taken away already.
            Err(error) => {
                self.in_force.in_doubt = true;
                tracing::error!(%error, "new weights can't be used yet");
            }
        }
        Ok(())
    }

    fn use_weights(&mut self, weights: Weights) {
        if weights == self.weights {
            return;
        }
        for warning in &weights.warnings {
            tracing::warn!("{warning}");
        }
        tracing::info!("weights changed from {} to {weights}", self.weights);
        self.weights = weights;
        self.wake_all();
    }

    fn controls_read(&mut self, records: &BTreeMap<String, String>, now: Instant) {
        match Controls::read(records, self.deps.clock.wall()) {
            Ok(controls) => {
                let changed = self.in_force.controls() != Some(&controls);
                if changed {
                    self.say_controls(&controls);
                }
                self.in_force.controls = Some((now, controls));
                if changed {
                    self.wake_all();
                }
            }
            Err(error) => tracing::error!("{error}"),
        }
        self.say_audit(records);
    }

    fn say_controls(&self, controls: &Controls) {
        let before = self.in_force.controls().cloned().unwrap_or_default();
        for pause in controls.pauses.iter().filter(|pause| !before.pauses.contains(pause)) {
            tracing::warn!("{} is paused {}", pause.target, pause.mark);
        }
        for pause in before.pauses.iter().filter(|pause| !controls.pauses.contains(pause)) {
            tracing::info!("the pause of {} is over", pause.target);
        }
        for (name, mark) in
            controls.lost.iter().filter(|(name, _)| !before.lost.contains_key(*name))
        {
            tracing::warn!("backend {name} was declared lost {mark}");
        }
        for name in before.lost.keys().filter(|name| !controls.lost.contains_key(*name)) {
            tracing::warn!("backend {name} was declared found");
        }
    }

    /// Logs each audit entry once, so that whoever collects the log has them all. Those of before
    /// the start were logged by the process of that time.
    fn say_audit(&mut self, records: &BTreeMap<String, String>) {
        let entries = audit::entries(records);
        if let Some(last) = &self.in_force.audited {
            for (_, entry) in entries.iter().filter(|(key, _)| *key > last.as_str()) {
                let audit::Entry { at, who, what, detail } = entry;
                tracing::info!(%at, who, what, detail, "audit");
            }
        }
        let last = entries.last().map(|(key, _)| (*key).to_owned()).unwrap_or_default();
        self.in_force.audited = self.in_force.audited.take().max(Some(last));
    }

    /// Whatever waited for weights or controls is looked at anew.
    fn wake_all(&mut self) {
        for backend in 0..self.backends.len() {
            self.book.wake_backend(backend, usize::MAX);
        }
        let waiting: Vec<_> = self.book.waiting_workloads().cloned().collect();
        waiting.iter().for_each(|key| self.book.wake_workload(key));
    }

    /// After a reload every workload is looked up and resolved anew.
    fn notice_reload(&mut self) {
        let generation = self.deps.resolver.generation();
        if generation != std::mem::replace(&mut self.generation, generation) {
            self.workloads.forget();
            let waiting: Vec<_> = self.book.waiting_workloads().cloned().collect();
            waiting.iter().for_each(|key| self.book.wake_workload(key));
        }
    }

    /// Whether anything may be taken or given now: this process leads, what flags and controls say
    /// is young enough, and the weights are on record.
    pub(super) fn may_work(&self, now: Instant) -> bool {
        let young = |read: Instant| now.duration_since(read) <= self.deps.settings.flags_max_age;
        self.deps.leadership.may_create()
            && self.flags.as_ref().is_some_and(|(read, _)| young(*read))
            && self.in_force.controls.as_ref().is_some_and(|(read, _)| young(*read))
            && self.in_force.epoch().is_some()
            && !self.weights.shares.is_empty()
    }

    /// What [`may_work`](Self::may_work) finds missing, in words.
    pub(super) fn obstacles(&self, now: Instant) -> Vec<&'static str> {
        let old = |read: Instant| now.duration_since(read) > self.deps.settings.flags_max_age;
        let mut found = Vec::new();
        if !self.deps.leadership.may_create() {
            found.push("this process does not lead: it stands by");
        }
        match &self.flags {
            None => found.push("the feature flags have not been read yet"),
            Some((read, _)) if old(*read) => {
                found.push("the feature flags can't be read, and what was read last is too old");
            }
            Some(_) => {}
        }
        match &self.in_force.controls {
            None => found.push("pauses and lost backends have not been read yet"),
            Some((read, _)) if old(*read) => {
                let why =
                    "pauses and lost backends can't be read, and what was read last is too old";
                found.push(why);
            }
            Some(_) => {}
        }
        let weighed = self.in_force.epoch().is_some() && !self.weights.shares.is_empty();
        if found.is_empty() && !weighed {
            found.push("the weights are not on record yet");
        }
        found
    }

    /// Whether a task published then has only ever been handled by this process, by the weights in
    /// force.
    pub(super) fn is_fresh(&self, published: Timestamp) -> bool {
        let newer = |at: Timestamp| !crate::gate::epochs::older(published, at);
        self.deps.leadership.since().is_some_and(newer)
            && self.in_force.epoch().is_some_and(|epochs| epochs.is_newer(published))
            && self.forgot.is_none_or(newer)
    }
}
