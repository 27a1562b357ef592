//! The scheduler inside the test's own process, where its counts and every decision can be read.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use katabatch::domain::end::EndKind;
use katabatch::domain::outcome::HoldKind;
use katabatch::ledger::record::{EndRecord, Lost};
use katabatch::pipeline::Ended;
use katabatch::pipeline::tally::{Counts, Decision, Observer, Tally, Verdict};
use katabatch::service::why::Why;
use katabatch::service::{Options, Service, ServiceError, load};
use katabatch::why::Answer;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::eventually::{Seen, eventually};
use crate::farm::Farm;

/// A scheduler that runs; it is told to stop when dropped.
pub struct Scheduler {
    stop: DropGuard,
    ended: JoinHandle<Result<Ended, ServiceError>>,
    tally: Arc<Tally>,
    log: Arc<Log>,
    why: Option<Why>,
}

#[derive(Default)]
struct Log(Mutex<Vec<Decision>>);

impl Observer for Log {
    fn decided(&self, decision: &Decision) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(decision.clone());
    }
}

impl Scheduler {
    /// Starts one on `farm`.
    ///
    /// # Errors
    /// When the service can't be put together.
    pub async fn start(farm: &Farm) -> Result<Self> {
        let log = Arc::new(Log::default());
        let options = Options { observer: Some(log.clone()), ledger: true, ..Options::default() };
        let service = Service::build(load(&farm.config())?, options).await?;
        let (tally, why) = (service.tally(), service.why());
        let token = CancellationToken::new();
        let ended = tokio::spawn(service.run(token.clone()));
        Ok(Self { stop: token.drop_guard(), ended, tally, log, why })
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        self.tally.read()
    }

    /// Every decision so far.
    pub fn decisions(&self) -> Vec<Decision> {
        self.log.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The ends of this job type's Jobs that this process saw, oldest first.
    ///
    /// # Errors
    /// When there is no ledger.
    pub fn ends(&self, job_type: &str) -> Result<Vec<EndRecord>> {
        let why = self.why.as_ref().context("it keeps no ledger")?;
        Ok(why.ledger.of(&job_type.into()).into_values().flat_map(|(_, ends)| ends).collect())
    }

    /// Ends and work lost, by kind.
    ///
    /// # Errors
    /// When there is no ledger.
    pub fn lost(&self) -> Result<BTreeMap<EndKind, Lost>> {
        Ok(self.why.as_ref().context("it keeps no ledger")?.ledger.lost())
    }

    /// Why a job type's tasks run or don't.
    ///
    /// # Errors
    /// When there is no ledger.
    pub async fn why(&self, job_type: &str) -> Result<Answer> {
        let why = self.why.as_ref().context("it keeps no ledger")?;
        Ok(why.answer(&job_type.into(), None).await)
    }

    /// The details of all holds of this kind.
    pub fn held(&self, kind: HoldKind) -> Vec<String> {
        let detail = |decision: Decision| match decision.verdict {
            Verdict::Held(of, detail) if of == kind => Some(detail),
            _ => None,
        };
        self.decisions().into_iter().filter_map(detail).collect()
    }

    /// Waits until the counts satisfy `is`.
    ///
    /// # Errors
    /// When they don't within that time; or when the scheduler has ended by itself.
    pub async fn until(
        &self,
        what: &str,
        within: Duration,
        is: impl Fn(&Counts) -> bool,
    ) -> Result<()> {
        let done = eventually(what, within, || async {
            let counts = self.counts();
            let over = is(&counts) || self.ended.is_finished();
            Ok(Seen::when(over, || format!("{counts:?}")))
        });
        done.await?;
        if self.ended.is_finished() && !is(&self.counts()) {
            bail!("{what}: the scheduler has ended by itself, with {:?}", self.counts());
        }
        Ok(())
    }

    /// Waits until a task is held for this reason; gives the latest detail.
    ///
    /// # Errors
    /// As [`Scheduler::until`].
    pub async fn until_held(&self, kind: HoldKind, within: Duration) -> Result<String> {
        let held = |counts: &Counts| counts.held.contains_key(&kind);
        self.until(&format!("a task is held: {kind}"), within, held).await?;
        self.held(kind).pop().context("a hold was counted that nobody was told of")
    }

    /// Whether it has ended, by itself or as told.
    pub fn has_ended(&self) -> bool {
        self.ended.is_finished()
    }

    /// Tells it to stop and waits for the end.
    ///
    /// # Errors
    /// What it ended with.
    pub async fn stop(self) -> Result<Counts> {
        drop(self.stop);
        match self.ended.await.context("the scheduler panicked")?? {
            Ended::Stopped => Ok(self.tally.read()),
            other => bail!("it was told to stop and ended as {other:?}"),
        }
    }
}
