//! Brings one fault about, and ends it where it has an end.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::time::{MissedTickBehavior, interval};

use super::crew::Crew;
use super::plan::{BadTemplate, Fault};
use crate::binaries::Program;
use crate::control_plane::ControlPlane;
use crate::proxy::{Action, Fired, Proxy, Rule};

/// Longer than a request may take.
const TOO_LATE: Duration = Duration::from_secs(4);

/// What faults are brought about in.
pub struct Stage<'a> {
    /// The control plane.
    pub plane: &'a ControlPlane,
    /// The proxy before it.
    pub proxy: &'a Proxy,
    /// The schedulers.
    pub crew: Crew<'a>,
    /// The faults of requests so far, and how often each has struck.
    pub struck: Vec<(Fault, Fired)>,
}

impl Stage<'_> {
    /// Goes through with it. Faults of requests are set up and left to strike while the next steps
    /// come; all others are over when this returns. Tasks are the caller's to bring.
    ///
    /// # Errors
    /// When something can't be done, or a scheduler does what none may.
    pub async fn act(&mut self, fault: Fault, seed: u64) -> Result<()> {
        if let Some(rule) = rule(fault, seed) {
            self.struck.push((fault, self.proxy.push(rule)));
        }
        match fault {
            Fault::WatchesExpired { .. } => self.proxy.cut_watches(),
            Fault::WatchesCut { times } => {
                for _ in 0..times {
                    self.proxy.cut_watches();
                    self.pass(Duration::from_millis(300)).await?;
                }
            }
            Fault::NetworkCut { seconds } => {
                self.proxy.cut_watches();
                self.pass(Duration::from_secs(seconds)).await?;
            }
            Fault::ApiServerKilled { seconds } => {
                self.plane.kill_apiserver().await?;
                self.pass(Duration::from_secs(seconds)).await?;
                self.plane.start_apiserver().await?;
            }
            Fault::StorePaused { seconds } => {
                self.plane.pause(Program::Etcd).await?;
                self.pass(Duration::from_secs(seconds)).await?;
                self.plane.resume(Program::Etcd)?;
            }
            Fault::SchedulerKilled => {
                let leader = self.crew.leader().await?;
                self.crew.kill(&leader).await?;
            }
            Fault::SchedulerPaused { seconds } => {
                let leader = self.crew.leader().await?;
                self.crew.pause(&leader).await?;
                self.pass(Duration::from_secs(seconds)).await?;
                self.crew.wake(&leader).await?;
            }
            Fault::TwoSchedulers { seconds } => {
                self.crew.want(2);
                self.pass(Duration::from_secs(seconds)).await?;
                self.crew.want(1);
                let leader = self.crew.leader().await?;
                self.crew.terminate(&leader).await?;
            }
            Fault::BadTemplate { kind, seconds } => self.roll_out(kind, seconds).await?,
            Fault::LostRequests { .. }
            | Fault::LostAnswers { .. }
            | Fault::EmptyAnswers { .. }
            | Fault::GatewayTimeouts { .. }
            | Fault::LateAnswers { .. }
            | Fault::TooManyRequests { .. }
            | Fault::ServerErrors { .. }
            | Fault::ClockStep { .. } => {}
        }
        Ok(())
    }

    /// As a Deployment does: the old one goes once the new one is there; one that can't begin never
    /// is.
    async fn roll_out(&mut self, kind: BadTemplate, seconds: u64) -> Result<()> {
        let old = self.crew.names();
        self.crew.set_templates(Some(kind))?;
        let new = self.crew.start()?;
        let begins = Instant::now();
        while self.crew.runs(&new)? && begins.elapsed() < Duration::from_secs(4) {
            self.pass(Duration::from_millis(100)).await?;
        }
        if self.crew.runs(&new)? {
            ensure!(kind != BadTemplate::Unreadable, "a template that can't be read is used");
            for name in old.iter().filter(|name| **name != new) {
                if self.crew.runs(name)? {
                    self.crew.terminate(name).await?;
                }
            }
        }
        self.pass(Duration::from_secs(seconds)).await?;
        self.crew.set_templates(None)?;
        for name in self.crew.names().into_iter().filter(|name| !old.contains(name)) {
            self.crew.terminate(&name).await?;
        }
        Ok(())
    }

    /// How many faults of requests have met none so far.
    pub fn missed(&self) -> usize {
        self.struck.iter().filter(|(_, fired)| fired.count() == 0).count()
    }

    /// Lets time pass, and tends the schedulers meanwhile.
    ///
    /// # Errors
    /// As [`Crew::tend`].
    pub async fn pass(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        let mut ticks = interval(Duration::from_millis(100));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while Instant::now() < end {
            ticks.tick().await;
            self.crew.tend()?;
        }
        Ok(())
    }
}

/// What the proxy is told, if the fault is its to bring about.
fn rule(fault: Fault, seed: u64) -> Option<Rule> {
    let create = |action| Rule::new(action).on("create", "jobs");
    let seconds = Duration::from_secs;
    Some(match fault {
        Fault::LostRequests { times } => create(Action::DropBefore).times(times),
        Fault::LostAnswers { times } => create(Action::DropAfter).times(times),
        Fault::EmptyAnswers { times } => create(Action::Empty201).times(times),
        Fault::GatewayTimeouts { times } => create(gateway_timeout()).times(times),
        Fault::LateAnswers { times } => create(Action::DelayAnswer(TOO_LATE)).times(times),
        Fault::TooManyRequests { seconds: time, retry_after } => {
            create(Action::too_many_requests(Some(seconds(retry_after)))).lasting(seconds(time))
        }
        Fault::ServerErrors { seconds: time, status } => {
            let rule = Rule::new(Action::answer(status, "", "it is broken on purpose"));
            rule.chance(0.33, seed).lasting(seconds(time))
        }
        Fault::NetworkCut { seconds: time } => Rule::new(Action::DropBefore).lasting(seconds(time)),
        Fault::WatchesExpired { seconds: time } => {
            Rule::new(Action::Expire).verb("watch").chance(0.5, seed).lasting(seconds(time))
        }
        _ => return None,
    })
}

fn gateway_timeout() -> Action {
    Action::AnswerAfter {
        status: 504,
        reason: "Timeout".into(),
        message: "the gateway gave up waiting".into(),
    }
}
