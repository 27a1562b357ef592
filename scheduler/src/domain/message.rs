//! Reads one queue message into a task, each by itself, so that a bad one harms no other.
//!
//! Everything is in the attributes, all strings, as ClusterFuzz publishes them; the data is
//! ignored. Pure: whether the job type exists is the catalog's to say.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::input_url::{BadUrl, InputUrl};
use super::labels::TaskLabels;
use super::redact::redact;
use super::task::{Task, WorkloadKey};

/// The longest command or job type, in bytes: what a Datastore key's name may have.
const MAX_NAME: usize = 1_500;

/// What a message turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoded {
    /// A task of ours.
    Task(Box<Task>),
    /// For another base OS version's subscription of the same topic: to be acked, without a Job.
    AnotherVersion(String),
}

/// What is wrong with a message itself; each is a reason to quarantine it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadMessage {
    /// An attribute that must be there is not, or is empty.
    #[error("attribute `{0}` is missing or empty")]
    Missing(&'static str),
    /// An attribute's value is not what it must be.
    #[error("attribute `{name}` {problem}")]
    Invalid {
        /// The attribute.
        name: &'static str,
        /// What is wrong, without the value where that could be a credential.
        problem: String,
    },
    /// The input URL is none.
    #[error("attribute `argument` {0}")]
    Url(#[from] BadUrl),
    /// A Cloud Storage notification, which belongs to another subscriber.
    #[error("is a Cloud Storage notification (eventType {0}), not a task")]
    Notification(String),
}

/// Reads the attributes of one message.
///
/// `subscription_version` is the base OS version whose subscription it came from; a message tagged
/// with another one is for that one's subscription (untagged ones are for any).
///
/// # Errors
/// [`BadMessage`]: the message's own fault.
pub fn decode(
    attributes: &BTreeMap<String, String>,
    message_id: &str,
    published_at: Timestamp,
    subscription_version: Option<&str>,
) -> Result<Decoded, BadMessage> {
    let get = |name: &str| attributes.get(name).map(String::as_str).filter(|v| !v.is_empty());
    if let Some(event @ ("OBJECT_FINALIZE" | "OBJECT_DELETE")) = get("eventType") {
        return Err(BadMessage::Notification(event.to_owned()));
    }
    if let Some(version) = get("base_os_version")
        && Some(version) != subscription_version
    {
        return Ok(Decoded::AnotherVersion(version.to_owned()));
    }
    let name = |name| {
        let value = get(name).ok_or(BadMessage::Missing(name))?;
        let problem = if value.contains('\0') {
            "contains a NUL byte".to_owned()
        } else if value.len() > MAX_NAME {
            format!("is {} bytes long; the most is {MAX_NAME}", value.len())
        } else if value.trim().is_empty() {
            return Err(BadMessage::Missing(name));
        } else if redact(value) != value {
            // As when two attributes stand in each other's place. Names go into labels, annotations
            // and look-ups, where nothing takes a credential out.
            "holds a URL or a credential where a name belongs".to_owned()
        } else {
            return Ok(value.to_owned());
        };
        Err(BadMessage::Invalid { name, problem })
    };
    let command = name("command")?;
    let job_type = name("job")?;
    let input = InputUrl::parse(get("argument").ok_or(BadMessage::Missing("argument"))?)?;
    if let Some(eta) = get("eta")
        && !eta.trim().parse::<f64>().is_ok_and(f64::is_finite)
    {
        let problem = "is not a number of Unix seconds".to_owned();
        return Err(BadMessage::Invalid { name: "eta", problem });
    }
    let key = WorkloadKey { command: command.into(), job_type: job_type.into() };
    let task = Task::new(key, input, message_id, published_at);
    Ok(Decoded::Task(Box::new(Task { labels: TaskLabels::of(attributes), ..task })))
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "https://storage.googleapis.com/in/o1?X-Goog-Signature=SECRET";

    fn read(pairs: &[(&str, &str)], version: Option<&str>) -> Result<Decoded, BadMessage> {
        let mut attributes: BTreeMap<String, String> =
            [("command", "fuzz"), ("job", "j"), ("argument", URL), ("eta", "1772323200.5")]
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect();
        attributes.extend(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        decode(&attributes, "7", Timestamp::UNIX_EPOCH, version)
    }

    #[test]
    fn a_message_as_clusterfuzz_publishes_it_is_a_task() {
        let more =
            [("initial_command", "fuzz"), ("extra", "1"), ("task.katabatch.dev/team", "fuzzing")];
        let Ok(Decoded::Task(task)) = read(&more, None) else { panic!("no task") };
        assert_eq!(task.key.to_string(), "fuzz j");
        assert_eq!(task.input.reveal(), URL);
        let labels: Vec<_> = task.labels.iter().collect();
        assert_eq!(labels, [("task.katabatch.dev/team", "fuzzing")]);
    }

    #[test]
    fn one_input_object_is_one_task_whatever_its_signature_and_message() {
        let of = |url: &str, id: &str| {
            let attributes = [("command", "fuzz"), ("job", "j"), ("argument", url)]
                .map(|(k, v)| (k.to_owned(), v.to_owned()));
            match decode(&attributes.into(), id, Timestamp::UNIX_EPOCH, None) {
                Ok(Decoded::Task(task)) => task.hash,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(
            of(URL, "7"),
            of("https://storage.googleapis.com/in/o1?X-Goog-Signature=2", "8")
        );
        assert_ne!(of("https://example.com/o1", "7"), of("https://example.com/o1", "8"));
    }

    #[test]
    fn a_message_of_another_version_is_another_subscriptions() {
        let tag = [("base_os_version", "ubuntu-24-04")];
        assert!(matches!(read(&tag, None), Ok(Decoded::AnotherVersion(v)) if v == "ubuntu-24-04"));
        assert!(matches!(read(&tag, Some("ubuntu-20-04")), Ok(Decoded::AnotherVersion(_))));
        assert!(matches!(read(&tag, Some("ubuntu-24-04")), Ok(Decoded::Task(_))));
        assert!(matches!(read(&[("base_os_version", "")], Some("x")), Ok(Decoded::Task(_))));
    }

    #[test]
    fn each_bad_message_says_what_is_wrong_and_shows_no_credential() {
        for (pair, expect) in [
            (("command", ""), "attribute `command` is missing or empty"),
            (("job", " "), "attribute `job` is missing or empty"),
            (("argument", ""), "attribute `argument` is missing or empty"),
            (("eta", "soon"), "attribute `eta` is not a number of Unix seconds"),
            (("eta", "nan"), "attribute `eta` is not a number of Unix seconds"),
            (("job", "a\0b"), "attribute `job` contains a NUL byte"),
            (("job", URL), "attribute `job` holds a URL or a credential where a name belongs"),
            (
                ("command", "x-goog-signature=SECRET"),
                "attribute `command` holds a URL or a credential where a name belongs",
            ),
            (
                ("argument", "ftp://x/SECRET"),
                "attribute `argument` scheme `ftp` is not one of https, http, gs, file",
            ),
            (
                ("eventType", "OBJECT_FINALIZE"),
                "is a Cloud Storage notification (eventType OBJECT_FINALIZE), not a task",
            ),
        ] {
            let error = read(&[pair], None).expect_err(pair.0).to_string();
            assert_eq!(error, expect);
        }
    }
}
