//! Pulls under way, and what they brought that nobody has taken yet.
//!
//! Each pull runs on a task of its own to its end, whatever becomes of the caller that wanted its
//! messages: a pull that is cut off makes Pub/Sub give messages to nobody until their deadline.
//! What comes is leased at once; it waits a while for a caller and then goes back. As many pulls
//! run side by side as the answers say that there is something to get, and together they never ask
//! for more than the callers do.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::batch::{self, each};
use super::fault::Fault;
use super::patience::Patience;
use super::wire::{Received, Wire};
use crate::clock::Clock;
use crate::queue::QueueError;

/// The most pulls at once.
const WINDOW_MOST: usize = 8;
/// The most messages that a pull asks for; the API takes 1,000.
const ASK_MOST: usize = 1_000;
/// So many messages in one answer say that more are waiting: real servers answer with few.
const MANY: usize = 50;
/// How long a pull waits for messages. One under a second is answered at once by the emulator.
const PULL_FOR: Duration = Duration::from_secs(5);
/// How long it waits for a caller that does not: the shortest that is a wait at all.
const PULL_BRIEFLY: Duration = Duration::from_secs(2);
/// How long what came may wait for a caller. A caller comes again within this when there is room.
const WAITS_FOR: Duration = Duration::from_secs(10);
/// How long a caller waits for the other pulls of a deep queue, to take all in one go.
const GATHER: Duration = Duration::from_millis(10);
/// An empty answer that came sooner than this did not wait for messages.
const AT_ONCE: Duration = Duration::from_millis(500);
/// The pause after such an answer; doubled up to [`PAUSE_MOST`].
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MOST: Duration = Duration::from_secs(1);
/// Tries to lease what came: within the shortest ack deadline, 10 s.
pub(super) const LEASE_TRIES: u32 = 3;

/// A message that came and is leased.
pub(super) struct Arrived {
    pub received: Received,
    /// From before the request that leased it.
    pub leased_at: Instant,
    pull: u64,
}

#[derive(Default)]
struct State {
    arrived: VecDeque<Arrived>,
    /// The sum of what the pulls under way ask for.
    asked: usize,
    pulls: usize,
    window: usize,
    last_pull: u64,
    /// Answers without messages, and failures, since the start.
    empty: u64,
    failed: u64,
    failure: Option<QueueError>,
    pause: Duration,
    /// No pull before this.
    rest_until: Option<Instant>,
}

/// The pulls of one subscription.
pub(super) struct Pulls {
    wire: Arc<dyn Wire>,
    clock: Arc<dyn Clock>,
    /// Pulls tell whether the subscription works.
    pub patience: Patience,
    state: Mutex<State>,
    changed: Notify,
    closed: CancellationToken,
    tasks: TaskTracker,
}

impl Pulls {
    pub fn new(wire: Arc<dyn Wire>, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            wire,
            patience: Patience::new(Arc::clone(&clock)),
            clock,
            state: Mutex::new(State { window: 1, ..State::default() }),
            changed: Notify::new(),
            closed: CancellationToken::new(),
            tasks: TaskTracker::new(),
        })
    }

    /// Up to `n` messages, leased for `seconds`; waits up to `wait` for the first one, but gives one
    /// pull the time to be answered.
    pub async fn take(
        self: &Arc<Self>,
        n: usize,
        seconds: u16,
        wait: Duration,
    ) -> Result<Vec<Arrived>, QueueError> {
        let start = self.clock.mono();
        let brief = wait < PULL_BRIEFLY;
        let pull_for = if brief { PULL_BRIEFLY } else { PULL_FOR };
        let (patient_until, end) = (start + wait, start + wait.max(PULL_BRIEFLY + AT_ONCE));
        let (empty, failed) = {
            let state = self.lock();
            (state.empty, state.failed)
        };
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Heard from here on: what comes between the look and the wait is not missed.
            changed.as_mut().enable();
            let rest_until = {
                let mut state = self.lock();
                if !state.arrived.is_empty() {
                    break;
                }
                if state.failed != failed {
                    return Err(state.failure.take().unwrap_or_else(gone));
                }
                let vain = state.pulls == 0 && state.empty != empty;
                if (vain && self.clock.mono() >= patient_until) || self.closed.is_cancelled() {
                    return Ok(Vec::new());
                }
                self.top_up(&mut state, n, seconds, pull_for);
                state.rest_until.filter(|_| state.pulls == 0)
            };
            tokio::select! {
                biased;
                () = changed => {}
                () = tokio::time::sleep_until(rest_until.unwrap_or(end).min(end)) => {
                    if self.clock.mono() >= end {
                        return Ok(Vec::new());
                    }
                }
            }
        }
        self.gather(n, seconds, pull_for).await;
        let mut state = self.lock();
        let n = n.min(state.arrived.len());
        Ok(state.arrived.drain(..n).collect())
    }

    /// Waits a moment for more, where several pulls are under way.
    async fn gather(self: &Arc<Self>, n: usize, seconds: u16, pull_for: Duration) {
        let end = self.clock.mono() + GATHER;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let mut state = self.lock();
                if state.arrived.len() >= n || state.window == 1 {
                    return;
                }
                self.top_up(&mut state, n, seconds, pull_for);
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = tokio::time::sleep_until(end) => return,
            }
        }
    }

    /// Starts pulls for what is wanted and not yet asked for.
    fn top_up(self: &Arc<Self>, state: &mut State, n: usize, seconds: u16, pull_for: Duration) {
        let resting = state.rest_until.is_some_and(|until| self.clock.mono() < until);
        if resting || self.closed.is_cancelled() {
            return;
        }
        let share = n.div_ceil(state.window.max(1)).clamp(1, ASK_MOST);
        let mut wanted = n.saturating_sub(state.asked + state.arrived.len());
        while state.pulls < state.window && wanted > 0 {
            let ask = share.min(wanted);
            wanted -= ask;
            state.asked += ask;
            state.pulls += 1;
            state.last_pull += 1;
            let under_way = UnderWay { pulls: Arc::clone(self), ask };
            let pull = Pull { number: state.last_pull, ask, seconds, pull_for };
            self.tasks.spawn(Arc::clone(self).pull(pull, under_way));
        }
    }

    async fn pull(self: Arc<Self>, pull: Pull, under_way: UnderWay) {
        let started = self.clock.mono();
        let messages = match self.wire.pull(pull.ask, pull.pull_for).await {
            Ok(messages) => messages,
            Err(fault) if fault.is_deadline() => Vec::new(),
            Err(fault) => return self.failed(fault.into()),
        };
        self.patience.worked();
        if messages.is_empty() {
            return self.empty(started);
        }
        if self.closed.is_cancelled() {
            return self.give_back(messages.into_iter().map(|m| m.ack_id).collect()).await;
        }
        let n = messages.len();
        let leased_at = self.clock.mono();
        let ids: Vec<String> = messages.iter().map(|m| m.ack_id.clone()).collect();
        let answers = each(&ids, LEASE_TRIES, |ids| self.modify(ids, pull.seconds)).await;
        let mut failure = None;
        let leased: Vec<Arrived> = messages
            .into_iter()
            .zip(answers)
            .filter_map(|(received, answer)| match answer {
                Ok(()) => Some(Arrived { received, leased_at, pull: pull.number }),
                Err(error) => {
                    failure = Some(error);
                    None
                }
            })
            .collect();
        if let Some(error) = failure {
            let lost = n - leased.len();
            tracing::warn!(lost, of = n, %error, "messages that came could not be leased");
            if leased.is_empty() && error != QueueError::LeaseLost {
                self.failed(error);
            }
        }
        {
            let mut state = self.lock();
            (state.pause, state.rest_until) = (Duration::ZERO, None);
            if n >= MANY.min(pull.ask.div_ceil(2)) {
                state.window = (state.window * 2).min(WINDOW_MOST);
            }
            state.arrived.extend(leased);
        }
        drop(under_way);
        self.take_back(pull).await;
    }

    /// Gives back what nobody took in time.
    async fn take_back(&self, pull: Pull) {
        let lease = Duration::from_secs(u64::from(pull.seconds));
        tokio::select! {
            biased;
            () = self.closed.cancelled() => {}
            () = tokio::time::sleep(WAITS_FOR.min(lease / 2)) => {}
        }
        let mut left = Vec::new();
        self.lock().arrived.retain(|arrived| {
            let mine = arrived.pull == pull.number;
            if mine {
                left.push(arrived.received.ack_id.clone());
            }
            !mine
        });
        if !left.is_empty() {
            self.give_back(left).await;
        }
    }

    fn empty(&self, started: Instant) {
        let now = self.clock.mono();
        let mut state = self.lock();
        state.empty += 1;
        state.window = (state.window / 2).max(1);
        if now.saturating_duration_since(started) < AT_ONCE {
            state.pause = (state.pause * 2).clamp(PAUSE, PAUSE_MOST);
            state.rest_until = Some(now + state.pause);
        } else {
            (state.pause, state.rest_until) = (Duration::ZERO, None);
        }
    }

    fn failed(&self, error: QueueError) {
        let mut state = self.lock();
        state.failed += 1;
        state.failure = Some(self.patience.judge(error));
        state.window = 1;
    }

    async fn modify(&self, ids: Vec<String>, seconds: u16) -> Result<(), Fault> {
        self.wire.modify(&ids, seconds).await
    }

    /// Gives deliveries back at once. One that this fails for comes again when its lease lapses.
    pub async fn give_back(&self, ids: Vec<String>) {
        let answers = each(&ids, 2, |ids| self.modify(ids, 0)).await;
        let failed = answers.iter().filter(|answer| answer.is_err()).count();
        if failed > 0 {
            tracing::debug!(failed, "messages could not be given back; they come when they lapse");
        }
    }

    /// Leases again what waited for its caller, so that its lease runs from the caller's time on.
    pub async fn lease_again(&self, ids: &[String], seconds: u16) -> Vec<Result<(), QueueError>> {
        batch::each(ids, LEASE_TRIES, |ids| self.modify(ids, seconds)).await
    }

    /// As [`give_back`](Self::give_back), without waiting for it.
    pub fn give_back_soon(self: &Arc<Self>, ids: Vec<String>) {
        // Outside of a runtime nothing can be sent: the messages come when their leases lapse.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let pulls = Arc::clone(self);
            self.tasks.spawn_on(async move { pulls.give_back(ids).await }, &runtime);
        }
    }

    /// Takes no more: what is here or still comes goes back.
    pub fn stop(&self) {
        self.closed.cancel();
        self.tasks.close();
        self.changed.notify_waiters();
    }

    /// Waits for all that [`stop`](Self::stop) gives back.
    pub async fn stopped(&self) {
        self.tasks.wait().await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Counters and a list, right after every statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one pull was started with.
#[derive(Clone, Copy)]
struct Pull {
    number: u64,
    ask: usize,
    seconds: u16,
    pull_for: Duration,
}

/// A pull that counts as under way, until this is dropped, by a panic too.
struct UnderWay {
    pulls: Arc<Pulls>,
    ask: usize,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.pulls.lock();
        state.asked = state.asked.saturating_sub(self.ask);
        state.pulls = state.pulls.saturating_sub(1);
        drop(state);
        self.pulls.changed.notify_waiters();
    }
}

fn gone() -> QueueError {
    QueueError::Unavailable("a pull failed".into())
}
