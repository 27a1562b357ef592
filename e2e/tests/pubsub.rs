//! The Pub/Sub queue against Google's emulator.

#[path = "pubsub/check.rs"]
mod check;
#[path = "pubsub/leases.rs"]
mod leases;
#[path = "pubsub/outage.rs"]
mod outage;
#[path = "pubsub/quarantine.rs"]
mod quarantine;
#[path = "pubsub/service.rs"]
mod service;
#[path = "pubsub/speed.rs"]
mod speed;
#[path = "pubsub/world.rs"]
mod world;

use std::process::ExitCode;

use anyhow::Result;
use katabatch_e2e::Suite;
use katabatch_e2e::emulator::pubsub_tier;
use katabatch_e2e::process::as_katabatch;

fn main() -> Result<ExitCode> {
    if let Some(code) = as_katabatch() {
        return Ok(code);
    }
    let tier = pubsub_tier();
    Ok(Suite::new()?
        .test_in(&tier, "an_acked_message_never_comes_again", leases::acked_is_gone)
        .test_in(&tier, "a_lapsed_lease_is_delivered_again", leases::lapsed_comes_again)
        .test_in(&tier, "an_extended_lease_is_not", leases::extended_stays)
        .test_in(&tier, "a_released_message_comes_at_once_or_later", leases::released_comes)
        .test_in(&tier, "three_thousand_long_ids_are_acked", leases::three_thousand)
        .test_in(&tier, "an_id_that_the_server_refuses_harms_no_other", leases::garbage)
        .test_in(&tier, "a_caller_that_is_gone_loses_no_message", leases::gone_caller)
        .test_in(&tier, "closing_gives_back_what_was_taken_ahead", leases::closing)
        .test_in(&tier, "deliveries_are_counted_where_the_server_does", leases::deliveries)
        .test_in(&tier, "a_rejected_message_is_recorded_and_put_back", quarantine::round_trip)
        .test_in(&tier, "without_a_topic_nothing_is_acked", quarantine::no_topic)
        .test_in(&tier, "each_version_has_its_own_subscription", service::versions)
        .test_in(&tier, "check_finds_what_loses_messages", check::losses)
        .test_in(&tier, "check_finds_what_is_not_there", check::absences)
        .test_in(&tier, "check_finds_a_quarantine_without_its_topic", check::quarantine_topic)
        .test_in(&tier, "check_names_an_endpoint_that_is_away", check::away)
        .test_in(&tier, "an_emulator_that_is_killed_costs_no_ack", outage::killed)
        .test_in(&tier, "a_missing_subscription_says_what_to_do", outage::missing)
        .test_in(&tier, "a_message_is_leased_soon_and_many_are_drained_fast", speed::measured)
        .main())
}
