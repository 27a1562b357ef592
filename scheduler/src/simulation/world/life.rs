//! What happens in the world by itself: messages come, weights change, a cluster goes away, and Jobs
//! live and end.

use std::time::Duration;

use tokio::time::Instant;

use super::super::chaos::Chaos;
use super::super::fates::Fates;
use super::{CLUSTERS, WEIGHTS, World, flags, made};
use crate::backend::kubernetes::fake::FakeCluster;

/// The world's own life: messages come, weights are changed, a cluster goes away and comes back.
pub(super) fn live(world: &World) {
    let chaos = &world.chaos;
    world.clusters().iter().for_each(|cluster| live_in(chaos, cluster, &world.fates));
    if (chaos.calm() || chaos.draw(8) == 0)
        && let Some((id, attributes)) = world.to_come.lock().unwrap().pop_front()
    {
        world.queue.put(&id, attributes);
    }
    let clusters = world.clusters();
    if let Some(job) = world.sender.live().iter().find(|job| made(&clusters, job) == 0) {
        let breach = format!("{job} is said to be scheduled before it was made");
        world.broken.lock().unwrap().get_or_insert(breach);
    }
    let away = &world.places[CLUSTERS - 1].away;
    if chaos.calm() {
        *away.lock().unwrap() = Instant::now();
        *world.flags.lock().unwrap() = flags([0.5, 0.5]);
        return;
    }
    match chaos.draw(60) {
        0..4 => {
            let weights = WEIGHTS[chaos.draw(6) as usize];
            chaos.note(&format!("the weights become {weights:?}"));
            *world.flags.lock().unwrap() = flags(weights);
        }
        4 => {
            let seconds = chaos.draw(90);
            chaos.note(&format!("the second cluster is away for {seconds} s"));
            *away.lock().unwrap() = Instant::now() + Duration::from_secs(seconds);
            world.places[CLUSTERS - 1].cluster.cut_watches();
        }
        _ => {}
    }
}

/// A cluster's own life: pods are made, start and end; watches are cut, expire and fall silent.
fn live_in(chaos: &Chaos, cluster: &FakeCluster, fates: &Fates) {
    cluster.make_pods();
    for job in cluster.jobs() {
        match chaos.draw(6) {
            0 if job.progress.active => cluster.start(&job.name),
            1 if job.progress.started && !job.progress.finished => {
                let code = fates.draw(chaos);
                fates.note(&job, code);
                cluster.run_to_end(&job.name, code);
            }
            _ => {}
        }
    }
    // What was on its way when its answer was given up arrives within a request's time.
    cluster.land_late();
    if chaos.calm() {
        return cluster.mute_watches(false);
    }
    match chaos.draw(30) {
        0 => cluster.cut_watches(),
        1 => cluster.expire_watches(),
        2 => cluster.mute_watches(true),
        3..6 => cluster.mute_watches(false),
        _ => {}
    }
}
