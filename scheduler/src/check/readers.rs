//! Who reads a topic's messages: each subscription gets every message, and the scheduler of each
//! drops what is tagged for another base OS version, so that a version nobody reads is lost.

use std::collections::{BTreeMap, BTreeSet};

use super::findings::Findings;
use crate::domain::subscription::id;

/// One configured queue on a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reader {
    /// Its name in the configuration.
    pub queue: String,
    /// The full name of its subscription.
    pub subscription: String,
    /// The base OS version that it carries.
    pub version: Option<String>,
}

/// A base OS version, and how many job types use it, with one of them.
pub type Versions = BTreeMap<String, (usize, String)>;

/// Judges the readers of `topic`. `all` are its subscriptions, where they could be listed;
/// `versions` are those that the catalog's job types use, where it could be read.
pub fn judge(
    topic: &str,
    readers: &[Reader],
    all: Option<&[String]>,
    versions: Option<&Versions>,
) -> Findings {
    let mut found = Findings::about("topic");
    let subject = id(topic);
    same_messages(subject, readers, &mut found);
    if let Some(all) = all {
        others(subject, readers, all, &mut found);
    }
    match versions {
        Some(versions) => {
            for (version, used) in versions {
                unread(subject, version, used, readers, all, &mut found);
            }
        }
        None => {
            found.not_checked(subject, "which versions nobody reads: the catalog is unread", "")
        }
    }
    untagged(readers, versions, &mut found);
    found
}

/// Two queues of one version on one topic would both take each of its messages.
fn same_messages(subject: &str, readers: &[Reader], found: &mut Findings) {
    let mut by_version: BTreeMap<&Option<String>, Vec<&Reader>> = BTreeMap::new();
    for reader in readers {
        by_version.entry(&reader.version).or_default().push(reader);
    }
    for (version, same) in by_version.into_iter().filter(|(_, same)| same.len() > 1) {
        let names: Vec<&str> = same.iter().map(|reader| reader.queue.as_str()).collect();
        let version = version.as_deref().unwrap_or("none");
        let detail = format!("queues {} all carry version {version}", names.join(" and "));
        found.warn(subject, detail, "give each its base_os_version, or remove one");
    }
}

/// Subscriptions that no queue of this configuration reads.
fn others(subject: &str, readers: &[Reader], all: &[String], found: &mut Findings) {
    let ours: BTreeSet<&str> = readers.iter().map(|reader| reader.subscription.as_str()).collect();
    let others: Vec<&str> =
        all.iter().filter(|name| !ours.contains(name.as_str())).map(|name| id(name)).collect();
    if others.is_empty() {
        found.pass(subject, format!("all {} subscriptions are read by queues here", all.len()));
        return;
    }
    let detail = format!("no queue here reads its subscriptions {}", others.join(", "));
    let hint = "each gets every message: if another scheduler reads one of the same version, every \
                task runs twice; if nobody does, add a queue for it or delete it";
    found.warn(subject, detail, hint);
}

fn unread(
    subject: &str,
    version: &str,
    (count, example): &(usize, String),
    readers: &[Reader],
    all: Option<&[String]>,
    found: &mut Findings,
) {
    if let Some(reader) = readers.iter().find(|r| r.version.as_deref() == Some(version)) {
        found.pass(subject, format!("version {version} is read by queue {}", reader.queue));
        return;
    }
    let used = format!("{count} job types, such as {example}");
    let another = all.into_iter().flatten().find(|name| id(name).ends_with(&format!("-{version}")));
    match (another, all) {
        (Some(other), _) => {
            let other = id(other);
            let detail = format!("version {version} ({used}) is left to the reader of {other}");
            found.warn(
                subject,
                detail,
                &format!("add a queue on {other} with that base_os_version"),
            );
        }
        (None, Some(_)) => {
            let detail = format!(
                "nobody reads version {version} ({used}): its messages are acked and dropped by \
                 every subscription"
            );
            let hint = format!(
                "gcloud pubsub subscriptions create {subject}-{version} --topic={subject}, and a \
                 queue on it with base_os_version: {version}"
            );
            found.fail(subject, detail, &hint);
        }
        (None, None) => {
            let detail = format!("no queue here reads version {version} ({used})");
            found.warn(subject, detail, "make sure that another scheduler does, or add a queue");
        }
    }
}

/// A subscription named after a version, on a queue that does not say so, drops that version.
fn untagged(readers: &[Reader], versions: Option<&Versions>, found: &mut Findings) {
    for reader in readers {
        let name = id(&reader.subscription);
        let named = versions.into_iter().flatten().map(|(version, _)| version);
        let named = named.filter(|version| name.ends_with(&format!("-{version}")));
        for version in named.filter(|version| reader.version.as_ref() != Some(*version)) {
            let says = reader.version.as_deref().unwrap_or("none");
            let detail = format!(
                "queue {} carries version {says}, on a subscription named after {version}: it drops \
                 the messages of {version}",
                reader.queue
            );
            found.fail(name, detail, &format!("write base_os_version: {version} in that queue"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::findings::Verdict;

    const TOPIC: &str = "projects/p/topics/utask_main";

    fn full(name: &str) -> String {
        format!("projects/p/subscriptions/{name}")
    }

    fn reader(name: &str, version: Option<&str>) -> Reader {
        let version = version.map(str::to_owned);
        Reader { queue: format!("q-{name}"), subscription: full(name), version }
    }

    fn versions(of: &[&str]) -> Versions {
        of.iter().map(|v| ((*v).to_owned(), (2, "libfuzzer_asan_zlib".to_owned()))).collect()
    }

    fn judged(readers: &[Reader], all: Option<&[&str]>, used: Option<&[&str]>) -> Findings {
        let all = all.map(|all| all.iter().map(|name| full(name)).collect::<Vec<_>>());
        judge(TOPIC, readers, all.as_deref(), used.map(versions).as_ref())
    }

    #[test]
    fn a_version_that_nobody_reads_is_a_failure_and_one_read_elsewhere_a_warning() {
        use Verdict::{Fail, Pass, Warn};
        let main = reader("utask_main", None);
        let new = reader("utask_main-ubuntu-24-04", Some("ubuntu-24-04"));
        let both = [main.clone(), new.clone()];
        let one = &both[..1];
        let (m, n) = ("utask_main", "utask_main-ubuntu-24-04");
        for (readers, all, used, expect, word) in [
            (&both[..], Some(&[m, n][..]), Some(&["ubuntu-24-04"][..]), Pass, "read by queue"),
            (one, Some(&[m]), Some(&["ubuntu-24-04"]), Fail, "nobody reads version ubuntu-24-04"),
            (one, Some(&[m, n]), Some(&["ubuntu-24-04"]), Warn, "left to the reader of"),
            (one, None, Some(&["ubuntu-24-04"]), Warn, "no queue here reads version"),
            (one, Some(&[m, n]), Some(&[]), Warn, "utask_main-ubuntu-24-04"),
            (one, Some(&[m]), Some(&[]), Pass, "all 1 subscriptions"),
            (one, Some(&[m]), None, Verdict::NotChecked, "the catalog is unread"),
        ] {
            let found = judged(readers, all, used);
            assert_eq!(found.worst(), expect, "{found:?}");
            assert!(found.all().iter().any(|f| f.detail.contains(word)), "{word}: {found:?}");
        }
    }

    #[test]
    fn queues_that_take_the_same_messages_or_drop_their_own_are_found() {
        let twice = [reader("utask_main", None), reader("copy", None)];
        let found = judged(&twice, None, Some(&[]));
        assert!(found.worst() == Verdict::Warn, "{found:?}");
        let unsaid = [reader("utask_main-ubuntu-24-04", None)];
        let found = judged(&unsaid, None, Some(&["ubuntu-24-04"]));
        assert_eq!(found.worst(), Verdict::Fail, "{found:?}");
        assert!(found.all().iter().any(|f| f.detail.contains("it drops the messages")));
    }
}
