//! What goes wrong, when: drawn from a seed, and from nothing else. Does nothing.
//!
//! A step begins once so many Jobs were made, so that faults are spread over the work however fast
//! it goes; how long it lasts is in seconds, since leases and timeouts are.

use std::fmt;

use rand::Rng;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

/// So many tasks have each kind of fault once.
const TASKS_A_ROUND: usize = 2_500;
/// A signed URL lives for a day, and a fuzzing task is expected to run for six hours of it.
const DAY: i64 = 24 * 3_600;
const EXPECTED_RUN: i64 = 6 * 3_600;

/// One thing that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Creates that never reach the API server.
    LostRequests { times: usize },
    /// Creates that are done, and whose answers never arrive.
    LostAnswers { times: usize },
    /// Creates that are done, and answered by an empty 201.
    EmptyAnswers { times: usize },
    /// Creates that are done, and answered by a gateway's 504.
    GatewayTimeouts { times: usize },
    /// Creates that are done, and answered after the client has given up.
    LateAnswers { times: usize },
    /// Creates are answered by 429.
    TooManyRequests { seconds: u64, retry_after: u64 },
    /// One request in three of any kind is answered by this status.
    ServerErrors { seconds: u64, status: u16 },
    /// No request and no answer passes.
    NetworkCut { seconds: u64 },
    /// All watches break, again and again.
    WatchesCut { times: usize },
    /// All watches break, and some of the next ones are told that they are too old.
    WatchesExpired { seconds: u64 },
    /// The API server is killed, and started again after a time.
    ApiServerKilled { seconds: u64 },
    /// The store stands still.
    StorePaused { seconds: u64 },
    /// The scheduler that leads is killed; another one starts.
    SchedulerKilled,
    /// The scheduler that leads stands still for longer than its Lease lives; another one starts,
    /// and then the old one wakes.
    SchedulerPaused { seconds: u64 },
    /// Another scheduler runs beside; after a time the one that leads is told to stop.
    TwoSchedulers { seconds: u64 },
    /// A bad template is rolled out, as a Deployment would, and back after a time.
    BadTemplate { kind: BadTemplate, seconds: u64 },
    /// Tasks come from a signer whose clock is off by so many seconds.
    ClockStep { by: i64, tasks: usize },
}

/// What is wrong with a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadTemplate {
    /// It can't be read: nobody starts with it.
    Unreadable,
    /// What comes of it is against the isolation policy.
    AgainstPolicy,
    /// What comes of it is refused by the API server.
    RefusedByServer,
}

/// A fault, and how many Jobs are made before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// So many Jobs.
    pub after: usize,
    /// The fault.
    pub fault: Fault,
}

/// All that goes wrong in one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// What it was drawn from.
    pub seed: u64,
    /// How many tasks there are, those of the clock steps included.
    pub tasks: usize,
    /// In order.
    pub steps: Vec<Step>,
}

impl Plan {
    /// The plan of this seed: every kind of fault once for each 2,500 tasks begun, in an order and
    /// with the details that the seed says.
    #[must_use]
    pub fn draw(tasks: usize, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let rounds = tasks.div_ceil(TASKS_A_ROUND).max(1);
        let some = (tasks / rounds / 50).clamp(1, 20);
        let mut steps = Vec::new();
        for _ in 0..rounds {
            let mut faults = round(&mut rng, some);
            faults.shuffle(&mut rng);
            steps.extend(faults);
        }
        let odd: usize = steps.iter().map(Fault::tasks).sum();
        // What every step waits for comes of tasks that no step brings.
        let span = tasks.saturating_sub(odd) * 9 / 10;
        let count = steps.len();
        let step = |(n, fault)| Step { after: span * (n + 1) / (count + 1), fault };
        Self { seed, tasks, steps: steps.into_iter().enumerate().map(step).collect() }
    }

    /// How many tasks are there from the beginning.
    #[must_use]
    pub fn at_first(&self) -> usize {
        let odd: usize = self.steps.iter().map(|step| step.fault.tasks()).sum();
        self.tasks.saturating_sub(odd)
    }
}

/// Each kind of fault once, and each kind of clock step.
fn round(rng: &mut ChaCha8Rng, some: usize) -> Vec<Fault> {
    let mut times = |most| rng.random_range(3..=most);
    let [lost, unanswered, empty, gateway, late, cuts] = [10, 10, 5, 5, 5, 8].map(&mut times);
    let mut seconds = |from, to| rng.random_range(from..=to);
    let mut faults = vec![
        Fault::LostRequests { times: lost },
        Fault::LostAnswers { times: unanswered },
        Fault::EmptyAnswers { times: empty },
        Fault::GatewayTimeouts { times: gateway },
        Fault::LateAnswers { times: late },
        Fault::TooManyRequests { seconds: seconds(2, 5), retry_after: seconds(1, 3) },
        Fault::NetworkCut { seconds: seconds(2, 12) },
        Fault::WatchesCut { times: cuts },
        Fault::WatchesExpired { seconds: seconds(3, 6) },
        Fault::ApiServerKilled { seconds: seconds(0, 6) },
        Fault::StorePaused { seconds: seconds(3, 9) },
        Fault::SchedulerKilled,
        Fault::SchedulerPaused { seconds: seconds(12, 18) },
        Fault::TwoSchedulers { seconds: seconds(2, 6) },
    ];
    let status = [500, 502, 503][rng.random_range(0..3)];
    faults.push(Fault::ServerErrors { seconds: rng.random_range(2..=6), status });
    let kinds = [BadTemplate::Unreadable, BadTemplate::AgainstPolicy, BadTemplate::RefusedByServer];
    let kind = kinds[rng.random_range(0..kinds.len())];
    faults.push(Fault::BadTemplate { kind, seconds: rng.random_range(3..=8) });
    let spans = [
        // Dead long ago; just enough life; within the tolerated five minutes; soon after them.
        (-2 * DAY, -DAY - 60, some.min(8)),
        (EXPECTED_RUN - DAY + 600, EXPECTED_RUN - DAY + 900, some),
        (60, 290, some),
        (305, 325, some),
    ];
    for (from, to, tasks) in spans {
        faults.push(Fault::ClockStep { by: rng.random_range(from..=to), tasks });
    }
    faults
}

impl Fault {
    /// How many tasks come with it.
    #[must_use]
    pub fn tasks(&self) -> usize {
        match self {
            Self::ClockStep { tasks, .. } => *tasks,
            _ => 0,
        }
    }

    /// A word for its kind.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::LostRequests { .. } => "lost requests",
            Self::LostAnswers { .. } => "lost answers",
            Self::EmptyAnswers { .. } => "empty answers",
            Self::GatewayTimeouts { .. } => "gateway timeouts",
            Self::LateAnswers { .. } => "late answers",
            Self::TooManyRequests { .. } => "429",
            Self::ServerErrors { .. } => "5xx",
            Self::NetworkCut { .. } => "network cut",
            Self::WatchesCut { .. } => "watches cut",
            Self::WatchesExpired { .. } => "watches expired",
            Self::ApiServerKilled { .. } => "API server killed",
            Self::StorePaused { .. } => "store paused",
            Self::SchedulerKilled => "scheduler killed",
            Self::SchedulerPaused { .. } => "scheduler paused",
            Self::TwoSchedulers { .. } => "two schedulers",
            Self::BadTemplate { .. } => "bad template",
            Self::ClockStep { .. } => "clock step",
        }
    }
}

/// Whether a task whose URL was signed by a clock that is off by so many seconds must be run.
#[must_use]
pub fn must_run(by: i64) -> bool {
    by > EXPECTED_RUN - DAY
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())?;
        match self {
            Self::LostRequests { times }
            | Self::LostAnswers { times }
            | Self::EmptyAnswers { times }
            | Self::GatewayTimeouts { times }
            | Self::LateAnswers { times }
            | Self::WatchesCut { times } => write!(f, ", {times} times"),
            Self::TooManyRequests { seconds, retry_after } => {
                write!(f, " for {seconds} s, each asking for {retry_after} s")
            }
            Self::ServerErrors { seconds, status } => write!(f, " ({status}) for {seconds} s"),
            Self::NetworkCut { seconds }
            | Self::WatchesExpired { seconds }
            | Self::ApiServerKilled { seconds }
            | Self::StorePaused { seconds }
            | Self::SchedulerPaused { seconds }
            | Self::TwoSchedulers { seconds } => write!(f, " for {seconds} s"),
            Self::SchedulerKilled => Ok(()),
            Self::BadTemplate { kind, seconds } => write!(f, " ({kind}) for {seconds} s"),
            Self::ClockStep { by, tasks } => write!(f, " of {by} s for {tasks} tasks"),
        }
    }
}

impl fmt::Display for BadTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreadable => "unreadable",
            Self::AgainstPolicy => "against the isolation policy",
            Self::RefusedByServer => "refused by the API server",
        })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {} tasks, {} faults", self.seed, self.tasks, self.steps.len())?;
        for Step { after, fault } in &self.steps {
            writeln!(f, "  after {after:>6} Jobs: {fault}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_seed_gives_its_plan_and_another_seed_another() {
        assert_eq!(Plan::draw(600, 7), Plan::draw(600, 7));
        assert_ne!(Plan::draw(600, 7).steps, Plan::draw(600, 8).steps);
    }

    #[test]
    fn the_shortest_plan_has_every_kind_of_fault() {
        let kinds = |tasks| {
            let steps = Plan::draw(tasks, 1).steps;
            (steps.len(), steps.iter().map(|step| step.fault.kind()).collect::<BTreeSet<_>>())
        };
        assert_eq!(kinds(600).1.len(), 17);
        assert_eq!(kinds(10_000), (4 * kinds(600).0, kinds(600).1));
    }

    #[test]
    fn every_step_begins_before_the_work_that_needs_no_step_is_done() {
        for (tasks, seed) in [(100, 1), (600, 2), (10_000, 3)] {
            let plan = Plan::draw(tasks, seed);
            assert!(plan.steps.is_sorted_by_key(|step| step.after), "{plan}");
            let last = plan.steps.last().expect("a step");
            assert!(last.after < plan.at_first(), "{plan}");
        }
    }

    #[test]
    fn the_clock_steps_are_on_both_sides_of_what_may_run() {
        let steps = Plan::draw(600, 1).steps;
        let by = |step: &Step| match step.fault {
            Fault::ClockStep { by, .. } => Some(by),
            _ => None,
        };
        let mut by: Vec<_> = steps.iter().filter_map(by).collect();
        by.sort_unstable();
        assert_eq!(
            by.iter().map(|by| must_run(*by)).collect::<Vec<_>>(),
            [false, true, true, true]
        );
    }
}
