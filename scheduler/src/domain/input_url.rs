//! The input of a task: a URL that is also a credential.
//!
//! Kept byte for byte, because the worker must get exactly what was queued; never printed whole:
//! `Debug` and `Display` show it without its query. What a signed URL's dates mean is
//! [`signed_url`](super::signed_url).

use std::fmt;

use percent_encoding::percent_decode_str;
use url::Url;

/// The longest input, in bytes. Linux takes at most 128 KiB for one `NAME=value` of a process's
/// environment; the rest is room for the name.
pub const MAX_LEN: usize = 131_000;

/// An absolute `https:`, `http:`, `gs:` or `file:` URL without NUL, kept byte for byte.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InputUrl(String);

/// Why a text is no input URL. Each is the message's own fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    /// Not parsable as an absolute URL.
    #[error("not an absolute URL ({0})")]
    Unparsable(String),
    /// A scheme that no worker can fetch.
    #[error("scheme `{0}` is not one of https, http, gs, file")]
    Scheme(String),
    /// A NUL byte can't be in a process's environment.
    #[error("contains a NUL byte, which no environment variable can hold")]
    Nul,
    /// Over [`MAX_LEN`].
    #[error("is {0} bytes long; a worker's environment takes at most {MAX_LEN}")]
    TooLong(usize),
}

/// A Cloud Storage object, as named by a signed URL or a `gs://` path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// The bucket's name.
    pub bucket: String,
    /// The object's name, percent-decoded.
    pub object: Vec<u8>,
}

impl InputUrl {
    /// Takes `text` as it is.
    ///
    /// # Errors
    /// [`BadUrl`] says what is wrong with it; the text itself is never part of the error.
    pub fn parse(text: &str) -> Result<Self, BadUrl> {
        if text.len() > MAX_LEN {
            return Err(BadUrl::TooLong(text.len()));
        }
        if text.contains('\0') {
            return Err(BadUrl::Nul);
        }
        let url = Url::parse(text).map_err(|e| BadUrl::Unparsable(e.to_string()))?;
        match url.scheme() {
            "https" | "http" | "gs" if url.host_str().is_none_or(str::is_empty) => {
                Err(BadUrl::Unparsable("it names no host or bucket".into()))
            }
            "https" | "http" | "gs" | "file" => Ok(Self(text.to_owned())),
            other => Err(BadUrl::Scheme(other.chars().take(32).collect())),
        }
    }

    /// The URL itself, a credential. For the worker's environment and `--reveal` only.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The URL without user name, query and fragment: what may be shown.
    pub fn redacted(&self) -> String {
        let end = self.0.find(['?', '#']).unwrap_or(self.0.len());
        let cut = if end < self.0.len() { "?REDACTED" } else { "" };
        let Ok(url) = Url::parse(&self.0) else { return "REDACTED".to_owned() };
        if url.username().is_empty() && url.password().is_none() {
            return format!("{}{cut}", &self.0[..end]);
        }
        // A URL can be spelt in more ways than one; only its parser finds the user in all of them.
        format!("{}://{}{}{cut}", url.scheme(), url.host_str().unwrap_or_default(), url.path())
    }

    /// The Cloud Storage object that this URL names, if it names one: `gs://BUCKET/OBJECT`, or an
    /// HTTPS URL of Cloud Storage in path style or virtual-hosted style (Cloud Storage, "Request
    /// endpoints"). The query does not matter, nor does how the name is percent-encoded.
    pub fn object(&self) -> Option<ObjectRef> {
        let is_gs = self.0.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("gs://"));
        if let Some(rest) = self.0.get(5..).filter(|_| is_gs) {
            // A gs:// path is not percent-encoded: its object's name stands as it is.
            let (bucket, object) = rest.split_once('/')?;
            return (!bucket.is_empty() && !object.is_empty())
                .then(|| ObjectRef { bucket: bucket.to_owned(), object: object.into() });
        }
        let url = Url::parse(&self.0).ok()?;
        let host = url.host_str()?;
        let path = url.path().strip_prefix('/')?;
        let (bucket, object) = match host {
            "storage.googleapis.com"
            | "storage.cloud.google.com"
            | "storage.mtls.googleapis.com" => path.split_once('/')?,
            _ => (host.strip_suffix(".storage.googleapis.com")?, path),
        };
        let object: Vec<u8> = percent_decode_str(object).collect();
        let bucket = percent_decode_str(bucket).decode_utf8().ok()?.into_owned();
        (!bucket.is_empty() && !object.is_empty()).then_some(ObjectRef { bucket, object })
    }

    /// The value of a query parameter, its name compared without regard to case, decoded.
    pub fn parameter(&self, name: &str) -> Option<String> {
        let url = Url::parse(&self.0).ok()?;
        url.query_pairs()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, v)| v.into_owned())
    }
}

impl fmt::Debug for InputUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InputUrl({})", self.redacted())
    }
}

impl fmt::Display for InputUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.redacted())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> Option<(String, String)> {
        let found = InputUrl::parse(text).expect("a URL").object()?;
        Some((found.bucket, String::from_utf8(found.object).expect("text")))
    }

    #[test]
    fn every_spelling_of_an_object_is_the_same_object() {
        let expect = Some(("b".to_owned(), "dir/o".to_owned()));
        assert_eq!(object("gs://b/dir/o"), expect);
        assert_eq!(object("GS://b/dir/o"), expect);
        assert_eq!(object("https://storage.googleapis.com/b/dir/o?X-Goog-Signature=1"), expect);
        assert_eq!(object("https://storage.googleapis.com/b/dir%2Fo?X-Goog-Signature=2"), expect);
        assert_eq!(object("https://b.storage.googleapis.com/dir/o"), expect);
        assert_eq!(object("https://example.com/b/dir/o"), None);
        assert_eq!(object("https://storage.googleapis.com/b"), None);
    }

    #[test]
    fn nothing_shows_the_query_or_the_user() {
        for start in ["https://me:pw@h/b/o", "https:me:pw@h/b/o", "https:\\\\me:pw@h/b/o"] {
            let url =
                InputUrl::parse(&format!("{start}?X-Goog-Signature=SECRET#f")).expect("a URL");
            for shown in [format!("{url}"), format!("{url:?}")] {
                assert!(!shown.contains("SECRET") && !shown.contains("pw"), "{shown}");
                assert!(shown.contains("h/b/o"), "{shown}");
            }
        }
    }

    #[test]
    fn what_no_worker_can_take_is_refused() {
        assert!(matches!(InputUrl::parse("no url"), Err(BadUrl::Unparsable(_))));
        assert!(matches!(InputUrl::parse("ftp://h/x"), Err(BadUrl::Scheme(_))));
        assert!(matches!(InputUrl::parse("https://h/\0"), Err(BadUrl::Nul)));
        let long = format!("https://h/{}", "x".repeat(MAX_LEN));
        assert!(matches!(InputUrl::parse(&long), Err(BadUrl::TooLong(_))));
    }
}
