//! What an answer of Cloud Storage's JSON API means for the caller. Pure.

use http::StatusCode;
use serde_json::Value;

use super::{ObjectName, StorageError};
use crate::domain::redact::redact;

/// What was asked, for the texts of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// To read an object.
    Read,
    /// To know whether it is there.
    Look,
    /// To write it.
    Write,
}

impl Wish {
    fn verb(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Look => "look for",
            Self::Write => "write",
        }
    }

    /// The narrowest predefined role that allows it (Cloud Storage, "IAM roles").
    fn role(self) -> &'static str {
        match self {
            Self::Read | Self::Look => "roles/storage.objectViewer",
            Self::Write => "roles/storage.objectUser",
        }
    }
}

/// The error that an answer without success is.
pub fn error(wish: Wish, object: &ObjectName, status: StatusCode, body: &[u8]) -> StorageError {
    let said = said(body);
    let verb = wish.verb();
    match status.as_u16() {
        401 => {
            StorageError::Unauthenticated(format!("it answered 401 when asked to {verb} {object}"))
        }
        403 => StorageError::Forbidden(format!(
            "this scheduler's Google account may not {verb} {object}; grant it {} on the bucket {}",
            wish.role(),
            object.bucket
        )),
        404 if is_of_bucket(&said) => {
            StorageError::Refused(format!("there is no bucket {}", object.bucket))
        }
        404 => StorageError::Absent(object.clone()),
        412 => StorageError::Overtaken(object.clone()),
        408 | 429 | 500..=599 => StorageError::Later(format!("it answered {}", status.as_u16())),
        code => StorageError::Refused(format!(
            "it answered {code} when asked to {verb} {object}{}{said}",
            if said.is_empty() { "" } else { ": " }
        )),
    }
}

/// "The specified bucket does not exist.": an object's absence names the object.
fn is_of_bucket(said: &str) -> bool {
    said.contains("bucket does not exist")
}

/// The message of an error's body.
fn said(body: &[u8]) -> String {
    let json: Option<Value> = serde_json::from_slice(body).ok();
    let message = json.as_ref().and_then(|json| json.pointer("/error/message")?.as_str());
    let text: String = message.unwrap_or_default().chars().take(300).collect();
    redact(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(wish: Wish, status: u16, body: &str, expect: &str) {
        let object = ObjectName::parse("gs://b/o").expect("a name");
        let status = StatusCode::from_u16(status).expect("a status");
        assert_eq!(error(wish, &object, status, body.as_bytes()).to_string(), expect);
    }

    #[test]
    fn each_answer_says_what_to_do() {
        check(
            Wish::Read,
            403,
            "",
            "Cloud Storage refuses: this scheduler's Google account may not read gs://b/o; grant it \
             roles/storage.objectViewer on the bucket b",
        );
        check(
            Wish::Write,
            403,
            "{}",
            "Cloud Storage refuses: this scheduler's Google account may not write gs://b/o; grant it \
             roles/storage.objectUser on the bucket b",
        );
        check(Wish::Look, 404, "No such object", "gs://b/o is not there");
        check(
            Wish::Look,
            404,
            r#"{"error": {"code": 404, "message": "The specified bucket does not exist."}}"#,
            "Cloud Storage can't serve this: there is no bucket b",
        );
        check(Wish::Write, 412, "", "gs://b/o was changed by somebody else in the meantime");
        check(Wish::Read, 503, "<html>", "Cloud Storage can't be reached: it answered 503");
        check(Wish::Read, 429, "", "Cloud Storage can't be reached: it answered 429");
        check(
            Wish::Read,
            400,
            r#"{"error": {"message": "bad https://h/x?X-Goog-Signature=SECRET"}}"#,
            "Cloud Storage can't serve this: it answered 400 when asked to read gs://b/o: bad \
             https://h/x?REDACTED",
        );
    }
}
