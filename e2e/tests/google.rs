//! katabatch as a farm on Google Cloud runs it: the cluster found through the container API, with
//! tokens of the metadata server that the real API server takes or refuses.

#[path = "google/accounts.rs"]
mod accounts;
#[path = "google/files.rs"]
mod files;
#[path = "google/finding.rs"]
mod finding;
#[path = "google/signing.rs"]
mod signing;
#[path = "google/tokens.rs"]
mod tokens;
#[path = "google/world.rs"]
mod world;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use katabatch_e2e::Suite;
use katabatch_e2e::process::as_katabatch;

/// Long enough for a busy machine; nothing here takes nearly so long.
const SOON: Duration = Duration::from_secs(90);

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
        tokens::a_token_that_dies_on_the_way_is_replaced_and_nothing_is_lost,
        tokens::a_token_that_the_server_refuses_is_replaced_once,
        tokens::a_metadata_server_that_is_not_ready_is_waited_for,
        finding::the_cluster_of_project_yaml_is_found_and_run_on,
        finding::each_way_of_not_finding_it_says_what_and_what_to_do,
        finding::a_location_makes_an_ambiguous_name_clear,
        finding::check_says_which_cluster_and_why,
        files::a_key_file_is_exchanged_for_a_token_of_the_right_scope,
        files::a_persons_login_is_used,
        accounts::a_missing_role_is_granted_where_that_is_wanted,
        accounts::nothing_is_granted_by_default,
        signing::an_input_that_is_a_path_is_signed_by_iam,
        signing::a_refusal_to_sign_holds_the_task_and_names_the_role,
        signing::check_says_whether_inputs_could_be_signed_and_outputs_found,
    };
    Ok(suite.main())
}
