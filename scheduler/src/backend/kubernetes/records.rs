//! The scheduler's records in a ConfigMap of the home namespace.
//!
//! Every write has the resourceVersion that was read as its precondition. While this process leads,
//! a conflict is its own (the janitor writes its watermark beside) or the last write of a
//! predecessor, so that it is read and written again; a process that does not lead writes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;

use super::api::{ApiError, ClusterApi, ConfigMapFacts};
use super::leader::Leader;
use crate::leadership::Leadership as _;
use crate::records::{RecordError, Records, apply};

/// How often a write that met another one is made again.
const TRIES: usize = 8;

/// One ConfigMap's data as records.
pub struct ConfigMapRecords {
    api: Arc<dyn ClusterApi>,
    name: String,
    /// Who must lead for a write; `None`: anybody may write, as commands of operators do.
    leader: Option<Arc<Leader>>,
}

impl ConfigMapRecords {
    /// The records of a scheduler, which its leader alone reads and writes.
    pub(super) fn led_by(leader: Arc<Leader>, api: Arc<dyn ClusterApi>, scheduler: &str) -> Self {
        Self { api, name: format!("katabatch-{scheduler}"), leader: Some(leader) }
    }

    /// What operators tell a scheduler (pauses and the like), in a ConfigMap of its own.
    pub fn of_operators(api: Arc<dyn ClusterApi>, scheduler: &str) -> Self {
        Self { api, name: format!("katabatch-{scheduler}-controls"), leader: None }
    }

    fn leads(&self) -> bool {
        self.leader.as_ref().is_none_or(|leader| leader.may_create())
    }

    async fn read(&self) -> Result<ConfigMapFacts, RecordError> {
        let found = self.api.get_config_map(&self.name).await.map_err(|e| self.fault(&e))?;
        Ok(found.unwrap_or_default())
    }

    fn fault(&self, error: &ApiError) -> RecordError {
        let text = format!("ConfigMap {}: {error}", self.name);
        match error.status {
            Some(400 | 403 | 404 | 405 | 413 | 422) => RecordError::Refused(text),
            _ => RecordError::Unavailable(text),
        }
    }
}

#[async_trait]
impl Records for ConfigMapRecords {
    async fn all(&self) -> Result<BTreeMap<String, String>, RecordError> {
        let facts = self.read().await?;
        if !self.leads() {
            return Err(RecordError::Unavailable("this process does not lead".to_owned()));
        }
        Ok(facts.data)
    }

    async fn write(&self, changes: &[(String, Option<String>)]) -> Result<(), RecordError> {
        let mut last = String::new();
        for _ in 0..TRIES {
            let mut facts = self.read().await?;
            let before = facts.data.clone();
            apply(&mut facts.data, changes);
            if facts.data == before {
                return Ok(());
            }
            if !self.leads() {
                return Err(RecordError::Overtaken("this process does not lead".to_owned()));
            }
            match self.api.put_config_map(&self.name, &facts).await {
                Ok(_) => return Ok(()),
                // Written, or deleted, by somebody in between.
                Err(error) if error.is_conflict() || error.is_not_found() => {
                    last = error.to_string();
                }
                Err(error) => return Err(self.fault(&error)),
            }
        }
        Err(RecordError::Unavailable(format!(
            "ConfigMap {} changes all the time: {last}",
            self.name
        )))
    }
}
