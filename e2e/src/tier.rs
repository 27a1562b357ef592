//! The test harness: async tests in tiers. A tier that this machine can't serve shows
//! each of its tests as ignored, with the reason; under `KATABATCH_REQUIRE=all` they
//! fail instead, so that a hosted workflow can't pass by leaving them out.

use std::env;
use std::fmt;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tokio::runtime::{Handle, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::OnceCell;

use crate::control_plane::{ControlPlane, Namespace};
use crate::real::RealNode;
use crate::shared::{self, Real};
use crate::unavailable::Unavailable;

/// The variable that turns "ignored" into "failed" when it is `all`.
pub const REQUIRE_VARIABLE: &str = "KATABATCH_REQUIRE";

const CONTROL_PLANE: &str = "control-plane";
const REAL: &str = "real";

type Probe = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<()>> + Send>> + Send + Sync>;

/// A need that several tests share, such as an emulator. It is looked for once, when the
/// first of them runs.
pub struct Tier {
    name: &'static str,
    probe: Probe,
    outcome: OnceCell<Result<(), Unavailable>>,
}

impl Tier {
    /// A tier that is there if `probe` succeeds.
    pub fn new<F, Fut>(name: &'static str, probe: F) -> Arc<Self>
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        let probe: Probe = Box::new(move || Box::pin(probe()));
        Arc::new(Self { name, probe, outcome: OnceCell::new() })
    }

    async fn require(&self) -> Result<()> {
        let probe = || async {
            match (self.probe)().await {
                Ok(()) => Ok(()),
                Err(error) => Err(error.downcast::<Unavailable>().unwrap_or_else(|error| {
                    Unavailable::new(format!("{error:#}"), format!("see the {} tier", self.name))
                })),
            }
        };
        self.outcome.get_or_init(probe).await.clone().map_err(Into::into)
    }
}

impl fmt::Debug for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tier {}", self.name)
    }
}

/// What a test on the control plane is given.
#[derive(Clone)]
pub struct Case {
    /// The control plane, shared by all tests of the binary.
    pub plane: Arc<ControlPlane>,
    /// A namespace of the test's own; removed if the test succeeds.
    pub namespace: Namespace,
}

/// The tests of one binary with `harness = false`.
pub struct Suite {
    runtime: Runtime,
    trials: Vec<Trial>,
    side_by_side: Option<usize>,
}

impl Suite {
    /// An empty suite.
    ///
    /// # Errors
    /// When the runtime can't be started.
    pub fn new() -> Result<Self> {
        let runtime = Runtime::new().context("start the runtime")?;
        Ok(Self { runtime, trials: Vec::new(), side_by_side: None })
    }

    /// Runs this many tests at once, unless the command line says otherwise: tests that mostly
    /// wait needn't wait for each other.
    #[must_use]
    pub fn side_by_side(mut self, tests: usize) -> Self {
        self.side_by_side = Some(tests);
        self
    }

    /// Adds a test on the shared control plane. When it fails, its namespace is dumped.
    #[must_use]
    pub fn test<F, Fut>(self, name: &'static str, body: F) -> Self
    where
        F: FnOnce(Case) -> Fut + Send + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        self.add(CONTROL_PLANE, name, async move { on(shared::shared().await?, name, body).await })
    }

    /// Adds a test whose pods run, on the shared control plane that has a real node.
    #[must_use]
    pub fn real<F, Fut>(self, name: &'static str, body: F) -> Self
    where
        F: FnOnce(Case, Arc<RealNode>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        self.add(REAL, name, async move {
            let Real { plane, node } = shared::real().await?;
            on(plane, name, |case| body(case, node)).await
        })
    }

    /// Adds a test of another tier.
    #[must_use]
    pub fn test_in<F, Fut>(self, tier: &Arc<Tier>, name: &'static str, body: F) -> Self
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        let kind = tier.name;
        let tier = tier.clone();
        self.add(kind, name, async move {
            tier.require().await?;
            caught(body()).await
        })
    }

    fn add<Fut>(mut self, kind: &'static str, name: &'static str, test: Fut) -> Self
    where
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        let handle = self.runtime.handle().clone();
        let run = move || verdict(handle.block_on(test), require_all());
        self.trials.push(Trial::ignorable_test(name, run).with_kind(kind));
        self
    }

    /// Runs the tests that the command line asks for, and stops what they started.
    pub fn main(self) -> ExitCode {
        self.runtime.spawn(stop_on_signal());
        let mut arguments = Arguments::from_args();
        arguments.test_threads = arguments.test_threads.or(self.side_by_side);
        let conclusion = libtest_mimic::run(&arguments, self.trials);
        shared::stop();
        conclusion.exit_code()
    }
}

/// Runs the test in a namespace of its own.
async fn on<F, Fut>(plane: Arc<ControlPlane>, name: &str, body: F) -> Result<()>
where
    F: FnOnce(Case) -> Fut,
    Fut: Future<Output = Result<()>> + Send + 'static,
{
    let namespace = plane.namespace(name).await?;
    let case = Case { plane, namespace };
    let outcome = caught(body(case.clone())).await;
    match &outcome {
        Ok(()) => case.namespace.delete().await?,
        Err(error) if error.is::<Unavailable>() => case.namespace.delete().await?,
        Err(_) => case.plane.dump(case.namespace.name()).await,
    }
    outcome
}

/// Runs the test as a task of its own: a panic ends that, and is an error here.
async fn caught<Fut>(test: Fut) -> Result<()>
where
    Fut: Future<Output = Result<()>> + Send + 'static,
{
    match Handle::current().spawn(test).await {
        Ok(outcome) => outcome,
        Err(error) => Err(anyhow::Error::new(error).context("the test panicked")),
    }
}

fn verdict(outcome: Result<()>, require_all: bool) -> Result<Completion, Failed> {
    let error = match outcome {
        Ok(()) => return Ok(Completion::Completed),
        Err(error) => error,
    };
    match error.downcast_ref::<Unavailable>() {
        Some(missing) if require_all && !missing.is_deliberate() => {
            Err(format!("{REQUIRE_VARIABLE}=all, but {missing}").into())
        }
        Some(missing) => Ok(Completion::ignored_with(missing)),
        None => Err(format!("{error:#}").into()),
    }
}

fn require_all() -> bool {
    env::var(REQUIRE_VARIABLE).is_ok_and(|value| value == "all")
}

/// Ctrl-C reaches only this process: the components have groups of their own.
async fn stop_on_signal() {
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return;
    };
    tokio::select! {
        _ = interrupt.recv() => (),
        _ = terminate.recv() => (),
    }
    shared::stop();
    std::process::exit(130);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_ignored(outcome: Result<Completion, Failed>) -> bool {
        matches!(outcome, Ok(Completion::Ignored { reason: Some(_) }))
    }

    #[test]
    fn what_is_missing_is_ignored_unless_it_is_required() {
        let missing = || Err(Unavailable::new("no moon", "wait for the night").into());
        assert!(is_ignored(verdict(missing(), false)));
        let required = verdict(missing(), true).err().expect("it fails");
        let message = required.message().expect("it says why");
        assert!(message.contains("no moon; hint: wait for the night"), "{message}");
    }

    #[test]
    fn what_is_ruled_out_is_ignored_even_then() {
        let ruled_out = Err(Unavailable::deliberate("no moon", "look up").into());
        assert!(is_ignored(verdict(ruled_out, true)));
    }

    #[tokio::test]
    async fn a_panic_is_a_failure_with_its_words() {
        let outcome = caught(async { panic!("the sky fell") }).await;
        let failed = verdict(outcome, false).err().expect("it fails");
        assert!(failed.message().is_some_and(|text| text.contains("the sky fell")));
    }
}
