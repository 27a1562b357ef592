//! Liveness, readiness, and whether anything can be created.
//!
//! The first two are for Kubernetes' probes: a standby is alive and ready, a scheduler that its
//! cluster refuses is too, since a restart would mend nothing. The third is for alerts.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;

use super::Endpoint;
use crate::status::Status;

/// A pipeline that has not moved for so long hangs: it wakes every minute at the latest.
const HANGS_AFTER: f64 = 180.0;

type Answer = (StatusCode, String);

/// Whether the process should be left alone.
pub async fn live(State(endpoint): State<Arc<Endpoint>>) -> Answer {
    liveness(&endpoint.source.status())
}

fn liveness(status: &Status) -> Answer {
    match status.moved_seconds {
        Some(still) if still > HANGS_AFTER => {
            let text = format!("the pipeline has not moved for {still:.0} s\n");
            (StatusCode::SERVICE_UNAVAILABLE, text)
        }
        _ => (StatusCode::OK, "ok\n".to_owned()),
    }
}

/// Whether the process may be counted on: it is up, leading or standing by.
pub async fn ready(State(endpoint): State<Arc<Endpoint>>) -> Answer {
    if endpoint.source.stopping() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n".to_owned());
    }
    (StatusCode::OK, "ok\n".to_owned())
}

/// Whether a task could become a Job now; if not, why not, a reason a line.
pub async fn create(State(endpoint): State<Arc<Endpoint>>) -> Answer {
    creation(&endpoint.source.status())
}

fn creation(status: &Status) -> Answer {
    let mut text = String::new();
    for why in &status.why_not {
        let _ = writeln!(text, "{why}");
    }
    if status.can_create {
        text.push_str("ok\n");
    }
    for what in &status.needs_a_person {
        let _ = writeln!(text, "needs a person: {what}");
    }
    let code = if status.can_create { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipeline_that_stands_still_for_minutes_is_not_alive() {
        for (moved, expect) in [(None, 200), (Some(61.0), 200), (Some(181.0), 503)] {
            let status = Status { moved_seconds: moved, ..Status::default() };
            assert_eq!(liveness(&status).0.as_u16(), expect, "{moved:?}");
        }
    }

    #[test]
    fn what_cant_be_created_is_said_and_so_is_what_needs_a_person() {
        let mut status = Status { why_not: vec!["no rights".into()], ..Status::default() };
        status.needs_a_person = vec!["bad_mapping holds 3 tasks".into()];
        let (code, text) = creation(&status);
        assert_eq!(code.as_u16(), 503);
        assert_eq!(text, "no rights\nneeds a person: bad_mapping holds 3 tasks\n");
        let (code, text) = creation(&Status { can_create: true, ..Status::default() });
        assert_eq!((code.as_u16(), text.as_str()), (200, "ok\n"));
    }
}
