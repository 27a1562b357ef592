//! Who may post tasks: this machine alone, or whoever has a token.
//!
//! Without tokens the endpoint listens on loopback only (the configuration sees to it), and a
//! request must be addressed to this machine too, so that no web page can have a browser send it
//! under another name. With tokens each request needs one, wherever it comes from. No token is ever
//! logged, kept or compared as it is, but its SHA-256: digests of equal length, compared whole.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use axum::http::{HeaderMap, StatusCode, header};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::problem::Problem;
use super::rate::Rate;

/// How long the answer about a token is used.
const KEPT: Duration = Duration::from_secs(60);
/// How long it is used that a token is no good: whoever is just being let in waits no longer.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// So many answers are kept at most.
const MOST: usize = 1_000;
/// So many tokens a second are asked about, whoever sends them.
const REVIEWS_PER_SECOND: u32 = 5;

type Sha = [u8; 32];

/// Asks whose a token is.
#[async_trait]
pub trait TokenReviewer: Send + Sync {
    /// The account as `NAMESPACE/NAME`; `None`: it is no good token for us.
    ///
    /// # Errors
    /// Why that can't be told now.
    async fn review(&self, token: &str) -> Result<Option<String>, String>;
}

/// Who may post tasks.
pub struct Access {
    tokens: Option<PathBuf>,
    reviewer: Option<(Arc<dyn TokenReviewer>, Vec<String>)>,
    reviewed: Mutex<BTreeMap<Sha, (Instant, Option<String>)>>,
    rate: Mutex<Rate>,
}

impl Access {
    /// The holders of the tokens in a file, and these accounts by a reviewer's word. Neither: this
    /// machine.
    pub fn new(
        tokens: Option<PathBuf>,
        reviewer: Option<(Arc<dyn TokenReviewer>, Vec<String>)>,
    ) -> Self {
        let rate = Mutex::new(Rate::new(REVIEWS_PER_SECOND, Instant::now()));
        Self { tokens, reviewer, reviewed: Mutex::default(), rate }
    }

    /// Who sent the request, for the log.
    ///
    /// # Errors
    /// Why it is refused.
    pub async fn check(&self, headers: &HeaderMap) -> Result<String, Problem> {
        if self.tokens.is_none() && self.reviewer.is_none() {
            return for_this_machine(headers);
        }
        let missing = || Problem::new(StatusCode::UNAUTHORIZED, "a bearer token is needed");
        let token = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let (scheme, token) = token.and_then(|text| text.split_once(' ')).ok_or_else(missing)?;
        let token = token.trim();
        if !scheme.eq_ignore_ascii_case("bearer") || token.is_empty() {
            return Err(missing());
        }
        if let Some(file) = &self.tokens
            && let Some(name) = find(file, token).await.map_err(|why| unreadable(&why))?
        {
            return Ok(name);
        }
        self.reviewed(token).await
    }

    async fn reviewed(&self, token: &str) -> Result<String, Problem> {
        let unknown = || Problem::new(StatusCode::UNAUTHORIZED, "the bearer token is not known");
        let Some((reviewer, accounts)) = &self.reviewer else { return Err(unknown()) };
        let account = match self.remembered(token) {
            Some(known) => known,
            None => {
                let now = Instant::now();
                let taken = self.rate.lock().unwrap_or_else(PoisonError::into_inner).take(now);
                taken.map_err(|wait| {
                    let text = "too many tokens that are new here";
                    Problem::new(StatusCode::TOO_MANY_REQUESTS, text).retry_after(wait)
                })?;
                let account = reviewer.review(token).await.map_err(|why| {
                    tracing::warn!("a token could not be reviewed: {why}");
                    let text = "whose the token is can't be asked now";
                    let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, text);
                    problem.retry_after(Duration::from_secs(5))
                })?;
                self.remember(token, account.clone());
                account
            }
        };
        let account = account.ok_or_else(unknown)?;
        if accounts.contains(&account) {
            return Ok(account);
        }
        let text = format!("the account {account} is not one that may post tasks");
        Err(Problem::new(StatusCode::FORBIDDEN, text))
    }

    fn remembered(&self, token: &str) -> Option<Option<String>> {
        let reviewed = self.reviewed.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, account) = reviewed.get(&digest(token))?;
        (*until > Instant::now()).then(|| account.clone())
    }

    fn remember(&self, token: &str, account: Option<String>) {
        let now = Instant::now();
        let mut reviewed = self.reviewed.lock().unwrap_or_else(PoisonError::into_inner);
        if reviewed.len() >= MOST {
            reviewed.retain(|_, (until, _)| *until > now);
        }
        if reviewed.len() < MOST {
            let kept = if account.is_some() { KEPT } else { REFUSED_FOR };
            reviewed.insert(digest(token), (now + kept, account));
        }
    }
}

fn digest(token: &str) -> Sha {
    Sha256::digest(token).into()
}

/// Whether two digests are the same, in the same time wherever they differ.
fn same(one: &Sha, other: &Sha) -> bool {
    one.iter().zip(other).fold(0_u8, |differ, (a, b)| differ | (a ^ b)) == 0
}

fn unreadable(why: &str) -> Problem {
    tracing::error!("http.tasks.tokens_file: {why}");
    let text = "the tokens can't be read; the scheduler's log says why";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, text).retry_after(Duration::from_secs(30))
}

/// The name that goes with a token in the file, which is read anew each time, so that a token can
/// be changed at once.
async fn find(file: &Path, token: &str) -> Result<Option<String>, String> {
    let wanted = digest(token);
    let mut found = None;
    for (name, digest) in read_tokens(file).await? {
        if same(&digest, &wanted) {
            found = Some(name);
        }
    }
    Ok(found)
}

/// The names and tokens of a file: `NAME TOKEN` a line; empty lines and those with `#` first are
/// skipped. Others must not be able to read it; the group may, as Kubernetes' Secrets have it.
///
/// # Errors
/// What is wrong with it; never a token.
pub async fn read_tokens(file: &Path) -> Result<Vec<(String, Sha)>, String> {
    let shown = file.display();
    let metadata = tokio::fs::metadata(file).await.map_err(|e| format!("{shown}: {e}"))?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o037 != 0 {
        return Err(format!("{shown} has mode {mode:o}; set 600, so that no other can read it"));
    }
    let text = tokio::fs::read_to_string(file).await.map_err(|e| format!("{shown}: {e}"))?;
    let mut tokens = Vec::new();
    for (at, line) in text.lines().map(str::trim).enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let bad = |what| format!("{shown}:{}: {what}; write NAME TOKEN", at + 1);
        let (name, token) = line.split_once(char::is_whitespace).ok_or_else(|| bad("no token"))?;
        if token.trim().len() < 16 {
            return Err(bad("the token is shorter than 16 characters"));
        }
        tokens.push((name.to_owned(), digest(token.trim())));
    }
    Ok(tokens)
}

/// A request that is addressed to a loopback address, as one that was typed on this machine is.
fn for_this_machine(headers: &HeaderMap) -> Result<String, Problem> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
    let name = name.map_or(host, |(name, _)| name).trim_matches(['[', ']']);
    let address = name.parse::<std::net::IpAddr>();
    if name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|at| at.is_loopback()) {
        return Ok("loopback".to_owned());
    }
    let text = "without a token a request must be addressed to localhost";
    Err(Problem::new(StatusCode::FORBIDDEN, text))
}

#[cfg(test)]
mod tests;
