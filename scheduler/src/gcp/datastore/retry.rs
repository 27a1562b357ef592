//! What a failed call means, and which calls are made again.

use std::fmt;
use std::time::Duration;

use gcloud_sdk::tonic::{Code, Status};
use tokio::time::Instant;

use super::DatastoreError;
use crate::domain::redact::redact;

/// The waits between the tries of one call: where nobody listens it fails within 2 s.
const WAITS: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(1_500)];

/// No new try begins later than this after the first: where nothing at all is answered, two tries
/// that run into their own limit are the most.
const TRY_FOR: Duration = Duration::from_secs(12);

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
        let mut text = format!("{:?}: {}", status.code(), status.message());
        let mut cause = std::error::Error::source(status);
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        let text = redact(&text).into_owned();
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

/// How often one call may still be made again.
pub(super) struct Tries {
    waits: std::slice::Iter<'static, Duration>,
    since: Instant,
}

impl Tries {
    pub(super) fn new() -> Self {
        Self { waits: WAITS.iter(), since: Instant::now() }
    }

    /// Waits until a call that failed so may be made again.
    ///
    /// # Errors
    /// It should not be.
    pub(super) async fn again(&mut self, status: &Status) -> Result<(), Refusal> {
        let refusal = Refusal::of(status);
        match (&refusal, self.waits.next()) {
            (Refusal::Later(why), Some(wait)) if self.since.elapsed() < TRY_FOR => {
                tracing::debug!(why, "a call to Datastore is made again");
                tokio::time::sleep(*wait).await;
                Ok(())
            }
            _ => Err(refusal),
        }
    }
}
