//! Counts of the calls of an API server, by verb and answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use http::Method;

use super::client::KubeApi;

/// A call's verb, as in Kubernetes' roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// One object is made.
    Create,
    /// One object is replaced.
    Update,
    /// One object is deleted.
    Delete,
    /// One object is read.
    Get,
    /// A page of a list is read.
    List,
    /// A watch is opened.
    Watch,
}

impl Verb {
    /// The verb of a request. Lists have a `limit`, watches say so.
    pub fn of(method: &Method, path: &str) -> Self {
        match *method {
            Method::POST => Self::Create,
            Method::PUT => Self::Update,
            Method::DELETE => Self::Delete,
            _ if path.contains("?watch=1") => Self::Watch,
            _ if path.contains("?limit=") => Self::List,
            _ => Self::Get,
        }
    }

    /// The label in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
        }
    }
}

/// Counts, readable while calls are made.
#[derive(Debug, Default)]
pub struct Calls(Mutex<BTreeMap<(Verb, Option<u16>), u64>>);

impl Calls {
    /// Counts one; no status: no answer came.
    pub fn count(&self, verb: Verb, status: Option<u16>) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((verb, status)).or_default() += 1;
    }

    /// What was counted so far.
    pub fn read(&self) -> BTreeMap<(Verb, Option<u16>), u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl KubeApi {
    /// The count of its calls.
    pub fn calls(&self) -> Arc<Calls> {
        Arc::clone(&self.calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_apart_by_verb_and_answer() {
        let (calls, jobs) = (Calls::default(), "/apis/batch/v1/namespaces/n/jobs");
        let of = |method, rest: &str| Verb::of(&method, &format!("{jobs}{rest}"));
        calls.count(of(Method::POST, "?timeout=3000ms"), Some(201));
        calls.count(of(Method::POST, "?timeout=3000ms"), Some(201));
        calls.count(of(Method::GET, "?limit=500&x"), None);
        calls.count(of(Method::GET, "?watch=1&x"), Some(200));
        calls.count(of(Method::GET, "/name"), Some(404));
        let expect = [
            ((Verb::Create, Some(201)), 2),
            ((Verb::Get, Some(404)), 1),
            ((Verb::List, None), 1),
            ((Verb::Watch, Some(200)), 1),
        ];
        assert_eq!(calls.read(), expect.into());
    }
}
