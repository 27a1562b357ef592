//! The path that a farm on Google Cloud takes: Pub/Sub and Datastore by Google's emulators, Jobs on
//! a real control plane, katabatch as a process of its own.

#[path = "google_path/leaks.rs"]
mod leaks;
#[path = "google_path/marks.rs"]
mod marks;
#[path = "google_path/walk.rs"]
mod walk;
#[path = "google_path/world.rs"]
mod world;

use std::process::ExitCode;

use anyhow::Result;
use katabatch_e2e::Suite;
use katabatch_e2e::process::as_katabatch;

fn main() -> Result<ExitCode> {
    if let Some(code) = as_katabatch() {
        return Ok(code);
    }
    Ok(Suite::new()?
        .side_by_side(2)
        .test("five_hundred_messages_make_as_many_jobs_over_a_limit_and_an_outage", walk::walked)
        .test("no_signature_or_token_shows_anywhere_on_the_google_path", leaks::searched)
        .test("what_is_set_up_wrong_is_said_with_what_to_do", walk::set_up_wrong)
        .main())
}
