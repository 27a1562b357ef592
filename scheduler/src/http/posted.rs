//! Reads the body of a request that posts tasks. Pure.
//!
//! What is wrong with the request as a whole is an error that names the place and never a value; what
//! is wrong with one task's values is that task's own, and comes back with its outcome.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::domain::labels;
use crate::domain::message::{self, BadMessage, Decoded};
use crate::domain::name::JobName;
use crate::domain::outcome::{RejectKind, Rejection};
use crate::domain::task::id_of;
use crate::queue::push::Posted;

/// The most characters of a name: what a Datastore key's name may have.
const LONGEST_NAME: usize = 1_500;

/// One task of a request.
#[derive(Clone, PartialEq, Eq)]
pub struct Item {
    /// The id that was given, or made of the task.
    pub id: String,
    /// The task, or why there is none.
    pub task: Result<(Posted, JobName), Rejection>,
}

/// Reads a body.
///
/// # Errors
/// What is wrong with it and where.
pub fn read(body: &[u8], most: usize, now: Timestamp) -> Result<Vec<Item>, String> {
    let body: Value = serde_json::from_slice(body)
        .map_err(|e| format!("no JSON: look at line {}, column {}", e.line(), e.column()))?;
    let Value::Object(mut body) = body else {
        return Err("the body must be an object with the list `tasks`".to_owned());
    };
    let tasks = match body.remove("tasks") {
        Some(Value::Array(tasks)) => tasks,
        Some(_) => return Err("tasks: must be a list".to_owned()),
        None => return Err("tasks: is missing".to_owned()),
    };
    if !body.is_empty() {
        return Err("the body has a member that is not `tasks`".to_owned());
    }
    if tasks.is_empty() || tasks.len() > most {
        return Err(format!("tasks: has {} items; send 1 to {most} at once", tasks.len()));
    }
    let item = |(at, task)| item(task, now).map_err(|why| format!("tasks[{at}]{why}"));
    tasks.into_iter().enumerate().map(item).collect()
}

fn item(task: Value, now: Timestamp) -> Result<Item, String> {
    let Value::Object(mut task) = task else { return Err(": must be an object".to_owned()) };
    let mut text = |key: &str, most: usize| text(task.remove(key), key, most);
    let command = text("command", LONGEST_NAME)?.ok_or(".command: is missing")?;
    let job_type = text("job_type", LONGEST_NAME)?.ok_or(".job_type: is missing")?;
    let url = text("input_url", usize::MAX)?.ok_or(".input_url: is missing")?;
    let id = text("id", LONGEST_NAME)?;
    let labels = labels_of(task.remove("labels"))?;
    if !task.is_empty() {
        let known = "command, job_type, input_url, id and labels";
        return Err(format!(": has a member that is none of {known}"));
    }
    let id = id.unwrap_or_else(|| id_of(&command, &job_type, &url));
    let pairs = [("command", command), ("job", job_type), ("argument", url)];
    let mut attributes: BTreeMap<String, String> =
        pairs.map(|(key, value)| (key.to_owned(), value)).into();
    attributes.extend(labels);
    let task = match message::decode(&attributes, &id, now, None) {
        Ok(Decoded::Task(task)) => {
            let posted = Posted { hash: task.hash, message_id: id.clone(), attributes };
            Ok((posted, task.job_name()))
        }
        Ok(Decoded::AnotherVersion(_)) => {
            let text = "the task is for another base OS version's queue";
            Err(Rejection::new(RejectKind::BadMessage, text))
        }
        Err(bad) => {
            let kind = match &bad {
                BadMessage::Url(_) => RejectKind::BadUrl,
                BadMessage::Notification(_) => RejectKind::Notification,
                BadMessage::Missing(_) | BadMessage::Invalid { .. } => RejectKind::BadMessage,
            };
            Err(Rejection::new(kind, format!("the task's {bad}")))
        }
    };
    Ok(Item { id, task })
}

/// A text that is not empty, if it is there; `null` counts as not there.
fn text(value: Option<Value>, key: &str, most: usize) -> Result<Option<String>, String> {
    match value {
        None => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Err(format!(".{key}: is empty")),
        Some(Value::String(text)) if text.chars().count() > most => {
            Err(format!(".{key}: is longer than {most} characters"))
        }
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!(".{key}: must be text")),
    }
}

fn labels_of(value: Option<Value>) -> Result<BTreeMap<String, String>, String> {
    let given = match value {
        None => Map::new(),
        Some(Value::Object(labels)) => labels,
        Some(_) => return Err(".labels: must be an object".to_owned()),
    };
    if given.len() > labels::MOST {
        return Err(format!(".labels: has more than {} members", labels::MOST));
    }
    let label = |(name, value): (String, Value)| match value {
        Value::String(value) if labels::is_name(&name) && labels::is_value(&value) => {
            Ok((format!("{}{name}", labels::PREFIX), value))
        }
        _ => {
            Err(".labels: names and values are labels of Kubernetes: at most 63 letters, digits, \
                  `-`, `_` and `.`, of which the first and last are letters or digits"
                .to_owned())
        }
    };
    given.into_iter().map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(task: &str) -> Result<Vec<Item>, String> {
        read(format!("{{\"tasks\": [{task}]}}").as_bytes(), 2, Timestamp::UNIX_EPOCH)
    }

    #[track_caller]
    fn check(bad: &str, expect: &str) {
        let why = read(bad.as_bytes(), 2, Timestamp::UNIX_EPOCH).err().expect("an error");
        assert!(why.contains(expect), "{why} lacks {expect}");
        assert!(!why.contains("SECRET"), "{why}");
    }

    #[test]
    fn a_task_without_an_id_gets_one_that_its_signature_does_not_change() {
        let of = |signature| {
            let url = format!("https://storage.googleapis.com/b/o?X-Goog-Signature={signature}");
            let task = format!(
                "{{\"command\":\"fuzz\",\"job_type\":\"j\",\"input_url\":\"{url}\",\"labels\":{{\"job\":\"b\"}}}}"
            );
            body(&task).expect("a body").remove(0)
        };
        let (one, other) = (of("1"), of("2"));
        assert_eq!(one.id, other.id);
        let hash = |item: Item| item.task.map(|(posted, _)| posted.hash).ok();
        assert!(hash(one.clone()).is_some() && hash(one) == hash(other.clone()));
        // A label is told apart from what says which task it is, whatever its name.
        let (posted, _) = other.task.expect("a task");
        assert_eq!(posted.attributes["task.katabatch.dev/job"], "b");
        assert_eq!(posted.attributes["job"], "j");
    }

    #[test]
    fn what_is_wrong_with_a_request_is_said_with_its_place_and_no_value() {
        check("{\"tasks\": [\"SECRET\"", "line 1");
        check("[]", "must be an object");
        check("{}", "tasks: is missing");
        check("{\"tasks\": {}}", "tasks: must be a list");
        check("{\"tasks\": []}", "has 0 items; send 1 to 2");
        check("{\"tasks\": [1, 2, 3]}", "has 3 items; send 1 to 2");
        check("{\"tasks\": [1], \"SECRET\": 1}", "not `tasks`");
        check("{\"tasks\": [\"SECRET\"]}", "tasks[0]: must be an object");
        let task = |rest: &str| {
            format!(
                "{{\"tasks\":[{{\"command\":\"c\",\"job_type\":\"j\",\"input_url\":\"u\"{rest}}}]}}"
            )
        };
        check(
            "{\"tasks\":[{\"command\":\"c\",\"job_type\":\"j\"}]}",
            "tasks[0].input_url: is missing",
        );
        check("{\"tasks\":[{\"command\":\"\"}]}", "tasks[0].command: is empty");
        check(&task(",\"id\":7"), "tasks[0].id: must be text");
        check(&task(",\"urll\":\"SECRET\""), "tasks[0]: has a member");
        for bad in ["\"a\":1", "\"\":\"x\"", "\"a/b\":\"x\"", "\"a\":\"SECRET x\"", "\"-\":\"x\""] {
            let labels = format!(",\"labels\":{{{bad}}}");
            check(&task(&labels), "tasks[0].labels: names and values are labels");
        }
    }

    #[test]
    fn what_is_wrong_with_one_task_is_its_own() {
        let good = "{\"command\":\"c\",\"job_type\":\"j\",\"input_url\":\"gs://b/o\"}";
        let bad = "{\"command\":\"c\",\"job_type\":\"j\",\"input_url\":\"SECRET\"}";
        let items = body(&format!("{bad},{good}")).expect("a body");
        let why = items[0].task.as_ref().err().expect("a rejection");
        assert_eq!(why.kind, RejectKind::BadUrl);
        assert!(!why.detail.contains("SECRET"), "{}", why.detail);
        assert!(items[1].task.is_ok());
    }
}
