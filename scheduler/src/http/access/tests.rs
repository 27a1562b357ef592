//! Who is let in, and who is not.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

const TOKEN: &str = "0123456789abcdef";

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let pair = |(key, value): &(&'static str, &str)| {
        (header::HeaderName::from_static(key), value.parse().expect("a value"))
    };
    pairs.iter().map(pair).collect()
}

fn bearer(token: &str) -> HeaderMap {
    headers(&[("authorization", &format!("Bearer {token}"))])
}

fn file(text: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("tokens");
    std::fs::write(&path, text).expect("written");
    let mode = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(&path, mode).expect("a mode");
    (dir, path)
}

#[derive(Default)]
struct Reviewer(AtomicUsize);

#[async_trait]
impl TokenReviewer for Reviewer {
    async fn review(&self, token: &str) -> Result<Option<String>, String> {
        self.0.fetch_add(1, Ordering::Relaxed);
        match token {
            "bot" => Ok(Some("farm/bot".to_owned())),
            "other" => Ok(Some("farm/other".to_owned())),
            "down" => Err("no answer".to_owned()),
            _ => Ok(None),
        }
    }
}

#[tokio::test]
async fn without_tokens_a_request_must_be_addressed_to_this_machine() {
    let access = Access::new(None, None);
    for good in ["127.0.0.1:8090", "127.0.0.1", "localhost:80", "[::1]:8090", "LOCALHOST"] {
        let who = access.check(&headers(&[("host", good)])).await;
        assert_eq!(who, Ok("loopback".to_owned()), "{good}");
    }
    for bad in ["evil.test:8090", "localhost.evil.test", "10.0.0.1:8090", ""] {
        let problem = access.check(&headers(&[("host", bad)])).await.expect_err("a problem");
        assert_eq!(problem.status, 403, "{bad}");
    }
}

#[tokio::test]
async fn a_token_of_the_file_names_its_holder_and_any_other_is_refused() {
    let (_dir, path) = file(&format!("# bots\nbot {TOKEN}\n\nother fedcba9876543210\n"), 0o600);
    let access = Access::new(Some(path), None);
    assert_eq!(access.check(&bearer(TOKEN)).await, Ok("bot".to_owned()));
    let basic = headers(&[("authorization", &format!("Basic {TOKEN}"))]);
    let local = headers(&[("host", "localhost")]);
    for bad in [bearer("0123456789abcdeg"), bearer(""), bearer("bot"), basic, local] {
        let problem = access.check(&bad).await.expect_err("a problem");
        assert_eq!(problem.status, 401, "{bad:?}");
        assert!(!problem.detail.contains("0123"), "{}", problem.detail);
    }
}

#[tokio::test]
async fn a_file_of_tokens_that_others_can_read_or_that_is_none_is_not_used() {
    for (text, mode, expect) in [
        (format!("bot {TOKEN}"), 0o644, "has mode 644; set 600"),
        (format!("bot {TOKEN}"), 0o620, "has mode 620"),
        (TOKEN.to_owned(), 0o600, ":1: no token"),
        ("bot short".to_owned(), 0o600, "shorter than 16"),
    ] {
        let (_dir, path) = file(&text, mode);
        let why = read_tokens(&path).await.expect_err("a problem");
        assert!(why.contains(expect) && !why.contains(TOKEN), "{why}");
        let problem = Access::new(Some(path), None).check(&bearer(TOKEN)).await;
        assert_eq!(problem.expect_err("a problem").status, 503);
    }
    let (_dir, path) = file(&format!("bot {TOKEN}"), 0o640);
    assert!(read_tokens(&path).await.is_ok(), "a Kubernetes Secret is readable by the group");
}

#[tokio::test(start_paused = true)]
async fn an_account_is_asked_about_once_a_minute_and_must_be_listed() {
    let reviewer = Arc::new(Reviewer::default());
    let access = Access::new(None, Some((reviewer.clone(), vec!["farm/bot".to_owned()])));
    for _ in 0..3 {
        assert_eq!(access.check(&bearer("bot")).await, Ok("farm/bot".to_owned()));
    }
    assert_eq!(reviewer.0.load(Ordering::Relaxed), 1);
    tokio::time::advance(KEPT).await;
    assert!(access.check(&bearer("bot")).await.is_ok());
    assert_eq!(reviewer.0.load(Ordering::Relaxed), 2);
    for (token, status) in [("other", 403), ("nobody", 401), ("down", 503)] {
        assert_eq!(access.check(&bearer(token)).await.expect_err("refused").status, status);
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_made_up_tokens_does_not_reach_the_api_server() {
    let reviewer = Arc::new(Reviewer::default());
    let access = Access::new(None, Some((reviewer.clone(), vec!["farm/bot".to_owned()])));
    let mut statuses = Vec::new();
    for n in 0..20 {
        let problem = access.check(&bearer(&format!("made up {n}"))).await.expect_err("refused");
        statuses.push(problem.status.as_u16());
    }
    assert_eq!(reviewer.0.load(Ordering::Relaxed), 5);
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 15);
}
