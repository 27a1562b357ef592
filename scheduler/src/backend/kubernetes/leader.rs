//! The leader's Lease: of all processes of one scheduler, one at a time spends its room.
//!
//! A `coordination.k8s.io` Lease `katabatch-<scheduler>` in the backend's namespace, written with
//! its resourceVersion as the precondition. Losing it ends the process, which is never survived
//! silently; [`term`] says when it may be taken and used. All times are [`Clock::mono`]'s, which
//! on Linux (`CLOCK_MONOTONIC`) stands still while the machine is suspended: a process that was
//! merely stopped sends nothing when it wakes, but one whose whole machine was suspended could, up
//! to what was left of its seven seconds. A Lease that somebody deletes by hand is taken at once by
//! a process that never saw it, up to one renewal before its holder notices and ends.
//!
//! Of a scheduler's namespaces one is home: its Lease decides who leads. The Lease of another
//! namespace is only taken while the home Lease is held, and counts only together with it; it is
//! what makes a new leader wait there for what the old one sent last.

mod term;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

pub use self::term::LEASE as DURATION;
use self::term::{Candidate, LEASE, Look, RENEW_EVERY, Term};
use super::api::{ApiError, ClusterApi, LeaseFacts};
use crate::clock::Clock;
use crate::leadership::Leadership;

/// The wait before a further look, and after a renewal that failed.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How often it is looked whether this process leads at home.
const HOME_AGAIN: Duration = Duration::from_millis(200);
/// How long a shutdown waits for the Lease to be let go of.
const LAST_WRITE: Duration = Duration::from_secs(3);

/// This process's part in who leads.
pub struct Leader {
    api: Arc<dyn ClusterApi>,
    clock: Arc<dyn Clock>,
    lease: String,
    ours: String,
    term: Mutex<Term>,
    /// When this process began to lead, what a predecessor sent last having landed.
    since: OnceLock<Timestamp>,
    /// Who leads the scheduler, where this namespace is not home.
    home: Option<Arc<dyn Leadership>>,
}

/// Why a renewal did not come about.
enum Unrenewed {
    /// The Lease is not ours any more: whose.
    Another(String),
    Failed(ApiError),
}

impl Leader {
    /// A process of `scheduler` that signs as `identity`, which no other process ever may.
    pub fn new(
        api: Arc<dyn ClusterApi>,
        clock: Arc<dyn Clock>,
        scheduler: &str,
        identity: &str,
        home: Option<Arc<dyn Leadership>>,
    ) -> Arc<Self> {
        let (lease, ours) = (format!("katabatch-{scheduler}"), identity.to_owned());
        let since = OnceLock::new();
        Arc::new(Self { api, clock, lease, ours, term: Mutex::default(), since, home })
    }

    fn term(&self) -> MutexGuard<'_, Term> {
        self.term.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leads_at_home(&self) -> bool {
        self.home.as_ref().is_none_or(|home| home.may_create())
    }

    /// Takes the Lease, however long that takes, and tells meanwhile why not yet. Whether the
    /// predecessor did not let go by itself: then what it sent last may still land.
    pub async fn acquire(&self, not_yet: impl Fn(&str)) -> bool {
        // Else two processes could hold one Lease each, and neither create anything.
        while !self.leads_at_home() {
            not_yet("this process does not lead: the home Lease is another's");
            sleep(HOME_AGAIN).await;
        }
        let mut candidate = Candidate::new(&self.ours);
        let mut said = String::new();
        loop {
            let asked = self.clock.mono();
            let found = self.api.get_lease(&self.lease).await;
            let why = match found.map(|found| candidate.look(found, asked, self.clock.mono())) {
                Err(error) => format!("which process leads could not be read: {error}"),
                Ok(Look::Wait(holder)) => {
                    format!("another process of this scheduler leads: {holder}")
                }
                Ok(Look::Take(version)) => match self.write(version).await {
                    Ok(()) => {
                        tracing::info!(
                            lease = self.lease,
                            holder = self.ours,
                            "this process leads"
                        );
                        return candidate.took_expired();
                    }
                    Err(error) => format!("the leader's Lease could not be taken: {error}"),
                },
            };
            if why != said {
                tracing::warn!(lease = self.lease, "nothing is created yet: {why}");
            }
            not_yet(&why);
            said = why;
            sleep_until(candidate.again(self.clock.mono(), AGAIN_AFTER)).await;
        }
    }

    /// What a predecessor sent has landed: creating may begin.
    pub fn begin(&self) {
        self.since.get_or_init(|| self.clock.wall());
        self.term().begin();
    }

    /// Renews the Lease for as long as it is ours; the answer is why it is not any more.
    pub async fn keep(&self) -> String {
        let lost = self.renew_until_lost().await;
        self.term().end();
        lost
    }

    async fn renew_until_lost(&self) -> String {
        let late = || format!("its Lease was not renewed for {} s", LEASE.as_secs());
        let mut next = self.last_renewal() + RENEW_EVERY;
        loop {
            sleep_until(next).await;
            // A process that was stopped for long may find its Lease untouched, and yet must not
            // go on: its requests of before may be anywhere.
            if self.term().has_expired(self.clock.mono()) {
                return late();
            }
            match timeout_at(self.last_renewal() + LEASE, self.renew()).await {
                Err(_) => return late(),
                Ok(Ok(())) => next = self.last_renewal() + RENEW_EVERY,
                Ok(Err(Unrenewed::Another(holder))) => {
                    return format!("`{holder}` holds its Lease");
                }
                Ok(Err(Unrenewed::Failed(error))) => {
                    tracing::warn!(lease = self.lease, %error, "the Lease was not renewed");
                    next = self.clock.mono() + AGAIN_AFTER;
                }
            }
        }
    }

    fn last_renewal(&self) -> Instant {
        self.term().last_renewal().unwrap_or_else(|| self.clock.mono())
    }

    async fn renew(&self) -> Result<(), Unrenewed> {
        let version = self.term().version.clone();
        match self.write(version).await {
            Ok(()) => Ok(()),
            Err(error) if error.is_conflict() || error.is_not_found() => {
                // Another's write, or an earlier one of ours whose answer was lost.
                let version = self.still_ours().await?;
                self.write(version).await.map_err(Unrenewed::Failed)
            }
            Err(error) => Err(Unrenewed::Failed(error)),
        }
    }

    /// The Lease's version, if it is ours.
    async fn still_ours(&self) -> Result<String, Unrenewed> {
        match self.api.get_lease(&self.lease).await {
            Ok(Some(found)) if found.holder == self.ours => Ok(found.resource_version),
            Ok(Some(found)) if !found.holder.is_empty() => Err(Unrenewed::Another(found.holder)),
            Ok(_) => Err(Unrenewed::Another("nobody".to_owned())),
            Err(error) => Err(Unrenewed::Failed(error)),
        }
    }

    /// Writes our name; the term counts from before the request.
    async fn write(&self, resource_version: String) -> Result<(), ApiError> {
        let began = self.clock.mono();
        let facts = LeaseFacts { holder: self.ours.clone(), resource_version };
        let written = self.api.put_lease(&self.lease, &facts, self.clock.wall()).await?;
        self.term().renewed(began, written.resource_version);
        Ok(())
    }

    /// Ends the term; whether this process led until now, and its work had begun.
    pub fn resign(&self) -> bool {
        let mut term = self.term();
        let led = term.may_create(self.clock.mono());
        term.end();
        led
    }

    /// Lets go of the Lease, so that the next process need not wait. Only after
    /// [`resign`](Self::resign), and when nothing that was sent can land any more.
    pub async fn release(&self) {
        let release = async {
            let version = self.term().version.clone();
            let mut facts = LeaseFacts { holder: String::new(), resource_version: version };
            let mut answer = self.api.put_lease(&self.lease, &facts, self.clock.wall()).await;
            // A renewal may have been under way.
            if answer.as_ref().is_err_and(ApiError::is_conflict)
                && let Ok(version) = self.still_ours().await
            {
                facts.resource_version = version;
                answer = self.api.put_lease(&self.lease, &facts, self.clock.wall()).await;
            }
            answer
        };
        match timeout(LAST_WRITE, release).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the Lease was not let go of; it expires"),
            Err(_) => tracing::warn!("the Lease was not let go of in time; it expires"),
        }
    }
}

impl Leadership for Leader {
    fn may_create(&self) -> bool {
        self.term().may_create(self.clock.mono()) && self.leads_at_home()
    }

    fn since(&self) -> Option<Timestamp> {
        self.since.get().copied().filter(|_| self.may_create())
    }
}
