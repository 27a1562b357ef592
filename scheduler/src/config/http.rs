//! The `http` section: where metrics, health and status are served, and who may post tasks.
//!
//! Nothing here is opened or read; a file of tokens is read when a request needs it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::path;
use crate::located::reading::{Field, Section};

/// What is served over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpConfig {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Who may post tasks; `None`: nobody.
    pub tasks: Option<TasksConfig>,
}

/// Posted tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TasksConfig {
    /// A file of bearer tokens.
    pub tokens_file: Option<PathBuf>,
    /// Ask the API server whose a bearer token is.
    pub token_review: Option<TokenReviewConfig>,
    /// What one sender may ask for.
    pub limits: TaskLimits,
}

/// Tokens of Kubernetes service accounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenReviewConfig {
    /// The audience that a token must be for.
    pub audience: String,
    /// The accounts that may post tasks, as `NAMESPACE/NAME`; not empty.
    pub accounts: Vec<String>,
}

/// What a request may be like, and how many may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskLimits {
    /// The longest body, in bytes.
    pub body_bytes: usize,
    /// The most tasks in one request.
    pub tasks: usize,
    /// The most requests a second, of all senders together.
    pub requests_per_second: u32,
}

impl Default for TaskLimits {
    fn default() -> Self {
        // A signed URL is about 1 KB: a thousand of them fit well.
        Self { body_bytes: 4 << 20, tasks: 1_000, requests_per_second: 10 }
    }
}

impl HttpConfig {
    /// Reads the section.
    pub(super) fn read(field: &Field<'_>, base: &Path) -> Option<Self> {
        let section = field.section()?;
        let listen: Option<SocketAddr> =
            section.required("listen", "write an address such as 127.0.0.1:8090").and_then(|f| {
                f.read(|text| {
                    text.parse().map_err(|_| {
                        let hint = "write one such as 127.0.0.1:8090".to_owned();
                        (format!("`{text}` is not an address"), hint)
                    })
                })
            });
        let tasks = section.set("tasks").and_then(|f| tasks(&f, base, listen));
        section.finish();
        Some(Self { listen: listen?, tasks })
    }
}

fn tasks(field: &Field<'_>, base: &Path, listen: Option<SocketAddr>) -> Option<TasksConfig> {
    let section = field.section()?;
    let tasks = TasksConfig {
        tokens_file: section.set("tokens_file").and_then(|f| path(&f, base)),
        token_review: section.set("token_review").and_then(|f| token_review(&f)),
        limits: section.set("limits").and_then(|f| limits(&f)).unwrap_or_default(),
    };
    let wants_token = section.set("tokens_file").is_some() || section.set("token_review").is_some();
    if listen.is_some_and(|at| !at.ip().is_loopback()) && !wants_token {
        let problem = "would let everyone who reaches http.listen create Jobs";
        field.fault(problem, "listen on 127.0.0.1, or set tokens_file or token_review");
    }
    section.finish();
    Some(tasks)
}

fn token_review(field: &Field<'_>) -> Option<TokenReviewConfig> {
    let section = field.section()?;
    let audience = section.get("audience").and_then(|f| f.text()).unwrap_or("katabatch");
    let hint = "list who may post tasks, as NAMESPACE/NAME";
    let accounts = section.required("accounts", hint).map_or(Vec::new(), |f| {
        let accounts: Vec<String> = f.one_or_more().iter().filter_map(account).collect();
        if accounts.is_empty() {
            f.fault("is empty", hint);
        }
        accounts
    });
    let audience = audience.to_owned();
    section.finish();
    Some(TokenReviewConfig { audience, accounts })
}

fn account(field: &Field<'_>) -> Option<String> {
    field.read(|text| match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => Ok(text.to_owned()),
        _ => Err((format!("`{text}` is no account"), "write NAMESPACE/NAME".to_owned())),
    })
}

fn limits(field: &Field<'_>) -> Option<TaskLimits> {
    let section = field.section()?;
    let whole = |section: &Section<'_>, key, most, default: usize| {
        section.get(key).and_then(|f| f.whole(1..=most)).unwrap_or(default)
    };
    let default = TaskLimits::default();
    let limits = TaskLimits {
        body_bytes: whole(&section, "body_bytes", 64 << 20, default.body_bytes),
        tasks: whole(&section, "tasks", 5_000, default.tasks),
        requests_per_second: section
            .get("requests_per_second")
            .and_then(|f| f.whole(1..=10_000_u32))
            .unwrap_or(default.requests_per_second),
    };
    section.finish();
    Some(limits)
}

#[cfg(test)]
mod tests {
    use super::super::{Config, ConfigErrors};
    use super::*;

    fn parse(http: &str) -> Result<Option<HttpConfig>, ConfigErrors> {
        let text = format!("apiVersion: katabatch.dev/v1alpha1\nhttp: {http}\n");
        Config::parse(Path::new("/etc/k.yaml"), &text).map(|config| config.http)
    }

    #[test]
    fn nobody_may_post_tasks_unless_it_is_configured() {
        let http = parse("{listen: '0.0.0.0:80'}").expect("a configuration");
        assert_eq!(http.and_then(|http| http.tasks), None);
        let http = parse("{listen: '127.0.0.1:80', tasks: {}}").expect("a configuration");
        let expect = TasksConfig {
            tokens_file: None,
            token_review: None,
            limits: TaskLimits { body_bytes: 4_194_304, tasks: 1_000, requests_per_second: 10 },
        };
        assert_eq!(http.and_then(|http| http.tasks), Some(expect));
    }

    #[test]
    fn elsewhere_than_on_loopback_a_token_is_needed() {
        for (http, expect) in [
            ("{listen: '0.0.0.0:80', tasks: {}}", "would let everyone"),
            ("{listen: '[::]:80', tasks: {limits: {tasks: 1}}}", "would let everyone"),
            ("{listen: '[::]:80', tasks: {token_review: {}}}", "token_review: has no `accounts`"),
            ("{listen: '[::]:80', tasks: {token_review: {accounts: [x]}}}", "is no account"),
            ("{listen: '[::]:80', tasks: {token_review: {accounts: []}}}", "is empty"),
        ] {
            let errors = parse(http).expect_err("a problem").to_string();
            assert!(errors.contains(expect), "{http}: {errors}");
        }
        for good in [
            "{listen: '[::1]:80', tasks: {}}",
            "{listen: '[::]:80', tasks: {tokens_file: t}}",
            "{listen: '[::]:80', tasks: {token_review: {accounts: bots/bot}}}",
        ] {
            assert!(parse(good).is_ok(), "{good}");
        }
    }
}
