//! This machine as a backend: the real program and its supervisors, with the kernel's cgroups.

#[path = "local/command.rs"]
mod command;
#[path = "local/limits.rs"]
mod limits;
#[path = "local/world.rs"]
mod world;

use std::process::ExitCode;

use anyhow::Result;
use katabatch::backend::local::Cgroups;
use katabatch_e2e::process::as_katabatch;
use katabatch_e2e::{Suite, Tier, Unavailable};

fn main() -> Result<ExitCode> {
    if let Some(code) = as_katabatch() {
        return Ok(code);
    }
    let tier = Tier::new("local", || async { Ok(()) });
    let cgroups = Tier::new("memory-cgroup", || async {
        let found = Cgroups::find().and_then(|cgroups| cgroups.take());
        found.map_err(|missing| Unavailable::new(missing.lacks, missing.hint).into())
    });
    Ok(Suite::new()?
        .side_by_side(4)
        .test_in(
            &cgroups,
            "a_task_over_its_memory_is_killed_and_its_neighbour_is_not",
            limits::memory,
        )
        .test_in(
            &cgroups,
            "a_deadline_ends_also_what_left_its_session_and_its_environment",
            limits::escaped,
        )
        .test_in(
            &cgroups,
            "what_a_killed_scheduler_and_supervisor_left_is_ended_at_the_next_start",
            limits::left_behind,
        )
        .test_in(&tier, "jobs_on_the_command_line_beat_the_configured", command::jobs)
        .test_in(&tier, "jobs_without_a_local_backend_is_an_error_with_a_hint", command::no_local)
        .test_in(&tier, "a_cancel_ends_the_tasks_of_its_target_and_no_other", command::cancelled)
        .test_in(&tier, "a_cancel_ends_tasks_while_no_scheduler_runs", command::cancelled_alone)
        .test_in(&tier, "a_backend_that_is_cleared_ends_all_that_runs", command::cleared)
        .main())
}
