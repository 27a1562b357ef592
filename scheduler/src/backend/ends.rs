//! Several who hear of ends, as one.

use std::sync::Arc;

use super::EndObserver;
use crate::domain::end::End;
use crate::domain::name::{Attempt, TaskHash};

/// One who remembers, and others who are told what it is told.
pub struct Hearers {
    remembers: Arc<dyn EndObserver>,
    others: Vec<Arc<dyn EndObserver>>,
}

impl Hearers {
    /// What was told before is `remembers`' to know.
    pub fn new(remembers: Arc<dyn EndObserver>, others: Vec<Arc<dyn EndObserver>>) -> Arc<Self> {
        Arc::new(Self { remembers, others })
    }
}

impl EndObserver for Hearers {
    fn knows(&self, task: &TaskHash, attempt: Attempt) -> bool {
        self.remembers.knows(task, attempt)
    }

    fn ended(&self, end: End) {
        for other in &self.others {
            other.ended(end.clone());
        }
        self.remembers.ended(end);
    }
}
