//! A plan: which tasks a job is to have, written durably before the job is asked for. Pure.
//!
//! **The rule.** A job's id belongs to one plan, and while the plan is open its candidates are asked
//! for under that id alone. Batch makes at most one job of an id, whoever asks and however late, and
//! each job says in its own body which tasks it has. So:
//!
//! - The job is there (an answer, a 409, a GET): its tasks are those that *it* names, and are
//!   scheduled. Candidates that it does not name are certainly in no job, and are free.
//! - The job is not there and its candidates come again: it is asked for under the same id, with
//!   those of them that are in hand. With the same ones as before the request id is the same too;
//!   with fewer it is another, since a request id stands for one body. What an earlier request may
//!   still do is harmless: only one of them can make the job, and the job says which one did.
//! - Every request for it was refused for certain: it can't come to be, and all candidates are free.
//! - Nobody comes for it, and ten minutes after it was last asked for it is still not there: no
//!   request can be under way any more (Google's front ends give up after at most a few minutes, and
//!   a request is only sent within seconds of a durable write that only the leader can make). The
//!   plan is dropped; should its tasks ever come, they are free.
//!
//! A candidate becomes free in memory first; the record that still names it is changed in the same
//! write, all or nothing, that makes the next plan with it. So no crash leaves a task in two plans
//! that can both become jobs.
//!
//! A confirmed plan's record stays until a list shows its job. From then on the list itself will
//! tell the next process, which reads all jobs of a day and more before it creates any: closed plans
//! need no index of their own. The records are bounded: when too many plans are not settled, no new
//! one is made.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::domain::name::{BackendName, TaskHash, label_value};

/// The namespace of request ids: random, fixed.
const REQUESTS: Uuid = Uuid::from_u128(0x5d0c_1f2e_77a9_4b0b_a6f4_20c9_3be8_1d65);

/// `j-<uuid>`: a job's id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobId(String);

impl JobId {
    /// The id of these random bytes.
    pub fn random(bytes: [u8; 16]) -> Self {
        Self(format!("j-{}", uuid::Builder::from_random_bytes(bytes).into_uuid()))
    }

    /// An id that is there already: as upstream names jobs, or not ours to plan with.
    pub fn parse(text: &str) -> Option<Self> {
        let uuid = text.strip_prefix("j-")?;
        Uuid::try_parse(uuid).ok().filter(|parsed| parsed.to_string() == uuid)?;
        Some(Self(text.to_owned()))
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The first 96 bits of a task's hash: enough to tell tasks apart, and short where many are kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark([u8; 12]);

impl Mark {
    /// The mark of a task.
    pub fn of(hash: &TaskHash) -> Self {
        let mut mark = [0; 12];
        mark.copy_from_slice(&hash.bytes()[..12]);
        Self(mark)
    }
}

impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// Where a job is to be, and who may be in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// `projects/…/locations/…`.
    pub parent: String,
    /// The candidates.
    pub members: BTreeSet<Mark>,
    /// How often the record was written for its own sake: a write that changes nothing would not
    /// tell whether this process may write.
    pub rewritten: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    v: u32,
    parent: String,
    /// The marks, one after the other.
    members: String,
    #[serde(default)]
    rewritten: u32,
}

impl Plan {
    /// As a record.
    pub fn encode(&self) -> String {
        let members = self.members.iter().map(|mark| hex::encode(mark.0)).collect();
        let (parent, rewritten) = (self.parent.clone(), self.rewritten);
        let record = Record { v: 1, parent, members, rewritten };
        serde_json::to_string(&record).unwrap_or_default()
    }

    /// Of a record.
    pub fn decode(text: &str) -> Option<Self> {
        let record: Record = serde_json::from_str(text).ok()?;
        let bytes = hex::decode(&record.members).ok()?;
        let marks = bytes.chunks(12).map(|chunk| <[u8; 12]>::try_from(chunk).map(Mark));
        let members: BTreeSet<Mark> = marks.collect::<Result<_, _>>().ok()?;
        let plan = Self { parent: record.parent, members, rewritten: record.rewritten };
        (record.v == 1 && !plan.members.is_empty()).then_some(plan)
    }

    /// The id of a request for a job with this body: the same for the same one.
    pub fn request(id: &JobId, body: &[u8]) -> Uuid {
        Uuid::new_v5(&REQUESTS, &[id.0.as_bytes(), body].concat())
    }
}

/// The keys of one backend's records.
#[derive(Debug, Clone)]
pub struct Keys {
    prefix: String,
}

impl Keys {
    /// The keys of this backend.
    pub fn of(backend: &BackendName) -> Self {
        Self { prefix: format!("batch.{}.", label_value(backend.as_str())) }
    }

    /// The key of a plan.
    pub fn plan(&self, id: &JobId) -> String {
        format!("{}{id}", self.prefix)
    }

    /// The key of the parents that ever had a plan.
    pub fn parents(&self) -> String {
        format!("{}parents", self.prefix)
    }

    /// Whose plan a key is.
    pub fn id(&self, key: &str) -> Option<JobId> {
        key.strip_prefix(&self.prefix).and_then(JobId::parse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::name::Subject;

    fn mark(n: u32) -> Mark {
        Mark::of(&TaskHash::of(&"fuzz".into(), &"j".into(), &Subject::Message(n.to_string())))
    }

    #[test]
    fn a_plan_comes_back_from_its_record_and_nothing_else_does() {
        let parent = "projects/1/locations/r".into();
        let plan = Plan { parent, members: (0..999).map(mark).collect(), rewritten: 1 };
        let text = plan.encode();
        assert!(text.len() < 25_000, "{} bytes", text.len());
        assert_eq!(Plan::decode(&text), Some(plan));
        for bad in [
            "",
            "{}",
            r#"{"v":2,"parent":"p","members":""}"#,
            r#"{"v":1,"parent":"p","members":"00"}"#,
        ] {
            assert_eq!(Plan::decode(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_request_id_stands_for_one_job_and_one_body() {
        let (a, b) = (JobId::random([1; 16]), JobId::random([2; 16]));
        assert_eq!(Plan::request(&a, b"1"), Plan::request(&a, b"1"));
        assert_ne!(Plan::request(&a, b"1"), Plan::request(&a, b"2"));
        assert_ne!(Plan::request(&a, b"1"), Plan::request(&b, b"1"));
    }

    #[test]
    fn keys_are_those_of_a_config_map_and_one_backends_own() {
        let (id, odd) = (JobId::random([7; 16]), Keys::of(&"a b/c".into()));
        let key = odd.plan(&id);
        assert!(key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)), "{key}");
        assert_eq!(odd.id(&key), Some(id.clone()));
        assert_eq!(Keys::of(&"a".into()).id(&key), None);
        assert_eq!(odd.id(&odd.parents()), None);
    }
}
