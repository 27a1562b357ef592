//! Cloud Storage, as a fake of it: a farm's files there, signed inputs, outputs that are there
//! already, and a storage that is away.

#[path = "storage/check.rs"]
mod check;
#[path = "storage/files.rs"]
mod files;
#[path = "storage/inputs.rs"]
mod inputs;
#[path = "storage/outputs.rs"]
mod outputs;
#[path = "storage/world.rs"]
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
        .side_by_side(4)
        .test("a_farm_in_a_bucket_is_followed_while_it_changes", files::followed)
        .test("a_storage_that_is_away_leaves_the_last_good_files", files::away)
        .test("a_flag_in_a_bucket_is_set_in_place", files::flag_is_set)
        .test("a_path_becomes_a_signed_url_for_its_worker_alone", inputs::signed)
        .test("without_credentials_an_input_is_held", inputs::no_credentials)
        .test("a_task_whose_output_is_there_is_done", outputs::done)
        .test("while_outputs_cant_be_looked_for_nothing_is_lost_or_created", outputs::away)
        .test("check_says_what_can_be_read_looked_for_and_signed", check::all_well)
        .test("check_finds_files_and_credentials_that_are_missing", check::missing)
        .test("check_tells_a_storage_that_is_away", check::away)
        .main())
}
