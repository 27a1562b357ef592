//! One task's way to its Job: room, a slot, the POST, and what its answer leads to.
//!
//! The state machine of a create. Nothing is `Scheduled` without the API server's word for this
//! very name and task hash; nothing is tried under another name; whatever is not known stays
//! counted. It ends in bounded time: retries are few, and pauses are given back as deferrals.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::sleep;

use super::api::{ApiError, ClusterApi, JobFacts};
use super::classify::{Verdict, classify};
use super::janitor::SharedAcks;
use super::leader::Leader;
use super::ledger::Full;
use super::observe::Observe;
use super::room::{Flight, Rooms};
use super::settle::UNSEEN;
use super::slots::{Slot, Slots};
use super::window::{End, Pause};
use crate::clock::Clock;
use crate::domain::name::TaskHash;
use crate::domain::outcome::{Deferral, HoldKind, Outcome, Placed, Scope};
use crate::leadership::Leadership as _;

/// How often one submission POSTs, and how often it tries one GET.
const TRIES: u32 = 3;
/// The wait before the second try; the third waits twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// How long after its timeout a POST may still take effect: the server is told the same timeout,
/// and its store's last write may follow it by a moment.
pub const LANDING: Duration = Duration::from_secs(1);

/// When to try a task again that was held for what a moment may change.
const SOON: Duration = Duration::from_secs(5);
/// When to try again while the leader's Lease is late.
const LEADS_SOON: Duration = Duration::from_secs(1);
/// When to try again what only a person can change.
const LATER: Duration = Duration::from_secs(60);

/// Makes Jobs in one namespace.
pub struct Submitter {
    /// The API server.
    pub api: Arc<dyn ClusterApi>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The account of room.
    pub rooms: Arc<Rooms>,
    /// The window.
    pub slots: Arc<Slots>,
    /// Who may create.
    pub leader: Arc<Leader>,
    /// The Jobs whose acks are awaited.
    pub acks: SharedAcks,
    /// How they end.
    pub observe: Arc<Observe>,
    /// How long a POST may take; the API calls themselves hold it.
    pub request_timeout: Duration,
}

/// What a step came to.
enum Step {
    Done(Outcome),
    /// The Job is there and ours.
    Landed(JobFacts, Placed),
    /// Certainly not there by what this step saw; the POST may be made again.
    Again(HoldKind, String),
    /// Not there, and the whole workload's Job is refused.
    Refused(HoldKind, String),
}

/// What a look-up found under the task's name.
enum Found {
    Ours(JobFacts),
    Nothing,
    Deferred(Outcome),
}

/// What became of a submission, with what its caller must know beside the outcome.
pub struct Submitted {
    /// The outcome.
    pub outcome: Outcome,
    /// The server said that the workload's account is missing.
    pub account_missing: bool,
}

fn deferred(
    scope: Scope,
    kind: HoldKind,
    detail: impl std::fmt::Display,
    after: Duration,
) -> Outcome {
    Outcome::Deferred(Deferral::new(scope, kind, detail, after))
}

/// Tells the watermark that a create is under way, for as long as it is.
struct UnderWay<'a> {
    acks: &'a SharedAcks,
    floor: Timestamp,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.acks.lock().create_ended(self.floor);
    }
}

impl Submitter {
    /// Sees to it that the Job of this name, for the task of `hash`, is there.
    pub async fn submit(
        &self,
        name: &str,
        hash: TaskHash,
        body: impl FnOnce() -> Vec<u8>,
    ) -> Submitted {
        let mut account_missing = false;
        let outcome = match self.steps(name, hash, body).await {
            Step::Done(outcome) => outcome,
            Step::Landed(_, placed) => Outcome::Scheduled(placed),
            Step::Again(kind, detail) => deferred(Scope::Task, kind, detail, SOON),
            Step::Refused(kind, detail) => {
                account_missing = kind == HoldKind::AccountRefused;
                deferred(Scope::Workload, kind, detail, LATER)
            }
        };
        Submitted { outcome, account_missing }
    }

    fn place(&self, facts: &JobFacts) {
        let moment = self.rooms.with(|ledger| ledger.moment());
        self.acks.lock().placed(facts, self.clock.mono(), moment);
        self.observe.job_seen(facts, moment);
    }

    async fn steps(&self, name: &str, hash: TaskHash, body: impl FnOnce() -> Vec<u8>) -> Step {
        // A Job known to be there needs no room and no POST, only its confirmation.
        if self.acks.lock().knows(name) {
            let began = self.rooms.with(|ledger| ledger.moment());
            match self.look(name, hash).await {
                Found::Ours(facts) => {
                    self.place(&facts);
                    return Step::Landed(facts, Placed::AlreadyThere);
                }
                Found::Deferred(outcome) => return Step::Done(outcome),
                Found::Nothing => self.acks.lock().absent(name, began),
            }
        }
        let mut flight = match self.rooms.reserve(name) {
            Ok(flight) => flight,
            Err(full) => return Step::Done(no_room(&full)),
        };
        let floor = self.acks.lock().create_begins();
        let _under_way = UnderWay { acks: &self.acks, floor };
        let body = body();
        let mut last = Step::Again(HoldKind::BackendFailed, "never tried".to_owned());
        for attempt in 0..TRIES {
            self.wait_before(attempt, hash).await;
            last = self.try_once(name, hash, &body, &mut flight).await;
            if !matches!(last, Step::Again(..)) {
                break;
            }
        }
        if let Step::Landed(facts, _) = &last {
            // The watermark must know of the Job before this create counts as ended.
            self.place(facts);
            flight.landed(facts, self.clock.mono() + UNSEEN);
        }
        last
    }

    async fn wait_before(&self, attempt: u32, hash: TaskHash) {
        if attempt > 0 {
            // Tasks that failed together don't come back together: the hash spreads them.
            let spread = Duration::from_millis(u64::from(hash.bytes()[0]));
            sleep(FIRST_WAIT * 2_u32.pow(attempt - 1) + spread).await;
        }
    }

    async fn try_once(&self, name: &str, hash: TaskHash, body: &[u8], flight: &mut Flight) -> Step {
        let slot = match self.slots.take().await {
            Ok(slot) => slot,
            Err(pause) => return Step::Done(self.paused(&pause)),
        };
        if !self.leader.may_create() {
            let text = "this process may not lead any more: its Lease was not renewed in time";
            let outcome = deferred(Scope::Backend, HoldKind::NotLeader, text, LEADS_SOON);
            return Step::Done(outcome);
        }
        // It may have waited long for its slot, where a rate is set.
        let overtaken = self.rooms.with(|ledger| ledger.overtaken(name));
        if let Some(full) = overtaken.filter(|_| !flight.is_in_doubt()) {
            return Step::Done(no_room(&full));
        }
        flight.sending(self.clock.mono() + self.request_timeout + LANDING);
        match self.api.create_job(name, body.to_vec()).await {
            Ok(facts) if facts.name == name => {
                slot.end(End::Answered);
                Step::Landed(facts, Placed::Created)
            }
            Ok(facts) => {
                let text = format!("the answer was for another Job, `{}`", facts.name);
                self.after_error(&ApiError::answered(201, "", &text), name, hash, slot, flight)
                    .await
            }
            Err(error) => self.after_error(&error, name, hash, slot, flight).await,
        }
    }

    async fn after_error(
        &self,
        error: &ApiError,
        name: &str,
        hash: TaskHash,
        slot: Slot,
        flight: &mut Flight,
    ) -> Step {
        let verdict = classify(error);
        if verdict == Verdict::MaybeDone {
            flight.in_doubt();
        } else {
            flight.not_made();
        }
        match verdict {
            Verdict::Exists => {
                slot.end(End::Answered);
                self.found(name, hash, flight, "it was there, and is gone").await
            }
            Verdict::MaybeDone => {
                slot.end(End::Failed(error.to_string()));
                self.found(name, hash, flight, &error.to_string()).await
            }
            Verdict::Retry(kind) => {
                slot.end(End::Failed(error.to_string()));
                Step::Again(kind, error.to_string())
            }
            Verdict::Throttled(after) => {
                let pause = slot.end(End::Throttled { after, detail: error.to_string() });
                Step::Done(self.stopped(HoldKind::Throttled, error, pause))
            }
            Verdict::Stop(kind) => {
                let pause = slot.end(End::Stopped(kind, error.to_string()));
                Step::Done(self.stopped(kind, error, pause))
            }
            Verdict::Refused(kind) => {
                slot.end(End::Answered);
                Step::Refused(kind, error.to_string())
            }
        }
    }

    /// Reads what is there after a POST whose answer did not settle it.
    async fn found(&self, name: &str, hash: TaskHash, flight: &Flight, absent: &str) -> Step {
        match self.look(name, hash).await {
            Found::Ours(facts) if flight.is_in_doubt() => Step::Landed(facts, Placed::Created),
            Found::Ours(facts) => Step::Landed(facts, Placed::AlreadyThere),
            Found::Nothing => Step::Again(HoldKind::BackendFailed, absent.to_owned()),
            Found::Deferred(outcome) => Step::Done(outcome),
        }
    }

    /// Reads the Job of this name, trying a few times.
    async fn look(&self, name: &str, hash: TaskHash) -> Found {
        let mut failure = None;
        for attempt in 0..TRIES {
            self.wait_before(attempt, hash).await;
            match self.api.get_job(name).await {
                Ok(None) => return Found::Nothing,
                Ok(Some(job)) if job.deleting => {
                    let text = format!("Job {name} is being deleted; its name is free after that");
                    let kind = HoldKind::BeingDeleted;
                    return Found::Deferred(deferred(Scope::Task, kind, text, SOON));
                }
                Ok(Some(job)) if job.task == Some(hash) => return Found::Ours(job),
                Ok(Some(_)) => {
                    let text = format!("Job {name} is there but is not this task's: delete it");
                    let kind = HoldKind::NameTaken;
                    return Found::Deferred(deferred(Scope::Task, kind, text, LATER));
                }
                Err(error) => failure = Some(error),
            }
        }
        let text = failure.map(|error| error.to_string()).unwrap_or_default();
        let text = format!("whether Job {name} is there could not be read: {text}");
        Found::Deferred(deferred(Scope::Task, HoldKind::BackendFailed, text, SOON))
    }

    fn paused(&self, pause: &Pause) -> Outcome {
        let rest = pause.until.saturating_duration_since(self.clock.mono());
        deferred(Scope::Backend, pause.kind, &pause.detail, rest)
    }

    fn stopped(&self, kind: HoldKind, error: &ApiError, pause: Option<Pause>) -> Outcome {
        let rest = pause.map(|pause| pause.until.saturating_duration_since(self.clock.mono()));
        deferred(Scope::Backend, kind, error, rest.unwrap_or(SOON))
    }
}

fn no_room(full: &Full) -> Outcome {
    let (kind, text) = match full {
        Full::Unknown(why) => (HoldKind::RoomUnknown, why.clone()),
        Full::Pending(room) => (
            HoldKind::PendingLimit,
            format!("{} Jobs are pending, the limit is {}", room.pending, room.pending_limit),
        ),
        Full::Live(room) => {
            (HoldKind::LiveLimit, format!("{} Jobs are live, which is the cap", room.live))
        }
    };
    deferred(Scope::Backend, kind, text, SOON)
}
