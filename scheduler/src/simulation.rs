//! The contract in simulation: the real pipeline, lease keeper and Kubernetes backend against
//! models of queue and cluster, on a paused clock, with one seed a run.
//!
//! Every call to the queue or the API server may be slow, fail, succeed with its answer lost, or be
//! the place of a crash, after which everything starts anew over what the crash left behind; some
//! runs have two processes of one scheduler, of which one leads. There are two clusters, between
//! which the weights move; the second one goes away for longer than its Lease lives. A sender posts
//! tasks over HTTP until each is said to be scheduled. The contract, at most one Job for each task
//! over both, is checked at each create and ack, and at the end, when the faults have stopped and
//! every task must have exactly one Job. A failing seed prints its history.

mod chaos;
mod farm;
mod fates;
mod listener;
mod posted;
mod world;

use std::panic::AssertUnwindSafe;

use world::{World, run_to_the_end};

/// How many seeds a test run takes; `KATABATCH_SEEDS` says another number, and `KATABATCH_SEED` one
/// to be run alone.
const SEEDS: u64 = 500;

/// Runs one seed on a runtime of its own; the history stands in the error.
fn run_seed(seed: u64, completes: bool) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let world = World::new(seed, completes);
        let run = AssertUnwindSafe(run_to_the_end(&world));
        let broken = match futures::FutureExt::catch_unwind(run).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(broken)) => broken,
            Err(_) => "a panic, printed above".to_owned(),
        };
        Err(format!("seed {seed}: {broken}\n{}", world.history().join("\n")))
    })
}

fn run_seeds(completes: bool) {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse().ok());
    let seeds = match number("KATABATCH_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("KATABATCH_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        if let Err(history) = run_seed(seed, completes) {
            panic!("{history}");
        }
    }
}

#[test]
fn the_contract_holds_through_faults_and_crashes() {
    run_seeds(false);
}

#[test]
fn messages_that_wait_for_ends_are_acked_by_a_complete_job_or_end_in_quarantine() {
    run_seeds(true);
}

/// A seed that failed once stands here, named after what it showed.
#[test]
fn one_seed_replays_the_same_history() {
    let history = |seed| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let world = World::new(seed, false);
            run_to_the_end(&world).await.expect("the contract holds");
            world.history()
        })
    };
    assert_eq!(history(7), history(7));
}
