//! When a lasting fault is believed: at once, unless the subscription worked shortly before.
//!
//! A subscription that is made anew, a policy that is being changed or an emulator that was
//! restarted are missing or refused for a while; ending the scheduler for it would help nobody.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::Clock;
use crate::queue::QueueError;

/// So long after it worked, what is refused is taken to be passing.
const PATIENCE: Duration = Duration::from_secs(300);

/// Remembers when the subscription last worked.
pub(super) struct Patience {
    clock: Arc<dyn Clock>,
    worked: Mutex<Option<Instant>>,
}

impl Patience {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, worked: Mutex::default() }
    }

    /// A request was answered well.
    pub fn worked(&self) {
        *self.worked.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.clock.mono());
    }

    /// What to make of `error` now.
    pub fn judge(&self, error: QueueError) -> QueueError {
        let QueueError::Unusable(said) = error else { return error };
        let worked = *self.worked.lock().unwrap_or_else(PoisonError::into_inner);
        match worked {
            Some(at) if self.clock.mono().saturating_duration_since(at) < PATIENCE => {
                QueueError::Unavailable(said)
            }
            _ => QueueError::Unusable(said),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    #[tokio::test(start_paused = true)]
    async fn what_worked_shortly_before_is_waited_for_and_what_never_did_is_not() {
        let patience = Patience::new(Arc::new(SystemClock));
        let (lasting, passing) = (QueueError::Unusable("x".into()), "x".to_owned());
        assert_eq!(patience.judge(lasting.clone()), lasting);
        patience.worked();
        tokio::time::sleep(Duration::from_secs(299)).await;
        assert_eq!(patience.judge(lasting.clone()), QueueError::Unavailable(passing));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(patience.judge(lasting.clone()), lasting);
        assert_eq!(patience.judge(QueueError::LeaseLost), QueueError::LeaseLost);
    }
}
