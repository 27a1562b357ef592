//! Takes credentials out of text that leaves the process: logs, errors, records, log tails.
//!
//! A signed URL is a credential, so its whole query goes; elsewhere the values of the parameters
//! and headers that carry signatures or tokens go. It knows text only, no types.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

/// What stands in a text in the place of what was taken out.
pub const REDACTED: &str = "REDACTED";

// The patterns are constants, checked by the tests below; `ok()` keeps a panic out of the library.
static URL_QUERY: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"(?i)\b([a-z][a-z0-9+.-]*://)(?:[^\s"'<>/?#@]*@)?([^\s"'<>?]*)\?[^\s"'<>]*"#).ok()
});
static USER_INFO: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#"(?i)\b([a-z][a-z0-9+.-]*://)[^\s"'<>/?#@]*@"#).ok());
static PARAMETER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r#"(?i)((?:\b|%26|%3F|\\u0026)(?:x-goog-(?:signature|credential|security-token)|x-amz-(?:signature|credential|security-token)|googleaccessid|signature|sig|access_token|id_token|refresh_token|token|key))(=|%3D)(?:[^&%\s"'<>\\]|%[013-9a-f][0-9a-f]|%2[0-57-9a-f])+"#,
    )
    .ok()
});
static BEARER: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#"(?i)\b(bearer|basic)\s+[a-z0-9._~+/=-]{8,}"#).ok());
/// Tokens known by their look: of service accounts (JSON web tokens) and of Google.
static TOKEN: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}|\bya29\.[\w.-]{8,}").ok());

/// The most rounds: what one rule takes out can bring what another finds, at most that often.
const ROUNDS: usize = 3;

/// `text` without queries of URLs, user names in URLs, signature and token parameters, and
/// authorization headers. Text without any of them comes back borrowed.
pub fn redact(text: &str) -> Cow<'_, str> {
    let mut out = Cow::Borrowed(text);
    for _ in 0..ROUNDS {
        let next = one_round(&out).into_owned();
        if next == *out {
            break;
        }
        out = Cow::Owned(next);
    }
    out
}

fn one_round(text: &str) -> Cow<'_, str> {
    let rules: [(&LazyLock<Option<Regex>>, &str); 5] = [
        (&URL_QUERY, "${1}${2}?REDACTED"),
        (&USER_INFO, "${1}"),
        (&PARAMETER, "${1}${2}REDACTED"),
        (&BEARER, "${1} REDACTED"),
        (&TOKEN, REDACTED),
    ];
    let mut out = Cow::Borrowed(text);
    for (rule, with) in rules {
        let Some(regex) = rule.as_ref() else { return Cow::Borrowed(REDACTED) };
        if regex.is_match(&out) {
            out = Cow::Owned(regex.replace_all(&out, with).into_owned());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &str) {
        assert_eq!(redact(text), expect);
    }

    #[test]
    fn the_query_of_a_signed_url_goes_and_its_object_stays() {
        check(
            "GET https://storage.googleapis.com/b/o%2Fx?X-Goog-Signature=abc&X-Goog-Date=1 failed",
            "GET https://storage.googleapis.com/b/o%2Fx?REDACTED failed",
        );
    }

    #[test]
    fn a_bare_or_encoded_signature_parameter_goes() {
        check("X-Goog-Signature=deadbeef&x=1", "X-Goog-Signature=REDACTED&x=1");
        check("a%26X-Goog-Credential%3Dme%40x%26b", "a%26X-Goog-Credential%3DREDACTED%26b");
        // As Go's JSON writes a URL whose query has a quote in it.
        check(r"'b\u0026Signature=abc", r"'b\u0026Signature=REDACTED");
        check("q: x-goog-credential%3Dme%40x end", "q: x-goog-credential%3DREDACTED end");
    }

    #[test]
    fn authorization_headers_and_user_info_go() {
        check("authorization: Bearer abcdefgh12345", "authorization: Bearer REDACTED");
        check("https://me:pw@host/path", "https://host/path");
        check(
            "the token eyJhbGciOiJS.eyJpc3MiOiJr.c2lnbmF0dXJl has expired",
            "the token REDACTED has expired",
        );
        check("sent ya29.a0AfH6SMBx-y_z", "sent REDACTED");
        let once = redact("Bearer abcdefgh~://me:pw@h/p?x").into_owned();
        assert!(!once.contains("pw"), "{once}");
        check(&once, &once);
    }

    #[test]
    fn plain_text_stays_as_it_is() {
        check("why is libfuzzer_asan_x not running?", "why is libfuzzer_asan_x not running?");
        assert!(matches!(redact("plain"), Cow::Borrowed(_)));
    }
}
