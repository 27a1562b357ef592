//! What an answer to a create means: which of them say that nothing was made, whom they concern,
//! and what to wait for. Pure.
//!
//! The texts are Kubernetes' own (apiserver's `registry/generic`, the quota, webhook and namespace
//! lifecycle admission plugins). What an admission webhook says is free text, so its refusal is
//! told first, by the words around it.

use std::time::Duration;

use super::api::{ApiError, Sent};
use crate::domain::outcome::HoldKind;

/// What an error of a create means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A Job of this name is there: read it.
    Exists,
    /// It may have been made: only reading it tells.
    MaybeDone,
    /// Not made; the same request may work soon.
    Retry(HoldKind),
    /// Not made; the server asks everyone to wait.
    Throttled(Option<Duration>),
    /// Not made, and no other create would be either: stop calling.
    Stop(HoldKind),
    /// Not made, and no Job of this workload would be.
    Refused(HoldKind),
}

/// Judges an error of a create.
pub fn classify(error: &ApiError) -> Verdict {
    let Some(status) = error.status else {
        return match error.sent {
            Sent::Maybe => Verdict::MaybeDone,
            Sent::Never if error.reason == UNAUTHENTICATED => {
                Verdict::Stop(HoldKind::Unauthenticated)
            }
            Sent::Never => Verdict::Retry(HoldKind::BackendFailed),
        };
    };
    match status {
        // Success without a readable body: done, most likely; reading tells.
        200..=299 | 408 | 502 | 504 => Verdict::MaybeDone,
        // "Conflict" is an optimistic lock inside the server (a quota's, for one), not the name.
        409 if error.reason == "Conflict" => Verdict::Retry(HoldKind::BackendFailed),
        409 => Verdict::Exists,
        429 => Verdict::Throttled(error.retry_after),
        401 => Verdict::Stop(HoldKind::Unauthenticated),
        403 => forbidden(error),
        404 if error.message.contains("namespaces \"") => Verdict::Stop(HoldKind::NamespaceGone),
        404 | 405 | 406 | 415 | 300..=399 => Verdict::Stop(HoldKind::BackendFailed),
        400..=499 if account_missing(error) => Verdict::Refused(HoldKind::AccountRefused),
        400..=499 => Verdict::Refused(HoldKind::JobRefused),
        500 => internal(error),
        // A Status is the server's own word that it took nothing; a bare 503 is some proxy's.
        503 if !error.reason.is_empty() => match error.retry_after {
            Some(after) => Verdict::Throttled(Some(after)),
            None => Verdict::Retry(HoldKind::BackendFailed),
        },
        _ => Verdict::MaybeDone,
    }
}

/// The reason of an error that never left because there were no credentials to send with it.
pub const UNAUTHENTICATED: &str = "Unauthenticated";

fn says(error: &ApiError, words: &[&str]) -> bool {
    words.iter().any(|word| error.message.contains(word))
}

/// A create refused because its ServiceAccount is not there (the ServiceAccount admission plugin).
pub fn account_missing(error: &ApiError) -> bool {
    says(error, &["error looking up service account", "serviceaccount \""])
        && says(error, &["not found"])
}

fn forbidden(error: &ApiError) -> Verdict {
    if says(error, &["denied the request", "denied request"]) {
        Verdict::Refused(HoldKind::JobRefused)
    } else if says(error, &["exceeded quota"]) {
        Verdict::Stop(HoldKind::Quota)
    } else if says(error, &["because it is being terminated"]) {
        Verdict::Stop(HoldKind::NamespaceGone)
    } else if account_missing(error) {
        Verdict::Refused(HoldKind::AccountRefused)
    } else if says(error, &["cannot create resource"]) || error.reason.is_empty() {
        // Without a Status it is not the server's admission but something before it.
        Verdict::Stop(HoldKind::Forbidden)
    } else if says(error, &["status unknown for quota", "insufficient quota"]) {
        Verdict::Stop(HoldKind::Quota)
    } else {
        Verdict::Refused(HoldKind::JobRefused)
    }
}

fn internal(error: &ApiError) -> Verdict {
    if says(error, &["failed calling webhook", "failed to call webhook"]) {
        // Webhooks are called before anything is stored.
        Verdict::Retry(HoldKind::WebhookFailed)
    } else if error.reason.is_empty()
        || says(error, &["etcdserver:", "timed out", "timeout", "deadline exceeded", "EOF"])
    {
        // The store may have taken it though its answer was lost on the way.
        Verdict::MaybeDone
    } else {
        Verdict::Retry(HoldKind::BackendFailed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: u16, reason: &str, message: &str, expect: Verdict) {
        assert_eq!(classify(&ApiError::answered(status, reason, message)), expect, "{message}");
    }

    #[test]
    fn a_terminating_namespace_a_quota_and_missing_rights_stop_the_backend() {
        let stop = Verdict::Stop;
        check(
            403,
            "Forbidden",
            "jobs.batch \"cf-job-1\" is forbidden: unable to create new content in namespace farm \
             because it is being terminated",
            stop(HoldKind::NamespaceGone),
        );
        check(404, "NotFound", "namespaces \"farm\" not found", stop(HoldKind::NamespaceGone));
        check(
            403,
            "Forbidden",
            "jobs.batch \"cf-job-1\" is forbidden: exceeded quota: q, requested: \
             count/jobs.batch=1, used: count/jobs.batch=5, limited: count/jobs.batch=5",
            stop(HoldKind::Quota),
        );
        check(
            403,
            "Forbidden",
            "jobs.batch is forbidden: User \"u\" cannot create resource \"jobs\" in API group \
             \"batch\" in the namespace \"farm\"",
            stop(HoldKind::Forbidden),
        );
        check(403, "", "<html>Forbidden by the proxy</html>", stop(HoldKind::Forbidden));
        check(401, "Unauthorized", "Unauthorized", stop(HoldKind::Unauthenticated));
        check(404, "", "404 page not found", stop(HoldKind::BackendFailed));
    }

    #[test]
    fn a_webhook_that_cannot_be_called_is_tried_again() {
        let expect = Verdict::Retry(HoldKind::WebhookFailed);
        let text = "Internal error occurred: failed calling webhook \"m.kueue.io\": failed to call \
                    webhook: Post \"https://k.svc:443/m?timeout=10s\": context deadline exceeded";
        check(500, "InternalError", text, expect);
        check(500, "InternalError", "failed to call webhook: EOF", expect);
    }

    #[test]
    fn what_admission_says_no_to_is_the_workloads_whatever_words_it_uses() {
        let expect = Verdict::Refused(HoldKind::JobRefused);
        for text in [
            "admission webhook \"v.x\" denied the request: exceeded quota of images",
            "admission webhook \"v.x\" denied the request: you cannot create resource x",
            "jobs.batch \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied \
             request: no",
            "jobs.batch \"a\" is forbidden: violates PodSecurity \"restricted:latest\"",
        ] {
            check(403, "Forbidden", text, expect);
        }
        check(422, "Invalid", "Job.batch \"a\" is invalid: spec: Required value", expect);
        check(400, "BadRequest", "admission webhook \"v.x\" denied the request: no", expect);
        let text = "error looking up service account farm/a: serviceaccount \"a\" not found";
        check(403, "Forbidden", text, Verdict::Refused(HoldKind::AccountRefused));
    }

    #[test]
    fn a_definite_500_is_not_done_and_a_timed_out_store_may_be() {
        check(
            500,
            "InternalError",
            "Internal error occurred: boom",
            Verdict::Retry(HoldKind::BackendFailed),
        );
        let quota = "Operation cannot be fulfilled on resourcequotas \"q\": the object has been \
                     modified";
        check(409, "Conflict", quota, Verdict::Retry(HoldKind::BackendFailed));
        check(500, "InternalError", "etcdserver: request timed out", Verdict::MaybeDone);
        check(500, "", "upstream error", Verdict::MaybeDone);
        check(502, "", "bad gateway", Verdict::MaybeDone);
        check(503, "", "no healthy upstream", Verdict::MaybeDone);
        check(504, "Timeout", "request did not complete", Verdict::MaybeDone);
        check(201, "", "an empty body", Verdict::MaybeDone);
        check(503, "ServiceUnavailable", "shutting down", Verdict::Retry(HoldKind::BackendFailed));
    }

    #[test]
    fn no_answer_is_maybe_done_only_if_the_request_left() {
        assert_eq!(classify(&ApiError::lost("reset")), Verdict::MaybeDone);
        assert_eq!(classify(&ApiError::unsent("refused")), Verdict::Retry(HoldKind::BackendFailed));
    }

    #[test]
    fn a_name_that_is_taken_is_read_and_a_throttle_keeps_its_wish() {
        check(409, "AlreadyExists", "jobs.batch \"a\" already exists", Verdict::Exists);
        let error = ApiError::answered(429, "TooManyRequests", "slow down")
            .with_retry_after(Duration::from_secs(7));
        assert_eq!(classify(&error), Verdict::Throttled(Some(Duration::from_secs(7))));
    }
}
