//! The metrics, in the words of Prometheus: each scrape is written from what the scheduler says of
//! itself then. There is no global registry, and no label whose values are not a closed set: names
//! of queues and backends come from the configuration, job types are not among the labels.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::domain::breaker::Cause;
use crate::domain::end::EndKind;
use crate::domain::outcome::{HoldKind, RejectKind};
use crate::pipeline::stages::{BOUNDS, Histogram, Stages};
use crate::status::{Backend, Queue, Role, Status};

/// What the answer to a scrape is.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels<'a> = Vec<(&'static str, &'a str)>;

/// Writes a scrape.
///
/// # Errors
/// None is expected: writing to memory fails never.
pub fn render(status: Status, stages: Stages) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("katabatch");
    let build = Info::new(vec![("version", status.version.clone())]);
    registry.register("build", "What is running", build);
    registry.register_collector(Box::new(Scrape { status, stages }));
    let mut out = String::new();
    text::encode(&mut out, &registry)?;
    Ok(out)
}

#[derive(Debug)]
struct Scrape {
    status: Status,
    stages: Stages,
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut to = Writer(encoder);
        to.tasks(&self.status)?;
        to.state(&self.status)?;
        to.queues(&self.status.queues)?;
        to.backends(&self.status.backends)?;
        to.stages(&self.stages)
    }
}

struct Writer<'a>(DescriptorEncoder<'a>);

impl Writer<'_> {
    fn counters<'a>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (Labels<'a>, u64)>,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in rows {
            metric.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        Ok(())
    }

    fn gauges<'a>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (Labels<'a>, f64)>,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in rows {
            metric.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.0.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
    }

    fn tasks(&mut self, status: &Status) -> fmt::Result {
        let counts = &status.counts;
        let task = |outcome, reason, n| (vec![("outcome", outcome), ("reason", reason)], n);
        let mut rows = vec![
            task("scheduled", "created", counts.created),
            task("scheduled", "already_there", counts.already_there),
            task("scheduled", "done", counts.done),
        ];
        let of = |counts: &std::collections::BTreeMap<String, u64>, label: &str| {
            counts.get(label).copied().unwrap_or(0)
        };
        let held = HoldKind::ALL.iter().map(|kind| kind.label());
        rows.extend(held.map(|label| task("held", label, of(&counts.held, label))));
        let rejected = RejectKind::ALL.iter().map(|kind| kind.label());
        rows.extend(rejected.map(|label| task("rejected", label, of(&counts.rejected, label))));
        self.counters("tasks", "What was decided of tasks, each time that it was", rows)?;
        let rows = [
            ("leased", counts.leased),
            ("acked", counts.acked),
            ("ack_lost", counts.ack_lost),
            ("not_ours", counts.not_ours),
            ("failed", counts.failed),
            ("released", counts.released),
        ];
        let rows = rows.map(|(what, n)| (vec![("event", what)], n));
        self.counters("messages", "What became of the queues' messages", rows)?;
        self.ends(status)
    }

    fn ends(&mut self, status: &Status) -> fmt::Result {
        let of = |kind: &EndKind| status.ends.get(kind.label()).copied().unwrap_or_default();
        let rows = EndKind::ALL.iter().map(|kind| (vec![("end", kind.label())], of(kind).count));
        self.counters("ended_jobs", "Jobs that ended, since the ledger was begun", rows)?;
        let help = "Work lost: the expected runs of tasks that were rejected, and the time that \
                    Jobs ran which did not succeed";
        let mut metric =
            self.0.encode_descriptor("work_lost_seconds", help, None, MetricType::Counter)?;
        let failed = EndKind::ALL.iter().filter(|kind| **kind != EndKind::Succeeded);
        let lost = failed.map(|kind| (kind.label(), of(kind).lost_seconds));
        for (cause, seconds) in lost.chain([("dead_url", status.counts.lost_to_dead_urls_seconds)])
        {
            metric
                .encode_family(&[("cause", cause)])?
                .encode_counter::<NoLabelSet, _, u64>(&seconds, None)?;
        }
        Ok(())
    }

    fn state(&mut self, status: &Status) -> fmt::Result {
        let held = HoldKind::ALL.iter().map(|kind| {
            let tasks = status.held.get(kind.label()).map_or(0, |held| held.tasks);
            (vec![("reason", kind.label())], count(tasks))
        });
        self.gauges("held_tasks", "Tasks that wait, by reason", held)?;
        let in_hand = [
            ("ready", status.ready),
            ("in_flight", status.in_flight),
            ("settling", status.settling),
        ];
        let in_hand = in_hand.map(|(state, n)| (vec![("state", state)], count(n)));
        self.gauges("in_hand_tasks", "Tasks in hand that do not wait for a reason", in_hand)?;
        let open = Cause::ALL.iter().map(|cause| {
            let of = status.breakers.iter().filter(|open| open.cause == cause.label());
            (vec![("cause", cause.label())], count(of.count()))
        });
        self.gauges("breakers_open", "Workloads whose breaker is open, by cause", open)?;
        let can = "Whether a task could become a Job now, a full backend aside";
        self.gauge("can_create", can, bit(status.can_create))?;
        self.gauge("leader", "Whether this process leads", bit(status.role == Role::Leader))?;
        let fuse = "Whether too many rejects stopped the intake";
        self.gauge("fuse_blown", fuse, bit(status.fuse_blown))?;
        if let Some(age) = status.flags_age_seconds {
            self.gauge("flags_age_seconds", "How old the feature flags are", age)?;
        }
        let stale = "For how long the catalog can't be read";
        self.gauge("catalog_stale_seconds", stale, status.catalog_stale_seconds)
    }

    fn queues(&mut self, queues: &[Queue]) -> fmt::Result {
        fn of(queue: &Queue) -> Labels<'_> {
            vec![("queue", queue.name.as_str())]
        }
        let age = |queue: &'_ Queue| queue.oldest_unacked_seconds.unwrap_or(0.0);
        let rows = queues.iter().map(|queue| (of(queue), age(queue)));
        self.gauges("oldest_unacked_seconds", "The age of the oldest leased message", rows)?;
        let rows = queues.iter().map(|queue| (of(queue), count(queue.leases)));
        self.gauges("leases", "Leases that are kept", rows)?;
        let rows = queues.iter().map(|queue| (of(queue), queue.leases_extended));
        self.counters("leases_extended", "Renewals of leases", rows)?;
        let rows = queues.iter().map(|queue| (of(queue), queue.lease_renewals_failed));
        self.counters("lease_renewals_failed", "Renewals of leases that failed", rows)?;
        let rows = queues.iter().map(|queue| (of(queue), queue.leases_lapsed));
        self.counters("leases_lapsed", "Leases lost before their message was settled", rows)
    }

    fn backends(&mut self, backends: &[Backend]) -> fmt::Result {
        fn of(backend: &Backend) -> Labels<'_> {
            vec![("backend", backend.name.as_str())]
        }
        let takes = |backend: &Backend| bit(backend.takes());
        let rows = backends.iter().map(|backend| (of(backend), takes(backend)));
        self.gauges("backend_up", "Whether it takes tasks, room aside", rows)?;
        let rows = backends.iter().flat_map(|backend| {
            let shares = [
                ("configured", Some(backend.configured_share)),
                ("effective", Some(backend.effective_share)),
                ("achieved", backend.achieved_share),
            ];
            shares.into_iter().filter_map(move |(share, value)| {
                let mut labels = of(backend);
                labels.push(("share", share));
                value.map(|value| (labels, value))
            })
        });
        let help =
            "Its part of all tasks, as its flag asks, as in force, and of the last Jobs made";
        self.gauges("backend_share", help, rows)?;
        let rows = backends.iter().map(|backend| (of(backend), count(backend.waiting)));
        self.gauges("backend_waiting_tasks", "Tasks that wait for it", rows)?;
        type Number = fn(&Backend) -> Option<usize>;
        let numbers: [(&str, &str, Number); 5] = [
            ("pending_jobs", "Jobs that wait to start", |b| b.pending),
            ("pending_jobs_limit", "The most that may", |b| b.pending_limit),
            ("live_jobs", "Unfinished Jobs", |b| b.live),
            ("live_jobs_limit", "The most that may be", |b| b.live_limit),
            ("create_window", "How many creates may be under way", |b| b.window),
        ];
        for (name, help, number) in numbers {
            // What is not known has no value, rather than a wrong one.
            let known = |b| number(b).map(|n| (of(b), count(n)));
            self.gauges(name, help, backends.iter().filter_map(known))?;
        }
        let rows = backends.iter().flat_map(|backend| {
            backend.api_calls.iter().map(move |calls| {
                let mut labels = of(backend);
                labels.push(("verb", calls.verb.as_str()));
                labels.push(("code", calls.code.as_str()));
                (labels, calls.count)
            })
        });
        self.counters("api_calls", "Calls of the backends' APIs", rows)
    }

    fn stages(&mut self, stages: &Stages) -> fmt::Result {
        let help = "How long scheduled tasks took: queued until leased, held until submitted, \
                    submitted until confirmed";
        let name = "stage_seconds";
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (stage, Histogram { buckets, sum }) in stages.iter() {
            let bounds = BOUNDS.iter().copied().chain([f64::MAX]);
            let rows: Vec<_> = bounds.zip(buckets.iter().copied()).collect();
            let labels = [("stage", stage)];
            let n = buckets.iter().sum();
            metric.encode_family(&labels)?.encode_histogram::<NoLabelSet>(*sum, n, &rows, None)?;
        }
        Ok(())
    }
}

fn bit(is: bool) -> f64 {
    if is { 1.0 } else { 0.0 }
}

/// A number of tasks as a gauge: exact far above any number there will be.
fn count(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests;
