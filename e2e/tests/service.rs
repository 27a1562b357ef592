//! The scheduler against a real control plane, under the Role that we ship, through a proxy that
//! breaks what it is told to.

#[path = "service/accounts.rs"]
mod accounts;
#[path = "service/answers.rs"]
mod answers;
#[path = "service/check.rs"]
mod check;
#[path = "service/commands.rs"]
mod commands;
#[path = "service/crash.rs"]
mod crash;
#[path = "service/finished.rs"]
mod finished;
#[path = "service/gate.rs"]
mod gate;
#[path = "service/jobs.rs"]
mod jobs;
#[path = "service/leader.rs"]
mod leader;
#[path = "service/memory.rs"]
mod memory;
#[path = "service/names.rs"]
mod names;
#[path = "service/pods.rs"]
mod pods;
#[path = "service/refusals.rs"]
mod refusals;
#[path = "service/role.rs"]
mod role;
#[path = "service/room.rs"]
mod room;
#[path = "service/secrets.rs"]
mod secrets;
#[path = "service/watches.rs"]
mod watches;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use katabatch_e2e::process::as_katabatch;
use katabatch_e2e::{Case, Suite, farm::Plan, site::Site};

/// Long enough for a busy machine; nothing here takes nearly so long.
const SOON: Duration = Duration::from_secs(60);

/// A site on the case's own control plane and namespace.
async fn site(case: &Case, plan: Plan) -> Result<Site> {
    Site::new(&case.plane, &case.namespace, plan).await
}

/// Lists each test under its own name; the heavy and the long ones first.
macro_rules! suite {
    ($($file:ident::$test:ident,)*) => {
        Suite::new()?.side_by_side(6)$(.test(stringify!($test), $file::$test))*
    };
}

fn main() -> Result<ExitCode> {
    if let Some(code) = as_katabatch() {
        return Ok(code);
    }
    let suite = suite! {
        watches::a_silent_watch_is_given_up_and_nothing_is_over,
        crash::a_killed_scheduler_goes_on_and_makes_each_job_once,
        gate::each_task_runs_once_over_four_backends_whatever_happens,
        gate::a_pause_holds_and_a_cancel_deletes,
        memory::ten_thousand_pending_pods_fit_in_little_memory,
        leader::a_killed_leader_is_followed_soon,
        leader::a_leader_that_was_stopped_creates_nothing_once_woken,
        leader::a_leader_that_was_stopped_briefly_goes_on,
        leader::a_leader_that_is_cut_off_stops_before_the_next_one_begins,
        crash::an_api_server_that_was_away_loses_nothing,
        crash::a_killed_scheduler_that_tidies_up_makes_no_job_twice,
        crash::sigterm_leaves_nothing_leased,
        crash::sigterm_while_no_server_answers_leaves_nothing_leased,
        crash::a_server_that_is_away_at_the_start_is_waited_for,
        answers::a_lost_answer_makes_one_job,
        answers::a_lost_request_is_made_again,
        answers::a_late_answer_counts_as_lost,
        answers::an_empty_201_makes_one_job,
        answers::a_504_after_the_work_makes_one_job,
        answers::a_definite_500_is_tried_again_for_its_task_alone,
        answers::a_401_is_tried_again_at_once,
        answers::a_lost_answer_that_cant_be_looked_up_makes_one_job,
        answers::a_429_stops_every_create_and_keeps_the_leases,
        answers::a_failing_webhook_is_tried_a_few_times_then_held,
        refusals::a_used_up_quota_costs_one_create_a_period,
        refusals::a_missing_right_costs_one_create_a_period,
        refusals::what_admission_denies_holds_its_workload_alone,
        refusals::a_terminating_namespace_costs_one_create_a_period,
        room::the_pending_limit_holds_and_follows_its_flag,
        room::the_live_cap_holds,
        room::pods_that_were_there_are_counted_over_an_expired_page,
        room::standard_pods_that_were_there_are_counted,
        room::nothing_is_created_while_pods_cant_be_listed,
        room::two_processes_of_one_scheduler_share_its_room,
        watches::cut_and_expired_watches_lose_nothing_and_nothing_is_over,
        jobs::a_name_that_is_taken_holds_its_task_alone,
        jobs::a_job_being_deleted_is_waited_for,
        jobs::two_messages_of_one_input_make_one_job,
        jobs::the_server_keeps_what_was_sent,
        names::odd_job_types_get_valid_and_distinct_labels,
        names::the_worker_gets_the_url_byte_for_byte,
        accounts::an_absent_account_is_made_with_its_annotation,
        accounts::an_account_without_annotation_is_used,
        accounts::an_account_of_another_is_refused,
        accounts::the_default_account_is_refused,
        accounts::a_bare_name_is_used_and_never_made,
        accounts::an_account_made_in_between_is_read_again,
        accounts::an_account_of_another_made_in_between_is_refused,
        finished::a_finished_job_goes_once_acked_and_not_before,
        role::the_role_is_what_a_full_run_uses,
        commands::two_schedulers_dont_share_a_namespace,
        commands::submit_prints_what_became_of_each_task,
        check::check_passes_under_the_shipped_role,
        check::check_names_a_missing_right,
        check::run_refuses_to_start_without_a_right,
        check::check_says_where_no_node_holds_a_pod_and_its_overhead,
        check::check_wants_the_host_devices_attested_away,
        check::check_goes_on_where_a_server_is_away,
        commands::render_and_queue_keep_their_streams_apart,
        refusals::a_missing_right_is_said_in_the_log,
        commands::the_demo_runs_on_a_cluster,
        secrets::no_signature_shows_anywhere,
    };
    Ok(suite.main())
}
