//! A queue message is a task or a fault of its own; neither shows its credential.

use std::collections::BTreeMap;

use jiff::Timestamp;
use katabatch::domain::message::{Decoded, decode};

/// Reads `data` as the attributes of a message: a JSON object of strings, else lines of `name=value`.
pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let attributes: BTreeMap<String, String> =
        serde_json::from_str(&text).unwrap_or_else(|_| lines(&text));
    for version in [None, Some("ubuntu-24-04")] {
        let read = decode(&attributes, "id-1", Timestamp::UNIX_EPOCH, version);
        let again = decode(&attributes, "id-1", Timestamp::UNIX_EPOCH, version);
        assert_eq!(read, again, "one message is read in one way");
        match read {
            Ok(Decoded::Task(task)) => {
                let given = |name: &str| attributes.get(name).map(String::as_str);
                assert_eq!(Some(task.input.reveal()), given("argument"), "byte for byte");
                assert_eq!(Some(task.key.command.as_str()), given("command"));
                assert_eq!(Some(task.key.job_type.as_str()), given("job"));
                assert!(task.job_name().to_string().starts_with("cf-job-"));
            }
            Ok(Decoded::AnotherVersion(tag)) => assert_ne!(Some(tag.as_str()), version),
            Err(error) => shows_nothing(&error.to_string(), attributes.get("argument")),
        }
    }
}

fn lines(text: &str) -> BTreeMap<String, String> {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// No error repeats the argument, nor its query.
fn shows_nothing(error: &str, argument: Option<&String>) {
    let Some(argument) = argument.filter(|argument| argument.len() > 40) else { return };
    assert!(!error.contains(argument.as_str()), "{error}");
    if let Some((_, query)) = argument.split_once('?').filter(|(_, query)| query.len() > 40) {
        assert!(!error.contains(query), "{error}");
    }
}
