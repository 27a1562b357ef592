//! What is in force: the flags as last read, the weights that follow from them, and reloads.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::time::Instant;

use super::{Event, Pipeline, said};
use crate::flags::{FlagSet, FlagsError};
use crate::gate::Weights;

/// How often flags are read.
const FLAGS_EVERY: Duration = Duration::from_secs(2);

impl Pipeline {
    pub(super) fn read_flags(&mut self) {
        let flags = Arc::clone(&self.deps.flags);
        let call = async move {
            let read = AssertUnwindSafe(flags.read()).catch_unwind().await;
            Event::Flags(read.unwrap_or_else(|panic| Err(FlagsError(said(panic)))))
        };
        self.waits.push(call.boxed());
    }

    pub(super) fn flags_read(&mut self, result: Result<FlagSet, FlagsError>, now: Instant) {
        match result {
            Ok(flags) => {
                (self.deps.on_flags)(&flags);
                let candidates: Vec<_> =
                    self.deps.backends.iter().map(|b| b.candidate.clone()).collect();
                let weights = Weights::read(&candidates, &flags);
                if weights != self.weights {
                    for warning in &weights.warnings {
                        tracing::warn!("{warning}");
                    }
                    tracing::info!("weights changed from {} to {weights}", self.weights);
                    self.weights = weights;
                    for backend in 0..self.backends.len() {
                        self.book.wake_backend(backend, usize::MAX);
                    }
                }
                self.flags = Some((now, flags));
            }
            Err(error) => tracing::warn!(%error, "flags were not read"),
        }
        self.notice_reload();
        let due = async {
            tokio::time::sleep(FLAGS_EVERY).await;
            Event::FlagsDue
        };
        self.waits.push(due.boxed());
    }

    /// After a reload every workload is looked up and resolved anew.
    fn notice_reload(&mut self) {
        let generation = self.deps.resolver.generation();
        if generation != std::mem::replace(&mut self.generation, generation) {
            self.workloads.forget();
            let waiting: Vec<_> = self.book.waiting_workloads().cloned().collect();
            waiting.iter().for_each(|key| self.book.wake_workload(key));
        }
    }

    /// The flags, if they are young enough to create on.
    pub(super) fn usable_flags(&self, now: Instant) -> Option<&FlagSet> {
        self.flags
            .as_ref()
            .filter(|(read, _)| now.duration_since(*read) <= self.deps.settings.flags_max_age)
            .map(|(_, flags)| flags)
    }
}
