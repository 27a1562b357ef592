//! Names: what identifies a task, and what Kubernetes takes as names and label values.
//!
//! The identity is frozen: a changed hash or Job name would break deduplication over an upgrade,
//! so golden vectors in the tests hold version 1 of both.

use std::fmt;
use std::num::NonZeroU32;

use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::input_url::ObjectRef;

macro_rules! text_newtype {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
        pub struct $name(String);

        impl $name {
            /// The text as it came.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

text_newtype!(
    /// A task's command: `fuzz`, `corpus_pruning`, … Any text; label values are made from it.
    Command
);
text_newtype!(
    /// A job type's name, such as `libfuzzer_asan_abseil-cpp`. Any text.
    JobType
);
text_newtype!(
    /// A configured queue's name.
    QueueName
);
text_newtype!(
    /// A configured backend's name.
    BackendName
);

/// What a task is told by: the same input object, command and job type are the same task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// The input object.
    Object(ObjectRef),
    /// The queue's message id, where the URL names no object.
    Message(String),
}

/// SHA-256 of a task's canonical form, version 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskHash([u8; 32]);

impl TaskHash {
    /// Hashes the canonical form: a version line, then each field with its length before it, so
    /// that no two tasks share a form.
    pub fn of(command: &Command, job_type: &JobType, subject: &Subject) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(b"katabatch.dev/task v1\n");
        let mut field = |bytes: &[u8]| {
            hasher.update((bytes.len() as u64).to_be_bytes());
            hasher.update(bytes);
        };
        field(command.as_str().as_bytes());
        field(job_type.as_str().as_bytes());
        match subject {
            Subject::Object(ObjectRef { bucket, object }) => {
                field(b"object");
                field(bucket.as_bytes());
                field(object);
            }
            Subject::Message(id) => {
                field(b"message");
                field(id.as_bytes());
            }
        }
        Self(hasher.finalize().into())
    }

    /// The raw bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }
}

impl fmt::Display for TaskHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for TaskHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0[..6]))
    }
}

/// Which try of a task a Job is; the first is 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(NonZeroU32);

impl Attempt {
    /// The first attempt.
    pub const FIRST: Self = Self(NonZeroU32::MIN);

    /// The attempt of this number, if it is above zero.
    pub fn new(number: u32) -> Option<Self> {
        NonZeroU32::new(number).map(Self)
    }

    /// Its number, from 1.
    pub fn number(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// `cf-job-<uuid>`: the name of the Job of one task and attempt, a function of both.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobName(String);

/// The namespace of our version 5 UUIDs (RFC 9562): random, fixed for ever.
const JOB_NAMESPACE: Uuid = Uuid::from_u128(0x6b61_7461_6261_7463_8d2f_5d0e_91c3_7f44);

impl JobName {
    /// The name for `hash` and `attempt`.
    pub fn of(hash: &TaskHash, attempt: Attempt) -> Self {
        let mut input = [0; 36];
        input[..32].copy_from_slice(hash.bytes());
        input[32..].copy_from_slice(&attempt.number().to_be_bytes());
        Self(format!("cf-job-{}", Uuid::new_v5(&JOB_NAMESPACE, &input)))
    }

    /// The name's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for JobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The most characters that Kubernetes takes as a label value.
const LABEL_MAX: usize = 63;

/// Whether `text` is a valid label value (Kubernetes, "Labels and Selectors": at most 63
/// characters of `[A-Za-z0-9_.-]`, alphanumeric at both ends; empty is valid).
pub fn is_label_value(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= LABEL_MAX
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
        && ends(text.chars().next())
        && ends(text.chars().next_back())
}

/// A label value for `text`: itself where valid, since dashboards and log filters use it;
/// otherwise its valid characters, cut, with eight digits of its hash, so that two long names with
/// one beginning stay apart.
pub fn label_value(text: &str) -> String {
    if is_label_value(text) {
        return text.to_owned();
    }
    let digest = hex::encode(&Sha256::digest(text.as_bytes())[..4]);
    let valid: String = text
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') { c } else { '-' })
        .collect();
    let kept: String = valid
        .trim_matches(|c: char| !c.is_ascii_alphanumeric())
        .chars()
        .take(LABEL_MAX - 1 - digest.len())
        .collect();
    let kept = kept.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    if kept.is_empty() { digest } else { format!("{kept}-{digest}") }
}

/// Whether `text` is a DNS-1123 subdomain of at most 253 characters, which a ServiceAccount's name
/// must be (Kubernetes, "Object Names and IDs").
pub fn is_dns_subdomain(text: &str) -> bool {
    !text.is_empty() && text.len() <= 253 && text.split('.').all(is_dns_label_part)
}

/// Whether `text` is a DNS-1123 label of at most 63 characters, which a Namespace's name must be.
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && is_dns_label_part(text)
}

fn is_dns_label_part(part: &str) -> bool {
    let alnum = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = part.as_bytes();
    bytes.iter().all(|&c| alnum(c) || c == b'-')
        && bytes.first().copied().is_some_and(alnum)
        && bytes.last().copied().is_some_and(alnum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> Subject {
        Subject::Object(ObjectRef { bucket: "uworker-input".into(), object: b"a/b".to_vec() })
    }

    #[test]
    fn identity_version_1_is_frozen() {
        let hash = TaskHash::of(&"fuzz".into(), &"libfuzzer_asan_zlib".into(), &object());
        assert_eq!(
            hash.to_string(),
            "e9d7fcf3967b6ae2e2787e2fdf8fcecece56c8482489960890cdb152a3541b2b"
        );
        assert_eq!(
            JobName::of(&hash, Attempt::FIRST).as_str(),
            "cf-job-39944a8d-1a8a-5ee2-b344-4763f8eb8445"
        );
        assert_eq!(TaskHash::parse(&hash.to_string()), Some(hash));
    }

    #[test]
    fn every_field_and_the_attempt_change_the_name() {
        let of = |c: &str, j: &str, s: Subject, a: u32| {
            let hash = TaskHash::of(&c.into(), &j.into(), &s);
            JobName::of(&hash, Attempt::new(a).expect("above zero"))
        };
        let names = [
            of("fuzz", "j", object(), 1),
            of("fuzz", "j", object(), 2),
            of("fuz", "zj", object(), 1),
            of("fuzz", "j", Subject::Message("a/b".into()), 1),
            of("fuzz", "j2", object(), 1),
        ];
        let distinct: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
    }

    #[test]
    fn underscored_commands_keep_their_label_and_stay_out_of_the_name() {
        let hash = TaskHash::of(&"corpus_pruning".into(), &"j".into(), &object());
        assert!(is_dns_label(JobName::of(&hash, Attempt::FIRST).as_str()));
        assert_eq!(label_value("corpus_pruning"), "corpus_pruning");
    }

    #[test]
    fn long_and_odd_job_types_get_valid_and_distinct_labels() {
        let shared = "x".repeat(63);
        let names = [
            format!("_{}-", "a".repeat(70)),
            format!("{shared}1"),
            format!("{shared}2"),
            "a b".into(),
            "a_b".into(),
            "naïve".into(),
            "___".into(),
            "\u{7f}".into(),
        ];
        let labels: std::collections::BTreeSet<String> =
            names.iter().map(|name| label_value(name)).collect();
        assert_eq!(labels.len(), names.len());
        assert!(labels.iter().all(|label| is_label_value(label)), "{labels:?}");
        assert_eq!(label_value(&shared), shared);
    }

    #[test]
    fn service_account_names_are_dns_subdomains() {
        for (name, valid) in [
            ("unpriv-sa", true),
            ("123456-compute", true),
            ("a.b", true),
            ("Fuzz_Worker", false),
            ("-a", false),
            ("a..b", false),
            ("", false),
        ] {
            assert_eq!(is_dns_subdomain(name), valid, "{name}");
        }
    }
}
