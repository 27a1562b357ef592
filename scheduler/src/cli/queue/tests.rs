//! What `katabatch queue` prints and answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::{CommandFactory, Parser};
use tempfile::TempDir;

use super::*;
use crate::clock::SystemClock;
use crate::domain::outcome::{RejectKind, Rejection};
use crate::queue::Queue;
use crate::queue::spool::record::NewMessage;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: QueueArgs,
}

fn spool() -> (TempDir, Spool) {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("spool.sqlite");
    let spool = Spool::open(&path, "spool".into(), Arc::new(SystemClock)).expect("a spool");
    (folder, spool)
}

async fn filled() -> (TempDir, Spool) {
    let (folder, spool) = spool();
    let argument = "https://storage.googleapis.com/b/o?X-Goog-Signature=SECRET".to_owned();
    for id in ["a", "b"] {
        let attributes = [("command", "fuzz"), ("job", id)].map(|(k, v)| (k.into(), v.into()));
        let mut attributes = BTreeMap::from(attributes);
        attributes.insert("argument".into(), argument.clone());
        attributes.insert("note".into(), format!("from {argument}"));
        let message = NewMessage { id: Some(id.into()), attributes, ..NewMessage::default() };
        spool.put(vec![message]).await.expect("put");
    }
    (folder, spool)
}

/// Exit code, stdout and stderr of `katabatch queue WORDS`.
async fn queue(spool: &Spool, words: &[&str]) -> (u8, String, String) {
    let words = std::iter::once(&"queue").chain(words);
    let cli = Cli::try_parse_from(words).unwrap_or_else(|e| panic!("{e}"));
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let exit = run(spool, &cli.args.command, &mut out, &mut err).await;
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (exit.code(), text(out), text(err))
}

async fn reject_one(spool: &Spool, kind: RejectKind) {
    let minute = std::time::Duration::from_secs(60);
    let got = spool.lease(1, minute, std::time::Duration::ZERO).await.expect("a lease");
    let rejection = Rejection::new(kind, "the reason");
    spool.quarantine(&got[0].lease, &rejection).await.expect("quarantined");
}

#[test]
fn the_arguments_are_sound() {
    Cli::command().debug_assert();
    for wrong in [
        &["queue", "quarantine", "retry", "--all", "--reason", "bad_url"][..],
        &["queue", "quarantine", "retry", "--reason", "no_such_reason"],
        &["queue", "quarantine", "list", "--since", "yesterday"],
        &["queue", "put"],
    ] {
        assert!(Cli::try_parse_from(wrong).is_err(), "{wrong:?}");
    }
}

#[tokio::test]
async fn credentials_are_listed_only_when_revealed() {
    let (_folder, spool) = filled().await;
    for format in ["table", "json", "yaml"] {
        let (code, out, err) = queue(&spool, &["list", "-o", format]).await;
        assert_eq!((code, err.as_str()), (0, ""));
        assert!(out.contains("storage.googleapis.com/b/o"), "{out}");
        assert!(!out.contains("SECRET"), "{out}");
        let (_, out, _) = queue(&spool, &["list", "-o", format, "--reveal"]).await;
        assert!(out.contains("SECRET"), "{out}");
    }
}

#[test]
fn no_spelling_of_an_argument_shows_its_signature() {
    for argument in [
        "https://h/o?sig=SECRET",
        "h/o?sig=SECRET",
        "ftp://h/o?SECRET",
        "o&X-Goog-Signature=SECRET",
        "https://me:SECRET@h/o",
        "https://h/\u{0}?SECRET",
        "https://h/o#SECRET",
    ] {
        let attributes = BTreeMap::from([("argument".to_owned(), argument.to_owned())]);
        let shown = show::shown(attributes, false);
        assert!(!format!("{shown:?}").contains("SECRET"), "{shown:?}");
    }
}

#[tokio::test]
async fn a_list_that_is_cut_says_so_on_stderr() {
    let (_folder, spool) = filled().await;
    let (_, out, err) = queue(&spool, &["list", "-n", "1"]).await;
    assert_eq!(out.lines().count(), 2, "{out}");
    assert!(err.contains("first 1"), "{err}");
    let (_, out, err) = queue(&spool, &["list", "-n", "0"]).await;
    assert_eq!((out.lines().count(), err.as_str()), (3, ""));
}

#[tokio::test]
async fn a_put_ends_by_what_became_of_its_lines() {
    let (folder, spool) = spool();
    let file = folder.path().join("tasks.jsonl");
    let path = file.display().to_string();
    let good = r#"{"id":1,"command":"fuzz","job":"a","argument":"gs://b/o"}"#;
    std::fs::write(&file, good).expect("written");
    let put = |word: &'static str| {
        let (spool, path) = (&spool, path.clone());
        async move { queue(spool, &["put", word, &path]).await }
    };
    assert_eq!(put("-f").await, (0, String::new(), "1 put\n".into()));
    assert_eq!(put("--file").await, (0, String::new(), "0 put, 1 there already\n".into()));
    std::fs::write(&file, format!("{}\nSECRET", good.replace('1', "2"))).expect("written");
    let (code, out, err) = put("-f").await;
    assert_eq!((code, out.as_str()), (3, ""));
    assert!(err.starts_with("line 2: is not a JSON object"), "{err}");
    assert!(err.ends_with("1 put, 1 bad lines left out\n") && !err.contains("SECRET"), "{err}");
    let (code, _, err) = queue(&spool, &["put", "-f", "/no/such/file"]).await;
    assert_eq!(code, 1);
    assert!(err.starts_with("error: /no/such/file") && err.contains("\nhint: "), "{err}");
}

#[tokio::test]
async fn bad_lines_beyond_the_first_hundred_are_counted_only() {
    let (_folder, spool) = spool();
    let mut err = Vec::new();
    let exit = put::put_from(&spool, &mut "x\n".repeat(1_000).as_bytes(), 0, &mut err).await;
    let err = String::from_utf8(err).expect("text");
    assert_eq!((exit, err.lines().count()), (Exit::Partly, 102));
    assert!(err.ends_with("0 put, 1000 bad lines left out\n"), "{err}");
}

#[tokio::test]
async fn quarantined_tasks_go_back_only_as_selected() {
    let (_folder, spool) = filled().await;
    reject_one(&spool, RejectKind::BadUrl).await;
    reject_one(&spool, RejectKind::DeadUrl).await;
    let (code, out, _) =
        queue(&spool, &["quarantine", "list", "--reason", "bad_url", "-o", "json"]).await;
    let rows: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, rows.as_array().map(Vec::len)), (0, Some(1)));
    assert_eq!((&rows[0]["id"], &rows[0]["detail"]), (&"a".into(), &"the reason".into()));

    let (code, _, err) = queue(&spool, &["quarantine", "retry"]).await;
    assert!(code == 1 && err.contains("hint: narrow it"), "{err}");
    let (_, _, err) = queue(&spool, &["quarantine", "retry", "--until", "1h"]).await;
    assert_eq!(err, "0 put back\n");
    let (_, _, err) = queue(&spool, &["quarantine", "retry", "--reason", "dead_url"]).await;
    assert_eq!(err, "1 put back\n");
    let (code, _, err) = queue(&spool, &["quarantine", "retry", "--all"]).await;
    assert_eq!((code, err.as_str()), (0, "1 put back\n"));
    let (code, out, err) = queue(&spool, &["quarantine", "list"]).await;
    assert_eq!((code, out.as_str(), err.as_str()), (0, "", "no tasks in quarantine\n"));
}

#[test]
fn a_time_is_a_date_or_how_long_ago() {
    let now: Timestamp = "2026-03-01T12:00:00Z".parse().expect("a time");
    for (text, expect) in [
        ("2026-03-01T00:00:00Z", "2026-03-01T00:00:00Z"),
        ("2026-03-01T00:00:00+01:00", "2026-02-28T23:00:00Z"),
        ("2h", "2026-03-01T10:00:00Z"),
        ("30m", "2026-03-01T11:30:00Z"),
        ("36h", "2026-02-28T00:00:00Z"),
    ] {
        let when: When = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(when.time(now).to_string(), expect, "{text}");
    }
    for text in ["", "yesterday", "-2h", "2026-03-01", "12:00"] {
        assert!(text.parse::<When>().is_err(), "{text}");
    }
}
