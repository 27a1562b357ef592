//! What operators tell a scheduler beside its flags: pauses, and backends that are lost for good.
//!
//! Commands write, the scheduler only reads; each control is a record of its own, so that commands
//! need no agreement among themselves. Pure: where the records are kept is the
//! [`Records`](crate::records::Records)' own. Every change leaves an audit entry beside it.

pub mod audit;

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::domain::glob::Glob;
use crate::domain::name::BackendName;
use crate::domain::task::WorkloadKey;

const PAUSE: &str = "pause.";
const LOST: &str = "lost.";
const CLEARED: &str = "cleared.";

/// What a pause or a cancel is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "name")]
pub enum Target {
    /// Everything that this scheduler does.
    All,
    /// The tasks of a project's job types.
    Project(Glob),
    /// The tasks of job types.
    JobType(Glob),
    /// The tasks of a command.
    Command(Glob),
    /// All that goes to a backend.
    Backend(Glob),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("everything"),
            Self::Project(name) => write!(f, "project {name}"),
            Self::JobType(name) => write!(f, "job type {name}"),
            Self::Command(name) => write!(f, "command {name}"),
            Self::Backend(name) => write!(f, "backend {name}"),
        }
    }
}

impl Target {
    /// Whether it is about the tasks of this workload, wherever they go.
    pub fn is_about(&self, key: &WorkloadKey, project: Option<&str>) -> bool {
        match self {
            Self::All => true,
            Self::Project(glob) => project.is_some_and(|project| glob.matches(project)),
            Self::JobType(glob) => glob.matches(key.job_type.as_str()),
            Self::Command(glob) => glob.matches(key.command.as_str()),
            Self::Backend(_) => false,
        }
    }

    /// The key of the pause of this target: the same target is one pause, however often it is told.
    fn key(&self) -> String {
        let digest = Sha256::digest(format!("{self:?}"));
        format!("{PAUSE}{}", hex::encode(&digest[..8]))
    }
}

/// Who did it, why, when, and until when it counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The person, as far as the machine knows.
    pub who: String,
    /// In their own words.
    pub why: String,
    /// When.
    pub at: Timestamp,
    /// When it ends by itself; `None`: when somebody ends it.
    pub until: Option<Timestamp>,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "by {} at {}", self.who, self.at)?;
        match self.until {
            Some(until) => write!(f, " until {until}: {}", self.why),
            None => write!(f, ": {}", self.why),
        }
    }
}

/// A pause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Of what.
    pub target: Target,
    /// By whom and why.
    #[serde(flatten)]
    pub mark: Mark,
}

impl Pause {
    /// The record of this pause.
    ///
    /// # Errors
    /// None is expected.
    pub fn record(&self) -> Result<(String, Option<String>), String> {
        let text = serde_json::to_string(self).map_err(|error| error.to_string())?;
        Ok((self.target.key(), Some(text)))
    }
}

/// The change that ends the pause of a target.
pub fn resumed(target: &Target) -> (String, Option<String>) {
    (target.key(), None)
}

/// The changes that declare a backend lost, or with `None` found.
///
/// # Errors
/// None is expected.
pub fn lost(
    backend: &BackendName,
    mark: Option<&Mark>,
) -> Result<Vec<(String, Option<String>)>, String> {
    let text = mark.map(serde_json::to_string).transpose().map_err(|error| error.to_string())?;
    Ok(vec![(format!("{LOST}{backend}"), text), (format!("{CLEARED}{backend}"), None)])
}

/// The change that says that nothing ran any more on a lost backend at `at`: it may be declared
/// found.
pub fn cleared(backend: &BackendName, at: Timestamp) -> (String, Option<String>) {
    (format!("{CLEARED}{backend}"), Some(at.to_string()))
}

/// All controls in force.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Controls {
    /// Pauses, in the order of their targets.
    pub pauses: Vec<Pause>,
    /// Backends declared lost.
    pub lost: BTreeMap<String, Mark>,
    /// When the scheduler found that nothing runs any more on a lost backend.
    pub cleared: BTreeMap<String, Timestamp>,
}

impl Controls {
    /// Reads them from records; those whose time is over by `now` are left out.
    ///
    /// # Errors
    /// A record can't be read: what it says is not known, so that nothing may go on as if it said
    /// nothing.
    pub fn read(records: &BTreeMap<String, String>, now: Timestamp) -> Result<Self, String> {
        let mut controls = Self::default();
        let bad = |key: &str, error: serde_json::Error| {
            format!(
                "the control `{key}` can't be read: {error}; remove it, or use the version that wrote it"
            )
        };
        let over = |mark: &Mark| mark.until.is_some_and(|until| until <= now);
        for (key, text) in records {
            if key.starts_with(PAUSE) {
                let pause: Pause = serde_json::from_str(text).map_err(|error| bad(key, error))?;
                if !over(&pause.mark) {
                    controls.pauses.push(pause);
                }
            } else if let Some(backend) = key.strip_prefix(LOST) {
                let mark = serde_json::from_str(text).map_err(|error| bad(key, error))?;
                controls.lost.insert(backend.to_owned(), mark);
            } else if let Some(backend) = key.strip_prefix(CLEARED)
                && let Ok(at) = text.parse()
            {
                controls.cleared.insert(backend.to_owned(), at);
            }
        }
        controls.pauses.sort_by(|a, b| a.target.cmp(&b.target));
        Ok(controls)
    }

    /// The pause of tasks of this workload, if there is one.
    pub fn paused(&self, key: &WorkloadKey, project: Option<&str>) -> Option<&Pause> {
        self.pauses.iter().find(|pause| pause.target.is_about(key, project))
    }

    /// The pause of this backend, if there is one.
    pub fn backend_paused(&self, backend: &BackendName) -> Option<&Pause> {
        let about = |target: &Target| match target {
            Target::Backend(glob) => glob.matches(backend.as_str()),
            _ => false,
        };
        self.pauses.iter().find(|pause| about(&pause.target))
    }

    /// Whether this backend was declared lost, by whom and why.
    pub fn lost(&self, backend: &BackendName) -> Option<&Mark> {
        self.lost.get(backend.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::apply;

    fn pause(target: Target, until: Option<i64>) -> Pause {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let mark = Mark {
            who: "ann".into(),
            why: "bad \"build\"".into(),
            at: at(0),
            until: until.map(at),
        };
        Pause { target, mark }
    }

    fn controls(records: &BTreeMap<String, String>, second: i64) -> Controls {
        Controls::read(records, Timestamp::from_second(second).expect("a time")).expect("read")
    }

    #[test]
    fn a_pause_is_about_what_it_names_until_it_ends() {
        let mut records = BTreeMap::new();
        for pause in [
            pause(Target::JobType(Glob::new("libfuzzer_*")), Some(100)),
            pause(Target::Project(Glob::new("zlib")), None),
            pause(Target::Backend(Glob::new("gke")), None),
        ] {
            apply(&mut records, &[pause.record().expect("a record")]);
        }
        let key = |job: &str| WorkloadKey { command: "fuzz".into(), job_type: job.into() };
        let by = |second, job: &str, project: Option<&str>| {
            let found = controls(&records, second);
            found.paused(&key(job), project).map(|pause| pause.target.to_string())
        };
        assert_eq!(by(1, "libfuzzer_x", None).as_deref(), Some("job type libfuzzer_*"));
        assert_eq!(by(100, "libfuzzer_x", None), None);
        assert_eq!(by(1, "afl_x", Some("zlib")).as_deref(), Some("project zlib"));
        assert_eq!(by(1, "afl_x", Some("curl")), None);
        assert!(controls(&records, 1).backend_paused(&"gke".into()).is_some());
        assert!(controls(&records, 1).backend_paused(&"batch".into()).is_none());
        apply(&mut records, &[resumed(&Target::Project(Glob::new("zlib")))]);
        assert_eq!(controls(&records, 1).pauses.len(), 2);
    }

    #[test]
    fn the_same_target_is_paused_once_and_a_lost_backend_is_known_until_it_is_found() {
        let mut records = BTreeMap::new();
        for until in [Some(10), None] {
            apply(&mut records, &[pause(Target::All, until).record().expect("a record")]);
        }
        assert_eq!(records.len(), 1);
        assert!(
            controls(&records, 20)
                .paused(&WorkloadKey { command: "x".into(), job_type: "y".into() }, None)
                .is_some()
        );
        let mark = pause(Target::All, None).mark;
        apply(&mut records, &lost(&"gke".into(), Some(&mark)).expect("a record"));
        apply(&mut records, &[cleared(&"gke".into(), mark.at)]);
        assert_eq!(controls(&records, 1).cleared.get("gke"), Some(&mark.at));
        assert_eq!(controls(&records, 1).lost(&"gke".into()), Some(&mark));
        apply(&mut records, &lost(&"gke".into(), None).expect("a record"));
        assert!(records.len() == 1 && controls(&records, 1).lost(&"gke".into()).is_none());
    }

    #[test]
    fn a_damaged_control_is_an_error_and_not_an_absent_one() {
        let records = [("pause.x".to_owned(), "{".to_owned())].into();
        assert!(Controls::read(&records, Timestamp::UNIX_EPOCH).is_err());
    }
}
