//! GCP Batch as a backend: the real program against Batch's REST API on this machine, with faults.

#[path = "batch/service.rs"]
mod service;
#[path = "batch/wire.rs"]
mod wire;
#[path = "batch/world.rs"]
mod world;

use std::process::ExitCode;

use anyhow::Result;
use katabatch_e2e::process::as_katabatch;
use katabatch_e2e::{Suite, Tier};

fn main() -> Result<ExitCode> {
    if let Some(code) = as_katabatch() {
        return Ok(code);
    }
    // Nothing is needed but this machine.
    let tier = Tier::new("batch", || async { Ok(()) });
    Ok(Suite::new()?
        .side_by_side(4)
        .test_in(&tier, "each_task_is_in_one_job", service::once)
        .test_in(&tier, "a_killed_scheduler_goes_on_and_puts_each_task_in_one_job", service::killed)
        .test_in(&tier, "a_cancel_deletes_the_jobs_of_its_target_and_no_other", service::cancelled)
        .test_in(&tier, "quotas_failures_and_lost_answers_cost_no_task", service::storms)
        .test_in(&tier, "a_lost_answer_is_settled_and_a_closed_connection_asked_again", wire::lost)
        .test_in(&tier, "each_refusal_is_told_from_the_others", wire::refusals)
        .test_in(&tier, "a_token_that_is_refused_is_renewed_once", wire::tokens)
        .test_in(&tier, "jobs_of_earlier_processes_are_found_page_by_page", wire::pages)
        .test_in(&tier, "queued_jobs_are_counted_and_listed_where_they_cannot_be", wire::counting)
        .main())
}
