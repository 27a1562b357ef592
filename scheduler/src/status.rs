//! What a running scheduler says of itself: plain data, which the HTTP endpoint serves,
//! `katabatch status` prints and the metrics are made of.
//!
//! Nothing here asks anybody; `service` puts it together. Nothing in it is a secret.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Why tasks wait whose workload's breaker is open.
pub const BROKEN: &str = "breaker_open";

/// The target of a pause of all tasks.
pub const EVERYTHING: &str = "everything";

/// Everything, at one time. New members may come; none changes its meaning.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// katabatch's version.
    pub version: String,
    /// The scheduler's id.
    pub scheduler: String,
    /// Whether this process leads.
    pub role: Role,
    /// Whether a task could become a Job now, a full backend aside.
    pub can_create: bool,
    /// Why not; each says what is wrong.
    pub why_not: Vec<String>,
    /// What else needs a person: held workloads, by reason.
    pub needs_a_person: Vec<String>,
    /// Seconds since the pipeline was seen to move; `None`: it has not begun.
    pub moved_seconds: Option<f64>,
    /// The weights in force; `None` before they are on record.
    pub weight_epoch: Option<Epoch>,
    /// Pauses in force.
    pub pauses: Vec<Told>,
    /// Backends declared lost, configured or not.
    pub lost_backends: Vec<Lost>,
    /// Workloads of which only one task at a time is tried.
    #[serde(default)]
    pub breakers: Vec<Breaker>,
    /// In the order of the configuration.
    pub queues: Vec<Queue>,
    /// In the order of the configuration.
    pub backends: Vec<Backend>,
    /// Tasks that wait, by reason.
    pub held: BTreeMap<String, Held>,
    /// Tasks that could go as soon as there is room.
    pub ready: usize,
    /// Tasks that wait for the answer to their submission.
    pub in_flight: usize,
    /// Tasks that wait for acks or quarantine records.
    pub settling: usize,
    /// Since the process started.
    pub counts: Counts,
    /// How Jobs ended, by kind, since the ledger was begun; empty where none is kept.
    #[serde(default)]
    pub ends: BTreeMap<String, Ends>,
    /// How old the flags are; `None`: never read.
    pub flags_age_seconds: Option<f64>,
    /// For how long the catalog can't be read; 0 while it can.
    pub catalog_stale_seconds: f64,
    /// Too many rejects have stopped the intake.
    pub fuse_blown: bool,
}

/// Whether a process spends the scheduler's room.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// It does.
    Leader,
    /// It does not, or not yet.
    #[default]
    Standby,
}

/// A time with unchanged weights.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epoch {
    /// Its number.
    pub number: u64,
    /// Its beginning.
    pub since: String,
}

/// What a person has told the scheduler.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// What it is about.
    pub target: String,
    /// The person, as far as the machine knew.
    pub who: String,
    /// In their own words.
    pub why: String,
    /// When.
    pub at: String,
    /// When it ends by itself; `None`: when somebody ends it.
    pub until: Option<String>,
}

/// A workload whose breaker is open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breaker {
    /// Its command.
    pub command: String,
    /// Its job type.
    pub job_type: String,
    /// Why, from a closed set.
    pub cause: String,
    /// The last message.
    pub detail: String,
    /// Since when.
    pub since: String,
    /// When one task is tried; `None`: one is being tried.
    pub next_probe: Option<String>,
    /// How often it has opened in a row.
    pub times: u32,
}

/// A backend declared lost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Which, by whom and why.
    #[serde(flatten)]
    pub told: Told,
    /// When nothing ran there any more: it may be declared found. `None`: not known yet.
    pub cleared_at: Option<String>,
}

/// A queue.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Queue {
    /// Its configured name.
    pub name: String,
    /// Leased messages that are not acked.
    pub in_hand: usize,
    /// The age of the oldest of them.
    pub oldest_unacked_seconds: Option<f64>,
    /// Leases that are kept.
    pub leases: usize,
    /// Renewals that came about.
    pub leases_extended: u64,
    /// Renewals that did not.
    pub lease_renewals_failed: u64,
    /// Leases that were lost before their message was settled.
    pub leases_lapsed: u64,
}

/// A backend.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Backend {
    /// Its configured name.
    pub name: String,
    /// `open`, `full`, `off` (no weight, or its flag is off), `unknown` (room), `refused`, `paused`
    /// or `lost`.
    pub state: BackendState,
    /// Why it takes none.
    pub detail: Option<String>,
    /// What its flag or its default asks for, 0 to 1.
    pub configured_share: f64,
    /// Its part of all tasks: 0 while it is off, paused or lost; what is left after the backends
    /// before it are filled, else.
    pub effective_share: f64,
    /// Its part of the Jobs made within the last ten minutes; `None` while none were made.
    pub achieved_share: Option<f64>,
    /// How many tasks wait for it.
    pub waiting: usize,
    /// Counted as waiting to start; `None`: not known.
    pub pending: Option<usize>,
    /// The most that may.
    pub pending_limit: Option<usize>,
    /// Unfinished Jobs; `None`: not known.
    pub live: Option<usize>,
    /// The most that may be; `None`: unlimited, or not known.
    pub live_limit: Option<usize>,
    /// Submissions under way.
    pub under_way: usize,
    /// How many creates may be under way, where the backend bounds them.
    pub window: Option<usize>,
    /// Calls of its API so far.
    pub api_calls: Vec<ApiCalls>,
}

/// Whether a backend takes tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackendState {
    /// It does.
    Open,
    /// It would, but has no room.
    Full,
    /// Its weight is zero or its flag is off.
    Off,
    /// Its room is not known.
    #[default]
    Unknown,
    /// It refused what every other task would meet too.
    Refused,
    /// A person has paused it.
    Paused,
    /// A person has declared it lost.
    Lost,
}

/// Calls of an API with one verb and answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiCalls {
    /// `create`, `get`, `list`, …
    pub verb: String,
    /// The HTTP status, or `lost` where no answer came.
    pub code: String,
    /// How many.
    pub count: u64,
}

/// Tasks that wait for one reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// How many.
    pub tasks: usize,
    /// What one of them was told.
    pub detail: String,
}

/// Jobs that ended in one way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Ends {
    /// How many.
    pub count: u64,
    /// The work lost by them, in seconds.
    pub lost_seconds: f64,
}

/// What was decided since the process started.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Messages leased.
    pub leased: u64,
    /// Jobs made.
    pub created: u64,
    /// Tasks whose Job was there already.
    pub already_there: u64,
    /// Tasks whose output was there already: no Job was made.
    pub done: u64,
    /// Messages acked after their Job was confirmed.
    pub acked: u64,
    /// Acks that came too late.
    pub ack_lost: u64,
    /// Messages of other subscriptions.
    pub not_ours: u64,
    /// Messages given back because their Job had failed.
    #[serde(default)]
    pub failed: u64,
    /// Messages given back undone.
    pub released: u64,
    /// How often a task was held, by reason.
    pub held: BTreeMap<String, u64>,
    /// Rejected messages, by reason.
    pub rejected: BTreeMap<String, u64>,
    /// Work lost to dead URLs: the expected runs of all tasks that were rejected for theirs.
    pub lost_to_dead_urls_seconds: f64,
}

impl Backend {
    /// Whether it would take a task, room aside.
    pub fn takes(&self) -> bool {
        matches!(self.state, BackendState::Open | BackendState::Full)
    }
}

impl Status {
    /// Works out [`can_create`](Self::can_create) and why not, from the rest and from what stops
    /// everything.
    pub fn judge(&mut self, obstacles: &[&str]) {
        self.why_not.clear();
        if self.moved_seconds.is_none() {
            self.why_not.push("it has only just started".to_owned());
        } else {
            self.why_not.extend(obstacles.iter().map(|&why| why.to_owned()));
            let all = self.pauses.iter().filter(|pause| pause.target == EVERYTHING);
            self.why_not.extend(all.map(|Told { who, at, why, .. }| {
                format!("{EVERYTHING} is paused by {who} at {at}: {why}")
            }));
            if self.fuse_blown {
                let why = "the fuse blew: too many messages were rejected at once; look at the \
                           quarantine, then restart";
                self.why_not.push(why.to_owned());
            }
            if self.all_are_broken() {
                let why = "breaker on all: every workload of which tasks wait is broken";
                self.why_not.push(why.to_owned());
            }
            if !self.backends.iter().any(Backend::takes) {
                self.why_not.extend(self.backends.iter().map(Backend::why_not));
            }
        }
        self.can_create = self.why_not.is_empty();
    }

    /// Whether every task in hand waits for a breaker.
    fn all_are_broken(&self) -> bool {
        let broken = self.held.get(BROKEN).map_or(0, |held| held.tasks);
        let waiting: usize = self.held.values().map(|held| held.tasks).sum();
        broken > 0 && broken == waiting && self.ready + self.in_flight == 0
    }
}

impl Backend {
    fn why_not(&self) -> String {
        let Self { name, detail, .. } = self;
        let detail = detail.as_deref().unwrap_or("it is not said why");
        match self.state {
            BackendState::Off => format!("backend {name} has no weight, or its flag is off"),
            BackendState::Unknown => format!("backend {name}: its room is not known: {detail}"),
            BackendState::Refused | BackendState::Paused | BackendState::Lost => {
                format!("backend {name}: {detail}")
            }
            BackendState::Open | BackendState::Full => format!("backend {name} takes tasks"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(states: &[BackendState]) -> Status {
        let backend = |state: &BackendState| Backend {
            name: "gke".to_owned(),
            state: *state,
            detail: Some("jobs.batch is forbidden".to_owned()),
            ..Backend::default()
        };
        Status {
            moved_seconds: Some(0.5),
            backends: states.iter().map(backend).collect(),
            ..Status::default()
        }
    }

    #[track_caller]
    fn check(status: Status, expect: &[&str]) {
        check_with(status, &[], expect);
    }

    #[track_caller]
    fn check_with(mut status: Status, obstacles: &[&str], expect: &[&str]) {
        status.judge(obstacles);
        assert_eq!(status.can_create, expect.is_empty());
        assert_eq!(status.why_not.len(), expect.len(), "{:?}", status.why_not);
        for (why, expect) in status.why_not.iter().zip(expect) {
            assert!(why.contains(expect), "{why} lacks {expect}");
        }
    }

    #[test]
    fn one_backend_that_takes_tasks_is_enough_and_a_full_one_is_in_good_health() {
        use BackendState::{Full, Lost, Off, Open, Paused, Refused, Unknown};
        check(status(&[Open]), &[]);
        check(status(&[Full]), &[]);
        check(status(&[Refused, Unknown, Paused, Lost, Open]), &[]);
        check(status(&[Paused, Lost]), &["forbidden", "forbidden"]);
        check(status(&[Refused, Off]), &["jobs.batch is forbidden", "has no weight"]);
        check(status(&[Unknown]), &["its room is not known: jobs.batch"]);
    }

    #[test]
    fn an_obstacle_a_pause_of_everything_and_a_blown_fuse_stop_everything() {
        let open = || status(&[BackendState::Open]);
        check_with(open(), &["flags have not been read"], &["flags have not been read"]);
        let pause = |target: &str| Told { target: target.into(), ..Told::default() };
        check(Status { pauses: vec![pause(EVERYTHING)], ..open() }, &["everything is paused"]);
        check(Status { pauses: vec![pause("command fuzz")], ..open() }, &[]);
        check(Status { fuse_blown: true, ..open() }, &["the fuse blew"]);
        check(Status { moved_seconds: None, ..open() }, &["only just started"]);
    }
}
