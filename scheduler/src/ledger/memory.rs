//! The ledger in memory: bounded in every direction, whatever comes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::Timestamp;

use super::record::{EndRecord, Held, Lost, Record};
use crate::domain::end::{End, EndKind};
use crate::domain::log_tail::LogTail;
use crate::domain::name::{Attempt, JobType, TaskHash};
use crate::domain::outcome::HoldKind;
use crate::domain::task::WorkloadKey;
use crate::domain::workload_now::WorkloadNow;
use crate::pipeline::tally::{Decision, Verdict};

/// The most workloads: more than OSS-Fuzz has. Those heard of longest ago go first.
const WORKLOADS: usize = 5_000;
/// The last ends kept of each.
pub(super) const ENDS: usize = 20;
/// The most ends, over all workloads, whose log tail is kept here: 8 MiB at most.
const TAILS: usize = 128;
/// The most ends that are remembered as told: a day of a large farm.
const KNOWN: usize = 200_000;
/// The most ends that wait to be written.
const UNSAVED: usize = 2_000;
/// The most tasks of one workload whose waiting is counted.
const HELD: usize = 10_000;

/// One workload.
#[derive(Debug, Default)]
struct Entry {
    record: Record,
    /// The tasks that wait, by message.
    held: BTreeMap<String, (HoldKind, Timestamp)>,
    details: BTreeMap<HoldKind, String>,
    ends: VecDeque<EndRecord>,
    /// When it was last heard of, in news.
    touched: u64,
}

/// What is to be written.
#[derive(Debug, Default)]
pub(super) struct News {
    pub(super) records: Vec<(WorkloadKey, Record)>,
    pub(super) ends: Vec<(WorkloadKey, EndRecord)>,
}

impl News {
    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.ends.is_empty()
    }
}

/// Everything.
#[derive(Debug, Default)]
pub(super) struct Memory {
    workloads: BTreeMap<WorkloadKey, Entry>,
    known: BTreeSet<(TaskHash, u32)>,
    known_order: VecDeque<(TaskHash, u32)>,
    /// Whose tails are kept, oldest first.
    tails: VecDeque<(WorkloadKey, String, u32)>,
    touches: u64,
    saving: bool,
    dirty: BTreeSet<WorkloadKey>,
    unsaved: VecDeque<(WorkloadKey, EndRecord)>,
}

impl Memory {
    /// From now on news are taken for a file.
    pub(super) fn save(&mut self) {
        self.saving = true;
    }

    fn entry(&mut self, key: &WorkloadKey) -> &mut Entry {
        if self.workloads.len() >= WORKLOADS && !self.workloads.contains_key(key) {
            let mut ages: Vec<u64> = self.workloads.values().map(|entry| entry.touched).collect();
            ages.sort_unstable();
            let until = ages.get(WORKLOADS / 10).copied().unwrap_or(u64::MAX);
            self.workloads.retain(|_, entry| entry.touched > until);
        }
        self.touches += 1;
        if self.saving {
            self.dirty.insert(key.clone());
        }
        let touched = self.touches;
        let entry = self.workloads.entry(key.clone()).or_default();
        entry.touched = touched;
        entry
    }

    /// What an earlier process knew.
    pub(super) fn remember(
        &mut self,
        records: Vec<(WorkloadKey, Record)>,
        known: Vec<(TaskHash, u32)>,
    ) {
        for (key, record) in records {
            // What was in hand then has gone back to its queue.
            let record = Record { held: BTreeMap::new(), now: WorkloadNow::default(), ..record };
            self.entry(&key).record = record;
        }
        for (task, attempt) in known {
            self.know(task, attempt);
        }
        self.dirty.clear();
    }

    fn know(&mut self, task: TaskHash, attempt: u32) -> bool {
        if !self.known.insert((task, attempt)) {
            return false;
        }
        self.known_order.push_back((task, attempt));
        if self.known_order.len() > KNOWN
            && let Some(oldest) = self.known_order.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }

    pub(super) fn knows(&self, task: &TaskHash, attempt: Attempt) -> bool {
        self.known.contains(&(*task, attempt.number()))
    }

    /// A decision of the pipeline.
    pub(super) fn decided(&mut self, decision: &Decision, at: Timestamp) {
        let Some(key) = &decision.key else { return };
        let message = &decision.message_id;
        let entry = self.entry(key);
        if let Verdict::Held(kind, detail) = &decision.verdict {
            let since = entry.held.get(message).map_or(at, |(_, since)| *since);
            if entry.held.len() < HELD || entry.held.contains_key(message) {
                entry.held.insert(message.clone(), (*kind, since));
            }
            entry.details.insert(*kind, detail.clone());
            return;
        }
        entry.held.remove(message);
        match &decision.verdict {
            Verdict::Scheduled(_) => {
                entry.record.scheduled += 1;
                entry.record.last_scheduled = Some(at);
            }
            Verdict::Rejected(kind, detail) => {
                let rejected = entry.record.rejected.entry(kind.label().to_owned()).or_default();
                rejected.count += 1;
                rejected.detail.clone_from(detail);
                rejected.last = Some(at);
            }
            _ => {}
        }
    }

    /// A Job has ended; one that is known is not counted again.
    pub(super) fn ended(&mut self, end: End) {
        if !self.know(end.task, end.attempt.number()) {
            return;
        }
        let record = EndRecord::from(&end);
        let (key, lost) = (end.key.clone(), end.time_lost());
        if self.saving {
            self.unsaved.push_back((key.clone(), record.clone()));
            if self.unsaved.len() > UNSAVED {
                self.unsaved.pop_front();
            }
        }
        self.tails.push_back((key.clone(), record.task.clone(), record.attempt));
        let entry = self.entry(&key);
        entry.record.ends.entry(record.kind).or_default().add(lost);
        entry.ends.push_back(record);
        if entry.ends.len() > ENDS {
            entry.ends.pop_front();
        }
        if self.tails.len() > TAILS
            && let Some((key, task, attempt)) = self.tails.pop_front()
        {
            let ends = self.workloads.get_mut(&key).map(|entry| &mut entry.ends);
            for end in ends.into_iter().flatten().filter(|e| e.task == task && e.attempt == attempt)
            {
                end.tail = LogTail::unavailable("kept in the ledger's file only");
            }
        }
    }

    /// What is there now of every workload.
    pub(super) fn set_now(&mut self, mut now: BTreeMap<WorkloadKey, WorkloadNow>) {
        for (key, entry) in &mut self.workloads {
            let there = now.remove(key).unwrap_or_default();
            if entry.record.now != there {
                entry.record.now = there;
                if self.saving {
                    self.dirty.insert(key.clone());
                }
            }
        }
        for (key, there) in now {
            self.entry(&key).record.now = there;
        }
    }

    pub(super) fn of(&self, job_type: &JobType) -> BTreeMap<WorkloadKey, (Record, Vec<EndRecord>)> {
        let of = self.workloads.iter().filter(|(key, _)| key.job_type == *job_type);
        of.map(|(key, entry)| (key.clone(), (entry.full(), entry.ends.iter().cloned().collect())))
            .collect()
    }

    pub(super) fn lost(&self) -> BTreeMap<EndKind, Lost> {
        let mut all: BTreeMap<EndKind, Lost> = BTreeMap::new();
        for (kind, lost) in self.workloads.values().flat_map(|entry| &entry.record.ends) {
            let sum = all.entry(*kind).or_default();
            sum.count += lost.count;
            sum.seconds += lost.seconds;
        }
        all
    }

    /// What is new since it was last asked for.
    pub(super) fn news(&mut self) -> News {
        let dirty = std::mem::take(&mut self.dirty);
        let records = dirty.into_iter().filter_map(|key| {
            let record = self.workloads.get(&key)?.full();
            Some((key, record))
        });
        News { records: records.collect(), ends: self.unsaved.drain(..).collect() }
    }
}

impl Entry {
    /// The record with what waits now.
    fn full(&self) -> Record {
        let mut held: BTreeMap<String, Held> = BTreeMap::new();
        for (kind, since) in self.held.values() {
            let one = held.entry(kind.label().to_owned()).or_default();
            one.tasks += 1;
            one.since = Some(one.since.map_or(*since, |first| first.min(*since)));
            if one.detail.is_empty() {
                one.detail = self.details.get(kind).cloned().unwrap_or_default();
            }
        }
        Record { held, ..self.record.clone() }
    }
}
