//! What a failed call means, and which calls are made again.

use std::fmt;
use std::time::Duration;

use gcloud_sdk::tonic::{Code, Status};
use tokio::time::Instant;

use super::DatastoreError;
use crate::domain::causes::follow;
use crate::domain::redact::redact;

/// The waits between the tries of one call: where nobody listens it fails within 2 s.
const WAITS: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(1_500)];

/// No new try begins later than this after the first: where nothing at all is answered, two tries
/// that run into their own limit are the most.
const TRY_FOR: Duration = Duration::from_secs(12);

/// The waits of a transaction that another one came between: at first, at most, and how long it is
/// begun anew. A lock that nobody gives up is gone after a minute at Google's.
const FIRST_STEP_BACK: Duration = Duration::from_millis(100);
const STEP_BACK: Duration = Duration::from_secs(3);
const CONTEND_FOR: Duration = Duration::from_secs(60);

/// What became of a call in the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Another call may go well.
    Later(String),
    /// What was asked is wrong in itself.
    Argument(String),
    /// The account may not.
    Forbidden(String),
    /// Anything else that stays as it is.
    Other(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Later(text) | Self::Argument(text) | Self::Forbidden(text) | Self::Other(text)) =
            self;
        f.write_str(text)
    }
}

impl Refusal {
    pub(super) fn of(status: &Status) -> Self {
        let text = format!("{:?}: {}", status.code(), status.message());
        let text = redact(&follow(text, status)).into_owned();
        match status.code() {
            code if is_transient(code) => Self::Later(text),
            Code::InvalidArgument | Code::Unimplemented => Self::Argument(text),
            Code::PermissionDenied | Code::Unauthenticated => Self::Forbidden(text),
            _ => Self::Other(text),
        }
    }

    pub(super) fn into_error(self, project: &str) -> DatastoreError {
        match self {
            Self::Later(text) => DatastoreError::Unavailable(text),
            Self::Argument(text) => DatastoreError::Refused(text),
            Self::Forbidden(text) => DatastoreError::Refused(format!(
                "{text}; grant this account roles/datastore.viewer in project {project} \
                 (roles/datastore.user to set flags)"
            )),
            Self::Other(text) => DatastoreError::Refused(format!("{text} (project {project})")),
        }
    }
}

/// Codes after which the same call may go well. A connection that breaks shows as `Unknown` or
/// `Cancelled`; all calls here may be made twice.
fn is_transient(code: Code) -> bool {
    matches!(
        code,
        Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::ResourceExhausted
            | Code::Internal
            | Code::Unknown
            | Code::Cancelled
    )
}

/// How often one call, or one transaction, may still be made again.
pub(super) struct Tries {
    waits: std::slice::Iter<'static, Duration>,
    /// How often others came between a transaction; `None` for a call that is none.
    contended: Option<u32>,
    since: Instant,
}

impl Tries {
    /// Of a single call.
    pub(super) fn of_call() -> Self {
        Self { waits: WAITS.iter(), contended: None, since: Instant::now() }
    }

    /// Of a transaction: when others come between, it is made anew much longer, since each time one
    /// of them was made.
    pub(super) fn of_transaction() -> Self {
        Self { contended: Some(0), ..Self::of_call() }
    }

    /// Waits until what failed so may be made again.
    ///
    /// # Errors
    /// It should not be.
    pub(super) async fn again(&mut self, status: &Status) -> Result<(), Refusal> {
        let refusal = Refusal::of(status);
        match (&refusal, self.wait_after(status.code())) {
            (Refusal::Later(why), Some(wait)) => {
                tracing::debug!(why, "a call to Datastore is made again");
                tokio::time::sleep(wait).await;
                Ok(())
            }
            _ => Err(refusal),
        }
    }

    fn wait_after(&mut self, code: Code) -> Option<Duration> {
        let tried = self.since.elapsed();
        if let (Code::Aborted, Some(times)) = (code, &mut self.contended) {
            let longest = FIRST_STEP_BACK.saturating_mul(1 << (*times).min(10)).min(STEP_BACK);
            *times += 1;
            // Spread, so that those who met do not meet again.
            let wait = longest.mul_f64(rand::random_range(0.5..1.0));
            return (tried < CONTEND_FOR).then_some(wait);
        }
        self.waits.next().copied().filter(|_| tried < TRY_FOR)
    }
}
