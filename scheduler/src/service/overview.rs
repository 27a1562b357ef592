//! What the running service says of itself, gathered from its parts when asked.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Lookups;
use super::backends::gauges::Gauges;
use super::why::Why;
use crate::clock::Clock;
use crate::controls::{Controls, Mark};
use crate::domain::breaker::Open;
use crate::domain::end::EndKind;
use crate::domain::name::JobType;
use crate::domain::outcome::HoldKind;
use crate::domain::room::Room;
use crate::domain::task::WorkloadKey;
use crate::http::Source;
use crate::leadership::Leadership;
use crate::ledger::record::Lost;
use crate::pipeline::leases::Leases;
use crate::pipeline::snapshot::Snapshot;
use crate::pipeline::stages::Stages;
use crate::pipeline::tally::{Counts, Tally};
use crate::pipeline::view::{BackendView, QueueView, View};
use crate::status::{self, BackendState, Role, Status};
use crate::why::Answer;

/// The parts that are asked.
pub struct Overview {
    /// The scheduler's id.
    pub scheduler: String,
    /// The clocks.
    pub clock: Arc<dyn Clock>,
    /// Who leads.
    pub leadership: Arc<dyn Leadership>,
    /// The pipeline's state.
    pub view: Arc<View>,
    /// Shares and controls in force.
    pub in_force: watch::Receiver<Snapshot>,
    /// The pipeline's counts.
    pub tally: Arc<Tally>,
    /// In the order of the queues.
    pub leases: Vec<Arc<Leases>>,
    /// In the order of the backends.
    pub gauges: Vec<Gauges>,
    /// The catalog.
    pub lookups: Lookups,
    /// How Jobs ended, and why some don't run; `None` without a ledger.
    pub why: Option<Why>,
    /// What tells the service to stop, once it runs.
    pub stop: OnceLock<CancellationToken>,
}

#[async_trait]
impl Source for Overview {
    fn status(&self) -> Status {
        let (now, seen) = (self.clock.mono(), self.view.seen());
        let in_force = self.in_force.borrow().clone();
        let held = seen.held.iter().map(|(kind, held)| {
            let held = status::Held { tasks: held.tasks, detail: held.detail.clone() };
            (kind.label().to_owned(), held)
        });
        let backends = seen.backends.iter().enumerate();
        let queues = seen.queues.iter().enumerate();
        let mut status = Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            scheduler: self.scheduler.clone(),
            role: self.role(),
            can_create: false,
            why_not: Vec::new(),
            needs_a_person: needs_a_person(seen.held.iter().map(|(kind, h)| (*kind, h.tasks))),
            moved_seconds: seen.taken_at.map(|at| now.saturating_duration_since(at).as_secs_f64()),
            weight_epoch: in_force
                .epoch
                .map(|(number, since)| status::Epoch { number, since: since.to_string() }),
            pauses: pauses(&in_force.controls),
            lost_backends: lost(&in_force.controls),
            breakers: self.why.as_ref().map(breakers).unwrap_or_default(),
            queues: queues.map(|(at, view)| self.queue(at, view, self.clock.wall())).collect(),
            backends: backends.map(|(at, view)| self.backend(at, view, &in_force)).collect(),
            held: held.collect(),
            ready: seen.ready,
            in_flight: seen.in_flight,
            settling: seen.settling,
            counts: counts(&self.tally.read()),
            ends: self.why.as_ref().map(ends).unwrap_or_default(),
            flags_age_seconds: seen.flags_age.map(|age| age.as_secs_f64()),
            catalog_stale_seconds: self.lookups.stale_for().as_secs_f64(),
            fuse_blown: seen.fuse_blown,
        };
        status.judge(&seen.obstacles);
        status
    }

    fn stages(&self) -> Stages {
        self.view.stages()
    }

    fn stopping(&self) -> bool {
        self.stop.get().is_some_and(CancellationToken::is_cancelled)
    }

    async fn why(&self, job_type: &JobType, command: Option<&str>) -> Option<Answer> {
        Some(self.why.as_ref()?.answer(job_type, command).await)
    }
}

impl Overview {
    /// The service runs now, until this is cancelled.
    pub fn runs_until(&self, stop: CancellationToken) {
        // It runs once: it is consumed by that.
        let _ = self.stop.set(stop);
    }

    /// The leader is who leads at home, over all backends.
    fn role(&self) -> Role {
        if self.leadership.may_create() { Role::Leader } else { Role::Standby }
    }

    fn queue(&self, at: usize, view: &QueueView, now: Timestamp) -> status::Queue {
        let counts = self.leases.get(at).map(|leases| leases.counts()).unwrap_or_default();
        let age = |published| {
            Duration::try_from(now.duration_since(published)).unwrap_or_default().as_secs_f64()
        };
        status::Queue {
            name: view.name.to_string(),
            in_hand: view.in_hand,
            oldest_unacked_seconds: view.oldest.map(age),
            leases: counts.kept,
            leases_extended: counts.extended,
            lease_renewals_failed: counts.failed,
            leases_lapsed: counts.lapsed,
        }
    }

    fn backend(&self, at: usize, view: &BackendView, in_force: &Snapshot) -> status::Backend {
        let gauges = self.gauges.get(at);
        let share = in_force.backends.get(at);
        let (state, detail) = judge(view, &in_force.controls);
        let occupancy = match &view.room {
            Room::Known(occupancy) => Some(*occupancy),
            Room::Unknown(_) => None,
        };
        status::Backend {
            name: view.name.to_string(),
            state,
            detail,
            configured_share: share.map_or(0.0, |share| share.configured),
            effective_share: share.map_or(0.0, |share| share.effective),
            achieved_share: share.and_then(|share| share.achieved),
            waiting: share.map_or(0, |share| share.waiting),
            pending: occupancy.map(|o| o.pending),
            pending_limit: occupancy.map(|o| o.pending_limit),
            live: occupancy.map(|o| o.live),
            live_limit: occupancy.and_then(|o| o.live_limit),
            under_way: view.under_way,
            window: gauges.and_then(Gauges::window),
            api_calls: gauges.map(Gauges::api_calls).unwrap_or_default(),
        }
    }
}

/// Whether a backend takes tasks. One that was asked for a pause is only busy.
fn judge(view: &BackendView, controls: &Controls) -> (BackendState, Option<String>) {
    if let Some(mark) = controls.lost(&view.name) {
        return (BackendState::Lost, Some(format!("declared lost {mark}")));
    }
    if let Some(pause) = controls.backend_paused(&view.name) {
        return (BackendState::Paused, Some(format!("paused {}", pause.mark)));
    }
    let refused = view.refused.as_ref().filter(|why| why.kind != HoldKind::Throttled);
    match (&view.room, refused) {
        _ if view.takes == Some(false) => (BackendState::Off, None),
        (Room::Unknown(why), _) => (BackendState::Unknown, Some(why.clone())),
        _ if view.takes.is_none() => {
            (BackendState::Unknown, Some("its weight is not known".into()))
        }
        (_, Some(why)) => (BackendState::Refused, Some(format!("{}: {}", why.kind, why.detail))),
        (Room::Known(occupancy), None) if occupancy.free() == 0 => (BackendState::Full, None),
        (Room::Known(_), None) => (BackendState::Open, None),
    }
}

fn told(target: &impl ToString, mark: &Mark) -> status::Told {
    status::Told {
        target: target.to_string(),
        who: mark.who.clone(),
        why: mark.why.clone(),
        at: mark.at.to_string(),
        until: mark.until.map(|until| until.to_string()),
    }
}

fn pauses(controls: &Controls) -> Vec<status::Told> {
    controls.pauses.iter().map(|pause| told(&pause.target, &pause.mark)).collect()
}

fn lost(controls: &Controls) -> Vec<status::Lost> {
    let of = |(name, mark): (&String, &Mark)| {
        let cleared_at = controls.cleared.get(name).map(ToString::to_string);
        status::Lost { told: told(name, mark), cleared_at }
    };
    controls.lost.iter().map(of).collect()
}

fn breakers(why: &Why) -> Vec<status::Breaker> {
    let open = why.work.open();
    let of = |(key, open): (&WorkloadKey, &Open)| status::Breaker {
        command: key.command.to_string(),
        job_type: key.job_type.to_string(),
        cause: open.cause.label().to_owned(),
        detail: open.detail.clone(),
        since: open.since.to_string(),
        next_probe: open.next_probe.map(|at| at.to_string()),
        times: open.times,
    };
    open.iter().map(of).collect()
}

fn needs_a_person(held: impl Iterator<Item = (HoldKind, usize)>) -> Vec<String> {
    let text = |(kind, tasks)| format!("{kind} holds {tasks} tasks");
    held.filter(|(kind, _)| kind.pages()).map(text).collect()
}

fn ends(why: &Why) -> BTreeMap<String, status::Ends> {
    let of = |(kind, lost): (EndKind, Lost)| {
        let ends = status::Ends { count: lost.count, lost_seconds: lost.seconds };
        (kind.label().to_owned(), ends)
    };
    why.ledger.lost().into_iter().map(of).collect()
}

fn counts(counts: &Counts) -> status::Counts {
    let held = counts.held.iter().map(|(kind, n)| (kind.label().to_owned(), *n));
    let rejected = counts.rejected.iter().map(|(kind, n)| (kind.label().to_owned(), *n));
    status::Counts {
        leased: counts.leased,
        created: counts.created,
        already_there: counts.already_there,
        done: counts.done,
        acked: counts.acked,
        ack_lost: counts.ack_lost,
        not_ours: counts.not_ours,
        failed: counts.failed,
        released: counts.released,
        held: held.collect(),
        rejected: rejected.collect(),
        lost_to_dead_urls_seconds: counts.lost_to_dead_urls.as_secs_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controls::{Pause, Target};
    use crate::domain::glob::Glob;
    use crate::domain::outcome::{Deferral, Scope};
    use crate::domain::room::Occupancy;

    fn view(pending: usize) -> BackendView {
        let room = Occupancy { pending, pending_limit: 10, live: 0, live_limit: None };
        BackendView {
            name: "gke".into(),
            takes: Some(true),
            room: Room::Known(room),
            under_way: 0,
            refused: None,
        }
    }

    fn refused(kind: HoldKind) -> BackendView {
        let why = Deferral::new(Scope::Backend, kind, "the server said so", Duration::ZERO);
        BackendView { refused: Some(why), ..view(0) }
    }

    #[test]
    fn a_backend_is_red_for_what_every_task_would_meet_and_not_for_being_busy() {
        let unknown = BackendView { room: Room::Unknown("no list".into()), ..view(0) };
        for (view, state, detail) in [
            (view(0), BackendState::Open, ""),
            (view(10), BackendState::Full, ""),
            (refused(HoldKind::Throttled), BackendState::Open, ""),
            (refused(HoldKind::Forbidden), BackendState::Refused, "forbidden: the server said so"),
            (refused(HoldKind::NamespaceGone), BackendState::Refused, "namespace_gone: "),
            (unknown, BackendState::Unknown, "no list"),
            (BackendView { takes: Some(false), ..refused(HoldKind::Quota) }, BackendState::Off, ""),
            (BackendView { takes: None, ..view(0) }, BackendState::Unknown, "weight"),
        ] {
            let (is, said) = judge(&view, &Controls::default());
            assert_eq!(is, state, "{view:?}");
            assert!(said.unwrap_or_default().contains(detail), "{view:?}");
        }
    }

    #[test]
    fn what_a_person_said_of_a_backend_stands_above_all_else() {
        let at = Timestamp::UNIX_EPOCH;
        let mark = Mark { who: "ann".into(), why: "a bad node".into(), at, until: None };
        let pause = Pause { target: Target::Backend(Glob::new("g*")), mark: mark.clone() };
        let mut controls = Controls { pauses: vec![pause], ..Controls::default() };
        let (state, detail) = judge(&refused(HoldKind::Quota), &controls);
        assert_eq!(state, BackendState::Paused);
        assert!(detail.unwrap_or_default().contains("by ann"));
        controls.lost.insert("gke".into(), mark);
        assert_eq!(judge(&view(0), &controls).0, BackendState::Lost);
        let told = (pauses(&controls), lost(&controls));
        assert_eq!((told.0.len(), told.1.len()), (1, 1));
        assert!(told.0.iter().all(|told| told.target == "backend g*" && told.why == "a bad node"));
    }

    #[test]
    fn a_pause_of_all_tasks_is_known_by_its_name() {
        assert_eq!(Target::All.to_string(), status::EVERYTHING);
        assert_eq!(HoldKind::BreakerOpen.label(), status::BROKEN);
    }
}
