//! Cloud Storage, as far as the scheduler needs it: reading and writing small objects, telling
//! whether one is there, and signing a URL for one.
//!
//! Traits here, so that what reads a farm's files, looks for outputs or signs inputs can be tested
//! without a server; the real ones are [`client`] and [`signer`]. Leaves out buckets, their
//! settings, and objects too large to be held in memory.

mod answer;
pub mod client;
#[cfg(test)]
pub mod fake;
mod iam;
pub mod signer;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use crate::domain::input_url::{InputUrl, ObjectRef};
use crate::domain::outcome::HoldKind;
use crate::domain::redact::redact;

/// The name of one object: `gs://BUCKET/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// The bucket's name.
    pub bucket: String,
    /// The object's name, as it is: nothing in it is encoded.
    pub name: String,
}

impl ObjectName {
    /// Reads `gs://BUCKET/NAME`; `None` where a part is missing.
    pub fn parse(text: &str) -> Option<Self> {
        let (bucket, name) = text.strip_prefix("gs://")?.split_once('/')?;
        (!bucket.is_empty() && !name.is_empty())
            .then(|| Self { bucket: bucket.to_owned(), name: name.to_owned() })
    }

    /// The object of an input. `None`: its name is not UTF-8, as every object's must be (Cloud
    /// Storage, "About Cloud Storage objects"), so that there is none.
    pub fn of(object: &ObjectRef) -> Option<Self> {
        let name = std::str::from_utf8(&object.object).ok()?.to_owned();
        Some(Self { bucket: object.bucket.clone(), name })
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gs://{}/{}", self.bucket, self.name)
    }
}

/// Which version of an object: a new one for each write (Cloud Storage, "Object Versioning").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation(pub i64);

impl Generation {
    /// What stands for "there is no such object" in a condition.
    pub const NONE: Self = Self(0);
}

/// What a read found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fetched {
    /// The object is of the generation that the caller has.
    Same,
    /// Another one.
    New {
        /// Which.
        generation: Generation,
        /// All of it.
        bytes: Vec<u8>,
    },
}

/// Why Cloud Storage did not do what it was asked: what the caller should do. Texts are free of
/// credentials, and the same for the same trouble, so that it can be said once.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// Try again: it is away, busy, or its answer was lost.
    #[error("Cloud Storage can't be reached: {0}")]
    Later(String),
    /// A permission is missing; the text names the role to grant.
    #[error("Cloud Storage refuses: {0}")]
    Forbidden(String),
    /// The credentials are none, or were refused.
    #[error("Cloud Storage takes no credentials of ours: {0}")]
    Unauthenticated(String),
    /// There is no such object.
    #[error("{0} is not there")]
    Absent(ObjectName),
    /// Somebody else wrote the object meanwhile: read it again.
    #[error("{0} was changed by somebody else in the meantime")]
    Overtaken(ObjectName),
    /// It stays so: a bucket that isn't there, an object that is too large.
    #[error("Cloud Storage can't serve this: {0}")]
    Refused(String),
}

/// How long a task waits where a person has to act first.
const AGAIN_REFUSED: Duration = Duration::from_secs(60);

impl StorageError {
    /// Why a task is held that this stands in the way of, and for how long: `again` where it may
    /// pass by itself.
    pub fn hold(&self, again: Duration) -> (HoldKind, Duration) {
        match self {
            Self::Forbidden(_) => (HoldKind::Forbidden, AGAIN_REFUSED),
            Self::Unauthenticated(_) => (HoldKind::Unauthenticated, AGAIN_REFUSED),
            Self::Refused(_) => (HoldKind::StorageRefused, AGAIN_REFUSED),
            Self::Later(_) | Self::Absent(_) | Self::Overtaken(_) => {
                (HoldKind::StorageUnavailable, again)
            }
        }
    }

    fn later(why: impl fmt::Display) -> Self {
        Self::Later(redact(&why.to_string()).into_owned())
    }
}

/// The objects of Cloud Storage.
#[async_trait]
pub trait Objects: Send + Sync {
    /// Reads an object, unless it still is of the generation `known`.
    ///
    /// # Errors
    /// [`StorageError`].
    async fn read(
        &self,
        object: &ObjectName,
        known: Option<Generation>,
    ) -> Result<Fetched, StorageError>;

    /// Whether an object is there. A bucket that isn't is an error.
    ///
    /// # Errors
    /// [`StorageError`], never [`StorageError::Absent`].
    async fn exists(&self, object: &ObjectName) -> Result<bool, StorageError>;

    /// Writes an object. With `over`, only in the place of that generation ([`Generation::NONE`]:
    /// only a new one).
    ///
    /// # Errors
    /// [`StorageError::Overtaken`] when `over` is not the object's generation any more. After
    /// [`StorageError::Later`] it may have been written.
    async fn write(
        &self,
        object: &ObjectName,
        bytes: Vec<u8>,
        over: Option<Generation>,
    ) -> Result<Generation, StorageError>;
}

/// Signs URLs by which an object can be read without credentials.
#[async_trait]
pub trait SignUrls: Send + Sync {
    /// A URL (V4, GET) for the object, good from now on for `lifetime`, which is at most seven days.
    ///
    /// # Errors
    /// [`StorageError`], never [`StorageError::Absent`]: that the object is there is not looked at.
    async fn sign(&self, object: &ObjectName, lifetime: Duration)
    -> Result<InputUrl, StorageError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_objects_name_is_all_after_the_bucket() {
        let check = |text: &str, expect: Option<(&str, &str)>| {
            let name = ObjectName::parse(text);
            let parts = name.as_ref().map(|n| (n.bucket.as_str(), n.name.as_str()));
            assert_eq!(parts, expect, "{text}");
            assert!(name.is_none_or(|name| name.to_string() == text));
        };
        check("gs://b/o", Some(("b", "o")));
        check("gs://b/dir/o?x#y%2F", Some(("b", "dir/o?x#y%2F")));
        check("gs://b//o", Some(("b", "/o")));
        check("gs://b/", None);
        check("gs://b", None);
        check("gs:///o", None);
        check("/b/o", None);
    }

    #[test]
    fn a_name_that_is_not_utf8_is_no_object() {
        let object = |bytes: &[u8]| ObjectRef { bucket: "b".into(), object: bytes.to_vec() };
        assert!(ObjectName::of(&object(b"\xff")).is_none());
        assert_eq!(ObjectName::of(&object(b"o")), ObjectName::parse("gs://b/o"));
    }
}
