//! What can be read off a running backend beside its room.

use std::sync::Arc;

use crate::backend::kubernetes::calls::{Calls, Verb};
use crate::backend::kubernetes::successive::Successive;
use crate::status::ApiCalls;

/// One backend's gauges; a backend that is no cluster has none.
#[derive(Default)]
pub struct Gauges(Option<(Arc<Successive>, Arc<Calls>)>);

impl Gauges {
    /// Those of a cluster's namespace, and the calls of its API, over all terms in it.
    pub(super) fn of(kubernetes: Arc<Successive>, calls: Arc<Calls>) -> Self {
        Self(Some((kubernetes, calls)))
    }

    /// How many creates may be under way.
    pub fn window(&self) -> Option<usize> {
        self.0.as_ref().map(|(kubernetes, _)| kubernetes.current().window())
    }

    /// The calls of its API so far.
    pub fn api_calls(&self) -> Vec<ApiCalls> {
        let Some((_, calls)) = &self.0 else { return Vec::new() };
        let row = |((verb, code), count): ((Verb, Option<u16>), u64)| ApiCalls {
            verb: verb.label().to_owned(),
            code: code.map_or_else(|| "lost".to_owned(), |code| code.to_string()),
            count,
        };
        calls.read().into_iter().map(row).collect()
    }
}
