//! What a refused or lost request means, and what the caller should do about it.

use gcloud_sdk::tonic::{Code, Status};

use crate::domain::redact::redact;
use crate::queue::QueueError;

/// Why a request failed. The texts are safe to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Something in the request is wrong: with several ids, one of them may be.
    Refused(String),
    /// The server is away, busy, or did not answer in time: try again.
    Passing(String),
    /// It will be refused until a person acts.
    Lasting(String),
}

impl Fault {
    /// What `status` means for a request about `resource`.
    ///
    /// After <https://cloud.google.com/pubsub/docs/reference/error-codes>. What is not understood
    /// counts as passing: stopping a farm needs a reason.
    pub fn of(status: &Status, resource: &str) -> Self {
        let said = redact(status.message()).into_owned();
        let said = format!("{resource}: {:?}: {said}", status.code());
        match status.code() {
            // Acks of subscriptions with exactly-once delivery are refused as FAILED_PRECONDITION.
            Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => {
                Self::Refused(said)
            }
            Code::NotFound => Self::Lasting(format!(
                "{said}; create it, or name another project, subscription or topic in the \
                 configuration"
            )),
            Code::PermissionDenied => Self::Lasting(format!(
                "{said}; grant this workload's Google account roles/pubsub.subscriber on the \
                 subscription and roles/pubsub.publisher on the quarantine topic"
            )),
            Code::Unimplemented => {
                Self::Lasting(format!("{said}; the endpoint does not speak Pub/Sub"))
            }
            // The metadata server may refuse for a while at a start; a machine without it never stops.
            _ if is_of_credentials(&said) => Self::Passing(format!(
                "{said}; give this workload a Google service account, run `gcloud auth \
                 application-default login`, or set PUBSUB_EMULATOR_HOST for an emulator"
            )),
            _ => Self::Passing(said),
        }
    }

    /// Whether a pull that failed so has only waited in vain.
    pub fn is_deadline(&self) -> bool {
        matches!(self, Self::Passing(said) if said.contains(": DeadlineExceeded: "))
    }
}

/// Whether a request failed before it was sent, for want of a token: gcloud-sdk tells it by its text
/// alone.
pub fn is_of_credentials(said: &str) -> bool {
    said.contains("credentials error")
}

impl From<Fault> for QueueError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Passing(said) => Self::Unavailable(said),
            Fault::Refused(said) | Fault::Lasting(said) => Self::Unusable(said),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_says_what_to_do() {
        for (code, expect) in [
            (Code::NotFound, "lasting"),
            (Code::PermissionDenied, "lasting"),
            (Code::InvalidArgument, "refused"),
            (Code::FailedPrecondition, "refused"),
            (Code::Unavailable, "passing"),
            (Code::DeadlineExceeded, "passing"),
            (Code::ResourceExhausted, "passing"),
            (Code::Internal, "passing"),
            (Code::Unauthenticated, "passing"),
            (Code::Unknown, "passing"),
        ] {
            let fault = Fault::of(&Status::new(code, "m"), "projects/p/subscriptions/s");
            let kind = match &fault {
                Fault::Lasting(_) => "lasting",
                Fault::Refused(_) => "refused",
                Fault::Passing(_) => "passing",
            };
            assert_eq!(kind, expect, "{code:?}");
            assert_eq!(fault.is_deadline(), code == Code::DeadlineExceeded);
        }
    }

    #[test]
    fn what_the_server_says_is_shown_without_credentials() {
        let status = Status::not_found("no https://h/o?X-Goog-Signature=abc");
        let Fault::Lasting(said) = Fault::of(&status, "s") else { panic!("lasting") };
        assert!(said.contains("create it") && !said.contains("abc"), "{said}");
    }
}
