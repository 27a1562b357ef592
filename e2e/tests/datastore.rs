//! The catalog and the flags in Datastore, on Google's own emulators, with entities as
//! ClusterFuzz's Python writes them.

#[path = "datastore/catalog.rs"]
mod catalog;
#[path = "datastore/flags.rs"]
mod flags;

use std::process::ExitCode;

use anyhow::Result;
use katabatch_e2e::Suite;
use katabatch_e2e::datastore_emulator::Flavour;

fn main() -> Result<ExitCode> {
    let (firestore, legacy) = (Flavour::Firestore.tier(), Flavour::Legacy.tier());
    Ok(Suite::new()?
        .test_in(&firestore, "thirty_one_job_types_are_all_found", || {
            catalog::thirty_one_job_types_are_all_found(Flavour::Firestore)
        })
        .test_in(&legacy, "thirty_one_job_types_are_all_found_without_in", || {
            catalog::thirty_one_job_types_are_all_found(Flavour::Legacy)
        })
        .test_in(&firestore, "every_oss_fuzz_job_type_is_looked_up", || {
            catalog::every_oss_fuzz_job_type_is_looked_up()
        })
        .test_in(&firestore, "old_answers_stand_in_while_the_emulator_is_gone", || {
            catalog::old_answers_stand_in_while_it_is_gone()
        })
        .test_in(&firestore, "flags_are_read_and_set", || {
            flags::flags_are_read_and_set(Flavour::Firestore)
        })
        .test_in(&legacy, "flags_are_read_and_set_on_the_legacy_one", || {
            flags::flags_are_read_and_set(Flavour::Legacy)
        })
        .test_in(&firestore, "changes_at_the_same_time_are_all_made", || {
            flags::changes_at_the_same_time_are_all_made()
        })
        .main())
}
