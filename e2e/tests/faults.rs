//! The fault benchmark's short form: every kind of fault once, by a fixed seed, and its judge.

use std::process::ExitCode;

use anyhow::Result;
use katabatch_e2e::process::as_katabatch;
use katabatch_e2e::{Suite, Tier, faults};

/// One whose outages are short, so that all of it takes two or three minutes.
const SEED: u64 = 32;

async fn nothing_is_lost_doubled_or_over_the_limit() -> Result<()> {
    faults::short(600, SEED).await
}

fn main() -> Result<ExitCode> {
    if let Some(code) = as_katabatch() {
        return Ok(code);
    }
    // It starts a control plane of its own, which says by itself what it lacks.
    let tier = Tier::new("control-plane", || async { Ok(()) });
    let name = "nothing_is_lost_doubled_or_over_the_limit";
    let suite = Suite::new()?.test_in(&tier, name, nothing_is_lost_doubled_or_over_the_limit);
    Ok(suite.main())
}
