//! The HTTP endpoint of a scheduler on a real control plane: health, metrics, status, and posted
//! tasks.

#[path = "http/clients.rs"]
mod clients;
#[path = "http/posted.rs"]
mod posted;
#[path = "http/seen.rs"]
mod seen;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use katabatch_e2e::farm::Plan;
use katabatch_e2e::http_client::Endpoint;
use katabatch_e2e::process::as_katabatch;
use katabatch_e2e::site::Site;
use katabatch_e2e::{Case, Suite};
use serde_json::{Value, json};

/// Long enough for a busy machine; nothing here takes nearly so long.
const SOON: Duration = Duration::from_secs(60);

/// A site whose scheduler serves at a free port, and that endpoint.
async fn served(case: &Case, plan: Plan, tasks: Value) -> Result<(Site, Endpoint)> {
    let endpoint = Endpoint::free()?;
    let http = json!({ "listen": endpoint.address, "tasks": tasks });
    let site = Site::new(&case.plane, &case.namespace, Plan { http, ..plan }).await?;
    Ok((site, endpoint))
}

/// Lists each test under its own name.
macro_rules! suite {
    ($($file:ident::$test:ident,)*) => {
        Suite::new()?.side_by_side(4)$(.test(stringify!($test), $file::$test))*
    };
}

fn main() -> Result<ExitCode> {
    if let Some(code) = as_katabatch() {
        return Ok(code);
    }
    let suite = suite! {
        clients::the_description_is_kept_by_the_implementation,
        clients::the_clusterfuzz_class_passes_its_tests_against_a_live_scheduler,
        posted::a_standby_is_ready_and_says_when_to_come_again,
        posted::a_hundred_posted_tasks_make_a_hundred_jobs_and_again_none_more,
        posted::at_the_limit_posted_tasks_are_deferred_and_never_created,
        posted::a_service_account_that_is_listed_may_post_and_no_other,
        posted::labels_are_found_on_the_job_and_its_pods,
        posted::posted_tasks_go_through_lost_answers_once,
        seen::health_is_red_without_a_right_and_green_again_with_it,
        seen::a_scrape_tells_what_was_done,
        seen::a_port_that_is_taken_ends_the_start_with_its_cause,
    };
    Ok(suite.main())
}
