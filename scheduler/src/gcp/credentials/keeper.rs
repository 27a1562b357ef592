//! Keeps one token fresh for all who ask: one request to its source at a time, however many ask.

use std::sync::Arc;
use std::time::Duration;

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::source::Source;
use super::state::State;
use crate::gcp::tokens::{Bearer, TokenError};

/// The longest that one who asks for a token waits (a pod's metadata server needs some seconds
/// after the pod's start).
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// The longest that one try may take.
const TRY: Duration = Duration::from_secs(10);

/// Asks the source when somebody needs a token, and from then on by itself.
pub(super) struct Keeper {
    state: Arc<watch::Sender<State>>,
    /// Ends with the keeper.
    _asking: JoinSet<()>,
}

impl Keeper {
    /// Must be called inside of a tokio runtime.
    pub(super) fn new(source: Arc<dyn Source>, seed: u64) -> Self {
        let state = Arc::new(watch::Sender::new(State::default()));
        let mut asking = JoinSet::new();
        asking.spawn(keep(source, Arc::clone(&state), seed));
        Self { state, _asking: asking }
    }

    pub(super) async fn bearer(&self) -> Result<Bearer, TokenError> {
        if let Some(answer) = self.state.borrow().answer(Instant::now()) {
            return answer;
        }
        self.state.send_if_modified(|state| state.want(Instant::now()));
        self.wait(|_| true).await
    }

    pub(super) async fn renew(&self, refused: &Bearer) -> Result<Bearer, TokenError> {
        let (mut must_wait, mut tries) = (false, 0);
        self.state.send_if_modified(|state| {
            must_wait = state.refuse(refused, Instant::now());
            tries = state.tries();
            must_wait
        });
        if !must_wait {
            return self.bearer().await;
        }
        let answer = self.wait(|state| state.tries() > tries).await?;
        let state = self.state.borrow();
        match state.trouble(Instant::now()) {
            Some((error, _)) if answer == *refused => Err(error),
            _ => Ok(answer),
        }
    }

    async fn wait(&self, enough: impl Fn(&State) -> bool) -> Result<Bearer, TokenError> {
        let mut state = self.state.subscribe();
        let answered = |state: &State| enough(state) && state.answer(Instant::now()).is_some();
        let waited = timeout(PATIENCE, state.wait_for(answered)).await;
        let answer = match waited {
            Ok(Ok(state)) => state.answer(Instant::now()),
            Ok(Err(_)) | Err(_) => None,
        };
        answer.unwrap_or_else(|| Err(self.state.borrow().excuse()))
    }
}

async fn keep(source: Arc<dyn Source>, state: Arc<watch::Sender<State>>, seed: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut changes = state.subscribe();
    loop {
        let due = changes.borrow_and_update().due();
        match due {
            Some(due) if due <= Instant::now() => {}
            Some(due) => {
                tokio::select! {
                    biased;
                    _ = changes.changed() => {}
                    () = sleep_until(due) => {}
                }
                continue;
            }
            None => {
                // An error would say that the sender is gone, which is held here.
                let _ = changes.changed().await;
                continue;
            }
        }
        let began = Instant::now();
        let late = |_| Err(TokenError::Later(format!("its source does not answer in {TRY:?}")));
        let result = timeout(TRY, source.fetch()).await.unwrap_or_else(late);
        let jitter = rng.random_range(0.8..1.2);
        state.send_modify(|state| state.tried(began, Instant::now(), result, jitter));
        if let Some((error, left)) = state.borrow().trouble(Instant::now()) {
            tracing::warn!(%error, ?left, "no new access token yet; the present one is used on");
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
