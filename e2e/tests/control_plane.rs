//! The harness' own tests: what the suites of the scheduler rely on, seen for real.

#[path = "control_plane/access.rs"]
mod access;
#[path = "control_plane/faults.rs"]
mod faults;
#[path = "control_plane/jobs.rs"]
mod jobs;
#[path = "control_plane/outage.rs"]
mod outage;

use std::process::ExitCode;

use anyhow::Result;
use katabatch_e2e::{Suite, Tier, Unavailable};

fn main() -> Result<ExitCode> {
    let absent = Tier::new("absent", || async {
        Err(Unavailable::deliberate("nobody has this", "none, it shows how tiers are left out")
            .into())
    });
    Ok(Suite::new()?
        .test("a_kata_job_completes", jobs::a_kata_job_completes)
        .test("pods_behave_as_their_label_says", jobs::pods_behave_as_their_label_says)
        .test("a_failing_pod_fails_its_job", jobs::a_failing_pod_fails_its_job)
        .test("a_deleted_pod_ends_and_goes", jobs::a_deleted_pod_ends_and_goes)
        .test("a_dump_shows_what_is_there", jobs::a_dump_shows_what_is_there)
        .test("a_role_is_all_a_token_may_do", access::a_role_is_all_a_token_may_do)
        .test("a_kubeconfig_leads_through_the_proxy", access::a_kubeconfig_leads_through_the_proxy)
        .test("a_lost_answer_leaves_the_object", faults::a_lost_answer_leaves_the_object)
        .test("a_request_dropped_before_leaves_none", faults::a_request_dropped_before_leaves_none)
        .test("an_empty_201_hides_the_object", faults::an_empty_201_hides_the_object)
        .test("an_answer_comes_too_late", faults::an_answer_comes_too_late)
        .test("back_pressure_is_answered_as_told", faults::back_pressure_is_answered_as_told)
        .test("the_second_page_expires", faults::the_second_page_expires)
        .test("a_watch_streams_and_is_cut", faults::a_watch_streams_and_is_cut)
        .test("a_watch_expires_with_an_event", faults::a_watch_expires_with_an_event)
        .test("a_watch_falls_silent", faults::a_watch_falls_silent)
        .test("http2_passes_too", faults::http2_passes_too)
        .test("the_api_server_goes_and_comes_back", outage::the_api_server_goes_and_comes_back)
        .test("a_start_that_fails_shows_the_log", outage::a_start_that_fails_shows_the_log)
        .test_in(&absent, "a_tier_that_is_absent_is_ignored", || async {
            anyhow::bail!("it must not run")
        })
        .main())
}
