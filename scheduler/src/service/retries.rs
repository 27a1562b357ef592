//! What the farm wants done about ends, put together: the configured rules, pauses and lost backends,
//! URLs that still live, outputs that are there.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

use super::Loaded;
use crate::backend::outputs::output_is_there;
use crate::backend::{MayRun, Retries};
use crate::clock::Clock;
use crate::config::watch::Watched;
use crate::domain::end::{End, RetryRule};
use crate::domain::input_url::InputUrl;
use crate::domain::signed_url::Verdict;
use crate::gcp::storage::Objects;
use crate::pipeline::snapshot::Snapshot;

/// The farm's word on retries.
pub(super) struct FarmRetries {
    pub loaded: Arc<Watched<Loaded>>,
    pub clock: Arc<dyn Clock>,
    pub in_force: watch::Receiver<Snapshot>,
    pub outputs: Option<(Arc<dyn Objects>, String)>,
}

impl FarmRetries {
    /// Why nothing of this kind may start now, if so. Which project a Job is of can't be told from
    /// it, so that a pause by project stops no retry.
    fn stopped(&self, end: &End) -> Option<String> {
        let now = self.in_force.borrow();
        if !now.leads {
            return Some("what is paused was not read yet".to_owned());
        }
        if now.controls.lost(&end.backend).is_some() {
            return Some(format!("backend {} was declared lost", end.backend));
        }
        let pause = now.controls.paused(&end.key, None);
        let pause = pause.or_else(|| now.controls.backend_paused(&end.backend))?;
        Some(format!("{} is paused {}", pause.target, pause.mark))
    }

    /// Why its input is of no use any more, or not yet.
    fn unusable(&self, end: &End, input: &InputUrl) -> Option<MayRun> {
        let expected = self.loaded.get().config.expected_run.of(&end.key.command);
        match input.validity()?.judge(self.clock.wall(), expected) {
            Verdict::Usable => None,
            Verdict::NotYet(_) => Some(MayRun::Later("its URL is not valid yet".to_owned())),
            Verdict::Dead(_) => Some(MayRun::No("its URL is dead".to_owned())),
            Verdict::TooShort(_) => {
                let why = "its output URL would be dead before its expected end";
                Some(MayRun::No(why.to_owned()))
            }
        }
    }
}

#[async_trait]
impl Retries for FarmRetries {
    fn rule(&self, end: &End) -> RetryRule {
        self.loaded.get().config.retries.rule_now(end)
    }

    async fn may_run(&self, end: &End, input: Option<&InputUrl>) -> MayRun {
        if let Some(why) = self.stopped(end) {
            return MayRun::Later(why);
        }
        let Some(input) = input else { return MayRun::Yes };
        if let Some(unusable) = self.unusable(end, input) {
            return unusable;
        }
        let Some((objects, bucket)) = &self.outputs else { return MayRun::Yes };
        match output_is_there(objects.as_ref(), bucket, input).await {
            Ok(false) => MayRun::Yes,
            Ok(true) => MayRun::No("its output is there".to_owned()),
            Err(why) => MayRun::Later(why.detail),
        }
    }
}
