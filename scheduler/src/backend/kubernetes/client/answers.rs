//! What comes back from an API server beside whole bodies: the lines of a watch, and what an error
//! or a header says.

use std::error::Error as _;
use std::time::Duration;

use futures::StreamExt as _;
use http::{HeaderMap, header};
use http_body_util::BodyExt as _;
use kube::client::Body;

use super::super::api::{ApiError, Sent};
use super::super::classify::UNAUTHENTICATED;
use crate::domain::causes::with_causes;
use crate::gcp::tokens::TokenError;

/// The lines of a watch as they come. What is left without an end of line was cut off.
pub(super) fn lines(body: Body) -> futures::stream::BoxStream<'static, Result<Vec<u8>, ApiError>> {
    let begin = (body, Vec::new(), false);
    futures::stream::unfold(begin, |(mut body, mut rest, ended)| async move {
        if ended {
            return None;
        }
        loop {
            if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let after = rest.split_off(end + 1);
                let line = std::mem::replace(&mut rest, after);
                return Some((Ok(line), (body, rest, false)));
            }
            match body.frame().await {
                None => return None,
                Some(Err(error)) => {
                    let error = ApiError::lost(&error.to_string());
                    return Some((Err(error), (body, rest, true)));
                }
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        rest.extend_from_slice(data);
                    }
                }
            }
        }
    })
    .boxed()
}

/// What a transport's error says of the request.
pub(super) fn transport(error: &kube::Error) -> ApiError {
    let text = with_causes(error);
    let mut source = error.source();
    let (mut unconnected, mut without_token) = (false, matches!(error, kube::Error::Auth(_)));
    while let Some(inner) = source {
        let client = inner.downcast_ref::<hyper_util::client::legacy::Error>();
        unconnected |= client.is_some_and(hyper_util::client::legacy::Error::is_connect);
        without_token |= inner.is::<TokenError>();
        source = inner.source();
    }
    if without_token {
        return ApiError { reason: UNAUTHENTICATED.to_owned(), ..ApiError::unsent(&text) };
    }
    let error = ApiError::lost(&text);
    ApiError { sent: if unconnected { Sent::Never } else { Sent::Maybe }, ..error }
}

/// `Retry-After`, in seconds or as a date, which is compared with the server's own (RFC 9110,
/// section 10.2.3).
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = |text: &str| jiff::fmt::rfc2822::parse(text).ok();
    let then = date(text)?;
    let now = date(headers.get(header::DATE)?.to_str().ok()?)?;
    Duration::try_from(then.duration_since(&now)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_to_wait_is_read_in_seconds_and_as_a_date() {
        let with = |wish: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("retry-after", wish.parse().expect("a header"));
            headers.insert("date", "Mon, 30 Nov 2026 10:00:00 GMT".parse().expect("a header"));
            retry_after(&headers)
        };
        assert_eq!(with("7"), Some(Duration::from_secs(7)));
        assert_eq!(with("Mon, 30 Nov 2026 10:00:07 GMT"), Some(Duration::from_secs(7)));
        assert_eq!(with("soon"), None);
    }
}
