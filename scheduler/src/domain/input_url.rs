//! The input of a task: a URL that is also a credential.
//!
//! Kept byte for byte, because the worker must get exactly what was queued; never printed whole:
//! `Debug` and `Display` show it without its query. What a signed URL's dates mean is
//! [`signed_url`](super::signed_url).

use std::fmt;

use percent_encoding::percent_decode_str;
use url::Url;

use super::signed_url::Validity;

/// The longest input, in bytes. Linux takes at most 128 KiB for one `NAME=value` of a process's
/// environment; the rest is room for the name.
pub const MAX_LEN: usize = 131_000;

/// An absolute `https:`, `http:`, `gs:` or `file:` URL without NUL, kept byte for byte. It is read
/// once: what its text says stands beside it.
#[derive(Clone, PartialEq, Eq)]
pub struct InputUrl {
    text: String,
    object: Option<ObjectRef>,
    validity: Option<Validity>,
    is_path: bool,
}

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
            scheme @ ("https" | "http" | "gs" | "file") => Ok(Self {
                text: text.to_owned(),
                object: object_of(text, &url),
                // What looks like a query in a path is part of the object's name.
                validity: scheme
                    .starts_with("http")
                    .then(|| Validity::read(|name| parameter(&url, name)))
                    .flatten(),
                is_path: scheme == "gs",
            }),
            other => Err(BadUrl::Scheme(other.chars().take(32).collect())),
        }
    }

    /// The URL itself, a credential. For the worker's environment and `--reveal` only.
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// The URL without user name, query and fragment: what may be shown.
    pub fn redacted(&self) -> String {
        let end = self.text.find(['?', '#']).unwrap_or(self.text.len());
        let cut = if end < self.text.len() { "?REDACTED" } else { "" };
        let Ok(url) = Url::parse(&self.text) else { return "REDACTED".to_owned() };
        if url.username().is_empty() && url.password().is_none() {
            return format!("{}{cut}", &self.text[..end]);
        }
        // A URL can be spelt in more ways than one; only its parser finds the user in all of them.
        format!("{}://{}{}{cut}", url.scheme(), url.host_str().unwrap_or_default(), url.path())
    }

    /// The Cloud Storage object that this URL names, if it names one: `gs://BUCKET/OBJECT`, or an
    /// HTTPS URL of Cloud Storage in path style or virtual-hosted style (Cloud Storage, "Request
    /// endpoints"). The query does not matter, nor does how the name is percent-encoded.
    pub fn object(&self) -> Option<&ObjectRef> {
        self.object.as_ref()
    }

    /// The object of a `gs://` path, which is no credential: a worker needs a signed URL in its
    /// place. `None` for all URLs.
    pub fn path(&self) -> Option<&ObjectRef> {
        self.object.as_ref().filter(|_| self.is_path)
    }

    /// When it is good, if it is signed.
    pub fn validity(&self) -> Option<Validity> {
        self.validity
    }
}

fn object_of(text: &str, url: &Url) -> Option<ObjectRef> {
    if url.scheme() == "gs" {
        // A gs:// path is not percent-encoded: its object's name stands as it is.
        let (bucket, object) = text.get(5..)?.split_once('/')?;
        return (!bucket.is_empty() && !object.is_empty())
            .then(|| ObjectRef { bucket: bucket.to_owned(), object: object.into() });
    }
    let path = url.path().strip_prefix('/')?;
    let (bucket, object) = match url.host_str()? {
        "storage.googleapis.com" | "storage.cloud.google.com" | "storage.mtls.googleapis.com" => {
            path.split_once('/')?
        }
        host => (host.strip_suffix(".storage.googleapis.com")?, path),
    };
    let object: Vec<u8> = percent_decode_str(object).collect();
    let bucket = percent_decode_str(bucket).decode_utf8().ok()?.into_owned();
    (!bucket.is_empty() && !object.is_empty()).then_some(ObjectRef { bucket, object })
}

/// The value of a query parameter, its name compared without regard to case, decoded.
fn parameter(url: &Url, name: &str) -> Option<String> {
    // Only the asked-for value is decoded: a signature is long, and nobody asks for it.
    let pairs = url.query()?.split('&').filter_map(|pair| pair.split_once('='));
    let is_named = |key: &str| {
        key.eq_ignore_ascii_case(name)
            || key.contains('%')
                && percent_decode_str(key).decode_utf8_lossy().eq_ignore_ascii_case(name)
    };
    let (_, value) = pairs.into_iter().find(|(key, _)| is_named(key))?;
    Some(percent_decode_str(value).decode_utf8_lossy().into_owned())
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
        let found = InputUrl::parse(text).expect("a URL").object()?.clone();
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
    fn a_path_is_no_credential_whatever_its_objects_name_looks_like() {
        let url = InputUrl::parse("gs://b/o?X-Goog-Date=20260301T000000Z&X-Goog-Expires=1");
        let url = url.expect("a URL");
        assert_eq!(url.validity(), None);
        let name = url.path().map(|object| object.object.clone()).unwrap_or_default();
        assert_eq!(name, b"o?X-Goog-Date=20260301T000000Z&X-Goog-Expires=1");
        for text in ["https://storage.googleapis.com/b/o", "file:///b/o", "gs://b"] {
            assert_eq!(InputUrl::parse(text).expect("a URL").path(), None, "{text}");
        }
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
