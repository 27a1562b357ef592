//! Crashes at any await, lost and late answers, by seed: no task twice, none lost, never over the
//! limit.

use super::*;
use fake::ChaosRecords;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const TASKS: usize = 12;
const PENDING: usize = 9;
const SEEDS: u64 = 300;

/// The messages of the tasks: those that are not acked come again.
struct Messages {
    left: BTreeSet<usize>,
    acked: BTreeSet<usize>,
    chance: ChaCha8Rng,
}

impl Messages {
    fn some(&mut self) -> Vec<Task> {
        let Self { left, chance, .. } = self;
        left.iter().filter(|_| chance.random_bool(0.6)).map(|n| task(*n)).collect()
    }

    fn settle(&mut self, tasks: &[Task], outcomes: &[Outcome]) {
        for (of, outcome) in tasks.iter().zip(outcomes) {
            let n = (0..TASKS).find(|n| task(*n).hash == of.hash).expect("one of them");
            if matches!(outcome, Outcome::Scheduled(_)) && !self.chance.random_bool(0.2) {
                self.left.remove(&n);
                self.acked.insert(n);
            } else if self.chance.random_bool(0.01) {
                // Given up elsewhere: it never comes again.
                self.left.remove(&n);
            }
        }
    }
}

async fn one_life(site: &Site, messages: &mut Messages) {
    let backend = site.start();
    for _ in 0..40 {
        if messages.left.is_empty() {
            return;
        }
        let _ = backend.look_once().await;
        let (one, other) = (messages.some(), messages.some());
        let (a, b) = tokio::join!(
            backend.submit(&site.workload, &one),
            backend.submit(&site.workload, &other),
        );
        messages.settle(&one, &a);
        messages.settle(&other, &b);
        let waits = if messages.chance.random_bool(0.05) { 700 } else { 20 };
        tokio::time::sleep(Duration::from_secs(messages.chance.random_range(0..waits))).await;
        site.fake.live();
    }
}

async fn one_seed(seed: u64) {
    let mut site = Site::new();
    site.pending = PENDING;
    site.fake = Fake::new(Arc::clone(&site.clock), seed);
    site.records = Arc::new(ChaosRecords { records: InMemory::default(), fake: site.fake.clone() });
    site.fake.world().chaos = 0.15;
    let mut chance = ChaCha8Rng::seed_from_u64(seed);
    let mut messages = Messages {
        left: (0..TASKS).collect(),
        acked: BTreeSet::new(),
        chance: ChaCha8Rng::seed_from_u64(seed + 1),
    };
    for life in 0..60 {
        if life == 20 {
            site.fake.world().chaos = 0.0;
        }
        site.fake.world().crash_in = (life < 20).then(|| chance.random_range(0..120));
        tokio::select! {
            biased;
            () = site.fake.crashed.notified() => {}
            () = one_life(&site, &mut messages) => {}
        }
        if messages.left.is_empty() {
            break;
        }
    }
    // What is late lands before anything is judged.
    tokio::time::sleep(Duration::from_secs(1_000)).await;
    assert!(messages.left.is_empty(), "seed {seed}: {:?} never got through", messages.left);
    let jobs = site.fake.tasks();
    for n in 0..TASKS {
        let count = jobs.get(&task(n).hash).copied().unwrap_or(0);
        assert!(count <= 1, "seed {seed}: task {n} is in {count} jobs");
        assert!(count == 1 || !messages.acked.contains(&n), "seed {seed}: task {n} is lost");
    }
    let most = site.fake.world().most_waiting;
    assert!(most <= PENDING, "seed {seed}: {most} tasks waited at once");
}

#[tokio::test(start_paused = true)]
async fn whenever_it_crashes_each_task_runs_once() {
    for seed in 0..SEEDS {
        one_seed(seed).await;
    }
}
