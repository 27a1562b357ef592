//! What the running service says of itself, gathered from its parts when asked.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::Lookups;
use super::backends::Gauges;
use crate::clock::Clock;
use crate::domain::outcome::HoldKind;
use crate::domain::room::Room;
use crate::http::Source;
use crate::pipeline::leases::Leases;
use crate::pipeline::stages::Stages;
use crate::pipeline::tally::{Counts, Tally};
use crate::pipeline::view::{BackendView, QueueView, View};
use crate::status::{self, BackendState, Role, Status};

/// The parts that are asked.
pub struct Overview {
    /// The scheduler's id.
    pub scheduler: String,
    /// The clocks.
    pub clock: Arc<dyn Clock>,
    /// The pipeline's state.
    pub view: Arc<View>,
    /// The pipeline's counts.
    pub tally: Arc<Tally>,
    /// In the order of the queues.
    pub leases: Vec<Arc<Leases>>,
    /// In the order of the backends.
    pub gauges: Vec<Gauges>,
    /// The catalog.
    pub lookups: Lookups,
    /// What tells the service to stop, once it runs.
    pub stop: OnceLock<CancellationToken>,
}

impl Source for Overview {
    fn status(&self) -> Status {
        let (now, snapshot) = (self.clock.mono(), self.view.snapshot());
        let held = snapshot.held.iter().map(|(kind, held)| {
            let held = status::Held { tasks: held.tasks, detail: held.detail.clone() };
            (kind.label().to_owned(), held)
        });
        let backends = snapshot.backends.iter().enumerate();
        let queues = snapshot.queues.iter().enumerate();
        let mut status = Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            scheduler: self.scheduler.clone(),
            role: self.role(),
            can_create: false,
            why_not: Vec::new(),
            needs_a_person: needs_a_person(snapshot.held.iter().map(|(kind, h)| (*kind, h.tasks))),
            moved_seconds: snapshot
                .taken_at
                .map(|at| now.saturating_duration_since(at).as_secs_f64()),
            queues: queues.map(|(at, view)| self.queue(at, view, self.clock.wall())).collect(),
            backends: backends.map(|(at, view)| self.backend(at, view)).collect(),
            held: held.collect(),
            ready: snapshot.ready,
            in_flight: snapshot.in_flight,
            settling: snapshot.settling,
            counts: counts(&self.tally.read()),
            flags_age_seconds: snapshot.flags_age.map(|age| age.as_secs_f64()),
            catalog_stale_seconds: self.lookups.stale_for().as_secs_f64(),
            fuse_blown: snapshot.fuse_blown,
        };
        status.judge();
        if !snapshot.flags_usable && snapshot.flags_age.is_some() {
            status.can_create = false;
            let why = "the feature flags can't be read, and what was read last is too old";
            status.why_not.push(why.to_owned());
        }
        status
    }

    fn stages(&self) -> Stages {
        self.view.stages()
    }

    fn stopping(&self) -> bool {
        self.stop.get().is_some_and(CancellationToken::is_cancelled)
    }
}

impl Overview {
    /// The service runs now, until this is cancelled.
    pub fn runs_until(&self, stop: CancellationToken) {
        // It runs once: it is consumed by that.
        let _ = self.stop.set(stop);
    }

    /// The leader is who leads on a Kubernetes backend; where there is none, nobody else could.
    fn role(&self) -> Role {
        let mut leading = self.gauges.iter().filter_map(Gauges::leads).peekable();
        let alone = leading.peek().is_none();
        if alone || leading.any(|leads| leads) { Role::Leader } else { Role::Standby }
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

    fn backend(&self, at: usize, view: &BackendView) -> status::Backend {
        let gauges = self.gauges.get(at);
        let (state, detail) = judge(view);
        let occupancy = match &view.room {
            Room::Known(occupancy) => Some(*occupancy),
            Room::Unknown(_) => None,
        };
        status::Backend {
            name: view.name.to_string(),
            state,
            detail,
            weight: view.weight,
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
fn judge(view: &BackendView) -> (BackendState, Option<String>) {
    let refused = view.refused.as_ref().filter(|why| why.kind != HoldKind::Throttled);
    match (&view.room, refused) {
        _ if view.off || view.weight <= 0.0 => (BackendState::Off, None),
        (Room::Unknown(why), _) => (BackendState::Unknown, Some(why.clone())),
        (_, Some(why)) => (BackendState::Refused, Some(format!("{}: {}", why.kind, why.detail))),
        (Room::Known(occupancy), None) if occupancy.free() == 0 => (BackendState::Full, None),
        (Room::Known(_), None) => (BackendState::Open, None),
    }
}

fn needs_a_person(held: impl Iterator<Item = (HoldKind, usize)>) -> Vec<String> {
    let text = |(kind, tasks)| format!("{kind} holds {tasks} tasks");
    held.filter(|(kind, _)| kind.pages()).map(text).collect()
}

fn counts(counts: &Counts) -> status::Counts {
    let held = counts.held.iter().map(|(kind, n)| (kind.label().to_owned(), *n));
    let rejected = counts.rejected.iter().map(|(kind, n)| (kind.label().to_owned(), *n));
    status::Counts {
        leased: counts.leased,
        created: counts.created,
        already_there: counts.already_there,
        acked: counts.acked,
        ack_lost: counts.ack_lost,
        not_ours: counts.not_ours,
        released: counts.released,
        held: held.collect(),
        rejected: rejected.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::outcome::{Deferral, Scope};
    use crate::domain::room::Occupancy;

    fn view(pending: usize) -> BackendView {
        let room = Occupancy { pending, pending_limit: 10, live: 0, live_limit: None };
        BackendView {
            name: "gke".into(),
            weight: 1.0,
            off: false,
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
            (BackendView { off: true, ..refused(HoldKind::Quota) }, BackendState::Off, ""),
            (BackendView { weight: 0.0, ..view(0) }, BackendState::Off, ""),
        ] {
            let (is, said) = judge(&view);
            assert_eq!(is, state, "{view:?}");
            assert!(said.unwrap_or_default().contains(detail), "{view:?}");
        }
    }
}
