//! What a scrape says, line by line.

use std::time::Duration;

use super::*;
use crate::pipeline::stages::Stage;
use crate::status::{ApiCalls, BackendState, Ends, Held};

fn scrape(status: Status, stages: Stages) -> String {
    render(status, stages).expect("a scrape")
}

#[track_caller]
fn check(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|l| l == *line), "no `{line}` in:\n{text}");
    }
}

#[test]
fn counts_and_states_stand_under_conventional_names() {
    let mut status = Status { version: "1.2.3".into(), can_create: true, ..Status::default() };
    status.counts.created = 7;
    status.counts.lost_to_dead_urls_seconds = 9000.5;
    status.counts.rejected.insert("dead_url".into(), 2);
    status.held.insert("pending_limit".into(), Held { tasks: 3, detail: String::new() });
    status.ends.insert("evicted".into(), Ends { count: 2, lost_seconds: 7200.0 });
    let text = scrape(status, Stages::default());
    check(
        &text,
        &[
            "katabatch_build_info{version=\"1.2.3\"} 1",
            "katabatch_tasks_total{outcome=\"scheduled\",reason=\"created\"} 7",
            "katabatch_tasks_total{outcome=\"rejected\",reason=\"dead_url\"} 2",
            "katabatch_tasks_total{outcome=\"held\",reason=\"quota\"} 0",
            "katabatch_held_tasks{reason=\"pending_limit\"} 3.0",
            "katabatch_work_lost_seconds_total{cause=\"dead_url\"} 9000.5",
            "katabatch_ended_jobs_total{end=\"evicted\"} 2",
            "katabatch_ended_jobs_total{end=\"succeeded\"} 0",
            "katabatch_work_lost_seconds_total{cause=\"evicted\"} 7200.0",
            "katabatch_can_create 1.0",
            "katabatch_leader 0.0",
            "# EOF",
        ],
    );
    assert!(!text.contains("flags_age"), "flags never read have no age");
}

#[test]
fn what_is_not_known_of_a_backend_has_no_value() {
    let calls = ApiCalls { verb: "create".into(), code: "201".into(), count: 5 };
    let known = Backend {
        name: "gke".into(),
        state: BackendState::Full,
        configured_share: 0.7,
        effective_share: 1.0,
        pending: Some(10),
        pending_limit: Some(10),
        api_calls: vec![calls],
        ..Backend::default()
    };
    let unknown = Backend { name: "other".into(), ..Backend::default() };
    let status = Status { backends: vec![known, unknown], ..Status::default() };
    let text = scrape(status, Stages::default());
    check(
        &text,
        &[
            "katabatch_pending_jobs{backend=\"gke\"} 10.0",
            "katabatch_backend_up{backend=\"gke\"} 1.0",
            "katabatch_backend_share{backend=\"gke\",share=\"configured\"} 0.7",
            "katabatch_backend_share{backend=\"gke\",share=\"effective\"} 1.0",
            "katabatch_backend_up{backend=\"other\"} 0.0",
            "katabatch_api_calls_total{backend=\"gke\",verb=\"create\",code=\"201\"} 5",
        ],
    );
    assert!(!text.contains("katabatch_pending_jobs{backend=\"other\"}"), "{text}");
    assert!(!text.contains("share=\"achieved\""), "{text}");
}

#[test]
fn stages_are_histograms_whose_buckets_add_up() {
    let mut stages = Stages::default();
    for millis in [20, 30, 2_000, 4_000_000] {
        stages.observe(Stage::Submitted, Duration::from_millis(millis));
    }
    let text = scrape(Status::default(), stages);
    check(
        &text,
        &[
            "katabatch_stage_seconds_bucket{le=\"0.05\",stage=\"submitted\"} 2",
            "katabatch_stage_seconds_bucket{le=\"2.5\",stage=\"submitted\"} 3",
            "katabatch_stage_seconds_bucket{le=\"+Inf\",stage=\"submitted\"} 4",
            "katabatch_stage_seconds_count{stage=\"submitted\"} 4",
        ],
    );
}
