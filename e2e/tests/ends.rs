//! How Jobs end on a real control plane, each kind of end brought about, and what `why` says of
//! each state. No kubelet runs here: logs can't be read, and the reason stands in their place.

#[path = "ends/completed.rs"]
mod completed;
#[path = "ends/kinds.rs"]
mod kinds;
#[path = "ends/retries.rs"]
mod retries;
#[path = "ends/stuck.rs"]
mod stuck;
#[path = "ends/why.rs"]
mod why;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use katabatch::domain::end::EndKind;
use katabatch::domain::log_tail::LogTail;
use katabatch::ledger::record::EndRecord;
use katabatch_e2e::eventually::Seen;
use katabatch_e2e::farm::{JOB_TYPE, Plan};
use katabatch_e2e::process::as_katabatch;
use katabatch_e2e::scheduler::Scheduler;
use katabatch_e2e::{Case, Suite, eventually, site::Site};

/// Long enough for a busy machine; nothing here takes nearly so long.
const SOON: Duration = Duration::from_secs(120);

/// A site on the case's own control plane and namespace.
async fn site(case: &Case, plan: Plan) -> Result<Site> {
    Site::new(&case.plane, &case.namespace, plan).await
}

/// Waits for the end of the only Job.
async fn only_end(scheduler: &Scheduler) -> Result<EndRecord> {
    let end = eventually("an end", SOON, || async {
        Ok(match scheduler.ends(JOB_TYPE)?.pop() {
            Some(end) => Seen::Done(end),
            None => Seen::NotYet(format!("{:?}", scheduler.counts())),
        })
    })
    .await?;
    ensure!(scheduler.ends(JOB_TYPE)?.len() == 1, "{:?}", scheduler.ends(JOB_TYPE)?);
    Ok(end)
}

/// Runs one task to its end.
async fn ended(case: &Case, plan: Plan) -> Result<EndRecord> {
    let site = site(case, plan).await?;
    site.farm.fill(1).await?;
    let scheduler = site.scheduler().await?;
    let end = only_end(&scheduler).await?;
    scheduler.stop().await?;
    Ok(end)
}

/// It ended so, and was said to have with these words.
fn check(end: &EndRecord, kind: EndKind, exit_code: Option<i32>, detail: &str) -> Result<()> {
    ensure!((end.kind, end.exit_code) == (kind, exit_code), "{end:?}");
    ensure!(end.detail.contains(detail), "{end:?} lacks {detail}");
    ensure!(!matches!(end.tail, LogTail::Text(_)), "nothing was printed: {end:?}");
    Ok(())
}

/// Lists each test under its own name.
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
        completed::a_message_is_acked_when_its_job_is_complete_over_a_kill,
        completed::a_task_that_fails_twice_is_acked_by_its_third_attempt,
        completed::used_up_attempts_end_in_quarantine_with_the_reason,
        completed::a_shutdown_uses_up_no_attempt,
        completed::a_cancelled_task_is_in_quarantine_and_not_run_again,
        kinds::a_node_that_is_taken_away_loses_its_job,
        kinds::a_job_that_no_pod_can_be_made_of_says_why,
        kinds::an_absent_image_ends_at_the_deadline_as_image_pull,
        kinds::a_pod_that_no_node_takes_never_started,
        kinds::a_deadline_that_passes_is_one,
        kinds::work_that_succeeds,
        kinds::work_that_fails_has_its_exit_code,
        kinds::work_that_is_killed_for_memory,
        kinds::work_that_is_evicted_names_the_resource,
        kinds::a_job_that_somebody_deletes,
        kinds::a_restart_tells_no_end_again,
        retries::failures_are_run_again_three_times_over_a_kill,
        retries::a_chain_of_attempts_is_deleted_as_a_whole,
        stuck::an_absent_image_stops_its_workload_alone_until_it_is_mended,
        why::each_state_has_its_sentence,
        why::the_command_answers_from_the_file_when_nobody_runs,
    };
    Ok(suite.main())
}
